import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.chunking.contract import Block
from app.chunking.markdown import outline_markdown
from app.chunking.plain import outline_plain


def seen(text: str) -> list[tuple[str, str]]:
    """Kind and trimmed text of each block."""
    return [(block.kind, text[block.start : block.end].strip()) for block in outline_markdown(text).blocks]


def only(text: str, kind: str) -> Block:
    (block,) = (block for block in outline_markdown(text).blocks if block.kind == kind)
    return block


def test_headings_have_level_and_title() -> None:
    blocks = outline_markdown("# One\n\nText\n\n### Three ###\n\nSetext one\n===\n\nSetext\ntwo\n---\n").blocks

    headings = [(block.level, block.title) for block in blocks if block.kind == "heading"]
    assert headings == [(1, "One"), (3, "Three"), (1, "Setext one"), (2, "Setext two")]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("A *b* **c** `d_e` [link](http://x)", "A b c d_e link"),
        ("Picture ![alt *text*](x.png)", "Picture alt text"),
        ("Tom &amp; Jerry \\* star", "Tom & Jerry * star"),
        ("Anchor { #the-anchor }", "Anchor"),
        ("Anchor {#a .class}", "Anchor"),
        ("Braces {kept} inside", "Braces {kept} inside"),
        ("Set {1, 2}", "Set {1, 2}"),
        ("`**kwargs` { #kwargs }", "**kwargs"),
        ("<b>bold</b> 見出し", "bold 見出し"),
        ("", ""),
    ],
)
def test_titles_are_plain_text_without_markup_and_anchor(source: str, title: str) -> None:
    assert only(f"## {source}\n", "heading").title == title


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_offsets_are_those_of_the_text_as_given_whatever_its_line_ends(end: str) -> None:
    lines = [
        "# Title",
        "",
        "Text 😀",
        "more",
        "",
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
        "",
        "```py",
        "x = 1",
        "```",
        "",
    ]
    text = end.join(lines)

    assert seen(text) == [
        ("heading", "# Title"),
        ("paragraph", f"Text 😀{end}more"),
        ("table", end.join(lines[5:8])),
        ("code", end.join(lines[9:12])),
    ]
    table = only(text, "table")
    assert text[table.start : table.header_end] == end.join(lines[5:7]) + end


def test_mixed_line_ends_are_counted_as_the_parser_counts_them() -> None:
    text = "one\r\n\rtwo\n\r\n# T\rthree\n\n\r\r\n# U"

    assert seen(text) == [
        ("paragraph", "one"),
        ("paragraph", "two"),
        ("heading", "# T"),
        ("paragraph", "three"),
        ("heading", "# U"),
    ]


def test_form_feed_and_unicode_separators_end_no_line() -> None:
    text = "a\x0cb\u2028c\u2029d\x85e\x0bf\n\n# T\n"

    assert seen(text) == [("paragraph", "a\x0cb\u2028c\u2029d\x85e\x0bf"), ("heading", "# T")]


def test_a_fence_knows_what_reopens_and_closes_it() -> None:
    fence = only('~~~~python title="x"\ncode\n~~~~\n', "code")

    assert (fence.opening, fence.closing) == ('~~~~python title="x"', "~~~~")


@pytest.mark.parametrize("text", ["```py\ncode", "```", "text\n\n```\n\n\n"])
def test_a_fence_that_is_never_closed_has_no_closing(text: str) -> None:
    assert only(text, "code").closing == ""


def test_fences_tables_and_code_inside_a_list_are_blocks_of_their_own() -> None:
    text = "- a\n  - b\n\n    ```py\n    x\n    ```\n- c\n\n  | h |\n  |---|\n  | 1 |\n- d\n"

    assert seen(text) == [
        ("list", "- a\n  - b"),
        ("code", "```py\n    x\n    ```"),
        ("list", "- c"),
        ("table", "| h |\n  |---|\n  | 1 |"),
        ("list", "- d"),
    ]


def test_a_fence_inside_a_quote_is_a_block_of_its_own() -> None:
    assert seen("> q\n> ```\n> z\n> ```\n> r\n") == [("quote", "> q"), ("code", "> ```\n> z\n> ```"), ("quote", "> r")]


def test_headings_inside_lists_and_quotes_open_no_section() -> None:
    assert [kind for kind, _ in seen("- # not a section\n\n> # neither\n")] == ["list", "quote"]


def test_indented_code_and_html_are_blocks() -> None:
    assert seen("<div>\n# no heading\n</div>\n\n    code\n\n    more\n\nend\n") == [
        ("paragraph", "<div>\n# no heading\n</div>"),
        ("code", "code\n\n    more"),
        ("paragraph", "end"),
    ]


@pytest.mark.parametrize("front", ["---\ntitle: x\n---\n", "+++\ntitle = 'x'\n+++\n", "---\r\na: b\r\nc: d\r\n---\r\n"])
def test_front_matter_is_one_block_and_no_heading(front: str) -> None:
    assert seen(front + "\n# T\n") == [("code", front.strip()), ("heading", "# T")]


def test_a_rule_at_the_top_is_no_front_matter() -> None:
    assert seen("---\n\nText\n\n---\n\nMore\n")[1] == ("paragraph", "Text")


def test_markers_of_an_admonition_belong_to_the_block_beside_them() -> None:
    text = "/// note | Title\n\nhello\n\nagain\n\n///\n\nafter\n"

    assert seen(text) == [
        ("paragraph", "/// note | Title\n\nhello"),
        ("paragraph", "again\n\n///"),
        ("paragraph", "after"),
    ]


def test_plain_text_is_cut_at_blank_lines_only() -> None:
    text = "  one\ntwo\r\n\r\nthree\r\rfour\n \t\n\x0c\nfive\n\r\nsix\r\nseven"

    assert [text[block.start : block.end] for block in outline_plain(text).blocks] == [
        "one\ntwo",
        "three",
        "four",
        "five",
        "six\r\nseven",
    ]


@given(
    st.lists(st.sampled_from(["# a", "- b", "```", "> q", "|a|", "|-|", "    ", "\n", "\r", "\r\n", "x", "---", "///"]))
)
def test_blocks_of_any_text_ascend_within_it(parts: list[str]) -> None:
    text = "".join(parts)

    at = 0
    for block in [*outline_markdown(text).blocks]:
        assert at <= block.start < block.end <= len(text)
        assert block.header_end is None or block.start < block.header_end <= block.end
        at = block.end
