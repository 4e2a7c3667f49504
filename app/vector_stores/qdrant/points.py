"""What a chunk looks like in Qdrant: its id, its payload, the filter that finds it, and how many go in one request."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from app.vector_stores.base import INLINE_FLOATS, Matrix, best_first, normalized_cosine
from app.vector_stores.contract import ChunkRef, Ids, QueryHit, Space, VectorChunk, VectorStoreRefused, chunk_uuid

if TYPE_CHECKING:
    from qdrant_client import models

REFERENCE = ["knowledge_base_id", "document_id", "build", "chunk_index"]  # what a hit is made of
BUILD = ["document_id", "build"]

MAX_POINTS = 128
MAX_REQUEST_BYTES = 32 * 1024 * 1024
DECIMALS = 8  # of a component of a unit vector: half the bytes in JSON, and as exact as float32
BYTES_A_FLOAT = DECIMALS + 4  # sign, zero, point, comma
BYTES_A_POINT = 640  # id, payload without the text, punctuation
BYTES_AROUND = 4_096

SAME_SCORE = 1e-6  # cosines of equal vectors differ by less, wherever they were computed


def space_name(space: Space) -> str:
    """A space in a payload or a collection's name: plain characters only, whatever the model is called."""
    return f"{space.number}-{sha256(space.key.encode()).hexdigest()[:24]}"


@dataclass(frozen=True)
class Place:
    """A space of a Work, and the collection it lies in."""

    work_id: UUID
    space: Space
    collection: str


@dataclass(frozen=True)
class Build:
    """A build of a document, or all builds, or those below one."""

    document_id: UUID
    number: int | None = None
    below: int | None = None


def scope(
    place: Place,
    build: Build | None = None,
    *,
    knowledge_base_ids: Ids | None = None,
    document_ids: Ids | None = None,
) -> "models.Filter":
    """The one place where a filter is made, so that no call can forget the Work or the space."""
    from qdrant_client import models

    must: list[Any] = [
        models.FieldCondition(key="work_id", match=models.MatchValue(value=str(place.work_id))),
        models.FieldCondition(key="space", match=models.MatchValue(value=space_name(place.space))),
    ]
    for key, ids in (("knowledge_base_id", knowledge_base_ids), ("document_id", document_ids)):
        if ids is not None:
            must.append(models.FieldCondition(key=key, match=models.MatchAny(any=[str(one) for one in ids])))
    if build is not None:
        must.append(models.FieldCondition(key="document_id", match=models.MatchValue(value=str(build.document_id))))
        if build.number is not None:
            must.append(models.FieldCondition(key="build", match=models.MatchValue(value=build.number)))
        if build.below is not None:
            must.append(models.FieldCondition(key="build", range=models.Range(lt=build.below)))
    return models.Filter(must=must)


def batches(
    place: Place, build: Build, chunks: Sequence[VectorChunk], vectors: Matrix, *, store_content: bool
) -> "Iterator[list[models.PointStruct]]":
    """Points in portions that a server takes, and that are small enough to be put into JSON between two breaths.

    Raises: VectorStoreRefused when a chunk's text alone is too much.
    """
    from qdrant_client import models

    assert build.number is not None
    common = {
        "work_id": str(place.work_id),
        "space": space_name(place.space),
        "document_id": str(build.document_id),
        "build": build.number,
    }
    bases = {base: str(base) for base in {chunk.knowledge_base_id for chunk in chunks}}
    for rows in _portions([chunk.text if store_content else None for chunk in chunks], place.space.dims):
        components = np.round(vectors[rows.start : rows.stop].astype(np.float64), DECIMALS).tolist()
        points = []
        for chunk, vector in zip(chunks[rows.start : rows.stop], components, strict=True):
            payload: dict[str, object] = {
                **common,
                "knowledge_base_id": bases[chunk.knowledge_base_id],
                "chunk_index": chunk.chunk_index,
            }
            if store_content and chunk.text is not None:
                payload["text"] = chunk.text
            identity = chunk_uuid(place.work_id, place.space, build.document_id, build.number, chunk.chunk_index)
            # Constructed without validation, which would look at every component once more.
            points.append(models.PointStruct.model_construct(id=str(identity), vector=vector, payload=payload))
        yield points


def _portions(texts: Sequence[str | None], dims: int) -> list[range]:
    most_points = max(1, min(MAX_POINTS, INLINE_FLOATS // dims))
    portions, first, size = [], 0, BYTES_AROUND
    for row, text in enumerate(texts):
        needed = BYTES_A_POINT + BYTES_A_FLOAT * dims
        if text is not None:
            needed += len(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass"))
        if BYTES_AROUND + needed > MAX_REQUEST_BYTES:
            raise VectorStoreRefused(f"a chunk of {needed} bytes is more than Qdrant takes in a request")
        if row > first and (row - first == most_points or size + needed > MAX_REQUEST_BYTES):
            portions.append(range(first, row))
            first, size = row, BYTES_AROUND
        size += needed
    if first < len(texts):
        portions.append(range(first, len(texts)))
    return portions


def hits_of(points: "Sequence[models.ScoredPoint]", question: Matrix) -> list[QueryHit]:
    """Hits in the contract's order; a point without its payload (qdrant#4627) is no hit.

    Scores that are equal but for rounding become equal, so that ties are ordered by identity. A point that comes with
    its vector is scored anew, as float32: local mode's product rounds the same vector differently from call to call,
    and its vectors come back from a file with more digits than they had.
    """
    if points and points[0].vector is not None:
        vectors = np.array([point.vector for point in points], dtype=np.float32).astype(np.float64)
        scores = (vectors * question).sum(axis=1).tolist()
    else:
        scores = [point.score for point in points]
    level, hits = 2.0, []
    for score, at in sorted(zip(scores, range(len(points)), strict=True), reverse=True):
        if score < level - SAME_SCORE:
            level = min(1.0, max(-1.0, score))
        if (chunk := reference(points[at].payload)) is not None:
            hits.append(QueryHit(chunk, level, normalized_cosine(level)))
    return best_first(hits)


def reference(payload: dict[str, Any] | None) -> ChunkRef | None:
    """The identity in a payload; None where it is not whole."""
    try:
        assert payload is not None
        return ChunkRef(
            UUID(payload["knowledge_base_id"]), UUID(payload["document_id"]), payload["build"], payload["chunk_index"]
        )
    except (AssertionError, KeyError, ValueError, TypeError, AttributeError):
        return None
