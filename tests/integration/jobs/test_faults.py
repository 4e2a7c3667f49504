"""Workers that die, databases that go away, and what is left of the jobs."""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.db.embedded import EmbeddedServer
from app.db.engine import Database, make_engine
from app.db.migrating import migrate
from app.jobs.queue import enqueue
from app.jobs.running import JobRunner, Pace
from tests.service import REPOSITORY, platform_database

PACE = Pace(concurrency=2, heartbeat_s=0.3, stalled_s=1.0)
Task = Any


@pytest.fixture
def url() -> str:
    return platform_database()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    made = Database(make_engine(url))
    yield made
    await made.close()


async def put(database: Database, n: str = "1", *, queue: str = "ingest") -> None:
    async with database.unscoped() as session:
        await enqueue(session, "task", args={"n": n}, lock=f"l{n}", queueing_lock=f"q{n}", queue=queue)


@asynccontextmanager
async def running(url: str, database: Database, task: Task) -> AsyncIterator[JobRunner]:
    stop = asyncio.Event()
    runner = JobRunner(url, database, {"task": task}, PACE)
    work = asyncio.create_task(runner.run(stop))
    try:
        yield runner
    finally:
        stop.set()
        await asyncio.wait_for(work, 30)


@contextmanager
def process(url: str) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "tests.integration.jobs.worker_process", url]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE) as started:
        try:
            yield started
        finally:
            started.kill()


async def begun(worker: "subprocess.Popen[bytes]") -> None:
    assert worker.stdout is not None
    assert await asyncio.wait_for(asyncio.to_thread(worker.stdout.readline), 30) == b"1\n"


async def jobs(url: str) -> list[tuple[str, int | None]]:
    """(status, worker) of every job."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        rows = await connection.execute("select status::text, worker_id from procrastinate_jobs order by id")
        return await rows.fetchall()


async def until_empty(url: str) -> None:
    async with asyncio.timeout(20):
        while await jobs(url):
            await asyncio.sleep(0.05)


async def test_the_job_of_a_killed_process_is_done_by_another(url: str, database: Database) -> None:
    done = asyncio.Event()

    async def task(n: str) -> None:
        done.set()

    await put(database)
    with process(url) as worker:
        await begun(worker)
        worker.kill()
        worker.wait(10)
        async with running(url, database, task):
            await asyncio.wait_for(done.wait(), 20)
            await until_empty(url)


async def test_a_process_that_is_told_to_stop_hands_its_job_back_and_ends(url: str, database: Database) -> None:
    await put(database)
    with process(url) as worker:
        await begun(worker)
        worker.terminate()
        assert await asyncio.wait_for(asyncio.to_thread(worker.wait), 7) == 0

    assert await jobs(url) == [("todo", None)]


async def test_a_long_job_of_a_living_worker_is_left_alone(url: str, database: Database) -> None:
    runs: list[str] = []

    async def task(n: str) -> None:
        runs.append(n)
        await asyncio.sleep(3 * PACE.stalled_s)

    await put(database)
    async with running(url, database, task), running(url, database, task):
        await asyncio.sleep(0.5)
        await until_empty(url)

    assert runs == ["1"]


async def test_a_job_that_another_recovery_has_just_given_to_a_living_worker_stays_there(
    url: str, database: Database
) -> None:
    await put(database)
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(
            "with dead as (insert into procrastinate_workers (last_heartbeat) values (now() - interval '1 hour')"
            " returning id) update procrastinate_jobs set status = 'doing', worker_id = (select id from dead)"
        )
        await other.execute("insert into procrastinate_workers default values")
        await other.commit()
        await other.execute("update procrastinate_jobs set worker_id = (select max(id) from procrastinate_workers)")
        runner = JobRunner(url, database, {}, PACE)
        async with runner.opened():
            recovery = asyncio.create_task(runner.recover_stalled())
            await asyncio.sleep(0.5)  # it has seen the job of the dead worker, and waits for the row or passes it by
            await other.commit()
            await recovery

    assert [status for status, _ in await jobs(url)] == ["doing"]


async def test_a_job_whose_connection_is_cut_comes_to_an_end(url: str, database: Database) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def task(n: str) -> None:
        started.set()
        await go_on.wait()

    await put(database)
    async with running(url, database, task):
        await asyncio.wait_for(started.wait(), 10)
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
            await other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and pid <> pg_backend_pid()"
            )
        go_on.set()
        await until_empty(url)


async def test_a_crashed_job_whose_successor_cannot_be_written_is_not_lost(url: str, database: Database) -> None:
    """The service's own connections are all in use, those of the queue are not."""
    tried = asyncio.Event()

    async def task(n: str) -> None:
        tried.set()
        raise RuntimeError("a fault of ours")

    await put(database)
    away = Database(make_engine("postgresql://nobody@127.0.0.1:1/nothing"))
    async with running(url, away, task):
        await asyncio.wait_for(tried.wait(), 10)
        await asyncio.sleep(0.5)
    await away.close()

    assert [status for status, _ in await jobs(url)] == ["todo"]


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="stackroom-jobs-") as directory:
        server = EmbeddedServer(Path(directory))
        migrate(server.start())
        yield server
        server.stop()


async def test_a_database_that_goes_away_and_comes_back_is_survived(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.running.RECONNECT_S", 0.2)
    database = Database(make_engine(server.dsn))
    began, go_on, second = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def task(n: str) -> None:
        if n == "2":
            second.set()
            return
        began.set()
        await go_on.wait()

    await put(database)
    async with running(server.dsn, database, task):
        await asyncio.wait_for(began.wait(), 10)
        await asyncio.to_thread(server.stop)
        go_on.set()
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start)
        await put_when_it_is_back(database)
        await asyncio.wait_for(second.wait(), 20)
        await until_empty(server.dsn)
    await database.close()


async def put_when_it_is_back(database: Database) -> None:
    from app.db.engine import DatabaseUnavailable

    async with asyncio.timeout(10):
        while True:
            try:
                await put(database, "2")
            except DatabaseUnavailable:
                await asyncio.sleep(0.1)
            else:
                return
