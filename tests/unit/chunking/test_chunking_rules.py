import itertools

import pytest
from chunking_support import (
    WordTokenizer,
    assert_promises,
    chunks_of,
    markdown_chunks,
    words,
)

from app.chunking.contract import Block, ChunkSettings, Outline
from app.chunking.plain import outline_plain
from app.chunking.service import chunk


@pytest.mark.parametrize("text", ["", " \n\t\r\n", "\u3000\u2028\x0c"])
def test_blank_text_gives_no_chunks(text: str) -> None:
    assert markdown_chunks(text) == []


def test_a_short_document_is_one_chunk_without_context() -> None:
    (only,) = markdown_chunks("\n# Title\n\nSome text.\n\n- a\n- b\n\n")

    assert only.text == "# Title\n\nSome text.\n\n- a\n- b"
    assert only.context == ""
    assert only.heading_path == ("Title",)
    assert only.page is None


def test_paragraphs_are_packed_until_the_chunk_is_full() -> None:
    text = "\n\n".join([words(20)] * 6)

    assert [c.token_count for c in chunks_of(text)] == [40, 40, 40]


def test_a_heading_stands_with_the_text_after_it() -> None:
    text = f"### A\n\n{words(40)}\n\n### B\n\n{words(40)}\n\n### C\n\n#### D\n\n{words(40)}"

    assert [c.text.splitlines()[0] for c in markdown_chunks(text)] == ["### A", "### B", "### C"]


def test_a_heading_that_fits_moves_on_when_its_text_does_not() -> None:
    first, second = markdown_chunks(f"{words(22)}\n\n### B\n\n{words(45)}")

    assert first.text == words(22)
    assert second.text.startswith("### B")


def test_a_heading_without_text_at_the_end_stands_with_what_is_before() -> None:
    (only,) = markdown_chunks("Text.\n\n## Last")

    assert only.text == "Text.\n\n## Last"


def test_context_names_the_headings_above_and_heading_path_all_of_them() -> None:
    text = f"# Guide\n\n{words(30)}\n\n## Setup\n\n{words(30)}\n\n{words(30)}"

    first, second, third = markdown_chunks(text)

    assert (first.heading_path, first.context) == (("Guide",), "")
    assert (second.heading_path, second.context) == (("Guide", "Setup"), "Guide\n")
    assert (third.heading_path, third.context) == (("Guide", "Setup"), "Guide > Setup\n")


def test_a_heading_of_the_same_or_a_higher_level_ends_the_path() -> None:
    text = f"# A\n## B\n#### C\n{words(40)}\n\n## D\n{words(40)}\n\n# E\n{words(40)}"

    assert [c.heading_path for c in markdown_chunks(text)] == [("A", "B", "C"), ("A", "D"), ("E",)]


def test_small_sections_share_a_chunk() -> None:
    text = "\n\n".join(f"### S{i}\n\n{words(3)}" for i in range(6))

    first, _ = markdown_chunks(text)

    assert first.text.count("###") > 3


def test_a_main_section_begins_a_chunk_unless_the_one_before_is_tiny() -> None:
    text = f"# T\n\ntiny\n\n## A\n\n{words(10)}\n\n## B\n\n{words(10)}"

    first, second = markdown_chunks(text)

    assert first.text.endswith(words(10))
    assert second.text.startswith("## B")


def test_long_heading_paths_take_at_most_a_quarter_of_a_chunk() -> None:
    text = f"# {words(10, 'outer')}\n\n## {words(10, 'inner')}\n\n" + words(300)

    chunks = markdown_chunks(text, size=64)

    assert chunks[1].context == words(10, "inner") + "\n"
    assert chunks[1].heading_path == (words(10, "outer"), words(10, "inner"))


def test_one_long_title_is_shortened_at_a_word() -> None:
    chunks = markdown_chunks(f"# {words(20, 'outer')}\n\n" + words(100), size=64)

    assert chunks[-1].context.rstrip("\n").removesuffix("…") == words(15, "outer")


