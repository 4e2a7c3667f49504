from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extraction.cleaning import clean
from app.extraction.contract import DocumentTooLarge, Extracted, Mark, NoText

pieces = st.lists(st.text(st.sampled_from("aé漢🙂\x00\ud800\udfff\ufeff \n")), min_size=1, max_size=8)


def joined(blocks: list[str]) -> Extracted:
    """Each piece is a page and, where it is not empty, a block."""
    text, marks, starts = "", [], []
    for block in blocks:
        starts.append(len(text))
        if block:
            marks.append(Mark("code", len(text), len(text) + len(block)))
        text += block + "|"
    return Extracted(text, "text/plain", marks=tuple(marks), page_starts=tuple(starts))


@given(pieces)
def test_offsets_follow_what_is_removed(blocks: list[str]) -> None:
    cleaned = clean(joined(blocks), max_characters=1000)

    kept = ["".join(c for c in block if c != "\x00" and not "\ud800" <= c <= "\udfff") for block in blocks]
    if blocks[0].startswith("\ufeff"):
        kept[0] = kept[0].removeprefix("\ufeff")
    assert cleaned.text == "".join(block + "|" for block in kept)
    assert [cleaned.text[mark.start : mark.end] for mark in cleaned.marks] == [block for block in kept if block]
    starts = [*cleaned.page_starts, len(cleaned.text)]
    assert [cleaned.text[a:b] for a, b in pairwise(starts)] == [block + "|" for block in kept]


def test_nothing_else_is_taken_out() -> None:
    text = "tab\there, \x01 \x1b[0m \u202e \u200b, \ufeff inside, \r\n and \ufffd"

    assert clean(Extracted(text, "text/plain"), max_characters=1000).text == text


def test_titles_and_facts_are_cleaned_as_well() -> None:
    extracted = Extracted(
        "a\x00b", "text/html", marks=(Mark("heading", 0, 3, 1, "a\x00b"),), facts={"title": "a\ud800b"}
    )

    cleaned = clean(extracted, max_characters=10)

    assert (cleaned.marks[0].title, cleaned.facts["title"]) == ("ab", "ab")


@pytest.mark.parametrize("text", ["", " \n\t", "\x00\x00", "\ufeff", "\u200b\u00ad\u2060", "\x0c\x01"])
def test_what_nobody_can_read_is_no_text(text: str) -> None:
    with pytest.raises(NoText):
        clean(Extracted(text, "text/plain"), max_characters=10)


def test_the_limit_counts_characters() -> None:
    assert clean(Extracted("漢" * 10, "text/plain"), max_characters=10).text == "漢" * 10
    with pytest.raises(DocumentTooLarge):
        clean(Extracted("漢" * 11, "text/plain"), max_characters=10)
