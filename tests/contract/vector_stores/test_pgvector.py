"""The pgvector store under the suite, on a real Postgres built by its migrations."""

import pytest

from app.vector_stores.contract import VectorStore
from app.vector_stores.pgvector import PgvectorSettings, PgvectorStore
from app.vector_stores.testing import VectorStoreContract

NOWHERE = "host=127.0.0.1 port=1 dbname=nothing user=nobody"


class TestPgvectorStore(VectorStoreContract):
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


class TestPgvectorStoreWithIndexes(TestPgvectorStore):
    """The same promises where every space of more than a handful of rows is promoted by `maintain`."""

    async def build_store(self) -> VectorStore:
        return PgvectorStore(PgvectorSettings(hnsw_threshold_rows=10), own_dsn=self.dsn)
