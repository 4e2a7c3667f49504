"""Chunks as Arrow rows, and Arrow rows as hits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np

from app.vector_stores.base import Matrix, normalized_cosine
from app.vector_stores.contract import ChunkRef, QueryHit, Space, Vector, VectorChunk, VectorStoreRefused, chunk_uuid
from app.vector_stores.lancedb.places import Place
from app.vector_stores.lancedb.sdk import Sdk

HIT_COLUMNS = ["knowledge_base_id", "document_id", "build", "chunk_index", "_distance"]

# With this LanceDB notices two commits that insert the same key. It does so for variable-width binary only, not for
# binary(16), and not when the key has an index (0.40.0).
KEY = {b"lance-schema:unenforced-primary-key": b"true"}


@dataclass(frozen=True)
class Batch:
    """Chunks of one build, each once, as an Arrow table."""

    table: Any
    chunks: int


def schema_of(sdk: Sdk, space: Space) -> Any:
    """The columns of a space's table."""
    pa = sdk.arrow
    return pa.schema(
        [
            pa.field("id", pa.binary(), nullable=False, metadata=KEY),
            pa.field("knowledge_base_id", pa.binary(16), nullable=False),
            pa.field("document_id", pa.binary(16), nullable=False),
            pa.field("build", pa.int64(), nullable=False),
            pa.field("chunk_index", pa.int64(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), space.dims), nullable=False),
        ]
    )


def pack(
    sdk: Sdk, place: Place, document_id: UUID, build: int, chunks: Sequence[VectorChunk], vectors: Matrix
) -> Batch:
    """Rows for these chunks; of two with one index the first counts. Raises: VectorStoreRefused."""
    pa, space = sdk.arrow, place.space
    first: dict[int, int] = {}
    for row, chunk in enumerate(chunks):
        first.setdefault(chunk.chunk_index, row)
    if len(first) < len(chunks):
        vectors = vectors[list(first.values())]
    kept = [chunks[row] for row in first.values()]
    number = len(kept)
    try:
        columns = [
            pa.array(
                [chunk_uuid(place.work_id, space, document_id, build, chunk.chunk_index).bytes for chunk in kept],
                pa.binary(),
            ),
            pa.array([chunk.knowledge_base_id.bytes for chunk in kept], pa.binary(16)),
            pa.array([document_id.bytes] * number, pa.binary(16)),
            pa.array([build] * number, pa.int64()),
            pa.array([chunk.chunk_index for chunk in kept], pa.int64()),
            pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(vectors).reshape(-1)), space.dims),
        ]
    except (OverflowError, pa.ArrowInvalid) as exc:
        raise VectorStoreRefused("a build's or a chunk's number is larger than 64 bits") from exc
    return Batch(pa.Table.from_arrays(columns, schema=schema_of(sdk, space)), number)


def hits_of(table: Any) -> list[QueryHit]:
    """The rows of an answer, in its order."""
    bases, documents, builds, indexes, distances = (table.column(name).to_pylist() for name in HIT_COLUMNS)
    known: dict[bytes, UUID] = {}

    def uuid(data: bytes) -> UUID:
        found = known.get(data)
        if found is None:
            found = known[data] = UUID(bytes=data)
        return found

    return [
        QueryHit(ChunkRef(uuid(base), uuid(document), build, index), distance, normalized_cosine(1.0 - distance))
        for base, document, build, index, distance in zip(bases, documents, builds, indexes, distances, strict=True)
    ]


def vectors_of(table: Any, dims: int) -> dict[int, Vector]:
    """Chunk index → its vector."""
    indexes = table.column("chunk_index").to_pylist()
    floats = table.column("vector").combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, dims)
    return {index: row.tolist() for index, row in zip(indexes, floats, strict=True)}
