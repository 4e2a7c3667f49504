"""The LanceDB store: what each promise of the contract means there."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID
from weakref import WeakValueDictionary

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
from app.vector_stores.lancedb.database import Database, Table
from app.vector_stores.lancedb.maintenance import Maintenance
from app.vector_stores.lancedb.places import Place
from app.vector_stores.lancedb.rows import pack, vectors_of
from app.vector_stores.lancedb.sdk import ensure_installed
from app.vector_stores.lancedb.searching import Question, Searcher
from app.vector_stores.lancedb.settings import LanceDbSettings

PING_TIMEOUT_S = 2.0


class LanceDbStore(BaseVectorStore):
    """A table for each Work and space; every call opens it by a name that only a Work and a space give."""

    manifest: ClassVar[VectorStoreManifest] = VectorStoreManifest(
        id="lancedb",
        name="LanceDB",
        extra="lancedb",
        settings_model=LanceDbSettings,
        location_fields=("path", "uri", "endpoint"),
        docs_url="https://docs.lancedb.com",
        store=VectorStoreCapabilities(
            namespace_per_work="collection",
            supports_namespaces=True,
            max_top_k=10_000,
            max_batch=5_000,
            max_filter_ids=10_000,
            max_dimensions=16_000,
        ),
    )

    def __init__(self, settings: LanceDbSettings, *, own_path: Path | None = None) -> None:
        """Build the store without connecting, and without importing LanceDB.

        `own_path`: a directory of the service's own, used when the settings name no place.
        Raises: MissingExtra; VectorStoreMisconfigured when there is no place at all.
        """
        ensure_installed(self.manifest)
        directory = None if settings.uri is not None else settings.path or own_path
        if directory is None and settings.uri is None:
            raise VectorStoreMisconfigured("LanceDB needs a place: set its path or its uri")
        self._settings = settings
        self._database = Database(settings, directory=directory, manifest=self.manifest)
        self._searcher, self._maintenance = Searcher(settings), Maintenance(settings)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """All of them in one commit, or none; a chunk that is there keeps its vector."""
        if space.dims > (most := self.manifest.store.max_dimensions):
            raise VectorStoreRefused(f"LanceDB is used for vectors of up to {most} dimensions, not {space.dims}")
        vectors = await self.checked(chunks, space.dims)
        if not chunks:
            return UpsertResult(written=0)
        place, sdk = Place(work_id, space), await self._database.sdk()
        if vectors.size <= INLINE_FLOATS:
            batch = pack(sdk, place, document_id, build, chunks, vectors)
        else:
            batch = await asyncio.to_thread(pack, sdk, place, document_id, build, chunks, vectors)

        async def insert(table: Table) -> int:
            # Only inserting makes a repeated write a no-op. An index on `id` would switch off what keeps keys unique.
            merge = table.merge_insert("id").when_not_matched_insert_all().use_index(False)
            return int((await merge.execute(batch.table)).num_inserted_rows)

        async with self._turn(place):
            written = await self._database.fill(place, insert, timeout_s=self._settings.write_timeout_s)
        return UpsertResult(written=written, skipped=len(chunks) - written)

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Delete the builds of the document below `before_build`."""
        place = Place(work_id, space)
        await self._delete(place, place.where(document_ids=[document_id], before_build=before_build))

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """Delete one build."""
        place = Place(work_id, space)
        await self._delete(place, place.where(document_ids=[document_id], build=build))

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Delete every build of the document."""
        place = Place(work_id, space)
        await self._delete(place, place.where(document_ids=[document_id]))

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """Drop the table."""
        await self._database.drop(Place(work_id, space), timeout_s=self._settings.write_timeout_s)

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
        """Exact below `index_after_rows`, and for a restriction that leaves fewer; never short of what there is."""
        question = Question(
            Place(work_id, space),
            self.checked_question(vector, space, top_k),
            top_k,
            knowledge_base_ids,
            document_ids,
            eligible,
        )
        if not question.can_match:
            return []

        async def answer(table: Table) -> list[QueryHit]:
            return await self._searcher.answer(table, question)

        return await self._database.read(question.place, answer, timeout_s=self._settings.search_timeout_s) or []

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """How many chunks are stored, of any build."""
        place = Place(work_id, space)
        condition = place.where(document_ids=None if document_id is None else [document_id])

        async def read(table: Table) -> int:
            return int(await table.count_rows(condition))

        return await self._database.read(place, read, timeout_s=self._settings.write_timeout_s) or 0

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """The builds of one version of the table, counted before the first is given."""

        async def read(table: Table) -> list[DocumentBuild]:
            rows = await table.query().select(["document_id", "build"]).to_arrow()
            return await asyncio.to_thread(_builds, rows)

        found = await self._database.read(Place(work_id, space), read, timeout_s=self._settings.write_timeout_s)
        for build in found or []:
            yield build

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """The unit vectors as they are compared."""
        place = Place(work_id, space)
        condition = place.where(document_ids=[document_id], build=build)

        async def read(table: Table) -> dict[int, Vector]:
            rows = await table.query().where(condition).select(["chunk_index", "vector"]).to_arrow()
            return await asyncio.to_thread(vectors_of, rows, space.dims)

        return await self._database.read(place, read, timeout_s=self._settings.write_timeout_s) or {}

    def normalize(self, raw: float) -> float:
        """A cosine distance, 0 … 2, as (1 + cosine) / 2."""
        return normalized_cosine(1.0 - raw)

    async def maintain(self, work_id: UUID, space: Space) -> None:
        """Merge small files, remove old versions, build or drop indexes; nothing while another process is at it."""
        place, sdk = Place(work_id, space), await self._database.sdk()

        async def tidy(table: Table) -> None:
            await self._maintenance.maintain(sdk, table, space)

        async with self._database.locks.if_free(f"upkeep {place.table}") as is_ours:
            if is_ours:
                await self._database.change(place, tidy, timeout_s=self._settings.maintenance_timeout_s)

    async def is_available(self) -> Availability:
        """On a disk: whether the directory can be written to; else one listing."""
        try:
            if self._database.directory is None:
                await self._database.sdk()  # its import is not on the clock
            async with asyncio.timeout(PING_TIMEOUT_S):
                if self._database.directory is None:
                    await self._database.ping()
                else:
                    await asyncio.to_thread(_check_directory, self._database.directory)
        except TimeoutError:
            reason = f"LanceDB's storage did not answer within {PING_TIMEOUT_S:g} s"
            return Availability(ok=False, reason=reason, temporary=True)
        except Exception as exc:  # the promise is that it never raises; only our own words are passed on
            reason = str(exc) if isinstance(exc, AppError) else "unexpected failure"
            return Availability(ok=False, reason=reason, temporary=isinstance(exc, Unavailable))
        return Availability(ok=True)

    async def close(self) -> None:
        """Close the connection."""
        await self._database.close()

    def _turn(self, place: Place) -> asyncio.Lock:
        """Inserts of one process into one table wait for each other: then commits collide between processes only."""
        return self._turns.setdefault(place.table, asyncio.Lock())

    async def _delete(self, place: Place, condition: str | None) -> None:
        async def delete(table: Table) -> None:
            if condition is not None and await table.count_rows(condition) > 0:  # an empty delete is a commit, too
                await table.delete(condition)

        await self._database.change(place, delete, timeout_s=self._settings.write_timeout_s)


def _builds(rows: Any) -> list[DocumentBuild]:
    counted = rows.group_by(["document_id", "build"]).aggregate([([], "count_all")])
    columns = (counted.column(name).to_pylist() for name in ("document_id", "build", "count_all"))
    return sorted(
        (DocumentBuild(UUID(bytes=document), build, chunks) for document, build, chunks in zip(*columns, strict=True)),
        key=lambda found: (found.document_id, found.build),
    )


def _check_directory(directory: Path) -> None:
    """Raises: VectorStoreMisconfigured."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise VectorStoreMisconfigured("LanceDB's directory cannot be made") from exc
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise VectorStoreMisconfigured("LanceDB's directory cannot be written to")
