"""What every vector store shares: the obvious defaults, the checks before a write, and the order of hits."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import ClassVar
from uuid import UUID

import numpy as np
import numpy.typing as npt

from app.plugins.manifest import VectorStoreManifest
from app.vector_stores.contract import (
    Availability,
    BadVector,
    DocumentBuild,
    Ids,
    QueryHit,
    Space,
    UpsertResult,
    Vector,
    VectorChunk,
    VectorStoreRefused,
)

Matrix = npt.NDArray[np.float32]

INLINE_FLOATS = 100_000  # work on more numbers than this goes to a thread, so that the event loop keeps breathing


class BaseVectorStore(ABC):
    """A store to derive from: what is left abstract has no default that would be right everywhere."""

    manifest: ClassVar[VectorStoreManifest]

    @abstractmethod
    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """See `VectorStore.write_chunks`."""

    @abstractmethod
    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """See `VectorStore.prune_chunks`."""

    @abstractmethod
    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """See `VectorStore.delete_build`."""

    @abstractmethod
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
        """See `VectorStore.query_chunks`."""

    @abstractmethod
    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """See `VectorStore.delete_by_document`."""

    @abstractmethod
    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """See `VectorStore.delete_by_work`."""

    @abstractmethod
    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """See `VectorStore.count`."""

    @abstractmethod
    def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """See `VectorStore.scan_documents`."""

    @abstractmethod
    async def is_available(self) -> Availability:
        """See `VectorStore.is_available`."""

    async def upsert_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """Write the build, then prune what is older: no reader ever sees the document missing."""
        result = await self.write_chunks(work_id, document_id, space, build, chunks)
        await self.prune_chunks(work_id, document_id, space, build)
        return result

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """This store can't give vectors back: a copy embeds anew."""
        return None

    def normalize(self, raw: float) -> float:
        """A raw score that is a cosine, as (1 + cosine) / 2, clamped to [0, 1]."""
        return normalized_cosine(raw)

    async def maintain(self, work_id: UUID, space: Space) -> None:
        """Nothing to maintain."""
        return

    async def close(self) -> None:
        """Nothing to let go of."""
        return

    async def checked(self, chunks: Sequence[VectorChunk], dims: int) -> Matrix:
        """`checked_matrix` that leaves the event loop when the input is large."""
        if len(chunks) * dims <= INLINE_FLOATS:
            return checked_matrix(chunks, dims)
        return await asyncio.to_thread(checked_matrix, chunks, dims)

    def checked_question(self, vector: Vector | None, space: Space, top_k: int) -> Matrix:
        """The query vector as (dims,) float32 of unit length.

        Raises: BadVector; VectorStoreRefused when `top_k` is not in 1 … `manifest.store.max_top_k`.
        """
        most = self.manifest.store.max_top_k
        if not 1 <= top_k <= most:
            raise VectorStoreRefused(f"top_k must be between 1 and {most}, not {top_k}")
        if vector is None:
            raise BadVector(f"{self.manifest.name} does not embed: a query needs a vector")
        question: Matrix = unit_rows([vector], space.dims, named="the query vector")[0]
        return question


def normalized_cosine(cosine: float) -> float:
    """(1 + cosine) / 2, clamped to [0, 1]: 1 = the same direction, 0 = the opposite one."""
    return min(1.0, max(0.0, (1.0 + cosine) / 2.0))


def best_first(hits: Iterable[QueryHit]) -> list[QueryHit]:
    """Hits in the one order that every store answers in: score, then document, chunk, build."""
    return sorted(hits, key=lambda h: (-h.normalized_score, h.chunk.document_id, h.chunk.chunk_index, h.chunk.build))


def checked_matrix(chunks: Sequence[VectorChunk], dims: int) -> Matrix:
    """The chunks' vectors as (n, dims) float32, rows L2-normalised.

    Raises: BadVector, naming the first chunk whose vector is absent, has another width, is not finite, or is zero.
    """
    vectors = []
    for chunk in chunks:
        if chunk.vector is None:
            raise BadVector(f"chunk {chunk.chunk_index} has no vector, and this store does not embed")
        vectors.append(chunk.vector)
    return unit_rows(vectors, dims, named="the vector of chunk", numbers=[chunk.chunk_index for chunk in chunks])


def unit_rows(vectors: Sequence[Vector], dims: int, *, named: str, numbers: Sequence[int] | None = None) -> Matrix:
    """Vectors as (n, dims) float32 rows of unit length; `named` and `numbers` say which one is at fault."""

    def fault(row: int, problem: str) -> BadVector:
        return BadVector(f"{named}{'' if numbers is None else f' {numbers[row]}'} {problem}")

    rows = np.empty((len(vectors), dims), dtype=np.float64)
    for row, vector in enumerate(vectors):
        if len(vector) != dims:
            raise fault(row, f"has width {len(vector)}, not {dims}")
        try:
            rows[row] = vector
        except (TypeError, ValueError) as exc:
            raise fault(row, "is not made of numbers") from exc
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused just below
        lengths = np.linalg.norm(rows, axis=1)
    if len(bad := np.flatnonzero(~np.isfinite(lengths))):
        raise fault(int(bad[0]), "is not finite")
    if len(bad := np.flatnonzero(lengths == 0)):
        raise fault(int(bad[0]), "is zero")
    rows /= lengths[:, None]
    return rows.astype(np.float32)
