"""Which login may take the role without ownership: a server of its own, since roles belong to the whole server."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from app.assembly import Assembly, open_assembly, readiness
from app.db.embedded import EmbeddedServer
from app.db.engine import Database, Reach, make_engine
from app.db.migrating import migrate
from app.db.reading import ReadPool
from app.settings import Settings
from tests.service import url_of

ROLE = "stackroom_app"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="stackroom-roles-") as directory:
        server = EmbeddedServer(Path(directory))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def superuser(server: EmbeddedServer) -> Iterator[psycopg.Connection]:
    """On a server where nobody has made our role yet."""
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        yield connection
        for (name,) in connection.execute("select datname from pg_database where datname like 'roles_%'").fetchall():
            connection.execute(f"drop database {name} with (force)".encode())
        connection.execute(f"drop role if exists {ROLE}".encode())


def database_of(superuser: psycopg.Connection, server: EmbeddedServer, attributes: str) -> str:
    """An empty database with the extension, and a login that owns it."""
    name = f"roles_{uuid4().hex[:8]}"
    superuser.execute(f"create role {name} login {attributes}".encode())
    superuser.execute(f"create database {name} owner {name}".encode())
    parts = conninfo_to_dict(server.dsn)
    with psycopg.connect(url_of({**parts, "dbname": name}), autocommit=True) as connection:
        connection.execute("create extension vector")
    return url_of({**parts, "dbname": name, "user": name})


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Database]:
    database = Database(make_engine(url))
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def assembled(url: str, data_dir: Path) -> AsyncIterator[Assembly]:
    settings = Settings(database_url=url, data_dir=data_dir, model_dir=data_dir)
    async with open_assembly(settings, role="api") as assembly:
        yield assembly


async def who(database: Database) -> set[str]:
    """As whom transactions of both kinds run."""
    reads = ReadPool(
        database.engine.url.render_as_string(hide_password=False),
        database,
        max_size=1,
        wait_s=5,
        timeout_s=5,
        prepares=False,
    )
    async with database.transaction(Reach()) as session:
        found = {str((await (await session.connection()).exec_driver_sql("select current_user")).scalar_one())}
    async with reads.transaction(Reach()) as connection:
        row = await (await connection.execute("select current_user")).fetchone()
        found |= {row[0]} if row else set()
    await reads.close()
    return found


async def test_a_login_that_may_make_roles_puts_the_wall_up(
    superuser: psycopg.Connection, server: EmbeddedServer
) -> None:
    url = database_of(superuser, server, "createrole")

    migrate(url, without=["pgvector"])

    async with opened(url) as database:
        assert await database.has_second_wall() is True
        assert await who(database) == {ROLE}


async def test_a_login_that_may_make_no_roles_works_and_readiness_says_that_the_wall_is_down(
    superuser: psycopg.Connection, server: EmbeddedServer, tmp_path: Path
) -> None:
    url = database_of(superuser, server, "nocreaterole")

    migrate(url)

    async with assembled(url, tmp_path) as assembly:
        reasons, notes = await readiness(assembly)
        assert reasons == []
        assert notes[0] == "row-level security is off: the role cannot be taken"
        assert await who(assembly.database) == {conninfo_to_dict(url)["user"]}


async def test_a_role_of_that_name_that_the_login_may_not_take_is_no_wall(
    superuser: psycopg.Connection, server: EmbeddedServer
) -> None:
    url = database_of(superuser, server, "nocreaterole")
    superuser.execute(f"create role {ROLE} nologin".encode())

    migrate(url)

    async with opened(url) as database:
        assert await database.has_second_wall() is False
        assert await who(database) == {conninfo_to_dict(url)["user"]}


async def test_a_process_that_started_before_the_migration_has_the_wall_after_it(
    superuser: psycopg.Connection, server: EmbeddedServer, tmp_path: Path
) -> None:
    url = database_of(superuser, server, "createrole")

    async with assembled(url, tmp_path) as assembly:
        before, _ = await readiness(assembly)
        migrate(url)

        assert "stackroom migrate" in before[0]
        assert await readiness(assembly) == ([], [])
        assert await who(assembly.database) == {ROLE}
