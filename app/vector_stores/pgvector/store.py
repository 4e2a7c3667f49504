"""The pgvector store: what each promise of the contract means in SQL."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import ClassVar, LiteralString
from uuid import UUID

from app.errors import AppError, Unavailable
from app.plugins.manifest import VectorStoreCapabilities, VectorStoreManifest
from app.vector_stores.base import INLINE_FLOATS, BaseVectorStore, normalized_cosine
from app.vector_stores.contract import (
    Availability,
    DocumentBuild,
    Ids,
    QueryHit,
    Space,
    UpsertResult,
    Vector,
    VectorChunk,
    VectorStoreMisconfigured,
    VectorStoreRefused,
)
from app.vector_stores.pgvector import dropping, schema, statements
from app.vector_stores.pgvector.binary import PackedBatch, pack_batches, unpack_halfvec
from app.vector_stores.pgvector.catalogue import hold_space
from app.vector_stores.pgvector.connections import Connection, Connections
from app.vector_stores.pgvector.maintenance import Maintenance
from app.vector_stores.pgvector.searching import Question, Searcher
from app.vector_stores.pgvector.settings import PgvectorSettings

ROLE = "stackroom_app"
PING_TIMEOUT_S = 2.0
SCAN_PAGE = 1_000
NO_DOCUMENT = UUID(int=0)


class PgvectorStore(BaseVectorStore):
    """Chunks of every Work in one table of Postgres, each statement filtered by Work and space, twice walled."""

    manifest: ClassVar[VectorStoreManifest] = VectorStoreManifest(
        id="pgvector",
        name="pgvector",
        default_for_capabilities=("vector-store",),
        system_plugin=True,
        settings_model=PgvectorSettings,
        location_fields=("dsn",),
        docs_url="https://github.com/pgvector/pgvector",
        store=VectorStoreCapabilities(
            namespace_per_work="row_filter",
            max_top_k=10_000,
            max_batch=5_000,
            max_filter_ids=None,
            max_dimensions=4_000,
        ),
    )

    @classmethod
    def location(cls, settings: PgvectorSettings) -> dict[str, str]:
        """Where an instance with these settings is, without secrets."""
        return settings.location()

    def __init__(
        self,
        settings: PgvectorSettings,
        *,
        own_dsn: str | None = None,
        direct_dsn: str | None = None,
        role: str | None = ROLE,
    ) -> None:
        """Build the store without connecting.

        `own_dsn`: the service's database, used when `settings.dsn` is None; `direct_dsn`: the same database past a
        pooler, for index builds; `role`: taken in every transaction, None = the login's own (no second wall).
        A database of `settings.dsn` is migrated when it is first connected to; the service migrates its own.
        Raises: VectorStoreMisconfigured when there is no database at all.
        """
        dsn = settings.dsn.get_secret_value() if settings.dsn is not None else own_dsn
        if dsn is None:
            raise VectorStoreMisconfigured("pgvector needs a database: set its dsn")
        direct = dsn
        if settings.dsn is None and direct_dsn is not None:
            direct = direct_dsn
        elif settings.dsn is not None and settings.direct_dsn is not None:
            direct = settings.direct_dsn.get_secret_value()
        self._settings = settings
        self._connections = Connections(
            dsn,
            direct_dsn=direct,
            role=role,
            pool_size=settings.pool_size,
            pool_wait_s=settings.pool_wait_s,
            migrate=None if settings.dsn is None else schema.upgrade,
        )
        self._searcher = Searcher(self._connections, settings)
        self._maintenance = Maintenance(self._connections, settings)

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """All of them in one transaction, or none; a chunk that is there keeps its vector."""
        if space.dims > (most := self.manifest.store.max_dimensions):
            raise VectorStoreRefused(f"pgvector holds vectors of up to {most} dimensions, not {space.dims}")
        batches = await self._packed(chunks, space.dims)
        if not batches:
            return UpsertResult(written=0)

        async def insert(connection: Connection) -> int:
            row = await hold_space(connection, work_id, space)
            identity = {"work_id": work_id, "space_no": row.space_no, "document_id": document_id, "build": build}
            return sum([await _insert(connection, identity, batch) for batch in batches])

        written = await self._connections.run(work_id, insert, timeout_s=self._settings.write_timeout_s)
        return UpsertResult(written=written, skipped=len(chunks) - written)

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Delete the builds of the document below `before_build`."""
        await self._delete(statements.PRUNE, work_id, space, document_id=document_id, before_build=before_build)

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """Delete one build."""
        await self._delete(statements.DELETE_BUILD, work_id, space, document_id=document_id, build=build)

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Delete every build of the document."""
        await self._delete(statements.DELETE_DOCUMENT, work_id, space, document_id=document_id)

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """Drop the space's index, then its rows in batches, then its place in the catalogue."""
        await dropping.drop_space(self._connections, work_id, space, timeout_s=self._settings.write_timeout_s)
        self._searcher.forget(work_id, space)

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
        """Exact where few rows are eligible, else over the space's own index; never short of what there is."""
        question = Question(
            work_id, space, self.checked_question(vector, space, top_k), top_k, knowledge_base_ids, document_ids
        )
        return await self._searcher.answer(question, eligible=eligible)

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """How many chunks are stored, of any build."""
        values = {"work_id": work_id, "space_key": statements.space_key(space), "document_id": document_id}
        sql = statements.COUNT if document_id is None else statements.COUNT_DOCUMENT

        async def read(connection: Connection) -> int:
            found = await (await connection.execute(sql, values)).fetchone()
            return int(found[0]) if found else 0

        return await self._connections.run(work_id, read, timeout_s=self._settings.write_timeout_s)

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """Page by page in the order of the key; no connection is held while the caller works."""
        after = (NO_DOCUMENT, -1)
        while page := await self._scan_page(work_id, space, after):
            for found in page:
                yield found
            after = (page[-1].document_id, page[-1].build)

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """Unit vectors with the precision of half floats (about three digits)."""
        key = statements.space_key(space)
        values = {"work_id": work_id, "space_key": key, "document_id": document_id, "build": build}

        async def read(connection: Connection) -> dict[int, Vector]:
            cursor = await connection.execute(statements.FETCH, values, binary=True)
            return {index: unpack_halfvec(data) for index, data in await cursor.fetchall()}

        return await self._connections.run(work_id, read, timeout_s=self._settings.write_timeout_s)

    def normalize(self, raw: float) -> float:
        """A cosine distance, 0 … 2, as (1 + cosine) / 2."""
        return normalized_cosine(1.0 - raw)

    async def maintain(self, work_id: UUID, space: Space) -> None:
        """Promote, demote or rebuild the space's own index, and refresh the planner's statistics."""
        await self._maintenance.maintain(work_id, space)
        self._searcher.forget(work_id, space)

    async def is_available(self) -> Availability:
        """Facts: `row_level_security` = whether the second wall stands, `extension` = pgvector's version."""
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                facts = await self._connections.ping()
        except TimeoutError:
            reason = f"the database did not answer within {PING_TIMEOUT_S:g} s"
            return Availability(ok=False, reason=reason, temporary=True)
        except Exception as exc:  # the promise is that it never raises; only our own words are passed on
            reason = str(exc) if isinstance(exc, AppError) else "unexpected failure"
            return Availability(ok=False, reason=reason, temporary=isinstance(exc, Unavailable))
        return Availability(
            ok=True, facts={"row_level_security": facts.role is not None, "extension": facts.extension_version}
        )

    async def close(self) -> None:
        """Close the pool."""
        await self._connections.close()

    async def _packed(self, chunks: Sequence[VectorChunk], dims: int) -> list[PackedBatch]:
        vectors = await self.checked(chunks, dims)
        if not chunks:
            return []
        halfvec_oid = (await self._connections.facts()).halfvec_oid
        try:
            if vectors.size <= INLINE_FLOATS:
                return pack_batches(chunks, vectors, halfvec_oid)
            return await asyncio.to_thread(pack_batches, chunks, vectors, halfvec_oid)
        except OverflowError as exc:
            raise VectorStoreRefused("a chunk's index is larger than an int4") from exc

    async def _delete(self, sql: LiteralString, work_id: UUID, space: Space, **values: object) -> None:
        bound = {"work_id": work_id, "space_key": statements.space_key(space), **values}

        async def delete(connection: Connection) -> None:
            await connection.execute(sql, bound)

        await self._connections.run(work_id, delete, timeout_s=self._settings.write_timeout_s)

    async def _scan_page(self, work_id: UUID, space: Space, after: tuple[UUID, int]) -> list[DocumentBuild]:
        values = {"work_id": work_id, "space_key": statements.space_key(space), "most": SCAN_PAGE}

        async def read(connection: Connection) -> list[DocumentBuild]:
            bound = {**values, "after_document": after[0], "after_build": after[1]}
            cursor = await connection.execute(statements.SCAN, bound, binary=True)
            return [DocumentBuild(*row) for row in await cursor.fetchall()]

        return await self._connections.run(work_id, read, timeout_s=self._settings.write_timeout_s)


async def _insert(connection: Connection, identity: dict[str, object], batch: PackedBatch) -> int:
    values = {
        **identity,
        "chunk_indexes": batch.chunk_indexes,
        "knowledge_base_ids": batch.knowledge_base_ids,
        "embeddings": batch.embeddings,
    }
    return (await connection.execute(statements.INSERT_CHUNKS, values)).rowcount
