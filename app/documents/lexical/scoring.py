"""Scoring: rows of the lexical index to the best chunks, by BM25 over groups of alternative terms."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar
from uuid import UUID

import numpy as np
import numpy.typing as npt

from app.documents.lexical.postings import unpack
from app.documents.lexical.queries import QueryTerms, TermGroup

K1: Final = 1.2
B: Final = 0.75
_EXACT_BONUS: Final = 0.1
_MOST_POSTINGS: Final = 150_000
# Dense arrays have a place for every chunk number up to a document's largest; beyond this many to spare, a sort.
_SPARE_PLACES: Final = 1_000_000

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
DocumentKey = TypeVar("DocumentKey", UUID, bytes, str, int)


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


def plan_terms(
    query: QueryTerms, posting_counts: Mapping[str, int], *, max_postings: int = _MOST_POSTINGS
) -> TermPlan:
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
    allowed: Container[DocumentKey] | None = None,
    posting_counts: Mapping[str, int] | None = None,
) -> list[LexicalHit[DocumentKey]]:
    """Rank the chunks in `rows`, best first, at most `top_k`, ties by (document, chunk_index).

    `rows`: (term, document, build, data), each (term, document) once, in any order; terms nobody asked for are passed
    over. `n_chunks` and `average_length` describe all that the rows were taken from. A group's tf in a chunk is the
    largest among its terms', its df the number of chunks with any of them; the word as written scores a tenth more.
    `allowed` restricts the answer, not the df (None: no restriction). `posting_counts`, by term, corrects the df of
    terms whose rows were fetched for some documents only.
    idf = ln(1 + (N - df + 0.5) / (df + 0.5)).
    Source: Robertson & Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.

    Raises: CorruptPostings.
    """
    wanted = set(query.terms)
    asked = [row for row in rows if row[0] in wanted]
    if not asked or top_k < 1:
        return []
    table = _Table(asked)
    norm = k1 * (1 - b + b * table.lengths / average_length) if average_length > 0 else np.full(table.size, k1)
    scores, shares = np.zeros(table.size), np.empty(table.size)
    for group in query.groups:
        places, frequencies = table.best_frequencies(group)
        known = [posting_counts.get(term, 0) for term in group.terms] if posting_counts is not None else []
        idf = _idf(max(len(places), *known, 0), n_chunks)
        shares[places] = group.weight * idf * (k1 + 1) * frequencies / (frequencies + norm[places])
        if group.exact is not None:
            shares[table.places(group.exact)] *= 1 + _EXACT_BONUS
        scores[places] += shares[places]
    return table.best(scores, top_k, allowed)


class _Table(Generic[DocumentKey]):
    """The postings of all rows, in which each chunk has a place: an index into the arrays of scores and lengths."""

    def __init__(self, rows: Sequence[tuple[str, DocumentKey, int, bytes]]) -> None:
        terms, keys, builds, data = zip(*_of_newest_builds(rows), strict=True)
        numbers: dict[str, int] = {term: i for i, term in enumerate(dict.fromkeys(terms))}
        term_of_row = np.fromiter(map(numbers.__getitem__, terms), np.int64, len(terms))
        order = np.argsort(term_of_row, kind="stable")
        document_numbers: dict[DocumentKey | int, int] = {}
        document_of_row = np.fromiter(
            (document_numbers.setdefault(key, len(document_numbers)) for key in _hashed_fast(keys)), np.int64, len(keys)
        )
        first_row = np.unique(document_of_row, return_index=True)[1].tolist()
        self._documents = [keys[i] for i in first_row]
        self._builds = [builds[i] for i in first_row]
        postings = unpack([data[i] for i in order.tolist()])
        self._document_of_place, self._chunk_of_place, self._place = _places(
            document_of_row[order][postings.row], postings.chunk_index, len(first_row)
        )
        self._frequency = postings.frequency
        self.size = len(self._chunk_of_place)
        self.lengths = np.zeros(self.size)
        self.lengths[self._place] = postings.length
        ends = np.cumsum(np.bincount(term_of_row[order][postings.row], minlength=len(numbers))).tolist()
        self._postings_of = {
            term: slice(start, end) for term, start, end in zip(numbers, [0, *ends], ends, strict=False)
        }
        self._largest = np.zeros(self.size)

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
        self, scores: Floats, top_k: int, allowed: Container[DocumentKey] | None
    ) -> list[LexicalHit[DocumentKey]]:
        """The best chunks of allowed documents, ties by (document, chunk_index)."""
        if allowed is not None:
            may = np.fromiter((document in allowed for document in self._documents), np.bool_, len(self._documents))
            scores = np.where(may[self._document_of_place], scores, 0)
        places = np.flatnonzero(scores)
        if len(places) > top_k:
            least = np.partition(scores[places], -top_k)[-top_k]
            places = places[scores[places] >= least]
        hits = [
            LexicalHit(self._documents[document], chunk_index, value, self._builds[document])
            for document, chunk_index, value in zip(
                self._document_of_place[places].tolist(),
                self._chunk_of_place[places].tolist(),
                scores[places].tolist(),
                strict=True,
            )
        ]
        return sorted(hits, key=lambda hit: (-hit.score, hit.document, hit.chunk_index))[:top_k]


def _idf(df: int, n_chunks: int) -> float:
    return math.log1p((max(n_chunks, df) - df + 0.5) / (df + 0.5))


def _of_newest_builds(
    rows: Sequence[tuple[str, DocumentKey, int, bytes]],
) -> Sequence[tuple[str, DocumentKey, int, bytes]]:
    """Rows of each document's largest build: rows fetched in two statements may straddle a go-live."""
    newest = {row[1]: row[2] for row in rows}
    if len({(row[1], row[2]) for row in rows}) == len(newest):
        return rows
    for _, document, build, _ in rows:
        newest[document] = max(newest[document], build)
    return [row for row in rows if row[2] == newest[row[1]]]


def _hashed_fast(keys: Sequence[DocumentKey]) -> Iterable[DocumentKey | int]:
    """Equal where the keys are; a UUID hashes and compares in Python, its number in C."""
    return (key.int if isinstance(key, UUID) else key for key in keys)


def _places(documents: Integers, chunks: Integers, n_documents: int) -> tuple[Integers, Integers, Integers]:
    """Give each (document, chunk) a place: (document of each place, chunk of each place, place of each posting)."""
    highest = np.full(n_documents, -1, np.int64)
    np.maximum.at(highest, documents, chunks)
    room = highest + 1
    if room.sum() <= len(chunks) + _SPARE_PLACES:
        starts = np.cumsum(room) - room
        document_of_place = np.repeat(np.arange(n_documents), room)
        return document_of_place, np.arange(len(document_of_place)) - starts[document_of_place], starts[documents] + chunks
    keys, place = np.unique((documents << 32) | chunks, return_inverse=True)
    return keys >> 32, keys & 0xFFFFFFFF, place
