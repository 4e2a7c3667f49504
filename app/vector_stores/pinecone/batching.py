"""Records as the API takes them, in requests within its limits of number and bytes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

import numpy as np

from app.vector_stores.base import Matrix
from app.vector_stores.contract import BadVector, VectorChunk, VectorStoreRefused
from app.vector_stores.pinecone.naming import TEXT_FIELD, VECTOR_FIELD, metadata, record_id

MAX_RECORDS = 1_000
MAX_TEXT_RECORDS = 96
DECIMALS = 8
FLOAT_BYTES = 12  # "-0.12345678,": no number of that many decimals between -1 and 1 is longer
ENVELOPE_BYTES = 64

Record = dict[str, Any]


def vector_records(
    document_id: UUID, build: int, chunks: Sequence[VectorChunk], vectors: Matrix
) -> Iterator[tuple[Record, int]]:
    """(record, most bytes it takes) for each chunk. `vectors`: (n, dims) float32, rows of unit length.

    Eight decimals: half of float32's digits would be sent for nothing, since the cosine stays the same to 1e-8.
    """
    rows = np.round(vectors.astype(np.float64), DECIMALS).tolist()
    for chunk, row in zip(chunks, rows, strict=True):
        record = _record(document_id, build, chunk)
        size = json_bytes(record) + len(row) * FLOAT_BYTES + len(VECTOR_FIELD) + 8
        record[VECTOR_FIELD] = row
        yield record, size


def text_records(document_id: UUID, build: int, chunks: Sequence[VectorChunk]) -> Iterator[tuple[Record, int]]:
    """(record, bytes it takes) for each chunk. Raises: BadVector for a chunk without text."""
    for chunk in chunks:
        if chunk.text is None or not chunk.text.strip():
            raise BadVector(f"chunk {chunk.chunk_index} has no text to embed")
        record = {**_record(document_id, build, chunk), TEXT_FIELD: chunk.text}
        yield record, json_bytes(record)


def batches(records: Iterable[tuple[Record, int]], *, max_records: int, max_bytes: int) -> list[list[Record]]:
    """Records in as few requests as the limits allow, in their order; of two with one id the first is kept.

    Raises: VectorStoreRefused for a record that no request can hold, before anything is sent.
    """
    found: list[list[Record]] = []
    room = 0
    seen: set[str] = set()
    for record, size in records:
        size += 1  # the comma
        if size > max_bytes - ENVELOPE_BYTES:
            raise VectorStoreRefused(f"chunk {record['chunk_index']} is larger than a request to Pinecone may be")
        if record["_id"] in seen:
            continue
        seen.add(record["_id"])
        if not found or size > room or len(found[-1]) == max_records:
            found.append([])
            room = max_bytes - ENVELOPE_BYTES
        found[-1].append(record)
        room -= size
    return found


def json_bytes(value: object) -> int:
    """How many bytes a value takes as JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace"))


def _record(document_id: UUID, build: int, chunk: VectorChunk) -> Record:
    return {
        "_id": record_id(document_id, build, chunk.chunk_index),
        **metadata(chunk.knowledge_base_id, document_id, build, chunk.chunk_index),
    }
