"""The Pinecone store: what each promise of the contract means in its calls."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ClassVar
from uuid import UUID

from app.errors import AppError, Unavailable
from app.plugins.manifest import VectorStoreCapabilities, VectorStoreManifest
from app.vector_stores.base import INLINE_FLOATS, BaseVectorStore, best_first
from app.vector_stores.contract import (
    Availability,
    ChunkRef,
    DocumentBuild,
    Ids,
    QueryHit,
    Space,
    UpsertResult,
    Vector,
    VectorChunk,
    VectorStoreMisconfigured,
    VectorStoreRefused,
    VectorStoreUnavailable,
)
from app.vector_stores.pinecone import naming
from app.vector_stores.pinecone.batching import MAX_RECORDS, Record, batches, vector_records
from app.vector_stores.pinecone.connections import Connections
from app.vector_stores.pinecone.failures import NotThere
from app.vector_stores.pinecone.freshness import Freshness
from app.vector_stores.pinecone.naming import BASE, Clause, Filter, IndexPlan
from app.vector_stores.pinecone.records import IDS_PER_CALL, Match, Records
from app.vector_stores.pinecone.settings import MAX_REQUEST_BYTES, PineconeSettings

PING_TIMEOUT_S = 2.0
MAX_TOP_K = 10_000
MAX_FILTER_IDS = 10_000
TIE_MARGIN = 16
FETCH_BYTES = 3_000_000  # an answer may have 4 MB

CAPABILITIES = VectorStoreCapabilities(
    supports_namespaces=True,
    namespace_per_work="namespace",
    max_top_k=MAX_TOP_K,
    max_batch=MAX_RECORDS,
    max_request_bytes=MAX_REQUEST_BYTES,
    max_filter_ids=MAX_FILTER_IDS,
    max_dimensions=20_000,
    max_works=100_000,
)


class PineconeStore(BaseVectorStore):
    """Vectors and ids in a document index of Pinecone; no text of ours goes there."""

    manifest: ClassVar[VectorStoreManifest] = VectorStoreManifest(
        id="pinecone",
        name="Pinecone",
        distribution="registry",
        extra="pinecone",
        settings_model=PineconeSettings,
        location_fields=("api_url", "project", "index_prefix"),
        docs_url="https://docs.pinecone.io",
        tested_against="double",
        store=CAPABILITIES,
    )

    def __init__(self, settings: PineconeSettings) -> None:
        """Build the store without connecting. Raises: MissingExtra."""
        self._settings = settings
        self._connections = Connections(settings, self.manifest)
        self._freshness = Freshness(wait_s=settings.freshness_wait_s, stale_read_wait_s=settings.stale_read_wait_s)

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """Upsert in batches, then wait until they are seen. Not atomic: a failed write may have left some."""
        prepared = await self._prepared(document_id, space, build, chunks)
        if not prepared:
            return UpsertResult(written=0)
        async with self._call():
            records = await self._ensured(work_id, space)
            try:
                positions = [await records.upsert(batch) for batch in prepared]
            except NotThere as error:  # the index that was there a moment ago
                self._connections.drop(records.plan)
                raise VectorStoreUnavailable(error.message) from None
            await self._freshness.written(records, prepared, positions)
        written = sum(map(len, prepared))
        return UpsertResult(written=written, skipped=len(chunks) - written)

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Delete the builds of the document below `before_build`, by filter, and by id what escapes it."""
        await self._delete(
            work_id,
            space,
            naming.of_document(document_id, lt=before_build),
            naming.document_prefix(document_id),
            before_build=before_build,
        )

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """Delete one build."""
        await self._delete(
            work_id, space, naming.of_document(document_id, eq=build), naming.build_prefix(document_id, build)
        )

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Delete every build of the document."""
        await self._delete(work_id, space, naming.of_document(document_id), naming.document_prefix(document_id))

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """Empty the namespace, see it empty, and give it back: an index holds only so many."""
        async with self._call():
            records = await self._found(work_id, space)
            if records is None:
                return
            try:
                position = await records.delete(everything=True)
                await self._freshness.deleted(records, position, None, None, lambda _: True)
                await records.drop()
            except NotThere:
                pass

            async def is_gone() -> bool:
                return not await records.exists()

            await self._freshness.until(is_gone, "still has the namespace")
            self._freshness.forget(records.namespace)

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
        """One search of the namespace; more where the last place is shared, or the answer is an old one.

        Raises: VectorStoreMisconfigured when chunks must be there (`eligible`) and the whole index is gone.
        """
        clause = self._clause(space, vector, text, top_k)
        for ids in (knowledge_base_ids, document_ids):
            if ids is not None and len(ids) > MAX_FILTER_IDS:
                raise VectorStoreRefused(f"Pinecone filters by at most {MAX_FILTER_IDS} ids, not {len(ids)}")
            if ids is not None and not ids:
                return []
        async with self._call():
            records = await self._found(work_id, space)
            if records is None:
                if eligible:
                    raise VectorStoreMisconfigured(f"the index '{self._plan(space).name}' is gone from Pinecone")
                return []
            matching = naming.among(knowledge_base_id=knowledge_base_ids, document_id=document_ids)
            return await self._best(records, clause, top_k, matching)

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """The number of ids listed, a hundred a page."""
        prefix = None if document_id is None else naming.document_prefix(document_id)
        records = await self._located(work_id, space)
        return 0 if records is None else len([one async for one in records.ids(prefix) if naming.parsed_id(one)])

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """The builds that were listed, after the whole listing: its order is not promised."""
        records = await self._located(work_id, space)
        found: dict[tuple[UUID, int], set[int]] = {}
        if records is not None:
            async for one in records.ids():
                if (identity := naming.parsed_id(one)) is not None:
                    document_id, build, index = identity
                    found.setdefault((document_id, build), set()).add(index)
        for (document_id, build), indexes in sorted(found.items()):
            yield DocumentBuild(document_id, build, len(indexes))

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """The vectors as they were sent; `None` where Pinecone has made them itself."""
        if not space.dims:
            return None
        async with self._call():
            records = await self._found(work_id, space)
            return {} if records is None else await self._fetched(records, document_id, space, build)

    async def is_available(self) -> Availability:
        """Ask for the list of indexes: it needs the key and the project, and no index yet."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                await self._connections.ping()
        except TimeoutError:
            return Availability(False, f"Pinecone did not answer within {PING_TIMEOUT_S:g} s", temporary=True)
        except AppError as error:
            return Availability(False, error.message, temporary=isinstance(error, Unavailable))
        return Availability(ok=True)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _plan(self, space: Space) -> IndexPlan:
        """The index that holds a space."""
        return naming.vector_index(self._settings.index_prefix, space.dims)

    async def _prepared(
        self, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> list[list[Record]]:
        """The requests of a write. Raises: BadVector, VectorStoreRefused."""
        if space.dims > (most := self.manifest.store.max_dimensions):
            raise VectorStoreRefused(f"Pinecone holds vectors of up to {most} dimensions, not {space.dims}")
        vectors = await self.checked(chunks, space.dims)

        def pack() -> list[list[Record]]:
            records = vector_records(document_id, build, chunks, vectors)
            return batches(records, max_records=MAX_RECORDS, max_bytes=self._settings.batch_bytes)

        return pack() if vectors.size <= INLINE_FLOATS else await asyncio.to_thread(pack)

    def _clause(self, space: Space, vector: Vector | None, text: str | None, top_k: int) -> Clause:
        """The question. Raises: BadVector, VectorStoreRefused."""
        return naming.vector_clause(self.checked_question(vector, space, top_k).tolist())

    async def _best(self, records: Records, clause: Clause, top_k: int, matching: Filter | None) -> list[QueryHit]:
        """The best `top_k`. Pinecone orders ties as it likes: where the last place is shared, ask for all who do."""
        wanted = min(top_k + TIE_MARGIN, MAX_TOP_K)
        while True:
            ask = partial(records.search, clause, top_k=wanted, matching=matching, fields=[BASE])
            found = await self._freshness.fresh(records.namespace, ask)
            matches = found.matches
            is_shared = len(matches) == wanted and matches[top_k - 1].score == matches[-1].score
            if not is_shared or wanted == MAX_TOP_K:
                return best_first(self._hits(matches))[:top_k]
            wanted = min(4 * wanted, MAX_TOP_K)

    def _hits(self, matches: Sequence[Match]) -> Iterator[QueryHit]:
        for match in matches:
            identity, base = naming.parsed_id(match.id), match.fields.get(BASE)
            if identity is None or not isinstance(base, str):
                continue  # not a record of ours
            document_id, build, index = identity
            chunk = ChunkRef(UUID(base), document_id, build, index)
            yield QueryHit(chunk, match.score, self.normalize(match.score))

    async def _delete(
        self, work_id: UUID, space: Space, doomed: Filter, prefix: str, *, before_build: int | None = None
    ) -> None:
        def is_doomed(one: str) -> bool:
            identity = naming.parsed_id(one)
            return identity is not None and (before_build is None or identity[1] < before_build)

        async with self._call():
            records = await self._found(work_id, space)
            if records is None:
                return
            try:
                position = await records.delete(matching=doomed)
            except NotThere:
                return
            await self._freshness.deleted(records, position, doomed, prefix, is_doomed)

    async def _fetched(self, records: Records, document_id: UUID, space: Space, build: int) -> dict[int, Vector]:
        vectors: dict[int, Vector] = {}
        at_once = max(1, min(IDS_PER_CALL, FETCH_BYTES // (space.dims * 16 + 200)))

        async def is_complete() -> bool:
            ids = [one async for one in records.ids(naming.build_prefix(document_id, build))]
            vectors.clear()
            for start in range(0, len(ids), at_once):
                given = await records.fetch(ids[start : start + at_once], naming.VECTOR_FIELD)
                for one, vector in given.items():
                    if (identity := naming.parsed_id(one)) is not None and vector is not None:
                        vectors[identity[2]] = vector
            return len(vectors) == len(ids)

        await self._freshness.until(is_complete, "does not give every vector that it lists")
        return vectors

    async def _located(self, work_id: UUID, space: Space) -> Records | None:
        async with self._call():
            return await self._found(work_id, space)

    async def _found(self, work_id: UUID, space: Space) -> Records | None:
        index = await self._connections.find(self._plan(space))
        return None if index is None else self._records(work_id, space, index)

    async def _ensured(self, work_id: UUID, space: Space) -> Records:
        return self._records(work_id, space, await self._connections.ensure(self._plan(space)))

    def _records(self, work_id: UUID, space: Space, index: Any) -> Records:
        limit_s = self._settings.call_timeout_s
        return Records(self._plan(space), index, naming.namespace(work_id, space), page_limit_s=limit_s)

    @asynccontextmanager
    async def _call(self) -> AsyncIterator[None]:
        """The time limit of one call of the contract: it also ends the SDK's own retries."""
        limit_s = self._settings.call_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                yield
        except TimeoutError:
            raise VectorStoreUnavailable(f"Pinecone did not finish within {limit_s:g} s") from None
