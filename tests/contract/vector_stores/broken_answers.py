"""Stores that answer wrongly: too few, too many, in another order, with other scores."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from app.vector_stores.base import normalized_cosine
from app.vector_stores.contract import BadVector, QueryHit, Space, VectorChunk
from app.vector_stores.memory import MemoryStore
from tests.contract.vector_stores.sabotage import caught_by


class Asking(MemoryStore):
    """A store that asks something else than it was asked, or answers something else than it found."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return asked

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        return hits

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        return self.found(await super().query_chunks(work_id, space, **self.asked(asked)), asked)


@caught_by("top_k_hits_come_from_one_document_in_a_crowd")
class FiltersDocumentsAfterwards(Asking):
    """Top-k first, then the filter."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "document_ids": None}

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        allowed = asked.get("document_ids")
        return [hit for hit in hits if allowed is None or hit.chunk.document_id in allowed]


@caught_by("top_k_hits_come_from_one_knowledge_base_in_a_crowd")
class FiltersKnowledgeBasesAfterwards(Asking):
    """The same for knowledge bases."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "knowledge_base_ids": None}

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        allowed = asked.get("knowledge_base_ids")
        return [hit for hit in hits if allowed is None or hit.chunk.knowledge_base_id in allowed]


@caught_by("two_restrictions_hold_both", "an_empty_set_of_knowledge_bases_means_nothing")
class DocumentsOverruleKnowledgeBases(Asking):
    """With documents named, the knowledge bases are dropped."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "knowledge_base_ids": None} if asked.get("document_ids") else asked


@caught_by("several_ids_are_alternatives")
class TakesTheFirstId(Asking):
    """A list is read as one value."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "document_ids": list(asked["document_ids"])[:1]} if asked.get("document_ids") else asked


@caught_by("an_empty_set_of_documents_means_nothing")
class TakesNoDocumentsForAll(Asking):
    """`if document_ids:`"""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "document_ids": asked.get("document_ids") or None}


@caught_by("an_empty_set_of_knowledge_bases_means_nothing")
class TakesNoKnowledgeBasesForAll(Asking):
    """`if knowledge_base_ids:`"""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "knowledge_base_ids": asked.get("knowledge_base_ids") or None}


@caught_by("unknown_ids_narrow_to_nothing")
class ForgetsUnknownIds(MemoryStore):
    """A filter that matches nothing is left out."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        hits = await super().query_chunks(work_id, space, **asked)
        if hits or not asked.get("document_ids"):
            return hits
        return await super().query_chunks(work_id, space, **{**asked, "document_ids": None})


@caught_by("as_many_ids_as_the_manifest_allows_are_taken")
class CutsLongFilters(Asking):
    """The backend takes a thousand values; the rest is cut off."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "document_ids": list(asked["document_ids"])[:1_000]} if asked.get("document_ids") else asked


@caught_by("the_best_come_first_and_no_more_than_asked", "scores_fall_from_hit_to_hit_and_agree_with_the_raw_ones")
class WorstFirst(Asking):
    """A distance sorted like a similarity."""

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        return hits[::-1]


@caught_by("the_best_come_first_and_no_more_than_asked")
class GivesOneMore(Asking):
    """Off by one."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "top_k": asked["top_k"] + 1}


@caught_by("scores_fall_from_hit_to_hit_and_agree_with_the_raw_ones")
class ReportsAnotherRawScore(Asking):
    """The raw score is a distance, and `normalize` takes a similarity."""

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        return [replace(hit, raw_score=1 - hit.raw_score) for hit in hits]


@caught_by("a_score_is_half_of_one_plus_the_cosine")
class ClipsTheCosine(MemoryStore):
    """Another formula in [0, 1], just as monotone."""

    def normalize(self, raw: float) -> float:
        return max(0.0, raw)


@caught_by("only_the_direction_of_a_vector_counts")
class ComparesLengthsToo(Asking):
    """A dot product of what was given."""

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        length = sum(value * value for value in asked["vector"]) ** 0.5
        scores = [min(1.0, max(-1.0, hit.raw_score / length)) for hit in hits]
        return [QueryHit(hit.chunk, raw, normalized_cosine(raw)) for hit, raw in zip(hits, scores, strict=True)]


@caught_by("ties_are_ordered_by_document_chunk_and_build")
class OrdersTiesByArrival(MemoryStore):
    """Equal scores stay in the order in which the backend keeps them."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        everything = await super().query_chunks(work_id, space, **{**asked, "top_k": 1_000})
        kept = [ref for block in self._shelves.get((work_id, space), {}).values() for ref in block.refs]
        everything.sort(key=lambda hit: (-hit.normalized_score, kept.index(hit.chunk)))
        return everything[: asked["top_k"]]


@caught_by("the_number_of_eligible_chunks_is_only_a_hint")
class BelievesTheHint(Asking):
    """No more hits than somebody thought there were."""

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        return hits if asked.get("eligible") is None else hits[: asked["eligible"]]


@caught_by("asking_for_all_that_the_manifest_allows_gives_all_there_is")
class StopsAtItsSearchDepth(Asking):
    """The index gives as many as its search list holds."""

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        return hits[:40]


@caught_by("asking_for_none_or_for_too_many_is_refused")
class ClampsSilently(Asking):
    """Fewer hits than asked, and nobody is told."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "top_k": min(max(asked["top_k"], 1), self.manifest.store.max_top_k)}


@caught_by("the_answer_is_the_exact_one_at_small_scale")
class MissesSomeNeighbours(Asking):
    """An index that never sees every fifth chunk."""

    def asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        return {**asked, "top_k": 2 * asked["top_k"]}

    def found(self, hits: list[QueryHit], asked: dict[str, Any]) -> list[QueryHit]:
        return [hit for hit in hits if hit.chunk.chunk_index % 5][: asked["top_k"]]


@caught_by("a_flawed_vector_is_refused_before_anything_is_written")
class WritesUntilItMeetsAFlaw(MemoryStore):
    """Each chunk is checked when it is its turn."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        for chunk in chunks:
            result = await super().write_chunks(work_id, document_id, space, build, [chunk])
        return result


@caught_by("a_flawed_vector_is_refused_before_anything_is_written")
class LeavesFlawedChunksOut(MemoryStore):
    """What can't be compared is not stored, and the write succeeds."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        good: list[VectorChunk] = []
        for chunk in chunks:
            try:
                await self.checked([chunk], space.dims)
                good.append(chunk)
            except BadVector:
                continue
        return await super().write_chunks(work_id, document_id, space, build, good)


@caught_by("a_flawed_question_is_refused", "a_store_that_does_not_embed_refuses_bare_text")
class FindsNothingForAFlawedQuestion(MemoryStore):
    """An empty answer without error."""

    async def query_chunks(self, work_id: UUID, space: Space, **asked: Any) -> list[QueryHit]:
        try:
            return await super().query_chunks(work_id, space, **asked)
        except BadVector:
            return []


@caught_by("any_sequence_of_numbers_is_a_vector")
class TakesListsOnly(MemoryStore):
    """What the service hands over is an `array`."""

    async def write_chunks(self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Any) -> Any:
        if not all(isinstance(chunk.vector, list) for chunk in chunks):
            raise BadVector("not a list")
        return await super().write_chunks(work_id, document_id, space, build, chunks)
