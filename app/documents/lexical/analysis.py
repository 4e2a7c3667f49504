"""Analysis: the text of chunks, and of queries, to the terms of the lexical index."""

import hashlib
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt
import Stemmer

from app.documents.lexical import segmentation
from app.documents.lexical.language import detect_language
from app.documents.lexical.queries import QueryTerms, TermGroup, analyze_query, phrase_matches
from app.documents.lexical.stop_words import STOP_WORDS
from app.documents.lexical.vocabulary import STEMMERS, TokenTerms, vocabulary

__all__ = [
    "ANALYZER_FINGERPRINT",
    "DocumentTerms",
    "QueryTerms",
    "TermGroup",
    "analyze_document",
    "analyze_query",
    "detect_language",
    "phrase_matches",
]

_VERSION: Final = 1
_CHUNKS_AT_ONCE: Final = 2048

Integers = npt.NDArray[np.int64]


def _fingerprint() -> str:
    """Digest of all that decides on terms: our rules' version, word lists, stemmers, the Unicode tables."""
    parts = [
        str(_VERSION),
        Stemmer.version(),
        unicodedata.unidata_version,
        segmentation.SPACELESS,
        repr(sorted(STEMMERS.items())),
        repr(sorted((language, sorted(words)) for language, words in STOP_WORDS.items())),
    ]
    return f"{_VERSION}-{hashlib.blake2b('|'.join(parts).encode(), digest_size=8).hexdigest()}"


ANALYZER_FINGERPRINT: Final = _fingerprint()
"""Changes when the terms of some text could; at most 64 characters."""


@dataclass(frozen=True)
class DocumentTerms:
    """What a document is found by.

    `terms` ascend by code point, without doubles. The postings of `terms[i]` are the entries `starts[i]:starts[i + 1]`
    of `chunk_indices` (ascending within a term) and `frequencies` (at least 1).
    `starts`: (n_terms + 1,) int64; `chunk_indices`, `frequencies`: (n_postings,) int64.
    `lengths`: (n_chunks,) int64, words of each chunk without stop words; a bigram counts as a word.
    """

    terms: tuple[str, ...]
    starts: Integers
    chunk_indices: Integers
    frequencies: Integers
    lengths: Integers

    @property
    def total_length(self) -> int:
        """Sum of the chunks' lengths; over all documents, divided by the number of chunks, the average BM25 needs."""
        return int(self.lengths.sum())

    def postings(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """Yield each term with its (chunk_index, frequency) pairs: for reading and tests, not for speed."""
        for term, start, end in zip(self.terms, self.starts[:-1], self.starts[1:], strict=True):
            pairs = zip(self.chunk_indices[start:end].tolist(), self.frequencies[start:end].tolist(), strict=True)
            yield term, list(pairs)


def analyze_document(chunks: Sequence[str], language: str | None) -> DocumentTerms:
    """Give the terms of a document; `chunks[i]` is the text of the chunk with index i.

    `language` (ISO 639-1) chooses stop list and stemmer; None or an unknown one stems nothing and stops nothing.
    Deterministic: the same chunks and language give the same value.
    """
    words = vocabulary(language)
    term_numbers: defaultdict[str, int] = defaultdict()
    term_numbers.default_factory = term_numbers.__len__
    blocks: list[tuple[Integers, Integers, Integers]] = []
    lengths: list[Integers] = []
    for first in range(0, len(chunks), _CHUNKS_AT_ONCE):
        texts = chunks[first : first + _CHUNKS_AT_ONCE]
        token_numbers: defaultdict[str, int] = defaultdict()
        token_numbers.default_factory = token_numbers.__len__
        occurrences, sizes = _occurrences(texts, token_numbers)
        found = words.terms_of(token_numbers)
        length_of_token = np.array([terms.length for terms in found], np.int64)
        chunk_of_occurrence = np.repeat(np.arange(len(texts)), sizes)
        lengths.append(_sums(chunk_of_occurrence, length_of_token[occurrences], len(texts)))
        block = _count_terms(occurrences, chunk_of_occurrence, found, term_numbers, len(texts))
        blocks.append((block[0], block[1] + first, block[2]))
    return _assemble(blocks, lengths, term_numbers)


def _occurrences(texts: Sequence[str], token_numbers: defaultdict[str, int]) -> tuple[Integers, Integers]:
    """Number the tokens of each text by first appearance: all numbers in a row, and how many each text has."""
    numbers: list[int] = []
    sizes = np.zeros(len(texts), np.int64)
    number_of = token_numbers.__getitem__
    for i, text in enumerate(texts):
        tokens = segmentation.normalize(text).split()
        sizes[i] = len(tokens)
        numbers.extend(map(number_of, tokens))
    return np.array(numbers, np.int64), sizes


def _sums(index: Integers, values: Integers, size: int) -> Integers:
    """Sum `values` per index, exactly."""
    sums = np.zeros(size, np.int64)
    np.add.at(sums, index, values)
    return sums


def _count_terms(
    occurrences: Integers,
    chunk_of_occurrence: Integers,
    found: Sequence[TokenTerms],
    term_numbers: defaultdict[str, int],
    n_chunks: int,
) -> tuple[Integers, Integers, Integers]:
    """Spread tokens into their terms and count: (term number, chunk, frequency), ordered by term, then chunk."""
    flat = chain.from_iterable([token.terms for token in found])
    counts = np.array([len(token.terms) for token in found], np.int64)
    terms_of_tokens = np.array(list(map(term_numbers.__getitem__, flat)), np.int64)
    starts = np.cumsum(counts) - counts
    repeats = counts[occurrences]
    ends = np.cumsum(repeats)
    offsets = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - repeats, repeats)
    terms = terms_of_tokens[np.repeat(starts[occurrences], repeats) + offsets]
    keys, frequencies = np.unique(terms * n_chunks + np.repeat(chunk_of_occurrence, repeats), return_counts=True)
    return keys // n_chunks, keys % n_chunks, frequencies


def _assemble(
    blocks: Sequence[tuple[Integers, Integers, Integers]], lengths: Sequence[Integers], term_numbers: dict[str, int]
) -> DocumentTerms:
    """Join the blocks of chunks, with the terms in their final order."""
    terms = sorted(term_numbers)
    rank = np.empty(len(terms), np.int64)
    rank[np.array([term_numbers[term] for term in terms], np.int64)] = np.arange(len(terms))
    empty: Integers = np.zeros(0, np.int64)
    numbers, chunk_indices, frequencies = (
        np.concatenate([empty, *(block[column] for block in blocks)]) for column in range(3)
    )
    ranks = rank[numbers]
    order = np.argsort(ranks, kind="stable")
    starts = np.concatenate(([0], np.cumsum(np.bincount(ranks, minlength=len(terms)))))
    return DocumentTerms(
        tuple(terms), starts, chunk_indices[order], frequencies[order], np.concatenate([empty, *lengths])
    )
