"""The memory store under the suite: what it passes, tests elsewhere may trust."""

from app.vector_stores.contract import VectorStore
from app.vector_stores.memory import MemoryStore
from app.vector_stores.testing import VectorStoreContract


class TestMemoryStore(VectorStoreContract):
    async def build_store(self) -> VectorStore:
        return MemoryStore()
