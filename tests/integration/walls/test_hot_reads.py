"""Hot reads over bare connections keep the rules of every other transaction."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import LiteralString
from uuid import UUID

import psycopg
import pytest

from app.db.engine import Database, DatabaseUnavailable, Reach, make_engine
from app.db.reading import ReadPool
from tests.service import platform_database


@pytest.fixture(scope="module")
def url() -> str:
    return platform_database()


@asynccontextmanager
async def reading(url: str, *, timeout_s: float = 5) -> AsyncIterator[ReadPool]:
    database = Database(make_engine(url))
    reads = ReadPool(url, database, max_size=1, wait_s=2, timeout_s=timeout_s, prepares=True)
    try:
        yield reads
    finally:
        await reads.close()
        await database.close()


async def write(reads: ReadPool) -> None:
    async with reads.transaction(Reach()) as connection:
        await connection.execute("delete from works")


async def sleep(reads: ReadPool) -> None:
    async with reads.transaction(Reach()) as connection:
        await connection.execute("select pg_sleep(20)")


async def fail(reads: ReadPool) -> None:
    async with reads.transaction(Reach()) as connection:
        await connection.execute("select 1")
        raise LookupError


async def who(reads: ReadPool) -> str:
    async with reads.transaction(Reach()) as connection:
        row = await (await connection.execute("select current_user")).fetchone()
    assert row is not None
    return str(row[0])


SELF = "select current_user::text, current_setting('stackroom.works', true), current_setting('transaction_read_only')"


async def test_a_fetch_is_a_walled_transaction_of_which_nothing_stays(url: str) -> None:
    work = UUID(int=7)
    async with reading(url) as reads:
        for _ in range(4):  # the later ones are prepared
            assert await reads.fetch(Reach.of(work), SELF, {}) == [("stackroom_app", f"{{{work}}}", "on")]
        async with reads._connection() as connection:
            row = await (await connection.execute(SELF)).fetchone()

    assert row is not None
    assert row[0] != "stackroom_app"
    assert row[1:] == ("", "off")


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("delete from works", psycopg.errors.ReadOnlySqlTransaction),
        ("select pg_sleep(20)", DatabaseUnavailable),
        ("select 1 / 0", psycopg.errors.DivisionByZero),
        ("delete from users; select 1", psycopg.errors.SyntaxError),
    ],
)
async def test_a_fetch_that_fails_leaves_nothing_behind(
    url: str, statement: LiteralString, error: type[Exception]
) -> None:
    async with reading(url, timeout_s=0.2) as reads:
        with pytest.raises(error):
            await reads.fetch(Reach.of(UUID(int=7)), statement, {})

        assert await reads.fetch(Reach(), SELF, {}) == [("stackroom_app", "{}", "on")]
        assert await who(reads) == "stackroom_app"


async def test_a_fetch_that_is_given_up_leaves_nothing_behind(url: str) -> None:
    async with reading(url) as reads:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await reads.fetch(Reach.of(UUID(int=7)), "select pg_sleep(20)", {})

        assert await reads.fetch(Reach(), SELF, {}) == [("stackroom_app", "{}", "on")]


async def test_a_read_writes_nothing(url: str) -> None:
    async with reading(url) as reads:
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            await write(reads)
        assert await who(reads) == "stackroom_app"


async def test_a_statement_that_takes_too_long_is_an_unavailable_database(url: str) -> None:
    async with reading(url, timeout_s=0.2) as reads:
        with pytest.raises(DatabaseUnavailable):
            await sleep(reads)
        assert await who(reads) == "stackroom_app"


async def test_a_failure_of_the_caller_leaves_the_connection_usable(url: str) -> None:
    async with reading(url) as reads:
        with pytest.raises(LookupError):
            await fail(reads)
        assert await who(reads) == "stackroom_app"


async def test_looking_up_a_key_does_not_wait_for_ever_behind_a_lock(url: str) -> None:
    async with reading(url, timeout_s=0.3) as reads:
        with psycopg.connect(url) as other:
            other.execute("lock table api_keys in access exclusive mode")
            with pytest.raises(DatabaseUnavailable):
                await reads.fetch_one("select * from stackroom_find_api_key(%(key_hash)b)", {"key_hash": b"0" * 32})
        assert await who(reads) == "stackroom_app"


async def test_reads_go_on_after_the_server_has_cut_every_connection(url: str) -> None:
    async with reading(url) as reads:
        await who(reads)
        with psycopg.connect(url, autocommit=True) as other:
            other.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'stackroom reads'"
            )
        with pytest.raises(DatabaseUnavailable):
            await who(reads)
        assert await who(reads) == "stackroom_app"