def test_a_fence_that_fits_is_not_cut() -> None:
    fence = "```py\n" + "\n".join([words(8)] * 4) + "\n```"
    text = f"{words(30)}\n\n{fence}\n\n{words(30)}"

    assert any(fence in c.text for c in markdown_chunks(text))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_fence_that_is_too_long_is_cut_at_lines_and_reopened(end: str) -> None:
    lines = [f"call_{i} = {words(5)}" for i in range(40)]
    text = end.join(["# T", "", "```py", *lines, "```"])

    chunks = markdown_chunks(text)

    assert chunks[0].text.startswith(f"# T{end}{end}```py{end}call_0 ")
    assert all(c.context == "T\n```py\n" for c in chunks[1:])
    assert [line for c in chunks for line in c.text.split(end)][3:-1] == lines
    assert chunks[-1].text.endswith(f"{end}```")
    assert len(chunks[-1].text.split(end)) > 2


def test_a_fence_slightly_too_long_is_cut_near_its_middle() -> None:
    text = "```\n" + "\n".join([words(5)] * 11) + "\n```"

    first, second = markdown_chunks(text)

    assert abs(first.token_count - second.token_count) < 15


def test_a_long_table_repeats_its_header_and_is_cut_between_rows() -> None:
    head = "| name | value |\n|------|-------|"
    rows = [f"| row{i} | {words(3)} |" for i in range(40)]

    chunks = markdown_chunks("\n".join(["# T", "", head, *rows]), size=96)

    assert len(chunks) > 2
    assert all(c.context == f"T\n{head}\n" for c in chunks[1:])
    assert [line for c in chunks for line in c.text.splitlines()][4:] == rows


def test_a_giant_row_is_cut_and_still_carries_the_header() -> None:
    chunks = markdown_chunks(f"| a | b |\n|---|---|\n| x | {words(300)} |\n| y | z |")

    assert all(c.context == "| a | b |\n|---|---|\n" for c in chunks[1:])


def test_a_giant_header_is_not_repeated() -> None:
    head = "|" + "|".join(["name"] * 40) + "|\n|" + "|".join(["-"] * 40) + "|"

    chunks = markdown_chunks(head + "\n" + "\n".join(["|" + "|".join(["v"] * 40) + "|"] * 5))

    assert all(c.context == "" for c in chunks)


def test_a_long_paragraph_is_cut_after_sentences() -> None:
    sentence = "This sentence has seven words in it. "

    chunks = chunks_of((sentence * 40).strip())

    assert all(c.text.endswith("in it.") for c in chunks)
    assert all(c.text.startswith("This") for c in chunks)


def test_line_ends_inside_a_paragraph_are_no_sentence_ends() -> None:
    text = "A sentence that goes\non over three lines\nand ends here. " * 20

    assert all(c.text.endswith("here.") for c in chunks_of(text))


def test_chinese_sentences_need_no_space_between_them() -> None:
    assert all(c.text.endswith("。") for c in chunks_of("今天天气很好，我们去公园吧。" * 30))


def test_lines_that_hold_no_sentences_are_cut_at_lines() -> None:
    text = "\n".join(["12:00 INFO worker started job"] * 60)

    assert all(c.text.startswith("12:00") for c in chunks_of(text))


def test_a_long_sentence_is_cut_between_words() -> None:
    assert all(set(c.text.split()) == {"word"} for c in chunks_of(words(500)))


def test_a_long_list_is_cut_between_items() -> None:
    text = "\n".join(f"- item {i}. And {words(4)}" for i in range(40))

    assert all(c.text.startswith("- item") for c in markdown_chunks(text))


def test_a_cut_never_separates_what_makes_one_character() -> None:
    family = "👨‍👩‍👧‍👦"

    assert all(set(c.text.split(family)) == {""} for c in chunks_of(family * 100))


