from html import escape
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extraction.contract import Extracted, Limits
from app.extraction.html import extract_html

plain = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("html") / "page.html"


def read(path: Path, source: str) -> Extracted:
    path.write_text(source, encoding="utf-8")
    return extract_html(path, Limits())


@given(st.lists(st.tuples(st.sampled_from(["h2", "pre", "p", "li"]), plain), min_size=1, max_size=8))
def test_marks_hold_exactly_the_blocks_of_the_page(path: Path, blocks: list[tuple[str, str]]) -> None:
    source = "".join(
        f"<ul><li>{escape(text)}</li></ul>" if tag == "li" else f"<{tag}>{escape(text)}</{tag}>" for tag, text in blocks
    )

    page = read(path, f"<body>{source}</body>")

    marked = [(mark.kind, page.text[mark.start : mark.end]) for mark in page.marks]
    kinds = {"h2": "heading", "pre": "code", "li": "list"}
    assert marked == [(kinds[tag], f"- {text}" if tag == "li" else text) for tag, text in blocks if tag != "p"]
    assert page.text == "\n\n".join(f"- {text}" if tag == "li" else text for tag, text in blocks)


@pytest.mark.parametrize(
    "unseen",
    [
        "<script>unseen()</script>",
        "<style>.unseen {}</style>",
        "<template><p>unseen</p></template>",
        "<!-- unseen -->",
        "<p hidden>unseen</p>",
        '<div style="color: red; DISPLAY : none"><p>unseen</p></div>',
        "<noscript>unseen</noscript>",
        "<nav><a>unseen</a></nav>",
        '<div role="navigation">unseen</div>',
        "<dialog>unseen</dialog>",
        "<svg><text>unseen</text></svg>",
    ],
)
def test_what_no_reader_sees_is_left_out(path: Path, unseen: str) -> None:
    assert read(path, f"<body><p>seen</p>{unseen}<p>also seen</p></body>").text == "seen\n\nalso seen"


def test_the_only_main_landmark_with_text_is_taken(path: Path) -> None:
    page = read(path, "<header>top</header><main></main><main><p>content</p></main><footer>bottom</footer>")

    assert page.text == "content"


def test_of_several_articles_none_is_preferred(path: Path) -> None:
    page = read(path, "<p>before</p><article>one</article><article>two</article>")

    assert page.text == "before\n\none\n\ntwo"


def test_pruning_that_would_leave_nothing_is_taken_back(path: Path) -> None:
    page = read(path, '<body style="display:none"><nav>menu</nav><p>everything is hidden</p><script>x</script></body>')

    assert page.text == "menu\n\neverything is hidden"


def test_lists_keep_their_depth_and_numbers(path: Path) -> None:
    page = read(path, "<ol><li>one<ul><li>inner</li></ul></li><li><p>two</p><p>more of two</p></li></ol><p>after</p>")

    assert page.text == "1. one\n  - inner\n2. two\n  more of two\n\nafter"
    assert [mark.kind for mark in page.marks] == ["list"]


def test_a_table_has_one_line_a_row_and_knows_its_header(path: Path) -> None:
    page = read(
        path,
        "<table><caption>Sales</caption><thead><tr><th rowspan=2>Region</th><th colspan=2>Year</th></tr>"
        "<tr><th>1</th><th>2</th></tr></thead><tr><td>North<br>West</td><td>3</td><td><p>4</p></td></tr></table>",
    )

    assert page.text == "Sales\n\n| Region | Year |  |\n|  | 1 | 2 |\n| North West | 3 | 4 |"
    [table] = page.marks
    assert table.header_end is not None
    assert page.text[table.start : table.header_end] == "| Region | Year |  |\n|  | 1 | 2 |\n"


def test_a_table_that_only_lays_out_the_page_is_read_as_blocks(path: Path) -> None:
    page = read(path, "<table><tr><td><h1>Title</h1></td><td><p>text</p></td></tr></table>")

    assert page.text == "Title\n\ntext"
    assert [(mark.kind, mark.level, mark.title) for mark in page.marks] == [("heading", 1, "Title")]


def test_code_keeps_its_layout_and_prose_does_not(path: Path) -> None:
    page = read(path, "<p>  wide\n   spaces <b>bold</b>text<br>next line</p><pre>if x:\n    y()</pre>")

    assert page.text == "wide spaces boldtext\nnext line\n\nif x:\n    y()"


def test_quotes_are_marked(path: Path) -> None:
    page = read(path, "<blockquote><p>said</p></blockquote>")

    assert [mark.kind for mark in page.marks] == ["quote"]


def test_the_page_tells_its_language_and_title(path: Path) -> None:
    page = read(path, '<html lang="de-AT"><head><title> Ein\n Titel </title></head><body>x</body></html>')

    assert (page.language, page.facts) == ("de", {"title": "Ein Titel"})


def test_the_reading_of_a_ruby_is_not_glued_to_its_text(path: Path) -> None:
    assert read(path, "<p><ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>字</p>").text == "漢字"
