"""Postings as bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.documents.lexical.analysis import DocumentTerms
from app.documents.lexical.postings import (
    CorruptPostings,
    DocumentNotIndexable,
    count_postings,
    pack,
    unpack,
)

Postings = dict[str, dict[int, int]]
frequencies = st.one_of(st.integers(1, 300), st.integers(65_530, 70_000))
chunk_numbers = st.one_of(st.integers(0, 20), st.integers(65_530, 65_540))


def a_document(postings: Postings, lengths: dict[int, int]) -> DocumentTerms:
    """Terms with {chunk: frequency}, and the lengths of those chunks that are not empty."""
    terms = sorted(postings)
    sizes = [len(postings[term]) for term in terms]
    all_lengths = np.zeros(max(lengths) + 1, np.int64)
    all_lengths[list(lengths)] = list(lengths.values())
    pairs = [pair for term in terms for pair in sorted(postings[term].items())]
    return DocumentTerms(
        tuple(terms),
        np.cumsum([0, *sizes]),
        np.array([chunk for chunk, _ in pairs], np.int64),
        np.array([frequency for _, frequency in pairs], np.int64),
        all_lengths,
    )


@given(
    postings=st.dictionaries(
        st.text(min_size=1, max_size=3), st.dictionaries(chunk_numbers, frequencies, min_size=1, max_size=6), min_size=1
    ),
    length=st.integers(0, 2**32 - 1),
)
@settings(max_examples=150, deadline=None)
def test_what_was_packed_is_unpacked(postings: Postings, length: int) -> None:
    lengths = {chunk: (length + chunk) % 2**32 for term in postings.values() for chunk in term}

    packed = pack(a_document(postings, lengths))
    found = unpack([data for _, data in packed])

    assert [term for term, _ in packed] == sorted(postings)
    expected = [
        (row, chunk, min(frequency, 65_535), np.float32(lengths[chunk]))
        for row, term in enumerate(sorted(postings))
        for chunk, frequency in sorted(postings[term].items())
    ]
    assert list(zip(found.row, found.chunk_index, found.frequency, found.length, strict=True)) == expected
    assert found.counts.tolist() == [len(postings[term]) for term in sorted(postings)]


def test_a_term_is_compact_where_its_numbers_fit_and_wide_where_not() -> None:
    packed = dict(pack(a_document({"few": {0: 255}, "many": {0: 256}, "far": {65_536: 1}}, {0: 9, 65_536: 9})))

    assert {term: (data[0], len(data)) for term, data in packed.items()} == {
        "few": (1, 6),
        "many": (2, 11),
        "far": (2, 11),
    }


def test_seventy_thousand_chunks_keep_their_numbers() -> None:
    everywhere = dict.fromkeys(range(70000), 1)

    [(_, data)] = pack(a_document({"term": everywhere}, everywhere))

    assert unpack([data]).chunk_index.tolist() == list(range(70_000))


def test_a_chunk_longer_than_32_bits_is_refused() -> None:
    with pytest.raises(DocumentNotIndexable):
        pack(a_document({"term": {0: 1}}, {0: 2**32}))


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x01abcd", b"\x02abcde", b"\x00abcde", b"\x03abcde"])
def test_other_bytes_are_refused(data: bytes) -> None:
    [(_, good)] = pack(a_document({"term": {0: 1}}, {0: 1}))

    with pytest.raises(CorruptPostings):
        unpack([good, data])


def test_no_rows_are_no_postings() -> None:
    assert len(unpack([]).row) == 0


def test_the_number_of_postings_follows_from_the_sizes() -> None:
    packed = pack(a_document({"a": {0: 1, 1: 1}, "b": {1: 2}}, {0: 5, 1: 5}))

    assert count_postings(sum(len(data) for _, data in packed), len(packed)) == 3
