"""Scoring: rows of the lexical index to the best chunks, by BM25 over groups of alternative terms."""

import math
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

import numpy as np
import numpy.typing as npt

from app.documents.lexical.analysis import Integers
from app.documents.lexical.postings import unpack
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
    table = _Table(rows)
    norm = table.lengths * np.float32(k1 * b / average_length if average_length > 0 else 0)
    norm += np.float32(k1 * (1 - b))
    scores, shares = np.zeros(table.size, np.float32), np.empty(table.size, np.float32)
    for group in query.groups:
        places, frequencies = table.best_frequencies(group)
        known = [posting_counts.get(term, 0) for term in group.terms] if posting_counts is not None else []
        idf = _idf(max(len(places), *known, 0), n_chunks)
        share = norm[places]
        share += frequencies
        np.divide(frequencies, share, out=share)
        share *= np.float32(group.weight * idf * (k1 + 1))
        if group.exact is not None and len(group.terms) > 1:
            shares[places] = share
            shares[table.places(group.exact)] *= np.float32(1 + _EXACT_BONUS)
            share = shares[places]
        scores[places] += share
    return table.best(scores, top_k, allowed)


class _Table(Generic[DocumentKey]):
    """The postings of all rows, in which each chunk has a place: an index into the arrays of scores and lengths."""

    def __init__(self, rows: Sequence[tuple[str, DocumentKey, int, bytes]]) -> None:
        terms, keys, builds, data = zip(*rows, strict=True)
        term_of_row, distinct_terms = _numbered(terms)
        document_of_row, documents = _numbered(_hashed_fast(keys))
        newest_builds, newest = _newest_builds(np.array(builds, np.int64), document_of_row)
        self._documents: list[Any] = documents
        self._has_uuids: bool = isinstance(keys[0], UUID)
        self._builds: Integers = newest_builds
        # Rows by term, so that a term's postings are one slice.
        order: Integers = newest[np.argsort(term_of_row[newest], kind="stable")]
        postings = unpack([data[row] for row in order.tolist()])
        self._seats: _Seats = _Seats(document_of_row[order][postings.row], postings.chunk_index, len(self._documents))
        self._place: Integers = self._seats.of_postings
        self._frequency: Floats = postings.frequency
        self.size: int = self._seats.size
        self.lengths: Floats = np.zeros(self.size, np.float32)
        self.lengths[self._place] = postings.length
        self._largest: Floats = np.zeros(self.size, np.float32)
        counts = np.bincount(term_of_row[order], weights=postings.counts, minlength=len(distinct_terms))
        ends: list[int] = np.cumsum(counts.astype(np.int64)).tolist()
        self._postings_of = {
            term: slice(start, end) for term, start, end in zip(distinct_terms, [0, *ends[:-1]], ends, strict=True)
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
        places = np.flatnonzero(scores)
        if allowed is not None:
            kept = set(_hashed_fast(tuple(allowed)))
            may = np.fromiter((document in kept for document in self._documents), np.bool_, len(self._documents))
            places = places[may[self._seats.located(places)[0]]]
        if len(places) > top_k:
            least = np.partition(scores[places], -top_k)[-top_k]
            places = places[scores[places] >= least]
        documents, chunks = self._seats.located(places)
        found = zip(
            (-scores[places]).tolist(),
            [self._documents[document] for document in documents.tolist()],
            chunks.tolist(),
            self._builds[documents].tolist(),
            strict=True,
        )
        return [
            LexicalHit(cast(DocumentKey, UUID(int=key) if self._has_uuids else key), chunk_index, -value, build)
            for value, key, chunk_index, build in sorted(found)[:top_k]
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


def _newest_builds(builds: Integers, document_of_row: Integers) -> tuple[Integers, Integers]:
    """Each document's largest build, and the rows of it: rows fetched in two statements may straddle a go-live."""
    newest = np.zeros(int(document_of_row.max()) + 1, np.int64)
    np.maximum.at(newest, document_of_row, builds)
    return newest, np.flatnonzero(builds == newest[document_of_row])
