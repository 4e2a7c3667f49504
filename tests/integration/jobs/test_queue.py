"""The durable queue, from our side, on a real database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import text

from app.db.engine import Database, Reach, make_engine
from app.jobs.queue import JobRetry, enqueue
from app.jobs.running import JobRunner, Pace, reclaim_all
from tests.service import platform_database

PACE = Pace(concurrency=2, heartbeat_s=0.3, stalled_s=1.0)


@pytest.fixture
def url() -> str:
    return platform_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    made = Database(make_engine(url))
    yield made
    await made.close()


async def put(database: Database, task: str, n: str, **changes: Any) -> bool:
    wanted: dict[str, Any] = {"args": {"n": n}, "lock": f"l{n}", "queueing_lock": f"q{n}", "queue": "ingest"}
    async with database.unscoped() as session:
        return await enqueue(session, task, **{**wanted, **changes})


async def put_and_change_my_mind(database: Database) -> None:
    async with database.unscoped() as session:
        await enqueue(session, "t", args={"n": "1"}, lock="l", queueing_lock="q", queue="ingest")
        raise RuntimeError("changed my mind")


@asynccontextmanager
async def running(url: str, database: Database, **tasks: Any) -> AsyncIterator[JobRunner]:
    stop = asyncio.Event()
    runner = JobRunner(url, database, tasks, PACE)
    work = asyncio.create_task(runner.run(stop))
    try:
        yield runner
    finally:
        stop.set()
        await asyncio.wait_for(work, 20)


def jobs(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select task_name, status::text, args from procrastinate_jobs order by id").fetchall()


async def test_a_job_and_the_rows_of_its_transaction_exist_together_or_not_at_all(url: str, database: Database) -> None:
    with pytest.raises(RuntimeError, match="changed my mind"):
        await put_and_change_my_mind(database)
    assert jobs(url) == []

    await put(database, "t", "1")

    assert jobs(url) == [("t", "todo", {"n": "1"})]


async def test_a_refused_duplicate_leaves_the_transaction_usable(url: str, database: Database) -> None:
    assert await put(database, "t", "1") is True
    async with database.transaction(Reach()) as session:
        again = await enqueue(session, "t", args={"n": "1"}, lock="l1", queueing_lock="q1", queue="ingest")
        still = await session.scalar(text("select 1"))

    assert (again, still) == (False, 1)
    assert len(jobs(url)) == 1


async def test_a_delete_does_not_wait_behind_ingestion(url: str, database: Database) -> None:
    blocked, forgotten = asyncio.Event(), asyncio.Event()

    async def ingest(n: str) -> None:
        await blocked.wait()

    async def forget(n: str) -> None:
        forgotten.set()

    for n in range(5):
        await put(database, "ingest", str(n))
    async with running(url, database, ingest=ingest, forget=forget):
        await put(database, "forget", "9", queue="forget")
        await asyncio.wait_for(forgotten.wait(), 10)
        blocked.set()


async def test_jobs_of_one_lock_never_run_at_once(url: str, database: Database) -> None:
    at_once, most, done = 0, 0, asyncio.Event()
    seen: list[str] = []

    async def task(n: str) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        seen.append(n)
        if len(seen) == 4:
            done.set()

    for n in range(4):
        await put(database, "task", str(n), lock="one")
    async with running(url, database, task=task), running(url, database, task=task):
        await asyncio.wait_for(done.wait(), 20)

    assert most == 1


async def test_the_job_with_the_higher_priority_comes_first(url: str, database: Database) -> None:
    seen: list[str] = []
    done = asyncio.Event()

    async def task(n: str) -> None:
        seen.append(n)
        if len(seen) == 3:
            done.set()

    for n, priority in (("crowd 1", -1), ("crowd 2", -2), ("single", 0)):
        await put(database, "task", n, priority=priority)
    stop = asyncio.Event()
    work = asyncio.create_task(JobRunner(url, database, {"task": task}, Pace(1, 0.3, 1.0)).run(stop))
    await asyncio.wait_for(done.wait(), 10)
    stop.set()
    await asyncio.wait_for(work, 20)

    assert seen == ["single", "crowd 1", "crowd 2"]


async def test_a_retry_comes_again_after_its_delay_and_a_crash_too(
    url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.running.CRASH_DELAY_S", 0.1)
    tries: list[str] = []
    done = asyncio.Event()

    async def task(n: str) -> None:
        tries.append(n)
        if len(tries) == 1:
            raise JobRetry(0.1)
        if len(tries) == 2:
            raise RuntimeError("a fault of ours")
        done.set()

    await put(database, "task", "1")
    async with running(url, database, task=task):
        await asyncio.wait_for(done.wait(), 20)
        await asyncio.sleep(0.3)

    assert tries == ["1", "1", "1"]
    assert jobs(url) == []


async def test_a_stop_hands_the_running_job_back(url: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    started = asyncio.Event()

    async def task(n: str) -> None:
        started.set()
        await asyncio.sleep(60)

    await put(database, "task", "1")
    stop = asyncio.Event()
    monkeypatch.setattr("app.jobs.running.STOP_S", 0.2)
    work = asyncio.create_task(JobRunner(url, database, {"task": task}, PACE).run(stop))
    await asyncio.wait_for(started.wait(), 10)
    stop.set()
    await asyncio.wait_for(work, 10)

    assert [(name, status) for name, status, _ in jobs(url)] == [("task", "todo")]


async def test_jobs_of_a_dead_worker_are_put_back(url: str, database: Database) -> None:
    await put(database, "task", "1")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into procrastinate_workers (last_heartbeat) values (now() - interval '1 hour') returning id"
        )
        connection.execute(
            "update procrastinate_jobs set status = 'doing', worker_id = (select max(id) from procrastinate_workers)"
        )
    done = asyncio.Event()

    async def task(n: str) -> None:
        done.set()

    async with running(url, database, task=task):
        await asyncio.wait_for(done.wait(), 10)


async def test_a_fresh_start_takes_back_every_running_job(url: str, database: Database) -> None:
    await put(database, "task", "1")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("update procrastinate_jobs set status = 'doing'")
    await put(database, "task", "1")  # the successor waits already: it does the work

    assert await reclaim_all(url) == 1

    assert [(name, status) for name, status, _ in jobs(url)] == [("task", "todo")]
