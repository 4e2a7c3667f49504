"""The second wall of the pgvector store: row-level security."""

from uuid import uuid4

import psycopg
import pytest

from app.vector_stores.contract import VectorStoreMisconfigured
from app.vector_stores.pgvector import PgvectorSettings, PgvectorStore
from app.vector_stores.pgvector.connections import Connections
from app.vector_stores.testing.base import chunks_of, random_vectors
from tests.contract.vector_stores.pgvector_data import SPACE, clustered, fill, look
from tests.postgres import as_owner

ALL_CHUNKS = "SELECT count(*) FROM pgvector_chunks"
INSERT = "INSERT INTO pgvector_chunks VALUES (%s, 1, gen_random_uuid(), 1, 0, gen_random_uuid(), '[1,0]')"


def a_store(dsn: str, role: str | None = "stackroom_app") -> PgvectorStore:
    return PgvectorStore(PgvectorSettings(), own_dsn=dsn, role=role)


def connections(dsn: str, *, pool_size: int = 1) -> Connections:
    return Connections(dsn, direct_dsn=dsn, role="stackroom_app", pool_size=pool_size, pool_wait_s=5)


def seen_by(connection: psycopg.Connection, works: str | None) -> int:
    with connection.transaction():
        connection.execute("SET LOCAL ROLE stackroom_app")
        if works is not None:
            connection.execute("SELECT set_config('stackroom.works', %s, true)", (works,))
        row = connection.execute(ALL_CHUNKS).fetchone()
        assert row is not None
        return int(row[0])


async def test_the_role_sees_its_works_rows_and_without_a_work_nothing(own_pgvector_dsn: str) -> None:
    store, ours, theirs = a_store(own_pgvector_dsn), uuid4(), uuid4()
    await fill(store, ours, clustered(3))
    await fill(store, theirs, clustered(5))
    await store.close()

    with as_owner(own_pgvector_dsn) as connection:
        assert seen_by(connection, f"{{{ours}}}") == 3
        assert seen_by(connection, f"{{{ours},{theirs}}}") == 8
        assert seen_by(connection, f"{{{uuid4()}}}") == 0
        assert seen_by(connection, "") == 0
        assert seen_by(connection, None) == 0


async def test_the_role_cannot_write_into_another_work(own_pgvector_dsn: str) -> None:
    ours, theirs = uuid4(), uuid4()
    open_ones = connections(own_pgvector_dsn)

    async with open_ones.transaction(ours, timeout_s=5) as connection:
        await connection.execute(INSERT, (ours,))
    with pytest.raises(VectorStoreMisconfigured) as refusal:
        async with open_ones.transaction(ours, timeout_s=5) as connection:
            await connection.execute(INSERT, (theirs,))

    assert isinstance(refusal.value.__cause__, psycopg.errors.InsufficientPrivilege)
    assert look(own_pgvector_dsn, ALL_CHUNKS) == [(1,)]
    await open_ones.close()


async def test_a_statement_that_forgot_to_filter_still_sees_one_work(own_pgvector_dsn: str) -> None:
    store, ours = a_store(own_pgvector_dsn), uuid4()
    await fill(store, ours, clustered(4))
    await fill(store, uuid4(), clustered(6))
    await store.close()
    open_ones = connections(own_pgvector_dsn)

    async with open_ones.transaction(ours, timeout_s=5) as connection:
        chunks = await (await connection.execute(ALL_CHUNKS)).fetchone()
        spaces = await (await connection.execute("SELECT count(*) FROM pgvector_spaces")).fetchone()

    assert (chunks, spaces) == ((4,), (1,))
    await open_ones.close()


async def test_nothing_of_a_transaction_is_left_on_its_connection(own_pgvector_dsn: str) -> None:
    open_ones = connections(own_pgvector_dsn)
    async with open_ones.transaction(uuid4(), timeout_s=5):
        pass
    pool = await open_ones._open()

    async with pool.connection() as connection:
        row = await (
            await connection.execute(
                "SELECT current_setting('role'), coalesce(current_setting('stackroom.works', true), ''),"
                " current_setting('plan_cache_mode'), current_setting('statement_timeout')"
            )
        ).fetchone()

    assert row == ("none", "", "auto", "0")
    await open_ones.close()


@pytest.mark.parametrize("role", ["no_such_role", None])
async def test_without_the_role_the_store_works_and_says_that_the_wall_is_down(
    own_pgvector_dsn: str, role: str | None
) -> None:
    store, work = a_store(own_pgvector_dsn, role), uuid4()

    await store.write_chunks(work, uuid4(), SPACE, 1, chunks_of(random_vectors(3, dims=SPACE.dims)))

    assert await store.count(work, SPACE) == 3
    assert (await store.is_available()).facts["row_level_security"] is False
    await store.close()


async def test_with_the_role_the_wall_is_said_to_stand(own_pgvector_dsn: str) -> None:
    store = a_store(own_pgvector_dsn)

    assert (await store.is_available()).facts["row_level_security"] is True

    await store.close()


def test_the_policy_is_on_both_tables(own_pgvector_dsn: str) -> None:
    found = look(
        own_pgvector_dsn,
        "SELECT relname, relrowsecurity FROM pg_class WHERE relname IN (%s, %s) ORDER BY 1",
        "pgvector_chunks",
        "pgvector_spaces",
    )

    assert found == [("pgvector_chunks", True), ("pgvector_spaces", True)]
