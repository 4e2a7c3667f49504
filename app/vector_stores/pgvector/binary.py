"""Postgres' binary formats of halfvec and of arrays, packed with numpy.

Text literals are sixty times slower, and COPY is refused under row-level security.
"""

import struct
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
from psycopg import postgres
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format

from app.vector_stores.base import Matrix
from app.vector_stores.contract import VectorChunk

INT4_OID = 23
UUID_OID = 2950
BATCH_ROWS = 500

Half = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Packed:
    """Bytes that are a parameter in binary format; the statement's cast says of which type."""

    data: bytes


class PackedDumper(Dumper):
    """Hands the bytes through; oid 0 lets the server take the type from the cast."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: Packed) -> bytes:
        """The bytes themselves."""
        return obj.data


def adapters() -> AdaptersMap:
    """psycopg's usual adapters, and `Packed`."""
    own = AdaptersMap(postgres.adapters)
    own.register_dumper(Packed, PackedDumper)
    return own


def pack_halfvec(vector: Matrix) -> Packed:
    """One (dims,) vector as halfvec."""
    return Packed(struct.pack("!hh", len(vector), 0) + vector.astype(">f2").tobytes())


def pack_halfvecs(vectors: Matrix, element_oid: int) -> Packed:
    """(n, dims) vectors as halfvec[]; `element_oid` is the type's number in that database."""
    rows, dims = vectors.shape
    items = np.empty(rows, dtype=[("size", ">i4"), ("dims", ">i2"), ("unused", ">i2"), ("values", ">f2", (dims,))])
    items["size"], items["dims"], items["unused"] = 4 + 2 * dims, dims, 0
    items["values"] = vectors
    return Packed(_array_header(rows, element_oid) + items.tobytes())


def unpack_halfvec(data: bytes) -> "array[float]":
    """A halfvec as it comes from the server, as float32."""
    values = array("f")
    values.frombytes(np.frombuffer(data, dtype=">f2", offset=4).astype(np.float32).tobytes())
    return values


def pack_uuids(ids: Collection[UUID]) -> Packed:
    """uuid[]."""
    return Packed(_array_header(len(ids), UUID_OID) + b"".join(b"\x00\x00\x00\x10" + one.bytes for one in ids))


def pack_ints(numbers: Sequence[int]) -> Packed:
    """int4[]. Raises: OverflowError for a number that int4 can't hold."""
    items = np.empty(len(numbers), dtype=[("size", ">i4"), ("value", ">i4")])
    items["size"], items["value"] = 4, np.array(numbers, dtype=np.int32)
    return Packed(_array_header(len(numbers), INT4_OID) + items.tobytes())


@dataclass(frozen=True)
class PackedBatch:
    """At most `BATCH_ROWS` chunks, as the three arrays of one insert."""

    chunk_indexes: Packed
    knowledge_base_ids: Packed
    embeddings: Packed


def pack_batches(chunks: Sequence[VectorChunk], vectors: Matrix, halfvec_oid: int) -> list[PackedBatch]:
    """Chunks in the order of their index (so that two writers of one build can't deadlock), in batches."""
    order = sorted(range(len(chunks)), key=lambda row: chunks[row].chunk_index)
    batches = []
    for start in range(0, len(order), BATCH_ROWS):
        rows = order[start : start + BATCH_ROWS]
        batches.append(
            PackedBatch(
                pack_ints([chunks[row].chunk_index for row in rows]),
                pack_uuids([chunks[row].knowledge_base_id for row in rows]),
                pack_halfvecs(vectors[rows], halfvec_oid),
            )
        )
    return batches


def _array_header(items: int, element_oid: int) -> bytes:
    if items == 0:
        return struct.pack("!iiI", 0, 0, element_oid)
    return struct.pack("!iiIii", 1, 0, element_oid, items, 1)  # one dimension, no nulls, first index 1
