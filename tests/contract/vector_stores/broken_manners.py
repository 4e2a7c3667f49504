"""Stores that behave badly around their data: manifest, availability, upkeep, closing, copies."""

from typing import Any
from uuid import UUID

from pydantic import BaseModel

from app.vector_stores.contract import Availability, Space, Vector, VectorStoreRefused
from app.vector_stores.memory import MemoryStore
from tests.contract.vector_stores.sabotage import caught_by


class Permissive(BaseModel):
    """Settings in which a misspelt name is no fault."""


@caught_by("it_is_a_vector_store_with_a_manifest")
class TakesAnySettings(MemoryStore):
    """A misspelt setting is ignored."""

    manifest = MemoryStore.manifest.model_copy(update={"settings_model": Permissive})


@caught_by("it_is_a_vector_store_with_a_manifest")
class NamesNoPlaceOfItsOwn(MemoryStore):
    """The field that says where the data is does not exist."""

    manifest = MemoryStore.manifest.model_copy(update={"location_fields": ("url",)})


@caught_by("a_store_that_answers_is_available")
class AlwaysAway(MemoryStore):
    """The check asks the wrong port."""

    async def is_available(self) -> Availability:
        return Availability(ok=False, reason="no answer")


@caught_by("building_does_not_connect_and_a_backend_that_is_away_is_said_to_be")
class CallsAnAbsentBackendAvailable(MemoryStore):
    """A check that asks nobody."""

    can_be_away = True


@caught_by("building_does_not_connect_and_a_backend_that_is_away_is_said_to_be")
class RaisesTheVendorsError(MemoryStore):
    """Away, and it says so in the client library's own words."""

    can_be_away = True

    async def is_available(self) -> Availability:
        return Availability(ok=False, reason="no answer")

    async def write_chunks(self, *address: Any) -> Any:
        raise ConnectionRefusedError("[Errno 111] Connection refused")


@caught_by("upkeep_changes_no_answer")
class LosesChunksInUpkeep(MemoryStore):
    """A compaction that drops what it does not know."""

    async def maintain(self, work_id: UUID, space: Space) -> None:
        for key in list(self._shelves.get((work_id, space), {})):
            del self._shelves[work_id, space][key]


@caught_by("upkeep_changes_no_answer")
class NeedsSomethingToKeepUp(MemoryStore):
    """Upkeep of a space that is not there is an error."""

    async def maintain(self, work_id: UUID, space: Space) -> None:
        if (work_id, space) not in self._shelves:
            raise VectorStoreRefused("no such collection")


@caught_by("closing_may_be_repeated_and_asking_afterwards_does_not_raise")
class ClosesOnce(MemoryStore):
    """The second `close` finds nothing to close."""

    is_open = True

    async def close(self) -> None:
        if not self.is_open:
            raise VectorStoreRefused("already closed")
        self.is_open = False


@caught_by("data_outlives_the_store")
class ForgetsWhenClosed(MemoryStore):
    """It says that it keeps its data."""

    keeps_data = True

    async def close(self) -> None:
        self._shelves.clear()


@caught_by("fetched_vectors_are_those_of_the_build_up_to_length", "an_unknown_build_has_no_vectors")
class FetchesAnyBuild(MemoryStore):
    """A copy would carry chunks of an older build."""

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        found: dict[int, Vector] = {}
        for document, number in self._shelves.get((work_id, space), {}):
            if document == document_id:
                found |= await super().fetch_vectors(work_id, document_id, space, number) or {}
        return found


@caught_by("fetched_vectors_are_those_of_the_build_up_to_length", "fetched_vectors_can_be_written_to_another_space")
class FetchesInAnotherOrder(MemoryStore):
    """The right vectors under the wrong numbers."""

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        found = await super().fetch_vectors(work_id, document_id, space, build) or {}
        return dict(zip(found, reversed(list(found.values())), strict=True))
