"""The use case of a search: scope, both legs side by side, fusion, the readers' check, the answer."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

from app.ai_providers.contract import EmbeddingModel
from app.db.reading import ReadPool
from app.documents.attributes import FilterComparison, FilterGroup
from app.identity.caller import Caller
from app.indexing.models import IndexGeneration
from app.search.errors import VectorSearchUnavailable
from app.search.fusion import Ref, Scored, reciprocal_rank_fusion, score_fusion
from app.search.lexical import TermMemory, search_lexical
from app.search.reading import LiveChunk, fetch_live
from app.search.scoping import Allowed, Scoping
from app.search.vector import VectorLeg, VectorSearcher
from app.vector_stores.contract import QueryHit

Mode = Literal["hybrid", "vector", "lexical"]
FUSION_DEPTH = 100
MARGIN = 8
MAX_ROUNDS = 3


@dataclass(frozen=True)
class Question:
    """What is asked. None for ids = no restriction beyond what the caller may see."""

    query: str
    work_id: UUID | None = None
    knowledge_base_ids: tuple[UUID, ...] | None = None
    document_ids: tuple[UUID, ...] | None = None
    limit: int | None = None
    mode: Mode = "hybrid"
    filter: FilterComparison | FilterGroup | None = None
    min_score: float | None = None
    group_by: Literal["chunk", "document"] = "chunk"


@dataclass(frozen=True)
class Hit:
    """One hit: `score` orders the list; the next three are None for a hit found by words only."""

    chunk: LiveChunk
    score: float
    normalized_score: float | None
    confidence: float | None
    raw_score: float | None
    ranks: dict[str, int]


@dataclass
class Answer:
    """The answer; `degraded` lists (code, message) of everything that made it less than asked for."""

    hits: list[Hit]
    legs: list[str]
    degraded: list[tuple[str, str]]
    generation: IndexGeneration | None
    took_ms: float = 0
    timings: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Merged:
    """Both legs in one order."""

    order: list[tuple[Ref, float]]
    vector: dict[Ref, QueryHit]
    vector_ranks: dict[Ref, int]
    lexical_ranks: dict[Ref, int]
    model: EmbeddingModel | None
    legs: list[str]
    degraded: list[tuple[str, str]]


@dataclass
class Searcher:
    """Answers questions. Holds no connection while a provider or store is waited for."""

    reads: ReadPool
    scoping: Scoping
    vectors: VectorSearcher
    default_limit: int
    fusion: Literal["score", "rrf"] = "score"
    terms: TermMemory = field(default_factory=TermMemory)

    async def search(self, caller: Caller, question: Question) -> Answer:
        """Raises: NotFound, TwoWorks, VectorSearchUnavailable (mode `vector` only)."""
        started = time.perf_counter()
        timings: dict[str, float] = {}
        depth = 0
        best: Answer | None = None
        for round_number in range(MAX_ROUNDS):
            allowed = await self._resolve(caller, question)
            timings.setdefault("scope_ms", (time.perf_counter() - started) * 1000)
            limit = question.limit or allowed.max_results or self.default_limit
            depth = self._depth(question, limit) if round_number == 0 else depth * 2
            merged = await self._legs(allowed, question, depth, timings)
            best, complete = await self._read(caller, allowed, question, merged, limit, timings)
            if complete:
                break
        else:
            if best is not None:
                best.degraded.append(("incomplete", "Some hits had just been replaced or deleted; fewer are shown."))
        if best is None:  # MAX_ROUNDS is at least 1
            raise AssertionError
        best.took_ms = (time.perf_counter() - started) * 1000
        best.timings = timings
        return best

    async def _resolve(self, caller: Caller, question: Question) -> Allowed:
        return await self.scoping.resolve(
            caller,
            work_id=question.work_id,
            knowledge_base_ids=question.knowledge_base_ids,
            document_ids=question.document_ids,
            filtered=question.filter,
        )

    @staticmethod
    def _depth(question: Question, limit: int) -> int:
        if question.group_by == "document":
            return max(FUSION_DEPTH, limit * 5)
        return limit + MARGIN if question.mode == "vector" else max(FUSION_DEPTH, limit + MARGIN)

    async def _legs(self, allowed: Allowed, question: Question, depth: int, timings: dict[str, float]) -> _Merged:
        async def lexical() -> list[Scored]:
            if question.mode == "vector":
                return []
            began = time.perf_counter()
            found = await search_lexical(self.reads, allowed, question.query, top_k=depth, memory=self.terms)
            timings["lexical_ms"] = (time.perf_counter() - began) * 1000
            return found

        async def vector() -> VectorLeg:
            if question.mode == "lexical":
                return VectorLeg()
            return await self.vectors.search(allowed, question.query, top_k=depth, timings=timings)

        lexical_hits, leg = await asyncio.gather(lexical(), vector())
        failed = leg.failure is not None and not leg.hits
        if question.mode == "vector" and failed and leg.failure is not None:
            raise VectorSearchUnavailable(f"{leg.failure[1]} ({leg.failure[0]})", reason=leg.failure[0])
        legs = [] if question.mode == "vector" else ["lexical"]
        if question.mode != "lexical" and not failed:
            legs.insert(0, "vector")
        return self._merge(question, leg, lexical_hits, legs)

    def _merge(self, question: Question, leg: VectorLeg, lexical_hits: Sequence[Scored], legs: list[str]) -> _Merged:
        vector_hits = leg.scored()
        if question.mode == "vector":
            order = [(s.ref, s.score) for s in vector_hits]
        elif legs == ["lexical"]:
            order = [(s.ref, s.score) for s in lexical_hits]
        elif self.fusion == "rrf":
            order = reciprocal_rank_fusion([[s.ref for s in vector_hits], [s.ref for s in lexical_hits]])
        else:
            weight = leg.model.fusion_weight if leg.model is not None else 0.5
            order = score_fusion(vector_hits, lexical_hits, weight=weight, depth=FUSION_DEPTH)
        return _Merged(
            order=order,
            vector={s.ref: hit for s, hit in zip(vector_hits, leg.hits, strict=True)},
            vector_ranks={s.ref: rank for rank, s in enumerate(vector_hits, start=1)},
            lexical_ranks={s.ref: rank for rank, s in enumerate(lexical_hits, start=1)},
            model=leg.model,
            legs=legs,
            degraded=[] if leg.failure is None else [leg.failure],
        )

    async def _read(
        self,
        caller: Caller,
        allowed: Allowed,
        question: Question,
        merged: _Merged,
        limit: int,
        timings: dict[str, float],
    ) -> tuple[Answer, bool]:
        """The best live hits; False when dead ones left the answer shorter than it should be."""
        began = time.perf_counter()
        answer = Answer([], merged.legs, list(merged.degraded), allowed.generation)
        wanted = _confident(merged, question, answer)
        seen: set[UUID] = set()
        dead = 0
        position = 0
        while position < len(wanted) and len(answer.hits) < limit:
            block = wanted[position : position + limit + MARGIN]
            position += len(block)
            live = await fetch_live(self.reads, allowed, [ref for ref, _ in block])
            for ref, score in block:
                chunk = live.get(ref)
                if chunk is None:
                    dead += 1
                elif len(answer.hits) < limit and not (question.group_by == "document" and ref.document_id in seen):
                    seen.add(ref.document_id)
                    answer.hits.append(_hit(chunk, ref, score, merged))
        timings["read_ms"] = (time.perf_counter() - began) * 1000
        return answer, not dead or len(answer.hits) >= limit


def confidence(normalized_score: float, model: EmbeddingModel | None) -> float | None:
    """clip((cosine - c0) / (1 - c0)): 0 = as close as unrelated texts; None for a model without calibration."""
    if model is None or model.calibration is None:
        return None
    cosine = 2 * normalized_score - 1
    return min(1.0, max(0.0, (cosine - model.calibration) / (1 - model.calibration)))


def _confident(merged: _Merged, question: Question, answer: Answer) -> list[tuple[Ref, float]]:
    """Apply `min_score`, or say that it could not be applied."""
    if question.min_score is None:
        return merged.order
    if "vector" not in merged.legs or (merged.model is None or merged.model.calibration is None):
        answer.degraded.append(("min_score_not_applied", "No hit of this answer has a confidence to compare with."))
        return merged.order
    kept = []
    for ref, score in merged.order:
        hit = merged.vector.get(ref)
        sure = None if hit is None else confidence(hit.normalized_score, merged.model)
        if sure is not None and sure >= question.min_score:
            kept.append((ref, score))
    return kept


def _hit(chunk: LiveChunk, ref: Ref, score: float, merged: _Merged) -> Hit:
    found = merged.vector.get(ref)
    ranks: dict[str, Any] = {"vector": merged.vector_ranks.get(ref), "lexical": merged.lexical_ranks.get(ref)}
    return Hit(
        chunk=chunk,
        score=score,
        normalized_score=None if found is None else found.normalized_score,
        confidence=None if found is None else confidence(found.normalized_score, merged.model),
        raw_score=None if found is None else found.raw_score,
        ranks={leg: rank for leg, rank in ranks.items() if rank is not None},
    )
