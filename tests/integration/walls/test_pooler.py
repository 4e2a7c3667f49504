"""Behind a transaction pooler: nothing that a transaction sets or prepares is looked for in the next one."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from app.assembly import Assembly, open_assembly, readiness
from app.db.engine import Reach, make_engine
from app.settings import Settings
from app.tenancy.bootstrap import bootstrap
from tests.service import free_port, platform_database

KEY = "the-first-key-of-these-tests-0123456789"
CONFIGURATION = """
[databases]
pooled = host={host} dbname={database} user={user}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
server_reset_query =
ignore_startup_parameters = extra_float_digits
"""


def program() -> str | None:
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


pytestmark = pytest.mark.skipif(program() is None, reason="the program pgbouncer is not installed here")


@dataclass(frozen=True)
class Pooler:
    url: str
    direct_url: str


@pytest.fixture(scope="module")
def pooler() -> Iterator[Pooler]:
    direct_url = platform_database()
    parts = conninfo_to_dict(direct_url)
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="stackroom-pooler-") as directory:
        configuration = Path(directory) / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(host=parts["host"], database=parts["dbname"], user=parts["user"], port=port)
        )
        Path(directory).chmod(0o755)
        command = [str(program()), str(configuration)]
        if os.geteuid() == 0:  # it refuses to run as root; the owner of the server's socket may reach that
            command[1:1] = ["-u", Path(str(parts["host"])).owner()]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            pooler = Pooler(f"postgresql://{parts['user']}@127.0.0.1:{port}/pooled", direct_url)
            wait_for(pooler.url)
            yield pooler
        finally:
            process.terminate()
            process.wait(10)


def wait_for(url: str) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(url, prepare_threshold=None).close()
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def settings_of(pooler: Pooler, data_dir: Path) -> Settings:
    return Settings.model_validate(
        {"database_url": pooler.url, "database_direct_url": pooler.direct_url, "data_dir": data_dir}
    )


async def seen(assembly: Assembly, work: UUID) -> list[object]:
    """(role, Works) of one transaction of either kind, in between which other transactions use the same servers."""
    statement = "select current_user, current_setting('stackroom.works')"
    async with assembly.database.transaction(Reach.of(work)) as session:
        first = tuple((await (await session.connection()).exec_driver_sql(statement)).one())
    async with assembly.reads.transaction(Reach.of(work)) as connection:
        second = await (await connection.execute(statement)).fetchone()
    return [first, second]


async def test_many_transactions_share_few_servers_and_each_keeps_its_own_reach(pooler: Pooler, tmp_path: Path) -> None:
    works = [uuid4() for _ in range(60)]

    async with open_assembly(settings_of(pooler, tmp_path), role="api") as assembly:
        found = await asyncio.gather(*(seen(assembly, work) for work in works))

    assert found == [[("stackroom_app", f"{{{work}}}")] * 2 for work in works]


async def test_a_key_is_found_again_and_again(pooler: Pooler, tmp_path: Path) -> None:
    engine = make_engine(pooler.url, begins=True)
    await bootstrap(engine, data_dir=tmp_path, bootstrap_key=KEY)
    await engine.dispose()
    async with open_assembly(settings_of(pooler, tmp_path), role="api") as assembly:
        callers = await asyncio.gather(*(assembly.authenticator.authenticate(KEY) for _ in range(40)))

    assert len({caller.key_id for caller in callers}) == 1


async def test_it_is_ready(pooler: Pooler, tmp_path: Path) -> None:
    async with open_assembly(settings_of(pooler, tmp_path), role="api") as assembly:
        assert await readiness(assembly) == ([], [])


async def test_nothing_is_left_on_a_server_for_the_next_transaction(pooler: Pooler, tmp_path: Path) -> None:
    async with open_assembly(settings_of(pooler, tmp_path), role="api") as assembly:
        await asyncio.gather(*(seen(assembly, uuid4()) for _ in range(10)))
    with psycopg.connect(pooler.url, prepare_threshold=None) as connection:
        left = connection.execute(
            "select current_user <> session_user, nullif(current_setting('stackroom.works', true), ''),"
            " current_setting('statement_timeout'), (select count(*) from pg_prepared_statements)"
        ).fetchone()

    assert left == (False, None, "0", 0)
