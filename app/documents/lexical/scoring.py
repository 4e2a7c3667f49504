"""Scoring: rows of the lexical index to the best chunks, by BM25 over groups of alternative terms."""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt

from app.documents.lexical.analysis import Integers
from app.documents.lexical.postings import TermRows, unpack_joined
from app.documents.lexical.queries import QueryTerms, TermGroup

K1: Final = 1.2
B: Final = 0.75
_EXACT_BONUS: Final = 0.1
_MOST_POSTINGS: Final = 150_000
# Dense arrays have a place for every chunk number up to a document's largest; beyond this many to spare, a sort.
_SPARE_PLACES: Final = 1_000_000

Floats = npt.NDArray[np.float32]
DocumentKey = TypeVar("DocumentKey", UUID, bytes, str, int)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class LexicalHit(Generic[DocumentKey]):
    """A chunk that answers: `score` > 0, unbounded, comparable only within one answer; `build` as in its rows."""

    document: DocumentKey
    chunk_index: int
    score: float
    build: int


@dataclass(frozen=True)
class TermPlan:
    """Which terms to fetch whole, and which only for the documents that the first ones found."""

    essential: tuple[str, ...]
    for_candidates: tuple[str, ...]


def plan_terms(query: QueryTerms, posting_counts: Mapping[str, int], *, max_postings: int = _MOST_POSTINGS) -> TermPlan:
    """Split a query's terms so that about `max_postings` postings are read whole, those of the rarest words first.

    `posting_counts`: term → its postings in what is searched (absent: none). The rarest group is always essential, so
    a query of common words alone stays exact. What the plan leaves out are chunks that have only the most common of
    several words. Pass the counts to `score` too.
    """
    sizes = [(sum(posting_counts.get(term, 0) for term in group.terms), i) for i, group in enumerate(query.groups)]
    essential: set[str] = set()
    later: set[str] = set()
    read = 0
    for size, i in sorted(pair for pair in sizes if pair[0]):
        present = {term for term in query.groups[i].terms if term in posting_counts}
        if not essential or read + size <= max_postings:
            essential |= present
            read += size
        else:
            later |= present
    return TermPlan(tuple(sorted(essential)), tuple(sorted(later - essential)))


def score(
    query: QueryTerms,
    rows: Sequence[tuple[str, DocumentKey, int, bytes]],
    *,
    n_chunks: int,
    average_length: float,
    top_k: int,
    k1: float = K1,
    b: float = B,
    allowed: Collection[DocumentKey] | None = None,
    posting_counts: Mapping[str, int] | None = None,
) -> list[LexicalHit[DocumentKey]]:
    """Rank the chunks in `rows`, best first, at most `top_k`, ties by (document, chunk_index).

    `rows`: (term, document, build, data), each (term, document) once, in any order; of a document with several builds
    only the largest counts. `n_chunks` and `average_length` describe all that the rows were taken from. A group's tf in
    a chunk is the largest among its terms', its df the number of chunks with any of them; the word as written scores a
    tenth more. `allowed` restricts the answer, not the df (None: no restriction). `posting_counts`, by term, corrects
    the df of terms whose rows were fetched for some documents only.
    idf = ln(1 + (N - df + 0.5) / (df + 0.5)).
    Source: Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.

    Raises: CorruptPostings.
    """
    if not rows or top_k < 1:
        return []
    return _rank(query, _columns_of(rows), n_chunks, average_length, top_k, k1, b, allowed, posting_counts)


def score_joined(
    query: QueryTerms,
    found: Sequence[TermRows],
    *,
    n_chunks: int,
    average_length: float,
    top_k: int,
    posting_counts: Mapping[str, int] | None = None,
) -> list[LexicalHit[UUID]]:
    """As `score`, from rows that the database has joined by term: no object is made for each of thousands of rows.

    Raises: CorruptPostings.
    """
    present = [rows for rows in found if rows.documents]
    if not present or top_k < 1:
        return []
    columns = _joined_columns(present)
    return _rank(query, columns, n_chunks, average_length, top_k, K1, B, None, posting_counts)


@dataclass(frozen=True)
class _Columns(Generic[DocumentKey]):
    """Rows ordered by term. Documents have numbers that ascend as their keys do; `key_of` gives a number's key.

    `term_of_row` (n_rows,) is an index into `terms`, ascending; `sizes` are the bytes of each row in `data`.
    """

    terms: Sequence[str]
    term_of_row: Integers
    document_of_row: Integers
    builds: Integers
    sizes: Integers
    data: bytes
    n_documents: int
    key_of: Callable[[int], DocumentKey]


