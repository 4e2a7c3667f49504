"""How a broken store says which promise it breaks, and which tests have to notice."""

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from app.vector_stores.contract import Space
from app.vector_stores.memory import MemoryStore

BROKEN: list[tuple[type[MemoryStore], str]] = []  # a store, and a test of the suite that must fail on it

Kind = TypeVar("Kind", bound=type[MemoryStore])


def caught_by(*tests: str) -> Callable[[Kind], Kind]:
    """Register a broken store with the tests (named without `test_`) that each must fail on it."""

    def register(kind: Kind) -> Kind:
        BROKEN.extend((kind, f"test_{test}") for test in tests)
        return kind

    return register


class Misaddressed(MemoryStore):
    """A store that changes the address of a chunk before it uses it."""

    def write_to(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return self.address(work, space)

    def read_from(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return self.address(work, space)

    def delete_from(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return self.address(work, space)

    def address(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return work, space

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, *rest: Any) -> Any:
        work, there = self.write_to(work_id, space)
        return await super().write_chunks(work, document_id, there, *rest)

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> Any:
        return await super().query_chunks(*self.read_from(work_id, space), **asked)

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        return await super().count(*self.read_from(work_id, space), document_id)

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        work, there = self.delete_from(work_id, space)
        await super().prune_chunks(work, document_id, there, before_build)

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        work, there = self.delete_from(work_id, space)
        await super().delete_build(work, document_id, there, build)

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        work, there = self.delete_from(work_id, space)
        await super().delete_by_document(work, document_id, there)

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        await super().delete_by_work(*self.delete_from(work_id, space))
