"""Stores that let Works, spaces or ids run into each other."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from app.vector_stores.contract import DocumentBuild, QueryHit, Space, VectorStoreRefused
from app.vector_stores.memory import MemoryStore
from tests.contract.vector_stores.sabotage import Misaddressed, caught_by

NOBODY = UUID(int=0)


@caught_by(
    "a_work_never_sees_another_works_chunks",
    "one_document_id_in_two_works_is_two_documents",
    "a_work_nobody_has_written_to_is_empty",
    "naming_another_works_document_does_not_open_it",
)
class ForgetsTheWork(Misaddressed):
    """No call filters by Work."""

    def address(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return NOBODY, space


@caught_by("naming_another_works_document_does_not_open_it")
class TrustsIds(MemoryStore):
    """Who names a document or a knowledge base needs no Work."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        if asked.get("document_ids") is None and asked.get("knowledge_base_ids") is None:
            return await super().query_chunks(work_id, space, **asked)
        hits: list[QueryHit] = []
        for work, _ in self._shelves:
            hits += await super().query_chunks(work, space, **asked)
        return hits


@caught_by("a_work_nobody_has_written_to_is_empty")
class AnswersStrangers(MemoryStore):
    """An unknown Work falls back to a default one."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        if (work_id, space) not in self._shelves and self._shelves:
            work_id = next(iter(self._shelves))[0]
        return await super().query_chunks(work_id, space, **asked)


@caught_by("one_document_id_in_two_works_is_two_documents")
class OverwritesTheSameDocumentElsewhere(MemoryStore):
    """A document's id is its key, whoever owns it."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, *rest: Any) -> Any:
        for other, there in list(self._shelves):
            if other != work_id:
                await super().delete_by_document(other, document_id, there)
        return await super().write_chunks(work_id, document_id, space, *rest)


@caught_by("every_kind_of_deletion_stays_in_its_work")
class DeletesInEveryWork(MemoryStore):
    """A deletion by document forgets to say of which Work."""

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        for work, _ in list(self._shelves):
            await super().delete_by_document(work, document_id, space)


@caught_by("every_kind_of_deletion_stays_in_its_work")
class PrunesInEveryWork(MemoryStore):
    """Pruning forgets to say of which Work."""

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        for work, _ in list(self._shelves):
            await super().prune_chunks(work, document_id, space, before_build)


@caught_by("every_kind_of_deletion_stays_in_its_space")
class DeletesInEverySpace(MemoryStore):
    """The whole Work goes when one of its spaces was meant."""

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        for work, there in list(self._shelves):
            if work == work_id:
                await super().delete_by_work(work, there)


@caught_by("every_kind_of_deletion_stays_in_its_space")
class PrunesInEverySpace(MemoryStore):
    """An old generation's prune takes chunks of the new one."""

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        for work, there in list(self._shelves):
            if work == work_id:
                await super().prune_chunks(work, document_id, there, before_build)


@caught_by("two_spaces_of_a_work_do_not_mix")
class ForgetsTheSpace(Misaddressed):
    """Two generations share one collection."""

    def address(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return work, Space(0, "", space.dims)


@caught_by("spaces_of_different_width_live_side_by_side")
class HasOneWidth(MemoryStore):
    """The first write fixes the width for everybody."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, *rest: Any) -> Any:
        if any(other.dims != space.dims for _, other in self._shelves):
            raise VectorStoreRefused("the collection has another width")
        return await super().write_chunks(work_id, document_id, space, *rest)


@caught_by("a_small_work_beside_a_large_one_gets_its_hits")
class FiltersByWorkAfterwards(MemoryStore):
    """The nearest of all Works are found first, and the Work's own are picked from them."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        nearest: list[tuple[UUID, QueryHit]] = []
        for work, _ in self._shelves:
            nearest += [(work, hit) for hit in await super().query_chunks(work, space, **{**asked, "top_k": 200})]
        nearest.sort(key=lambda found: -found[1].normalized_score)
        return [hit for work, hit in nearest[:200] if work == work_id][: asked["top_k"]]


@caught_by("identities_that_look_alike_when_joined_do_not_collide")
class JoinsIdsWithoutABorder(MemoryStore):
    """Build 1, chunk 11 and build 11, chunk 1 have the same id."""

    def __init__(self) -> None:
        super().__init__()
        self._ids = set[str]()

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        new = [c for c in chunks if f"{work_id}{space.key}{document_id}{build}{c.chunk_index}" not in self._ids]
        self._ids |= {f"{work_id}{space.key}{document_id}{build}{c.chunk_index}" for c in chunks}
        return await super().write_chunks(work_id, document_id, space, build, new)


@caught_by("spaces_that_look_alike_when_joined_do_not_collide")
class FoldsTheCaseOfNames(Misaddressed):
    """Container names are lower case."""

    def address(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return work, Space(space.number, space.model_fingerprint.lower(), space.dims)


@caught_by("spaces_that_look_alike_when_joined_do_not_collide")
class EndsNamesAtNul(Misaddressed):
    """A NUL ends the name."""

    def address(self, work: UUID, space: Space) -> tuple[UUID, Space]:
        return work, Space(space.number, space.model_fingerprint.split("\0")[0], space.dims)


@caught_by("a_hostile_name_of_a_model_is_only_a_name")
class TakesQuotesForSyntax(MemoryStore):
    """A quote ends the literal, and the rest is an expression."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        if "'" not in space.model_fingerprint:
            return await super().query_chunks(work_id, space, **asked)
        hits: list[QueryHit] = []
        for work, there in self._shelves:
            hits += await super().query_chunks(work, there, **asked)
        return hits


@caught_by("a_hostile_name_of_a_model_is_only_a_name")
class ScansByPattern(MemoryStore):
    """A percent sign in a name stands for anything."""

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        for work, there in list(self._shelves):
            if work == work_id and (there == space or "%" in space.model_fingerprint):
                async for found in super().scan_documents(work, there):
                    yield found
