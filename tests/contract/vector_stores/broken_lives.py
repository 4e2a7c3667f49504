"""Stores that lose, keep or double chunks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import numpy as np

from app.vector_stores.contract import ChunkRef, DocumentBuild, Space, UpsertResult, VectorStoreRefused
from app.vector_stores.memory import Block, MemoryStore
from tests.contract.vector_stores.sabotage import caught_by


@caught_by("what_is_written_is_found_with_its_whole_identity")
class CountsChunksItself(MemoryStore):
    """Chunks are numbered by their place in the batch."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        renumbered = [type(c)(c.knowledge_base_id, at, c.vector, c.text) for at, c in enumerate(chunks)]
        return await super().write_chunks(work_id, document_id, space, build, renumbered)


class Appending(MemoryStore):
    """What both kinds of doubling have in common."""

    async def append(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> None:
        vectors = await self.checked(chunks, space.dims)
        refs = tuple(ChunkRef(c.knowledge_base_id, document_id, build, c.chunk_index) for c in chunks)
        shelf = self._shelves.setdefault((work_id, space), {})
        old = shelf.get((document_id, build), Block((), np.empty((0, space.dims), dtype=np.float32)))
        shelf[document_id, build] = Block(old.refs + refs, np.concatenate([old.vectors, vectors]))


@caught_by("writing_twice_changes_nothing", "writers_of_the_same_build_make_each_chunk_once")
class Appends(Appending):
    """A write appends."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        await self.append(work_id, document_id, space, build, chunks)
        return UpsertResult(written=len(chunks))


@caught_by("writers_of_the_same_build_make_each_chunk_once")
class LooksAndThenWrites(Appending):
    """Whether chunks are there is asked before, and not while, they are written."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        is_there = (document_id, build) in self._shelves.get((work_id, space), {})
        await asyncio.sleep(0)
        if is_there:
            return await super().write_chunks(work_id, document_id, space, build, chunks)
        await self.append(work_id, document_id, space, build, chunks)
        return UpsertResult(written=len(chunks))


@caught_by("writers_of_different_documents_do_not_disturb_each_other")
class WritesTheWholeSpaceBack(MemoryStore):
    """Read all, add, write all: the last writer wins."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, *rest: Any) -> Any:
        before = dict(self._shelves.get((work_id, space), {}))
        await asyncio.sleep(0)
        result = await super().write_chunks(work_id, document_id, space, *rest)
        mine = {key: block for key, block in self._shelves[work_id, space].items() if key[0] == document_id}
        self._shelves[work_id, space] = {**before, **mine}
        return result


@caught_by("batches_of_one_build_add_up")
class KeepsTheLastBatch(MemoryStore):
    """A write replaces the build."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        await self.delete_build(work_id, document_id, space, build)
        return await super().write_chunks(work_id, document_id, space, build, chunks)


@caught_by("a_write_of_nothing_writes_nothing")
class KeepsEmptyBuilds(MemoryStore):
    """A build of no chunks is listed."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        if chunks:
            return await super().write_chunks(work_id, document_id, space, build, chunks)
        empty = Block((), np.empty((0, space.dims), dtype=np.float32))
        self._shelves.setdefault((work_id, space), {})[document_id, build] = empty
        return UpsertResult(written=0)


@caught_by("a_long_document_arrives_whole")
class CutsLongWrites(MemoryStore):
    """Beyond the backend's batch limit nothing is sent, and nothing is said."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        return await super().write_chunks(work_id, document_id, space, build, chunks[:500])


@caught_by("a_new_build_stands_beside_the_old_one_until_it_is_pruned")
class ReplacesOnWrite(MemoryStore):
    """The new build pushes the old one out before it is live."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        await self.prune_chunks(work_id, document_id, space, build)
        return await super().write_chunks(work_id, document_id, space, build, chunks)


@caught_by("builds_may_be_written_and_pruned_in_any_order")
class PrunesOneTooMany(MemoryStore):
    """`<=` for `<`."""

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        await super().prune_chunks(work_id, document_id, space, before_build + 1)


@caught_by("builds_may_be_written_and_pruned_in_any_order")
class PrunesAllButTheNewest(MemoryStore):
    """The number is ignored: whatever is not the newest goes."""

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        builds = [build for document, build in self._shelves.get((work_id, space), {}) if document == document_id]
        await super().prune_chunks(work_id, document_id, space, max(builds, default=0))


@caught_by("pruning_leaves_other_documents_alone")
class PrunesTheNeighbours(MemoryStore):
    """The document is missing from the condition."""

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        self._drop(work_id, space, lambda document, build: build < before_build)


@caught_by("upsert_replaces_and_leaves_no_tail")
class UpsertsWithoutPruning(MemoryStore):
    """Overwriting by id leaves the tail of a longer build."""

    async def upsert_chunks(self, *address: Any) -> UpsertResult:
        return await self.write_chunks(*address)


@caught_by("upsert_of_nothing_leaves_nothing")
class UpsertOfNothingDoesNothing(MemoryStore):
    """An early return."""

    async def upsert_chunks(self, *address: Any) -> UpsertResult:
        return await super().upsert_chunks(*address) if address[-1] else UpsertResult(written=0)


@caught_by(
    "a_late_upsert_of_an_older_build_takes_nothing_from_the_newer",
    "concurrent_replacements_of_one_document_leave_the_newest",
)
class DeletesEverythingButMine(MemoryStore):
    """Replacing means: only what I wrote stays."""

    async def upsert_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any
    ) -> UpsertResult:
        result = await self.write_chunks(work_id, document_id, space, build, chunks)
        await asyncio.sleep(0)
        self._drop(work_id, space, lambda document, other: document == document_id and other != build)
        return result


@caught_by("a_refused_upsert_leaves_the_old_build")
class PrunesBeforeItWrites(MemoryStore):
    """Delete, then insert."""

    async def upsert_chunks(self, work_id: UUID, document_id: UUID, space: Space, *rest: Any) -> UpsertResult:
        await self.prune_chunks(work_id, document_id, space, rest[0])
        return await self.write_chunks(work_id, document_id, space, *rest)


@caught_by("delete_build_removes_that_build_and_nothing_else")
class DeletesOlderBuildsToo(MemoryStore):
    """`<=` for `==`."""

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        await self.prune_chunks(work_id, document_id, space, build + 1)


@caught_by("a_deleted_build_may_be_written_again_with_other_chunks")
class BuriesBuildsForGood(MemoryStore):
    """A tombstone hides the build from then on."""

    def __init__(self) -> None:
        super().__init__()
        self._graves = set[tuple[UUID, int]]()

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        self._graves.add((document_id, build))
        await super().delete_build(work_id, document_id, space, build)

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        kept = [] if (document_id, build) in self._graves else chunks
        return await super().write_chunks(work_id, document_id, space, build, kept)


@caught_by("a_deleted_document_is_gone_from_every_query_and_its_siblings_stay")
class DeletesTheNewestBuildOnly(MemoryStore):
    """An older build that was never pruned survives its document."""

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        builds = [build for document, build in self._shelves.get((work_id, space), {}) if document == document_id]
        await self.delete_build(work_id, document_id, space, max(builds, default=0))


@caught_by("a_deleted_document_is_gone_from_every_query_and_its_siblings_stay")
class DeletesTheKnowledgeBase(MemoryStore):
    """A sibling of the same knowledge base goes along."""

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        self._drop(work_id, space, lambda document, build: True)


@caught_by("a_deleted_space_is_gone_and_can_be_filled_again")
class BlocksADeletedSpace(MemoryStore):
    """What was dropped is remembered as dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._dropped = set[tuple[UUID, Space]]()

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        self._dropped.add((work_id, space))

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> Any:
        return [] if (work_id, space) in self._dropped else await super().query_chunks(work_id, space, **asked)


@caught_by("deleting_what_is_not_there_is_success")
class InsistsOnDeletingSomething(MemoryStore):
    """404 is passed on as an error."""

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        if (work_id, space) not in self._shelves:
            raise VectorStoreRefused("no such namespace")
        await super().delete_by_work(work_id, space)


@caught_by("counts_tell_what_is_stored")
class CountsDocuments(MemoryStore):
    """A receipt would close over chunks that are still there."""

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        shelf = self._shelves.get((work_id, space), {})
        newest = {document: block for (document, _), block in sorted(shelf.items())}
        return sum(len(block.refs) for document, block in newest.items() if document_id in (None, document))


@caught_by("a_scan_names_every_build_once")
class RepeatsTheEdgeOfAPage(MemoryStore):
    """Pages overlap by one."""

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        at = 0
        async for found in super().scan_documents(work_id, space):
            yield found
            at += 1
            if at % 10 == 0:
                yield found


@caught_by("a_scan_names_every_build_once")
class ScansOnePage(MemoryStore):
    """The cursor is never followed."""

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        at = 0
        async for found in super().scan_documents(work_id, space):
            at += 1
            if at <= 10:
                yield found
