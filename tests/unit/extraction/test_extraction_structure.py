from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extraction.contract import DocumentTooLarge, Mark
from app.extraction.structure import TextBuilder

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
table_rows = st.lists(st.lists(words, min_size=1, max_size=4), min_size=1, max_size=4)
Step = Callable[[TextBuilder], None]
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda text, level: lambda builder: builder.heading(text, level), words, st.integers(0, 9)),
    st.builds(lambda text: lambda builder: builder.block("paragraph", text), words),
    st.builds(lambda text: lambda builder: builder.block("code", text), words),
    st.builds(lambda text, depth: lambda builder: builder.list_item(text, depth), words, st.integers(0, 3)),
    st.builds(
        lambda rows, headers: lambda builder: builder.table(rows, header_rows=headers), table_rows, st.integers(1, 3)
    ),
    st.just(lambda builder: builder.end_list()),
)


@given(st.lists(steps, max_size=12))
def test_marks_ascend_do_not_overlap_and_hold_exactly_one_block(taken: list[Step]) -> None:
    builder = TextBuilder(max_characters=100_000)
    for step in taken:
        step(builder)

    text, marks = builder.finish()

    assert len(text) == len(builder)
    edges = [edge for mark in marks for edge in (mark.start, mark.end)]
    assert edges == sorted(edges)
    for mark in marks:
        block = text[mark.start : mark.end]
        assert block.strip()
        assert text[: mark.start].endswith("\n\n") or mark.start == 0
        assert text[mark.end :].startswith("\n\n") or mark.end == len(text)
        if mark.kind == "heading":
            assert block == mark.title
            assert 1 <= mark.level <= 6
        if mark.kind == "list":
            assert all(line.lstrip(" ").startswith("- ") for line in block.split("\n"))
        if mark.kind == "table":
            assert all(line.startswith("| ") and line.endswith(" |") for line in block.split("\n"))
        if mark.header_end is not None:
            assert mark.start < mark.header_end < mark.end
            assert text[mark.header_end - 1] == "\n"


def test_items_in_a_row_are_one_list_and_an_ended_list_is_another() -> None:
    builder = TextBuilder(max_characters=100)

    builder.list_item("one")
    builder.list_item("two", 1)
    builder.end_list()
    builder.list_item("three")

    assert builder.finish() == ("- one\n  - two\n\n- three", (Mark("list", 0, 13), Mark("list", 15, 22)))


def test_a_text_beyond_the_limit_is_refused() -> None:
    builder = TextBuilder(max_characters=10)

    with pytest.raises(DocumentTooLarge):
        builder.block("paragraph", "eleven char")
