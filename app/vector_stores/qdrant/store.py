"""The Qdrant store: one collection a width for every Work; each point carries `work_id`, each call filters on it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar
from uuid import UUID

from app.errors import AppError, Unavailable
from app.plugins.manifest import VectorStoreCapabilities, VectorStoreManifest, needs_extra
from app.vector_stores.base import INLINE_FLOATS, BaseVectorStore, Matrix
from app.vector_stores.contract import (
    Availability,
    DocumentBuild,
    Ids,
    QueryHit,
    Space,
    UpsertResult,
    Vector,
    VectorChunk,
    VectorStoreRefused,
)
from app.vector_stores.qdrant.collections import Collections
from app.vector_stores.qdrant.engines import engine_of, require_sdk
from app.vector_stores.qdrant.errors import NoSuchCollection
from app.vector_stores.qdrant.points import BUILD, MAX_REQUEST_BYTES, REFERENCE, Build, Place, batches, hits_of, scope
from app.vector_stores.qdrant.settings import QdrantSettings

PING_TIMEOUT_S = 2.0
SCAN_PAGE = 5_000
FLOATS_A_PAGE = 100_000
MARGIN = 16  # more than asked, so that ties at the last place and points without payload cost no second request
MOST_TIES = 10_000


class QdrantStore(BaseVectorStore):
    """Chunks as points. A server is asked asynchronously; local mode works in a thread of its own."""

    manifest: ClassVar[VectorStoreManifest] = VectorStoreManifest(
        id="qdrant",
        name="Qdrant",
        extra="qdrant",
        settings_model=QdrantSettings,
        location_fields=("url", "path", "collection_prefix", "tenancy"),
        docs_url="https://qdrant.tech/documentation/",
        tested_against="double",  # a server was never at hand: local mode, and its protocol over local mode
        store=VectorStoreCapabilities(
            namespace_per_work="row_filter",
            max_top_k=10_000,
            max_batch=1_000,
            max_request_bytes=MAX_REQUEST_BYTES,
            max_filter_ids=10_000,
            max_dimensions=65_535,
            single_process_with=("path",),
        ),
    )

    def __init__(self, settings: QdrantSettings) -> None:
        """Build the store without importing the SDK or connecting.

        Raises: MissingExtra when the SDK is not installed.
        """
        with needs_extra(self.manifest):
            require_sdk()
        self._settings = settings
        self._engine = engine_of(settings)
        self._collections = Collections(self._engine, settings)

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """Portion by portion, each acknowledged; cut off in between, the same write again completes it."""
        if space.dims > (most := self.manifest.store.max_dimensions):
            raise VectorStoreRefused(f"Qdrant holds vectors of up to {most} dimensions, not {space.dims}")
        vectors = await self.checked(chunks, space.dims)
        if not chunks:
            return UpsertResult(written=0)
        place = self._collections.place(work_id, space)
        await self._collections.ensure(place)
        contents = self._settings.store_content
        for points in batches(place, Build(document_id, build), chunks, vectors, store_content=contents):
            try:
                await self._upsert(place, points)
            except NoSuchCollection:  # removed by somebody since we looked
                self._collections.forget(place)
                await self._collections.ensure(place)
                await self._upsert(place, points)
        return UpsertResult(written=len(chunks))

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Delete the builds of the document below `before_build`."""
        await self._delete(work_id, space, Build(document_id, below=before_build))

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """Delete one build."""
        await self._delete(work_id, space, Build(document_id, build))

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Delete every build of the document."""
        await self._delete(work_id, space, Build(document_id))

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """Delete the points of the space, or the collection where it has its own."""
        if self._collections.are_shared:
            await self._delete(work_id, space)
            return
        place = self._collections.place(work_id, space)
        await self._ask(place, "delete_collection")
        self._collections.forget(place)

    async def query_chunks(
        self,
        work_id: UUID,
        space: Space,
        *,
        vector: Vector | None = None,
        text: str | None = None,
        top_k: int,
        knowledge_base_ids: Ids | None = None,
        document_ids: Ids | None = None,
        eligible: int | None = None,
    ) -> list[QueryHit]:
        """A margin more than asked; exact where few chunks are eligible, or where the index came back short."""
        question = self.checked_question(vector, space, top_k)
        if _is_empty(knowledge_base_ids) or _is_empty(document_ids):
            return []
        place = self._collections.place(work_id, space)
        await self._engine.open()
        wanted = scope(place, knowledge_base_ids=knowledge_base_ids, document_ids=document_ids)
        limit, exact = top_k + MARGIN, eligible is not None and eligible <= self._settings.exact_below
        while True:
            hits, found = await self._nearest(place, question, wanted, limit=limit, exact=exact)
            is_short = len(hits) < top_k
            if is_short and not (exact or self._engine.is_local):
                exact = True
            elif (
                found < limit
                or limit > top_k + MOST_TIES
                or (not is_short and hits[-1].raw_score < hits[top_k - 1].raw_score)
            ):
                return hits[:top_k]
            else:
                limit *= 4  # the last place is shared by more than the margin holds

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """How many chunks are stored, of any build."""
        place = self._collections.place(work_id, space)
        await self._engine.open()
        wanted = scope(place, None if document_id is None else Build(document_id))
        found = await self._ask(place, "count", count_filter=wanted, exact=True)
        return 0 if found is None else int(found.count)

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """Counted from all points of the space, whose order says nothing of their documents."""
        found: Counter[tuple[UUID, int]] = Counter()
        async for point in self._scroll(self._collections.place(work_id, space), None, payload=BUILD, page=SCAN_PAGE):
            found[UUID(point.payload["document_id"]), point.payload["build"]] += 1
        for (document_id, build), chunks in sorted(found.items()):
            yield DocumentBuild(document_id, build, chunks)

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """The unit vectors as they are compared."""
        place, page = self._collections.place(work_id, space), max(1, FLOATS_A_PAGE // space.dims)
        points = self._scroll(place, Build(document_id, build), payload=["chunk_index"], page=page, vectors=True)
        return {point.payload["chunk_index"]: point.vector async for point in points}

    async def is_available(self) -> Availability:
        """Ask whether a collection exists, which needs the key; local mode answers once it is open."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                if not (self._engine.is_local and self._engine.is_open):
                    name = f"{self._settings.collection_prefix}_ping"
                    await self._engine.call("collection_exists", collection_name=name)
        except TimeoutError:
            reason = f"Qdrant did not answer within {PING_TIMEOUT_S:g} s"
            return Availability(ok=False, reason=reason, temporary=True)
        except Exception as exc:  # the promise is that it never raises; only our own words are passed on
            reason = str(exc) if isinstance(exc, AppError) else "unexpected failure"
            return Availability(ok=False, reason=reason, temporary=isinstance(exc, Unavailable))
        return Availability(ok=True)

    async def close(self) -> None:
        """Close connections and files."""
        await self._engine.close()

    async def _ask(self, place: Place, method: str, **arguments: Any) -> Any:
        """The answer of a call that may find the collection missing: None then, for nothing is stored."""
        try:
            return await self._engine.call(method, collection_name=place.collection, **arguments)
        except NoSuchCollection:
            return None

    async def _upsert(self, place: Place, points: Sequence[Any]) -> None:
        await self._engine.call("upsert", collection_name=place.collection, points=points, wait=True)

    async def _delete(self, work_id: UUID, space: Space, build: Build | None = None) -> None:
        await self._engine.open()
        from qdrant_client import models

        place = self._collections.place(work_id, space)
        selector = models.FilterSelector(filter=scope(place, build))
        await self._ask(place, "delete", points_selector=selector, wait=True)

    async def _nearest(
        self, place: Place, question: Matrix, wanted: Any, *, limit: int, exact: bool
    ) -> tuple[list[QueryHit], int]:
        """Hits, and how many points they were made of."""
        from qdrant_client import models

        answer = await self._ask(
            place,
            "query_points",
            query=question.tolist(),
            query_filter=wanted,
            limit=limit,
            with_payload=REFERENCE,
            with_vectors=self._engine.is_local,
            search_params=models.SearchParams(exact=True) if exact and not self._engine.is_local else None,
        )
        points = [] if answer is None else answer.points
        if len(points) * place.space.dims <= INLINE_FLOATS:
            return hits_of(points, question), len(points)
        return await asyncio.to_thread(hits_of, points, question), len(points)

    async def _scroll(
        self, place: Place, build: Build | None, *, payload: list[str], page: int, vectors: bool = False
    ) -> AsyncIterator[Any]:
        await self._engine.open()
        wanted, after = scope(place, build), None
        while True:
            answer = await self._ask(
                place,
                "scroll",
                scroll_filter=wanted,
                limit=page,
                offset=after,
                with_payload=payload,
                with_vectors=vectors,
            )
            if answer is None:
                return
            points, after = answer
            for point in points:
                if point.payload and all(key in point.payload for key in payload):
                    yield point
            if after is None:
                return


def _is_empty(ids: Ids | None) -> bool:
    return ids is not None and len(ids) == 0


def _ends_in_a_tie(hits: Sequence[QueryHit], top_k: int) -> bool:
    """Whether what lies beyond the hits may have a claim to the last place as good as theirs."""
    return hits[-1].raw_score >= hits[top_k - 1].raw_score
