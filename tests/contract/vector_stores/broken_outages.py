"""Stores that make the wrong thing of an outage, of a crowd of tasks, or of a long life."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from app.vector_stores.contract import (
    Availability,
    DocumentBuild,
    QueryHit,
    Space,
    UpsertResult,
    VectorStoreUnavailable,
)
from app.vector_stores.memory import MemoryStore
from tests.contract.vector_stores.sabotage import Misaddressed, caught_by


class Switchable(MemoryStore):
    """A memory store with a backend that can be away, and behaves as it should."""

    is_away = False

    def ask_backend(self) -> None:
        if self.is_away:
            raise VectorStoreUnavailable

    async def go_away(self) -> None:
        self.is_away = True

    async def come_back(self) -> None:
        self.is_away = False

    async def write_chunks(self, *address: Any) -> Any:
        self.ask_backend()
        return await super().write_chunks(*address)

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        self.ask_backend()
        return await super().query_chunks(work_id, space, **asked)

    async def count(self, *address: Any) -> int:
        self.ask_backend()
        return await super().count(*address)

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        self.ask_backend()
        async for found in super().scan_documents(work_id, space):
            yield found

    def _drop(self, *address: Any) -> None:
        self.ask_backend()
        super()._drop(*address)

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        self.ask_backend()
        await super().delete_by_work(work_id, space)

    async def is_available(self) -> Availability:
        return Availability(ok=not self.is_away, reason="no answer" if self.is_away else None, temporary=self.is_away)


GOES_AWAY = "a_backend_that_goes_away_is_unavailable_until_it_is_back"


@caught_by(GOES_AWAY)
class FindsNothingWhileAway(Switchable):
    """An error is read as no hits."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        return [] if self.is_away else await super().query_chunks(work_id, space, **asked)


@caught_by(GOES_AWAY)
class ScansNothingWhileAway(Switchable):
    """What can't be listed is not there: the orphan check would take everything for lost."""

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        if not self.is_away:
            async for found in super().scan_documents(work_id, space):
                yield found


@caught_by(GOES_AWAY)
class DeletesLater(Switchable):
    """A deletion that could not be made is reported as done."""

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        if not self.is_away:
            await super().delete_by_document(work_id, document_id, space)


@caught_by(GOES_AWAY)
class CallsAnOutageFinal(Switchable):
    """Away now is taken for away for ever."""

    async def is_available(self) -> Availability:
        return Availability(ok=not self.is_away, reason="no answer")


@caught_by(GOES_AWAY)
class NeverConnectsAgain(Switchable):
    """The one connection is dead, and nobody makes another."""

    async def come_back(self) -> None:
        return


@caught_by("a_write_that_was_cut_off_can_be_repeated")
class TakesAHalfWrittenBuildForWhole(Switchable):
    """What was begun is not begun again."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        if (document_id, build) in self._shelves.get((work_id, space), {}):
            return UpsertResult(written=0, skipped=len(chunks))
        half = len(chunks) // 2
        await super().write_chunks(work_id, document_id, space, build, chunks[:half])
        await asyncio.sleep(0.001)
        return await super().write_chunks(work_id, document_id, space, build, chunks[half:])


@caught_by("two_spaces_of_a_work_are_filled_emptied_and_searched_at_once")
class UsesTheSpaceLastNamed(Misaddressed):
    """A setting of the connection, and tasks that share the connection."""

    last: Space

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, *rest: Any) -> Any:
        self.last = space
        await asyncio.sleep(0)
        same_width = self.last if self.last.dims == space.dims else space
        return await super().write_chunks(work_id, document_id, same_width, *rest)


@caught_by("an_index_finds_nearly_all_of_the_nearest")
class IndexesTheBeginning(MemoryStore):
    """Upkeep builds an index, and what lies beyond its sample is hard to find."""

    indexed = False

    async def maintain(self, work_id: UUID, space: Space) -> None:
        self.indexed = await self.count(work_id, space) > 1_000

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        if not self.indexed:
            return await super().query_chunks(work_id, space, **asked)
        hits = await super().query_chunks(work_id, space, **{**asked, "top_k": 2 * asked["top_k"]})
        return [hit for hit in hits if hit.chunk.chunk_index % 3][: asked["top_k"]]


ANY_LIFE = "any_life_ends_as_the_exact_model_says"


@caught_by(ANY_LIFE)
class RemembersTheDead(MemoryStore):
    """A document that was deleted takes no write that is not newer, not even in another space."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: set[UUID] = set()

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        await super().delete_by_document(work_id, document_id, space)
        self.dead.add(document_id)

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        if document_id in self.dead and build < 2:
            return UpsertResult(written=0, skipped=len(chunks))
        return await super().write_chunks(work_id, document_id, space, build, chunks)


@caught_by(ANY_LIFE)
class PrunesWhatIsWrittenMeanwhile(MemoryStore):
    """Which builds go is decided by the newest that there is when the pruning ends."""

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        newest = max((build for one, build in self._shelves.get((work_id, space), {}) if one == document_id), default=0)
        await super().prune_chunks(work_id, document_id, space, max(before_build, newest if before_build > 2 else 0))


@caught_by(ANY_LIFE)
class AnswersFromACache(MemoryStore):
    """A question asked before gets the answer it got before, until something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, list[QueryHit]] = {}

    async def write_chunks(self, *address: Any) -> Any:
        self.answers.clear()
        return await super().write_chunks(*address)

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        key = f"{work_id} {space} {asked}"
        if key not in self.answers:
            self.answers[key] = await super().query_chunks(work_id, space, **asked)
        return self.answers[key]