def _columns_of(rows: Sequence[tuple[str, DocumentKey, int, bytes]]) -> _Columns[DocumentKey]:
    terms, keys, builds, data = zip(*rows, strict=True)
    term_of_row, distinct_terms = _numbered(terms)
    order = np.argsort(term_of_row, kind="stable")
    hashed = _hashed_fast(keys)
    documents = sorted(set(hashed))
    number_of = {document: number for number, document in enumerate(documents)}
    has_uuids = isinstance(keys[0], UUID)
    ordered = [data[row] for row in order.tolist()]
    return _Columns(
        terms=distinct_terms,
        term_of_row=term_of_row[order],
        document_of_row=np.array([number_of[document] for document in hashed], np.int64)[order],
        builds=np.array(builds, np.int64)[order],
        sizes=np.fromiter(map(len, ordered), np.int64, len(ordered)),
        data=b"".join(ordered),
        n_documents=len(documents),
        key_of=lambda number: cast(DocumentKey, UUID(int=documents[number]) if has_uuids else documents[number]),
    )


def _joined_columns(found: Sequence[TermRows]) -> _Columns[UUID]:
    keys = b"".join([rows.documents for rows in found])
    halves = np.frombuffer(keys, ">u8").reshape(-1, 2).astype(np.uint64)
    high, low = np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1])
    order = np.lexsort((low, high))
    high, low = high[order], low[order]
    first = np.ones(len(order), np.bool_)
    first[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    document_of_row = np.empty(len(order), np.int64)
    document_of_row[order] = np.cumsum(first) - 1
    row_of_document = order[first].tolist()
    return _Columns(
        terms=[rows.term for rows in found],
        term_of_row=np.repeat(np.arange(len(found)), [len(rows.documents) // 16 for rows in found]),
        document_of_row=document_of_row,
        builds=_int4s([rows.builds for rows in found]),
        sizes=_int4s([rows.sizes for rows in found]),
        data=b"".join([rows.data for rows in found]),
        n_documents=len(row_of_document),
        key_of=lambda number: UUID(bytes=keys[16 * row_of_document[number] : 16 * row_of_document[number] + 16]),
    )


def _int4s(parts: Iterable[bytes]) -> Integers:
    return np.frombuffer(b"".join(parts), ">i4").astype(np.int64)


def _rank(
    query: QueryTerms,
    columns: _Columns[DocumentKey],
    n_chunks: int,
    average_length: float,
    top_k: int,
    k1: float,
    b: float,
    allowed: Collection[DocumentKey] | None,
    posting_counts: Mapping[str, int] | None,
) -> list[LexicalHit[DocumentKey]]:
    table = _Table(columns)
    per_word = np.float32(k1 * b / average_length if average_length > 0 else 0)
    scores, shares = np.zeros(table.size, np.float32), np.empty(table.size, np.float32)
    for group in query.groups:
        places, frequencies = table.best_frequencies(group)
        known = [posting_counts.get(term, 0) for term in group.terms] if posting_counts is not None else []
        idf = _idf(max(len(places), *known, 0), n_chunks)
        share = table.lengths[places]
        share *= per_word
        share += np.float32(k1 * (1 - b))
        share += frequencies
        np.divide(frequencies, share, out=share)
        share *= np.float32(group.weight * idf * (k1 + 1))
        exact = table.places(group.exact) if group.exact is not None and len(group.terms) > 1 else places[:0]
        if len(exact):
            shares[places] = share
            shares[exact] *= np.float32(1 + _EXACT_BONUS)
            share = shares[places]
        scores[places] += share
    return table.best(scores, top_k, allowed)


class _Table(Generic[DocumentKey]):
    """The postings of all rows, in which each chunk has a place: an index into the arrays of scores and lengths.

    Places ascend by (document, chunk index).
    """

    def __init__(self, columns: _Columns[DocumentKey]) -> None:
        columns, newest = _newest_builds(columns)
        self._builds: Integers = newest
        self._n_documents: int = columns.n_documents
        self._key_of: Callable[[int], DocumentKey] = columns.key_of
        postings = unpack_joined(columns.data, columns.sizes)
        self._seats: _Seats = _Seats(columns.document_of_row[postings.row], postings.chunk_index, columns.n_documents)
        self._place: Integers = self._seats.of_postings
        self._frequency: Floats = postings.frequency
        self.size: int = self._seats.size
        self.lengths: Floats = np.zeros(self.size, np.float32)
        self.lengths[self._place] = postings.length
        self._largest: Floats = np.zeros(self.size, np.float32)
        counts = np.bincount(columns.term_of_row, weights=postings.counts, minlength=len(columns.terms))
        ends: list[int] = np.cumsum(counts.astype(np.int64)).tolist()
        self._postings_of = {
            term: slice(start, end) for term, start, end in zip(columns.terms, [0, *ends[:-1]], ends, strict=True)
        }

    def places(self, term: str) -> Integers:
        """Places of the chunks that have the term."""
        return self._place[self._postings_of.get(term, slice(0, 0))]

    def best_frequencies(self, group: TermGroup) -> tuple[Integers, Floats]:
        """Places of the chunks that have any term of the group, each once, and the largest frequency there."""
        found = [term for term in group.terms if term in self._postings_of]
        if len(found) == 1:
            return self.places(found[0]), self._frequency[self._postings_of[found[0]]]
        new = [np.zeros(0, np.int64)]
        for term in found:
            places = self.places(term)
            known = self._largest[places]
            new.append(places[known == 0])
            self._largest[places] = np.maximum(known, self._frequency[self._postings_of[term]])
        united = np.concatenate(new)
        frequencies = self._largest[united]
        self._largest[united] = 0
        return united, frequencies

    def best(
        self, scores: Floats, top_k: int, allowed: Collection[DocumentKey] | None
    ) -> list[LexicalHit[DocumentKey]]:
        """The best chunks of allowed documents, ties by (document, chunk_index)."""
        places = np.flatnonzero(scores > 0)
        if allowed is not None:
            kept = set(allowed)
            may = np.array([self._key_of(number) in kept for number in range(self._n_documents)], np.bool_)
            places = places[may[self._seats.located(places)[0]]]
        if len(places) > top_k:
            least = np.partition(scores[places], -top_k)[-top_k]
            places = places[scores[places] >= least]
        places = places[np.argsort(-scores[places], kind="stable")[:top_k]]
        documents, chunks = self._seats.located(places)
        return [
            LexicalHit(self._key_of(document), chunk_index, value, build)
            for value, document, chunk_index, build in zip(
                scores[places].tolist(),
                documents.tolist(),
                chunks.tolist(),
                self._builds[documents].tolist(),
                strict=True,
            )
        ]


class _Seats:
    """Places for chunks: one for each chunk number up to a document's highest, or, where few are used, for those.

    `of_postings` (n_postings,): the place of each posting's chunk; `size`: how many places there are.
    """

    def __init__(self, documents: Integers, chunks: Integers, n_documents: int) -> None:
        room = np.zeros(n_documents, np.int64)
        np.maximum.at(room, documents, chunks + 1)
        self._starts = np.cumsum(room) - room
        self._used: Integers | None = None
        self.size = int(room.sum())
        self.of_postings = self._starts[documents] + chunks
        if self.size > len(chunks) + _SPARE_PLACES:
            self._used, self.of_postings = np.unique(self.of_postings, return_inverse=True)
            self.size = len(self._used)

    def located(self, places: Integers) -> tuple[Integers, Integers]:
        """Which (document number, chunk index) sits at each place."""
        seats = places if self._used is None else self._used[places]
        documents = np.searchsorted(self._starts, seats, side="right") - 1
        return documents, seats - self._starts[documents]


def _idf(df: int, n_chunks: int) -> float:
    return math.log1p((max(n_chunks, df) - df + 0.5) / (df + 0.5))


def _numbered(values: Iterable[Key]) -> tuple[Integers, list[Key]]:
    """Number values by first appearance: the number of each, and the distinct values in the order of their numbers."""
    numbers: defaultdict[Key, int] = defaultdict()
    numbers.default_factory = numbers.__len__
    return np.array(list(map(numbers.__getitem__, values)), np.int64), list(numbers)


def _hashed_fast(keys: Sequence[DocumentKey]) -> Sequence[Any]:
    """Equal and ordered as the keys are; a UUID hashes and compares in Python, its number in C."""
    return list(map(attrgetter("int"), keys)) if keys and isinstance(keys[0], UUID) else keys


def _newest_builds(columns: _Columns[DocumentKey]) -> tuple[_Columns[DocumentKey], Integers]:
    """The rows of each document's largest build, and that build: two statements may straddle a go-live."""
    newest = np.zeros(columns.n_documents, np.int64)
    np.maximum.at(newest, columns.document_of_row, columns.builds)
    kept = columns.builds == newest[columns.document_of_row]
    if kept.all():
        return columns, newest
    data = np.frombuffer(columns.data, np.uint8)[np.repeat(kept, columns.sizes)].tobytes()
    only = replace(
        columns,
        term_of_row=columns.term_of_row[kept],
        document_of_row=columns.document_of_row[kept],
        builds=columns.builds[kept],
        sizes=columns.sizes[kept],
        data=data,
    )
    return only, newest
