"""Postings as bytes: which chunks of one document a term stands in, how often, and how long those chunks are.

First byte: the form. Then one little-endian record for each chunk, unaligned:

| form | chunk index | frequency | chunk length | bytes |
|---|---|---|---|---|
| 1, compact | uint16 | uint8 | uint16 | 5 |
| 2, wide | uint32 | uint16 | uint32 | 10 |

A term takes the compact form where all its numbers fit. A frequency above 65,535 is stored as 65,535, which changes no
ranking; a chunk index or length above 4,294,967,295 is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from app.documents.lexical.analysis import DocumentTerms, Integers
from app.errors import AppError, TooLarge

COMPACT: Final = np.dtype([("chunk_index", "<u2"), ("frequency", "u1"), ("length", "<u2")])
WIDE: Final = np.dtype([("chunk_index", "<u4"), ("frequency", "<u2"), ("length", "<u4")])
_FORMS: Final[dict[int, np.dtype[np.void]]] = {1: COMPACT, 2: WIDE}
_HEADERS: Final = {1: b"\x01", 2: b"\x02"}
_LARGEST: Final = 2**32 - 1
_LARGEST_FREQUENCY: Final = 2**16 - 1


class CorruptPostings(AppError):
    """The lexical index holds bytes that are no postings; processing the document again repairs it."""

    code = "corrupt_postings"


class DocumentNotIndexable(TooLarge):
    """The document has more chunks, or a longer chunk, than the lexical index can number."""

    code = "document_not_indexable"


@dataclass(frozen=True)
class Postings:
    """Unpacked postings of several rows, row after row, each in its own order.

    `counts` (n_rows,) int64: postings of each row. The rest has their sum as length: `row` int64, the number of the row
    each stands in; `chunk_index` int64; `frequency` float32, 1 to 65,535; `length` float32, words of the chunk.
    """

    counts: Integers
    row: Integers
    chunk_index: Integers
    frequency: npt.NDArray[np.float32]
    length: npt.NDArray[np.float32]


@dataclass(frozen=True)
class TermRows:
    """All rows of one term, column by column and in one order, as the database joins them.

    `documents`: 16 bytes a row; `builds` and `sizes` (bytes of each row's data): big-endian int32; `data`:
    row after row.
    """

    term: str
    documents: bytes
    builds: bytes
    sizes: bytes
    data: bytes


def pack(document: DocumentTerms) -> list[tuple[str, bytes]]:
    """Pack a document's postings: one (term, data) for each term, terms ascending.

    Raises: DocumentNotIndexable where a chunk index or a length needs more than 32 bits.
    """
    if not document.terms:
        return []
    lengths = document.lengths[document.chunk_indices]
    if max(int(document.chunk_indices.max()), int(lengths.max())) > _LARGEST:
        raise DocumentNotIndexable
    columns = (document.chunk_indices, np.minimum(document.frequencies, _LARGEST_FREQUENCY), lengths)
    fits = (columns[0] < 2**16) & (columns[1] < 2**8) & (columns[2] < 2**16)
    compact = np.logical_and.reduceat(fits, document.starts[:-1])
    buffers = {1: _records(columns, COMPACT), 2: b"" if compact.all() else _records(columns, WIDE)}
    forms = np.where(compact, 1, 2).tolist()
    packed = []
    for term, form, (start, end) in zip(document.terms, forms, pairwise(document.starts.tolist()), strict=True):
        size = _FORMS[form].itemsize
        packed.append((term, _HEADERS[form] + buffers[form][start * size : end * size]))
    return packed


def unpack(rows: Sequence[bytes]) -> Postings:
    """Unpack many `data` values at once. Raises: as `unpack_joined`."""
    return unpack_joined(b"".join(rows), np.fromiter(map(len, rows), np.int64, len(rows)))


def unpack_joined(data: bytes, sizes: Integers) -> Postings:
    """Unpack `data` values that stand one after another, of these sizes.

    Raises: CorruptPostings for a value without postings, an unknown form, a size that is no whole number of records, or
    sizes that do not add up.
    """
    joined = np.frombuffer(data, np.uint8)
    if sizes.sum() != len(joined) or (len(sizes) and sizes.min() < 1):
        raise CorruptPostings
    rows = sizes
    starts = np.cumsum(sizes) - sizes
    forms = joined[starts]
    body = np.ones(len(joined), np.bool_)
    body[starts] = False
    counts = np.zeros(len(rows), np.int64)
    parts: list[npt.NDArray[np.void]] = []
    for form, dtype in _FORMS.items():
        of_form = forms == form
        counts[of_form], rest = np.divmod(sizes[of_form] - 1, dtype.itemsize)
        if rest.any():
            raise CorruptPostings
        if of_form.any():
            parts.append(joined[body if of_form.all() else body & np.repeat(of_form, sizes)].view(dtype))
    if not counts.all():
        raise CorruptPostings
    return _columns(parts, counts, forms)


def count_postings(data_bytes: int, rows: int) -> int:
    """Estimate the postings in `rows` rows of together `data_bytes` bytes, from their sizes alone.

    Exact where all are compact, which they nearly always are; else an overestimate of at most twice the number.
    """
    return max(data_bytes - rows, 0) // COMPACT.itemsize


def _records(columns: Sequence[Integers], dtype: np.dtype[np.void]) -> bytes:
    """The columns as records; numbers that do not fit wrap around and must not be used."""
    records = np.empty(len(columns[0]), dtype)
    for name, column in zip(("chunk_index", "frequency", "length"), columns, strict=True):
        records[name] = column.astype(records.dtype[name])
    return records.tobytes()


def _columns(parts: Sequence[npt.NDArray[np.void]], counts: Integers, forms: npt.NDArray[np.uint8]) -> Postings:
    """Put the records of each form back among the others, in the order of the rows."""
    row = np.repeat(np.arange(len(counts)), counts)
    if len(parts) == 1:
        records = parts[0]
    else:
        records = np.empty(len(row), WIDE)
        for form, part in zip((1, 2), parts, strict=False):
            records[(forms == form)[row]] = part.astype(WIDE)
    return Postings(
        counts,
        row,
        records["chunk_index"].astype(np.int64),
        records["frequency"].astype(np.float32),
        records["length"].astype(np.float32),
    )
