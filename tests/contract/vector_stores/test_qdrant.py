"""The Qdrant store under the suite: local mode in memory and on disk, and over HTTP."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from app.vector_stores.contract import VectorStore
from app.vector_stores.qdrant import QdrantSettings, QdrantStore
from app.vector_stores.testing import Interruptible, Relay, VectorStoreContract
from tests.contract.vector_stores.qdrant_double import QdrantDouble

NOWHERE = "http://127.0.0.1:1"


class TestQdrantInMemory(VectorStoreContract):
    lives, steps_of_a_life = 15, 20
    recall_rows = 800

    async def build_store(self) -> VectorStore:
        return QdrantStore(QdrantSettings(path=":memory:"))


class TestQdrantCollectionPerSpace(TestQdrantInMemory):
    """Where a tenant's own collections are preferred to one that all share."""

    async def build_store(self) -> VectorStore:
        return QdrantStore(QdrantSettings(path=":memory:", tenancy="collection"))


class TestQdrantOnDisk(VectorStoreContract):
    lives, steps_of_a_life = 4, 12
    recall_rows = 400

    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    async def build_store(self) -> VectorStore:
        return QdrantStore(QdrantSettings(path=str(self.directory / f"{uuid4()}")))

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        (place,) = self.directory.iterdir()
        return QdrantStore(QdrantSettings(path=str(place)))


class TestQdrantOverHttp(VectorStoreContract):
    """The protocol of a server, spoken to a double of one."""

    lives, steps_of_a_life = 6, 15
    recall_rows = 400

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        self.double = QdrantDouble(api_key="right")
        yield
        self.double.stop()

    def settings(self, url: str) -> QdrantSettings:
        return QdrantSettings.model_validate({"url": url, "api_key": "right", "timeout_s": 10, "exact_below": 10})

    async def build_store(self) -> VectorStore:
        return QdrantStore(self.settings(self.double.url))

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        return await self.build_store()

    async def build_unreachable_store(self) -> VectorStore | None:
        return QdrantStore(QdrantSettings(url=NOWHERE, timeout_s=1))

    async def build_interruptible_store(self) -> Interruptible | None:
        relay = Relay(lambda: asyncio.open_connection("127.0.0.1", self.double.port))
        await relay.open()
        store = QdrantStore(self.settings(f"http://127.0.0.1:{relay.port}"))
        return Interruptible(store, relay.close, relay.open)


@pytest.mark.skipif(
    os.environ.get("VECTOR_STORE_E2E") != "1",
    reason="opt in with VECTOR_STORE_E2E=1, and QDRANT_URL, QDRANT_API_KEY of a server for tests",
)
class TestQdrantServer(VectorStoreContract):
    """A real server; it keeps the Works that the tests make up, in collections with a prefix of their own."""

    async def build_store(self) -> VectorStore:
        return QdrantStore(
            QdrantSettings.model_validate(
                {
                    "url": os.environ.get("QDRANT_URL", "http://127.0.0.1:6333"),
                    "api_key": os.environ.get("QDRANT_API_KEY") or None,
                    "collection_prefix": "stackroom_test",
                }
            )
        )

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        return await self.build_store()

    async def build_unreachable_store(self) -> VectorStore | None:
        return QdrantStore(QdrantSettings(url=NOWHERE, timeout_s=1))
