"""The vector leg: the question's embedding, then the store of the active generation."""

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass
from uuid import UUID

from app.ai_providers.contract import EmbeddingModel, Vector
from app.errors import AppError, Misconfigured, Unavailable
from app.indexing.models import IndexGeneration
from app.indexing.routing import Embedder, Routing
from app.logs import get_logger
from app.search.fusion import Ref, Scored
from app.search.scoping import Allowed
from app.vector_stores.contract import QueryHit

log = get_logger()


@dataclass(frozen=True)
class VectorLeg:
    """Hits of the vector leg, best first, or why there are none (`failure`)."""

    hits: tuple[QueryHit, ...] = ()
    model: EmbeddingModel | None = None
    failure: tuple[str, str] | None = None

    def scored(self) -> list[Scored]:
        """The hits for fusion, by normalised score."""
        return [Scored(ref_of(hit), hit.normalized_score) for hit in self.hits]


def ref_of(hit: QueryHit) -> Ref:
    """The chunk of a hit."""
    return Ref(hit.chunk.document_id, hit.chunk.chunk_index, hit.chunk.build)


class QueryEmbedder:
    """Embeds questions, with a time limit and a small cache by model and text."""

    def __init__(self, *, timeout_s: float, max_entries: int = 1024) -> None:
        self._timeout_s = timeout_s
        self._max_entries = max_entries
        self._cache: OrderedDict[tuple[str, UUID | None, str], Vector] = OrderedDict()

    async def embed(self, embedder: Embedder, instance_id: UUID | None, query: str) -> Vector:
        """Raises: Unavailable (also after the time limit), Misconfigured, AppError."""
        key = (embedder.model.fingerprint(embedder.provider.manifest.id, embedder.dims), instance_id, query)
        known = self._cache.get(key)
        if known is not None:
            self._cache.move_to_end(key)
            return known
        try:
            async with asyncio.timeout(self._timeout_s):
                vectors = await embedder.provider.create_embedding(
                    [query], role="query", model=embedder.model.name, dimensions=embedder.dims
                )
        except TimeoutError as exc:
            raise EmbeddingTimeout() from exc
        self._cache[key] = vectors[0]
        if len(self._cache) > self._max_entries:
            self._cache.popitem(last=False)
        return vectors[0]


class EmbeddingTimeout(Unavailable):
    """The embedding provider did not answer in time."""

    code = "embedding_timeout"


class StoreTimeout(Unavailable):
    """The vector store did not answer in time."""

    code = "vector_store_timeout"


class VectorSearcher:
    """Runs the vector leg; every failure becomes a reason, never another model's vectors."""

    def __init__(self, routing: Routing, queries: QueryEmbedder, *, timeout_s: float) -> None:
        self._routing = routing
        self._queries = queries
        self._timeout_s = timeout_s

    async def search(self, allowed: Allowed, query: str, *, top_k: int, timings: dict[str, float]) -> VectorLeg:
        """The best `top_k` chunks of the active generation."""
        generation = allowed.generation
        if generation is None:  # nothing has been indexed yet
            return VectorLeg()
        if generation.vector_store_id is None:
            return VectorLeg(failure=("vector_store_not_configured", "No vector store is configured for this Work."))
        if not allowed.knowledge_base_ids or allowed.document_ids == ():
            return VectorLeg()
        try:
            return await self._search(allowed, generation, query, top_k, timings)
        except (Unavailable, Misconfigured) as error:
            log.warning("search.vector_leg_failed", code=error.code, work_id=str(allowed.scope.work_id))
            return VectorLeg(failure=(error.code, error.message))
        except AppError as error:
            log.error("search.vector_leg_refused", code=error.code, work_id=str(allowed.scope.work_id), exc_info=True)
            return VectorLeg(failure=(error.code, error.message))

    async def _search(
        self, allowed: Allowed, generation: IndexGeneration, query: str, top_k: int, timings: dict[str, float]
    ) -> VectorLeg:
        started = time.perf_counter()
        place = await self._routing.store(generation)
        embedder = await self._routing.embedder(generation)
        if place is None:
            return VectorLeg(failure=("vector_store_not_configured", "No vector store is configured for this Work."))
        vector = None
        if embedder is not None:
            vector = await self._queries.embed(embedder, generation.provider_instance_id, query)
        timings["embed_ms"] = (time.perf_counter() - started) * 1000
        started = time.perf_counter()
        limits = place.store.manifest.store
        narrow = allowed.document_ids
        over = narrow is not None and limits.max_filter_ids is not None and len(narrow) > limits.max_filter_ids
        try:
            async with asyncio.timeout(self._timeout_s):
                hits = await place.store.query_chunks(
                    allowed.scope.work_id,
                    place.space,
                    vector=vector,
                    text=None if embedder is not None else query,
                    top_k=limits.max_top_k if over else min(top_k, limits.max_top_k),
                    knowledge_base_ids=allowed.knowledge_base_ids,
                    document_ids=None if over else narrow,
                    eligible=allowed.eligible if not over else allowed.chunks,
                )
        except TimeoutError as exc:
            raise StoreTimeout() from exc
        timings["vector_ms"] = (time.perf_counter() - started) * 1000
        model = None if embedder is None else embedder.model
        if not over or narrow is None:
            return VectorLeg(tuple(hits), model)
        wanted = frozenset(narrow)
        kept = tuple(hit for hit in hits if hit.chunk.document_id in wanted)[:top_k]
        short = len(kept) < min(top_k, allowed.eligible)
        said = ("filter_incomplete", "The vector store could not look at every allowed document.") if short else None
        return VectorLeg(kept, model, said)
