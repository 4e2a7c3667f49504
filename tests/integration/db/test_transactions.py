"""What a transaction promises beside its walls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Literal, cast
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import QueuePool, text

from app.db.driver import driver_cursor
from app.db.engine import Database, DatabaseUnavailable, Reach, Transaction, make_engine
from tests.service import platform_database


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    engine = make_engine(platform_database(), pool_size=1, max_overflow=0)
    yield Database(engine)
    await engine.dispose()


Kind = Literal["mapped", "bare"]


def opened(database: Database, kind: Kind) -> AbstractAsyncContextManager[Transaction]:
    return database.bare(Reach()) if kind == "bare" else database.transaction(Reach())


@pytest.mark.parametrize("kind", ["mapped", "bare"])
async def test_a_transaction_that_postgres_has_given_up_does_not_end_as_if_it_had_committed(
    database: Database, kind: Kind
) -> None:
    async def pass_over() -> None:
        async with opened(database, kind) as session, driver_cursor(session) as cursor:
            with suppress(psycopg.errors.DivisionByZero):
                await cursor.execute("select 1 / 0")

    with pytest.raises(RuntimeError, match="passed over"):
        await pass_over()

    async with database.unscoped() as session:
        assert await session.scalar(text("select 1")) == 1


async def test_the_driver_and_the_session_are_in_one_transaction(database: Database) -> None:
    async with database.unscoped() as session:
        number = await session.scalar(text("select txid_current()"))
        async with driver_cursor(session) as cursor:
            row = await (await cursor.execute("select txid_current()")).fetchone()

    assert row == (number,)


async def works_of(session: Transaction) -> str:
    async with driver_cursor(session) as cursor:
        row = await (await cursor.execute("select current_setting('stackroom.works', true)")).fetchone()
    return str(row[0]) if row else ""


@pytest.mark.parametrize("kind", ["mapped", "bare"])
async def test_what_fails_is_rolled_back_and_the_connection_goes_on(database: Database, kind: Kind) -> None:
    owner = psycopg.connect(database.engine.url.render_as_string(hide_password=False).replace("+psycopg", ""))
    owner.execute("create table marks (n int)")
    owner.execute("grant all on marks to stackroom_app")
    owner.commit()

    async def fail() -> None:
        async with opened(database, kind) as session, driver_cursor(session) as cursor:
            await cursor.execute("insert into marks values (1)")
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    async with opened(database, kind) as session, driver_cursor(session) as cursor:
        await cursor.execute("insert into marks values (2)")

    assert owner.execute("select n from marks").fetchall() == [(2,)]
    owner.close()


async def test_a_bare_transaction_leaves_neither_reach_nor_role_behind(database: Database) -> None:
    work = uuid4()
    async with database.bare(Reach.of(work)) as session:
        assert await works_of(session) == f"{{{work}}}"

    async with database.owner_connection() as connection:
        found = await connection.execute(text("select current_setting('stackroom.works', true), current_user"))
        works, user = found.one()

    assert works in ("", None)
    assert user != "stackroom_app"


async def test_connections_that_died_in_the_pool_are_passed_over(database: Database) -> None:
    async with database.bare(Reach()) as session, driver_cursor(session) as cursor:
        row = await (await cursor.execute("select pg_backend_pid()")).fetchone()
    url = database.engine.url.render_as_string(hide_password=False).replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("select pg_terminate_backend(%s, 5000)", row)

    async with database.bare(Reach()) as session:
        assert await works_of(session) == "{}"


async def test_a_server_that_is_away_is_told_as_such() -> None:
    engine = make_engine("postgresql://nobody@127.0.0.1:1/nothing")
    with pytest.raises(DatabaseUnavailable):
        async with Database(engine, second_wall=True).bare(Reach()):
            raise AssertionError


async def test_a_bare_transaction_that_is_cut_off_gives_its_connection_back(database: Database) -> None:
    async def wait() -> None:
        async with database.bare(Reach()) as session, driver_cursor(session) as cursor:
            await cursor.execute("select pg_sleep(60)")

    await works_of_nobody(database)
    waiting = asyncio.create_task(wait())
    await asyncio.sleep(0.3)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert cast("QueuePool", database.engine.pool).checkedout() == 0
    await works_of_nobody(database)


async def works_of_nobody(database: Database) -> None:
    async with database.bare(Reach()) as session:
        assert await works_of(session) == "{}"
