"""The pgvector store under the suite, on a real Postgres built by its migrations."""

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from app.vector_stores.contract import Space, UpsertResult, VectorChunk, VectorStore
from app.vector_stores.pgvector import PgvectorSettings, PgvectorStore
from app.vector_stores.testing import Interruptible, Relay, VectorStoreContract
from tests.contract.vector_stores.pgvector_data import do
from tests.postgres import fresh_database

NOWHERE = "host=127.0.0.1 port=1 dbname=nothing user=nobody"


class TestPgvectorStore(VectorStoreContract):
    lives, steps_of_a_life = 8, 15

    @pytest.fixture(autouse=True)
    def _database(self, pgvector_dsn: str) -> None:
        self.dsn = pgvector_dsn

    async def build_store(self) -> VectorStore:
        return PgvectorStore(PgvectorSettings(), own_dsn=self.dsn)

    async def build_unreachable_store(self) -> VectorStore | None:
        return PgvectorStore(PgvectorSettings(pool_wait_s=1), own_dsn=NOWHERE)

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        return await self.build_store()

    async def build_interruptible_store(self) -> Interruptible | None:
        parts = conninfo_to_dict(self.dsn)
        socket = f"{parts['host']}/.s.PGSQL.{parts.get('port') or 5432}"
        relay = Relay(lambda: asyncio.open_unix_connection(socket))
        await relay.open()
        dsn = make_conninfo(self.dsn, host="127.0.0.1", port=relay.port)
        return Interruptible(PgvectorStore(PgvectorSettings(pool_wait_s=1), own_dsn=dsn), relay.close, relay.open)


class TestPgvectorStoreElsewhere(TestPgvectorStore):
    """The same promises in a database of its own, which held nothing of ours before."""

    @pytest.fixture(autouse=True)
    def _database(self, empty_dsn: str) -> None:
        self.dsn = empty_dsn

    async def build_store(self) -> VectorStore:
        return PgvectorStore(PgvectorSettings(dsn=SecretStr(self.dsn)), own_dsn=NOWHERE)

    async def build_unreachable_store(self) -> VectorStore | None:
        return PgvectorStore(PgvectorSettings(dsn=SecretStr(NOWHERE), pool_wait_s=1))

    async def build_interruptible_store(self) -> Interruptible | None:
        return None  # nothing that the store in the service's own database does not do


async def test_a_login_that_may_not_make_the_extension_is_told_the_sql() -> None:
    dsn = fresh_database()
    name = conninfo_to_dict(dsn)["dbname"]
    do(dsn, f"CREATE ROLE elsewhere_{name} LOGIN; ALTER DATABASE {name} OWNER TO elsewhere_{name}")
    store = PgvectorStore(PgvectorSettings(dsn=SecretStr(make_conninfo(dsn, user=f"elsewhere_{name}"))))

    availability = await store.is_available()
    await store.close()

    assert not availability.ok
    assert "CREATE EXTENSION vector" in str(availability.reason)
    assert not availability.temporary


async def test_several_stores_make_the_tables_of_several_databases_at_once() -> None:
    databases = [SecretStr(fresh_database()) for _ in range(2)]
    stores = [PgvectorStore(PgvectorSettings(dsn=dsn)) for dsn in databases * 2]

    counted = await asyncio.gather(*(store.count(uuid4(), Space(1, "m", 8)) for store in stores))
    for store in stores:
        await store.close()

    assert counted == [0] * 4


class AlwaysMaintained(PgvectorStore):
    """Upkeep after every write, so that a test's questions meet an index as soon as there may be one."""

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        result = await super().write_chunks(work_id, document_id, space, build, chunks)
        if result.written:
            await self.maintain(work_id, space)
        return result


class TestPgvectorStoreWithIndexes(TestPgvectorStore):
    """The same promises where a space is promoted as soon as it has more than a few dozen rows."""

    async def build_store(self) -> VectorStore:
        return AlwaysMaintained(PgvectorSettings(hnsw_threshold_rows=1), own_dsn=self.dsn)


class TestPgvectorStoreWithListIndexes(TestPgvectorStore):
    """And where the operator prefers ivfflat."""

    async def build_store(self) -> VectorStore:
        return AlwaysMaintained(PgvectorSettings(hnsw_threshold_rows=1, index="ivfflat"), own_dsn=self.dsn)
