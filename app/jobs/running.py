"""Running jobs: one worker per kind of queue, a heartbeat, and the recovery of jobs whose worker died."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import procrastinate
import psycopg
from procrastinate import exceptions
from procrastinate.jobs import DeleteJobCondition, Job, Status

from app.db.engine import Database, driver_url
from app.errors import AppError
from app.jobs.queue import FORGET, INGEST, SWEEP, JobRetry, enqueue
from app.logs import get_logger

log = get_logger()
Task = Callable[..., Awaitable[None]]
RECONNECT_S = 2.0
CRASH_DELAY_S = 10.0
STOP_S = 3.0  # what a job that is nearly done gets; the others are handed back
# Only what keeps a job's successor from being written leaves the wrapped task; the same row then waits again.
_AS_IT_IS = procrastinate.RetryStrategy(wait=int(CRASH_DELAY_S), retry_exceptions={Exception})
POLL_S = 1.0  # what no notification tells: a lock that became free, a delay that is over


@dataclass(frozen=True)
class Pace:
    """How many jobs and sweeps run at once, and how soon a dead worker is noticed (seconds)."""

    concurrency: int
    heartbeat_s: float
    stalled_s: float
    sweeps: int = 2


class JobRunner:
    """Runs the tasks of a process until it is told to stop. `dsn` must allow LISTEN (no transaction pooler)."""

    def __init__(self, dsn: str, database: Database, tasks: Mapping[str, Task], pace: Pace) -> None:
        self._database = database
        self._pace = pace
        # A few connections for statements, besides one listening connection per worker.
        connector = procrastinate.PsycopgConnector(
            conninfo=driver_url(dsn),
            min_size=1,
            max_size=4,
            kwargs={"prepare_threshold": None},
            configure=_configure,
        )
        self._app = procrastinate.App(connector=connector)
        for name, task in tasks.items():
            self._app.task(name=name, pass_context=True, retry=_AS_IT_IS)(self._wrapped(task))

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set; a database that goes away is waited for."""
        while not stop.is_set():
            try:
                async with self.opened():
                    await self._work(stop)
            except (exceptions.ConnectorException, psycopg.OperationalError, OSError) as error:
                log.warning("jobs.database_away", error=type(error).__name__)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), RECONNECT_S)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connections to the queue, closed at the end."""
        async with self._app.open_async():
            yield

    async def _work(self, stop: asyncio.Event) -> None:
        workers = [
            asyncio.create_task(self._worker([INGEST], self._pace.concurrency)),
            asyncio.create_task(self._worker([FORGET], 2)),
            asyncio.create_task(self._worker([SWEEP], self._pace.sweeps)),
        ]
        recovery = asyncio.create_task(self._recover_for_ever())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([*workers, recovery, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (recovery, stopping, *workers):
                task.cancel()
            ended = await asyncio.gather(*workers, recovery, return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, Exception):
                raise outcome

    async def _worker(self, queues: list[str], concurrency: int) -> None:
        await self._app.run_worker_async(
            queues=queues,
            name="-".join(queues),
            concurrency=concurrency,
            delete_jobs=DeleteJobCondition.ALWAYS,
            install_signal_handlers=False,
            shutdown_graceful_timeout=STOP_S,
            update_heartbeat_interval=self._pace.heartbeat_s,
            stalled_worker_timeout=self._pace.stalled_s,
            fetch_job_polling_interval=POLL_S,
        )

    def _wrapped(self, task: Task) -> Callable[..., Awaitable[None]]:
        """A job ends by succeeding, or by putting its successor into the queue first.

        The successor waits behind the same lock until this one is finished, so a retry never collides with a newer
        job of the same queueing lock: one of the two is refused, and the other does the work.
        """

        async def run(context: procrastinate.JobContext, **args: str) -> None:
            job = context.job
            try:
                await task(**args)
            except JobRetry as again:
                await self._succeed_by(job, again.delay_s)
            except asyncio.CancelledError:
                await asyncio.shield(self._succeed_by(job, 0))
                raise
            except AppError as error:
                log.warning("job.failed", task=job.task_name, code=error.code)
                await self._succeed_by(job, error.retry_after_s or CRASH_DELAY_S)
            except Exception:
                log.exception("job.crashed", task=job.task_name)
                await self._succeed_by(job, CRASH_DELAY_S)

        return run

    async def _succeed_by(self, job: Job, delay_s: float) -> None:
        async with self._database.unscoped() as session:
            await enqueue(
                session,
                job.task_name,
                args={key: str(value) for key, value in job.task_kwargs.items()},
                lock=job.lock or "",
                queueing_lock=job.queueing_lock or "",
                queue=job.queue,
                priority=job.priority,
                delay_s=delay_s,
            )

    async def _recover_for_ever(self) -> None:
        while True:
            await self.recover_stalled()
            await asyncio.sleep(self._pace.heartbeat_s)

    async def recover_stalled(self) -> int:
        """Put jobs of dead workers back into the queue; how many."""
        stalled = await self._app.job_manager.get_stalled_jobs(seconds_since_heartbeat=self._pace.stalled_s)
        number = 0
        for job in stalled:
            if job.id is not None and await _put_back(self._app, job.id, stalled_s=self._pace.stalled_s):
                number += 1
        if number:
            log.warning("jobs.recovered", jobs=number)
        return number


async def _configure(connection: psycopg.AsyncConnection[Any]) -> None:
    """Each of the queue's statements is a transaction, and need not be on disk before the next.

    A server that dies forgets at most that a job was taken or finished a moment ago: it is then run again, which ends
    the same. Jobs are put into the queue elsewhere, in transactions that are on disk before they answer.
    """
    await connection.set_autocommit(True)
    await connection.execute("set synchronous_commit = off")


async def reclaim_all(dsn: str) -> int:
    """Put every running job back: for a process that owns the database alone and has just started."""
    connector = procrastinate.PsycopgConnector(conninfo=driver_url(dsn), min_size=1, max_size=1)
    app = procrastinate.App(connector=connector)
    async with app.open_async():
        running = await app.job_manager.list_jobs_async(status=Status.DOING.value)
        return sum([await _put_back(app, job.id, stalled_s=None) for job in running if job.id is not None])


async def _put_back(app: procrastinate.App, job_id: int, *, stalled_s: float | None) -> bool:
    """Put a job back whose worker has been silent for `stalled_s` (None: any worker). False: it is not so any more.

    When a newer job of the same queueing lock waits, that one does the work and this one ends.
    """
    facts = {"job_id": job_id, "stalled_s": stalled_s}
    try:
        return bool(await app.connector.execute_query_all_async(_RETRY, **facts))
    except exceptions.UniqueViolation:
        return bool(await app.connector.execute_query_all_async(_END, **facts))


# Looked up and changed in one statement: another worker's recovery may have given the job to a living worker meanwhile.
_DEAD = """
    with dead as (
        select j.id from procrastinate_jobs j
         where j.id = %(job_id)s and j.status = 'doing'
           and (%(stalled_s)s::float is null
                or not exists (select from procrastinate_workers w
                                where w.id = j.worker_id
                                  and w.last_heartbeat >= now() - make_interval(secs => %(stalled_s)s::float)))
           for update skip locked
    )
"""
_RETRY = _DEAD + "select procrastinate_retry_job_v2(id, now(), null, null, null)::text from dead"  # noqa: S608 - constants
_END = _DEAD + "select procrastinate_finish_job_v1(id, 'succeeded', true)::text from dead"  # noqa: S608 - constants
