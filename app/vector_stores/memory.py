"""In memory: numpy arrays in a dict per Work and space. For tests and trials; gone when the process ends."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

import numpy as np

from app.plugins.manifest import NoSettings, VectorStoreCapabilities, VectorStoreManifest
from app.vector_stores.base import INLINE_FLOATS, BaseVectorStore, Matrix, best_first
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

ROWS_AT_A_TIME = 4_096


@dataclass(frozen=True)
class Block:
    """The chunks of one build of one document; never changed, only replaced.

    `vectors`: (n, dims) float32, rows L2-normalised, in the order of `refs`, which is by chunk index.
    """

    refs: tuple[ChunkRef, ...]
    vectors: Matrix


Shelf = dict[tuple[UUID, int], Block]  # (document, build) → its chunks
Unwanted = Callable[[UUID, int], bool]


class MemoryStore(BaseVectorStore):
    """The exact store, and the one that others are measured against.

    Safe for any number of tasks of one event loop: blocks are immutable, and no change spans an `await`.
    """

    manifest: ClassVar[VectorStoreManifest] = VectorStoreManifest(
        id="memory",
        name="In memory",
        settings_model=NoSettings,
        store=VectorStoreCapabilities(namespace_per_work="namespace", supports_namespaces=True, single_process=True),
    )

    def __init__(self, settings: NoSettings | None = None) -> None:
        self._shelves: dict[tuple[UUID, Space], Shelf] = {}

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """Add the chunks that are not there; a chunk that is there keeps its vector."""
        vectors = await self.checked(chunks, space.dims)
        if not chunks:
            return UpsertResult(written=0)
        shelf = self._shelves.setdefault((work_id, space), {})
        old = shelf.get((document_id, build))
        rows = {} if old is None else dict(zip(old.refs, old.vectors, strict=True))
        known = {ref.chunk_index for ref in rows}
        before = len(rows)
        for chunk, vector in zip(chunks, vectors, strict=True):
            if chunk.chunk_index not in known:
                known.add(chunk.chunk_index)
                rows[ChunkRef(chunk.knowledge_base_id, document_id, build, chunk.chunk_index)] = vector
        refs = tuple(sorted(rows, key=lambda ref: ref.chunk_index))
        shelf[document_id, build] = Block(refs, np.array([rows[ref] for ref in refs]))
        written = len(rows) - before
        return UpsertResult(written=written, skipped=len(chunks) - written)

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Drop the builds of the document below `before_build`."""
        self._drop(work_id, space, lambda document, build: document == document_id and build < before_build)

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """Drop one build."""
        self._drop(work_id, space, lambda document, number: (document, number) == (document_id, build))

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Drop every build of the document."""
        self._drop(work_id, space, lambda document, build: document == document_id)

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """Drop the space of the Work."""
        self._shelves.pop((work_id, space), None)

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
        """Compare with every allowed chunk; `eligible` changes nothing."""
        question = self.checked_question(vector, space, top_k)
        documents = None if document_ids is None else frozenset(document_ids)
        bases = None if knowledge_base_ids is None else frozenset(knowledge_base_ids)
        shelf = self._shelves.get((work_id, space), {})
        blocks = [b for (document, _), b in shelf.items() if documents is None or document in documents]
        if sum(block.vectors.size for block in blocks) <= INLINE_FLOATS:
            return self._nearest(blocks, bases, question, top_k)
        return await asyncio.to_thread(self._nearest, blocks, bases, question, top_k)

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """How many chunks are stored, of any build."""
        shelf = self._shelves.get((work_id, space), {})
        return sum(len(b.refs) for (document, _), b in shelf.items() if document_id in (None, document))

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """The builds that were there when the scan began."""
        shelf = dict(self._shelves.get((work_id, space), {}))
        for (document, build), block in sorted(shelf.items()):
            yield DocumentBuild(document, build, len(block.refs))

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """The unit vectors as they are compared."""
        block = self._shelves.get((work_id, space), {}).get((document_id, build))
        if block is None:
            return {}
        return {ref.chunk_index: row.tolist() for ref, row in zip(block.refs, block.vectors, strict=True)}

    async def is_available(self) -> Availability:
        """Always."""
        return Availability(ok=True)

    def _drop(self, work_id: UUID, space: Space, unwanted: Unwanted) -> None:
        shelf = self._shelves.get((work_id, space), {})
        for key in [key for key in shelf if unwanted(*key)]:
            del shelf[key]

    def _nearest(
        self, blocks: Sequence[Block], bases: frozenset[UUID] | None, question: Matrix, top_k: int
    ) -> list[QueryHit]:
        refs = [ref for block in blocks for ref in block.refs]
        if not refs:
            return []
        cosines = np.clip(row_cosines(np.concatenate([block.vectors for block in blocks]), question), -1.0, 1.0)
        rows = np.arange(len(refs))
        if bases is not None:
            rows = rows[[ref.knowledge_base_id in bases for ref in refs]]
        if len(rows) > top_k:
            least = np.partition(cosines[rows], len(rows) - top_k)[len(rows) - top_k]
            rows = rows[cosines[rows] >= least]  # more than top_k when the last place is shared
        hits = (QueryHit(refs[row], cosine := float(cosines[row]), self.normalize(cosine)) for row in rows)
        return best_first(hits)[:top_k]


def row_cosines(rows: Matrix, question: Matrix) -> Matrix:
    """(n,) float32: the cosine of each unit row of (n, dims) with the unit vector (dims,).

    Summed row by row and not by a BLAS product, whose rounding depends on a row's position:
    identical rows get identical numbers, so that ties are ties.
    """
    parts = [
        (rows[start : start + ROWS_AT_A_TIME] * question).sum(axis=1) for start in range(0, len(rows), ROWS_AT_A_TIME)
    ]
    return np.concatenate(parts)