def test_a_tiny_beginning_is_filled_up_with_prose() -> None:
    first, *_ = markdown_chunks(f"Intro:\n\n{'Six words are in this sentence. ' * 9}")

    assert first.text.startswith("Intro:\n\nSix words")


def test_chunks_overlap_by_whole_sentences_inside_a_paragraph_only() -> None:
    long = "This sentence has seven words in it. " * 20
    text = f"{long}\n\n{words(40)}\n\n{words(40)}"

    chunks = chunks_of(text, size=64, overlap=20)

    shared = [max(0, a.end - b.start) for a, b in itertools.pairwise(chunks)]
    assert shared[0] > 0
    assert shared[-1] == 0
    assert chunks[1].text.startswith("This sentence")
    tokenizer = WordTokenizer()
    for before, after in itertools.pairwise(chunks):
        assert len(tokenizer.token_starts(text[after.start : max(before.end, after.start)])) <= 20


def test_code_and_tables_never_overlap() -> None:
    text = "```\n" + "\n".join([words(5) + "."] * 60) + "\n```"

    chunks = markdown_chunks(text, overlap=30)

    assert all(a.end <= b.start for a, b in itertools.pairwise(chunks))


def test_pages_count_from_one_and_are_those_of_the_chunks_start() -> None:
    text = "\n\n".join([words(50)] * 3)
    starts = (0, 300, 400)

    chunks = chunks_of(text, Outline(page_starts=starts))

    assert [(c.start >= 300) + (c.start >= 400) + 1 for c in chunks] == [c.page for c in chunks]
    assert {c.page for c in chunks} == {1, 3}


def test_blocks_that_run_over_the_text_or_each_other_lose_nothing() -> None:
    text = f"{words(30)} {words(30, 'other')}"

    chunks_of(text, Outline(blocks=(Block("code", 5, 60), Block("table", 20, 90), Block("quote", 100, 9_999))))


def test_marks_of_an_extractor_serve_as_outline() -> None:
    text = f"Heading\n{words(30)}\nName\tValue\n" + "\n".join(["key\tvalue"] * 60)
    table = text.index("Name")
    outline = Outline(
        blocks=(
            Block("heading", 0, 7, level=1, title="Heading"),
            Block("table", table, len(text), header_end=text.index("\n", table) + 1),
        )
    )

    chunks = chunks_of(text, outline)

    assert chunks[-1].context == "Heading\nName\tValue\n"
    assert chunks[-1].heading_path == ("Heading",)


def test_the_whole_text_is_encoded_once_and_little_else() -> None:
    tokenizer = WordTokenizer()
    text = "\n\n".join([f"## Section\n\n{words(30)}"] * 200)

    chunks = chunk(text, Outline(), ChunkSettings(), tokenizer)

    assert tokenizer.encoded[0] == len(text)
    assert sum(tokenizer.encoded) <= 2.2 * len(text)
    assert_promises(text, chunks, tokenizer, size=512)


def test_chunks_of_a_known_text_stay_what_they_are() -> None:
    """Other boundaries for the same text mean that CHUNKER_VERSION must be raised."""
    text = (
        "# Guide\n\nIntro. Two sentences.\n\n## Code\n\n```py\n" + "x = call(1)\n" * 20 + "```\n\n"
        "## Table\n\n|a|b|\n|-|-|\n" + "|1|2|\n" * 20 + "\n## Prose\n\n" + "Dr. Who said: no! 今天天气很好。 " * 12
    )

    assert [(c.start, c.end) for c in markdown_chunks(text)] == [
        (0, 30),
        (32, 142),
        (143, 226),
        (227, 290),
        (292, 361),
        (362, 397),
        (398, 433),
        (435, 540),
        (541, 630),
        (631, 722),
        (723, 756),
    ]


def test_plain_outlines_and_gaps_chunk_alike() -> None:
    text = "one\n\ntwo\r\n\r\n" + words(100)

    assert chunks_of(text, outline_plain(text)) == chunks_of(text)
