"""What the pgvector store makes of a database that is away, refuses, hangs, or was never prepared."""

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import SecretStr

from app.errors import AppError
from app.vector_stores.contract import (
    Space,
    VectorStoreMisconfigured,
    VectorStoreRefused,
    VectorStoreUnavailable,
)
from app.vector_stores.pgvector import PgvectorSettings, PgvectorStore
from app.vector_stores.testing.base import a_space, chunks_of, direction
from tests.contract.vector_stores.pgvector_data import do
from tests.postgres import as_owner, dsn_of, fresh_database, server


async def ask(store: PgvectorStore) -> None:
    await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1)


async def error_of(dsn: str) -> AppError:
    return await _error(PgvectorStore(PgvectorSettings(dsn=SecretStr(dsn), pool_wait_s=1)))


async def error_in_our_own(dsn: str) -> AppError:
    return await _error(PgvectorStore(PgvectorSettings(pool_wait_s=1), own_dsn=dsn))


async def _error(store: PgvectorStore) -> AppError:
    with pytest.raises(AppError) as failure:
        await ask(store)
    await store.close()
    return failure.value


async def test_an_external_database_that_is_away_is_unavailable() -> None:
    error = await error_of("host=127.0.0.1 port=1 user=someone password=hunter2 dbname=vectors")

    assert isinstance(error, VectorStoreUnavailable)
    assert "hunter2" not in str(error)
    assert "127.0.0.1" not in str(error)


async def test_a_database_that_does_not_exist_is_misconfigured() -> None:
    assert isinstance(await error_of(dsn_of("no_such_database")), VectorStoreMisconfigured)


async def test_a_login_that_does_not_exist_is_misconfigured() -> None:
    assert isinstance(await error_of(dsn_of("postgres", user="no_such_login")), VectorStoreMisconfigured)


async def test_a_wrong_password_is_misconfigured() -> None:
    rules = Path(server().pgdata) / "pg_hba.conf"
    do(dsn_of("postgres"), "CREATE ROLE with_password LOGIN PASSWORD 'right'")
    rules.write_text("local all with_password scram-sha-256\n" + rules.read_text())
    do(dsn_of("postgres"), "SELECT pg_reload_conf()")

    error = await error_of(dsn_of("postgres", user="with_password", password="wrong"))

    assert isinstance(error, VectorStoreMisconfigured)
    assert "wrong" not in str(error)


async def test_the_services_database_without_the_extension_is_misconfigured_and_says_what_to_run() -> None:
    error = await error_in_our_own(fresh_database())

    assert isinstance(error, VectorStoreMisconfigured)
    assert "CREATE EXTENSION vector" in str(error)


async def test_the_services_database_without_our_tables_is_misconfigured() -> None:
    """The service migrates it, at its own time; a store never does."""
    dsn = fresh_database()
    do(dsn, "CREATE EXTENSION vector")

    assert isinstance(await error_in_our_own(dsn), VectorStoreMisconfigured)


async def test_no_database_at_all_is_said_when_the_store_is_built() -> None:
    with pytest.raises(VectorStoreMisconfigured):
        PgvectorStore(PgvectorSettings())


async def test_connections_that_the_server_has_cut_are_replaced_unseen(own_pgvector_dsn: str) -> None:
    store, work = PgvectorStore(PgvectorSettings(), own_dsn=own_pgvector_dsn), uuid4()
    await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))
    do(
        own_pgvector_dsn,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )

    hits = await store.query_chunks(work, a_space(), vector=direction(0), top_k=1)

    assert len(hits) == 1
    await store.close()


async def test_a_question_that_takes_too_long_is_given_up(own_pgvector_dsn: str) -> None:
    store, work = PgvectorStore(PgvectorSettings(search_timeout_s=0.3), own_dsn=own_pgvector_dsn), uuid4()
    await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))

    with as_owner(own_pgvector_dsn) as owner, owner.transaction():
        owner.execute("LOCK TABLE pgvector_chunks IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(VectorStoreUnavailable):
            await store.query_chunks(work, a_space(), vector=direction(0), top_k=1)

    assert len(await store.query_chunks(work, a_space(), vector=direction(0), top_k=1)) == 1
    await store.close()


async def test_a_pool_that_is_used_up_says_so_after_a_short_wait(own_pgvector_dsn: str) -> None:
    settings = PgvectorSettings(pool_size=1, pool_wait_s=0.2)
    store, work = PgvectorStore(settings, own_dsn=own_pgvector_dsn), uuid4()
    await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))

    with as_owner(own_pgvector_dsn) as owner, owner.transaction():
        owner.execute("LOCK TABLE pgvector_chunks IN ACCESS EXCLUSIVE MODE")
        waiting = asyncio.create_task(store.count(work, a_space()))
        await asyncio.sleep(0.05)
        with pytest.raises(VectorStoreUnavailable):
            await store.count(work, a_space())

    assert await waiting == 1
    await store.close()


async def test_more_dimensions_than_a_halfvec_can_index_are_refused(pgvector_dsn: str) -> None:
    store = PgvectorStore(PgvectorSettings(), own_dsn=pgvector_dsn)
    wide = Space(1, "model", 4_001)

    with pytest.raises(VectorStoreRefused, match="4000"):
        await store.write_chunks(uuid4(), uuid4(), wide, 1, chunks_of([direction(0, dims=4_001)]))

    await store.close()


async def test_the_widest_vectors_are_stored_and_promoted(own_pgvector_dsn: str) -> None:
    store = PgvectorStore(PgvectorSettings(hnsw_threshold_rows=20), own_dsn=own_pgvector_dsn)
    work, wide = uuid4(), Space(1, "model", 4_000)
    await store.write_chunks(work, uuid4(), wide, 1, chunks_of([direction(at, dims=4_000) for at in range(30)]))

    await store.maintain(work, wide)

    (hit,) = await store.query_chunks(work, wide, vector=direction(7, dims=4_000), top_k=1)
    assert hit.chunk.chunk_index == 7
    assert (await store.is_available()).ok
    await store.close()


async def test_a_number_that_the_table_cannot_hold_is_refused(pgvector_dsn: str) -> None:
    store = PgvectorStore(PgvectorSettings(), own_dsn=pgvector_dsn)

    for build, first in ((2**31, 0), (1, 2**31)):
        with pytest.raises(VectorStoreRefused):
            await store.write_chunks(uuid4(), uuid4(), a_space(), build, chunks_of([direction(0)], first=first))

    await store.close()


def test_where_the_data_is_does_not_change_with_a_password() -> None:
    def location(dsn: str) -> dict[str, str]:
        return PgvectorSettings(dsn=dsn).location()

    first = location("postgresql://ann:old@db.example:5433/vectors")
    assert first == {"host": "db.example", "port": "5433", "dbname": "vectors"}
    assert location("postgresql://bob:new@db.example:5433/vectors?sslmode=require") == first
    assert location("host=db.example port=5433 dbname=vectors user=ann") == first
    assert location("postgresql://ann:old@other.example:5433/vectors") != first
    assert PgvectorSettings().location() == {}


def test_a_malformed_connection_string_is_refused_without_repeating_it() -> None:
    with pytest.raises(ValueError, match="not a Postgres connection string") as failure:
        PgvectorSettings(dsn="postgresql://ann:hunter2@[broken")

    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize(("dims", "rows"), [(384, 10_000), (768, 5_000), (1_536, 2_500), (4_000, 1_000), (64, 60_000)])
def test_the_wider_the_vectors_the_fewer_rows_are_scanned(dims: int, rows: int) -> None:
    assert PgvectorSettings().exact_limit_rows(dims) == rows
