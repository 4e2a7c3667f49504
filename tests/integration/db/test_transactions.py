"""What a transaction promises beside its walls."""

from collections.abc import AsyncIterator
from contextlib import suppress

import psycopg
import pytest
from sqlalchemy import text

from app.db.driver import driver_cursor
from app.db.engine import Database, make_engine
from tests.service import platform_database


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    engine = make_engine(platform_database(), pool_size=1, max_overflow=0)
    yield Database(engine)
    await engine.dispose()


async def test_a_transaction_that_postgres_has_given_up_does_not_end_as_if_it_had_committed(database: Database) -> None:
    async def pass_over() -> None:
        async with database.unscoped() as session, driver_cursor(session) as cursor:
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
