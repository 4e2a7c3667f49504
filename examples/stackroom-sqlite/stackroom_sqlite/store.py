"""The store: what each promise of the contract means in SQL."""

import sqlite3
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from uuid import UUID

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from app.errors import AppError
from app.plugins.manifest import VectorStoreCapabilities, VectorStoreManifest
from app.vector_stores.base import BaseVectorStore, Matrix, best_first
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
)
from stackroom_sqlite.database import Database

BLOCK = 4_096  # rows that are compared at a time: memory stays bounded
SCAN_PAGE = 1_000
MOST_NAMED = 500  # documents that a statement names; more are picked out of the whole space
Row = tuple[bytes, int, int, bytes, bytes]  # document, build, chunk, knowledge base, vector
OF_SPACE = "where work = ? and space = ?"


class SqliteSettings(BaseModel):
    """Where the file is: an absolute path, which only an operator sets."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path = Field(json_schema_extra={"operator_only": True})


class SqliteStore(BaseVectorStore):
    """Exact search over a SQLite file."""

    manifest: ClassVar[VectorStoreManifest] = VectorStoreManifest(
        id="sqlite",
        name="SQLite",
        distribution="registry",
        settings_model=SqliteSettings,
        location_fields=("path",),
        store=VectorStoreCapabilities(namespace_per_work="row_filter"),
    )

    def __init__(self, settings: SqliteSettings) -> None:
        self._database = Database(settings.path)

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """Insert what is not there; a chunk that is there keeps its vector."""
        vectors = await self.checked(chunks, space.dims)
        rows = [
            (*_of(work_id, space), document_id.bytes, build, c.chunk_index, c.knowledge_base_id.bytes, vector.tobytes())
            for c, vector in zip(chunks, vectors, strict=True)
        ]

        def write(connection: sqlite3.Connection) -> int:
            return connection.executemany("insert or ignore into chunks values (?, ?, ?, ?, ?, ?, ?)", rows).rowcount

        written = await self._database.run(write, writes=True) if rows else 0
        return UpsertResult(written=written, skipped=len(rows) - written)

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Delete the builds of the document below `before_build`."""
        await self._delete(work_id, space, "and document = ? and build < ?", document_id.bytes, before_build)

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """Delete one build."""
        await self._delete(work_id, space, "and document = ? and build = ?", document_id.bytes, build)

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Delete every build of the document."""
        await self._delete(work_id, space, "and document = ?", document_id.bytes)

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """Empty the space of the Work."""
        await self._delete(work_id, space, "")

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
        """Compare with every chunk that is allowed, a block at a time."""
        question = self.checked_question(vector, space, top_k)
        bases = None if knowledge_base_ids is None else {one.bytes for one in knowledge_base_ids}
        documents = None if document_ids is None else {one.bytes for one in document_ids}
        if bases == set() or documents == set():
            return []

        def search(connection: sqlite3.Connection) -> list[QueryHit]:
            best: list[QueryHit] = []
            for rows in _blocks(connection, _of(work_id, space), documents):
                allowed = [row for row in rows if _is_among(row[3], bases) and _is_among(row[0], documents)]
                best = best_first([*best, *self._hits(allowed, question, top_k)])[:top_k]
            return best

        return await self._database.run(search)

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """Count the rows."""
        more, values = ("", ()) if document_id is None else (" and document = ?", (document_id.bytes,))

        def counted(connection: sqlite3.Connection) -> int:
            found = connection.execute(f"select count(*) from chunks {OF_SPACE}{more}", (*_of(work_id, space), *values))
            return int(found.fetchone()[0])

        return await self._database.run(counted)

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """Every build, a page at a time, by document and build."""
        after: tuple[bytes, int] = (b"", -1)
        while True:
            place = (*_of(work_id, space), *after, SCAN_PAGE)

            def page(connection: sqlite3.Connection, place: tuple[object, ...] = place) -> list[tuple[bytes, int, int]]:
                return connection.execute(
                    f"select document, build, count(*) from chunks {OF_SPACE} and (document, build) > (?, ?)"
                    " group by document, build order by document, build limit ?",
                    place,
                ).fetchall()

            rows = await self._database.run(page)
            for document, build, chunks in rows:
                yield DocumentBuild(UUID(bytes=document), build, chunks)
            if len(rows) < SCAN_PAGE:
                return
            after = rows[-1][:2]

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """The vectors as they lie in the file."""

        def fetched(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            return connection.execute(
                f"select chunk, vector from chunks {OF_SPACE} and document = ? and build = ?",
                (*_of(work_id, space), document_id.bytes, build),
            ).fetchall()

        return {chunk: array("f", vector) for chunk, vector in await self._database.run(fetched)}

    async def is_available(self) -> Availability:
        """Open the file."""
        try:
            await self._database.run(lambda connection: connection.execute("select 1").fetchone())
        except AppError as error:
            return Availability(False, error.message)
        return Availability(ok=True)

    async def close(self) -> None:
        """Close the connections."""
        self._database.close()

    async def _delete(self, work_id: UUID, space: Space, more: str, *values: object) -> None:
        place = (*_of(work_id, space), *values)

        def delete(connection: sqlite3.Connection) -> None:
            connection.execute(f"delete from chunks {OF_SPACE} {more}", place)

        await self._database.run(delete, writes=True)

    def _hits(self, rows: Sequence[Row], question: Matrix, top_k: int) -> Iterator[QueryHit]:
        """The best `top_k` of a block, and all that share the last one's score."""
        if not rows:
            return
        vectors = np.frombuffer(b"".join(row[4] for row in rows), dtype=np.float32).reshape(len(rows), -1)
        cosines = (vectors * question).sum(axis=1)  # row by row: equal vectors get equal scores
        floor = np.partition(cosines, -top_k)[-top_k] if len(rows) > top_k else -np.inf
        for at in np.flatnonzero(cosines >= floor).tolist():
            document, build, chunk, base, _ = rows[at]
            cosine = float(cosines[at])
            ref = ChunkRef(UUID(bytes=base), UUID(bytes=document), build, chunk)
            yield QueryHit(ref, cosine, self.normalize(cosine))


def _of(work_id: UUID, space: Space) -> tuple[bytes, str]:
    return work_id.bytes, space.key


def _is_among(one: bytes, allowed: set[bytes] | None) -> bool:
    return allowed is None or one in allowed


def _blocks(
    connection: sqlite3.Connection, place: tuple[bytes, str], documents: set[bytes] | None
) -> Iterator[list[Row]]:
    """The rows of a space, or of a few documents in it."""
    named = sorted(documents) if documents is not None and len(documents) <= MOST_NAMED else []
    more = f" and document in ({', '.join('?' * len(named))})" if named else ""
    cursor = connection.execute(
        f"select document, build, chunk, base, vector from chunks {OF_SPACE}{more}", (*place, *named)
    )
    while rows := cursor.fetchmany(BLOCK):
        yield rows
