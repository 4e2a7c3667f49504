"""The platform's contract suite over the store."""

from pathlib import Path

import pytest
from stackroom_sqlite import SqliteSettings, SqliteStore

from app.vector_stores.contract import VectorStore
from app.vector_stores.testing import VectorStoreContract


class TestSqliteStore(VectorStoreContract):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path: Path) -> None:
        self.path = tmp_path / "vectors.sqlite"

    async def build_store(self) -> VectorStore:
        return SqliteStore(SqliteSettings(path=self.path))

    async def build_unreachable_store(self) -> VectorStore | None:
        return SqliteStore(SqliteSettings(path=Path("/nowhere/at/all/vectors.sqlite")))

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        return await self.build_store()


async def test_a_file_that_is_something_else_is_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "vectors.sqlite"
    path.write_text("this is no database, and long enough to be looked at as one" * 100)
    store = SqliteStore(SqliteSettings(path=path))

    availability = await store.is_available()

    assert not availability.ok
    assert availability.reason == "the file is not a SQLite database"
    await store.close()
