from itertools import pairwise
from pathlib import Path

import pytest
from chunking_support import DriftingTokenizer, MarkedTokenizer, WordTokenizer, assert_promises
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chunking.contract import ChunkSettings, Outline
from app.chunking.markdown import outline_markdown
from app.chunking.plain import outline_plain
from app.chunking.service import RESERVED_TOKENS, chunk

DOCS = Path(__file__).resolve().parents[4] / "shared" / "data" / "docs"
SCRIPTS = [
    "The quick brown fox. It jumps! ",
    "Größe und Straße. Ähnlich? ",
    "Быстрая лиса прыгает. Да! ",
    "Γρήγορη αλεπού; Ναι. ",
    "الثعلب السريع يقفز؟ نعم. ",
    "השועל המהיר קופץ. כן! ",
    "तेज़ लोमड़ी कूदती है। हाँ। ",
    "สุนัขจิ้งจอกกระโดด ใช่ ",
    "敏捷的狐狸跳过去。是的！",
    "素早い狐が跳ぶ。はい！かな",
    "빠른 여우가 뛴다. 네! ",
    "ტყის მელა. დიახ. ",
    "👨‍👩‍👧‍👦🇩🇪e\u0301\u0323👍🏽 ",
    "\u200b\ufeff\u00ad",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𓀀𓀁 ",
]
MARKUP = [
    "# ", "## ", "###### ", "- ", "  - ", "1. ", "> ", "```", "~~~py", "| a | b |", "|---|---|", "| x", "---", "===",
    "/// note", "///", "<div>", "    ", "{ #a }", "[a]: b", "***", "\t", "\\", "`", "x" * 70,
]  # fmt: skip
LINE_ENDS = ["\n", "\r\n", "\r", "\n\n", "\r\n\r\n", "\u2028", "\x0c", " "]
MARKUPS = st.sampled_from(MARKUP)
SIZES = st.one_of(st.just(32), st.integers(32, 140))


@st.composite
def documents(draw: st.DrawFn) -> str:
    parts = st.one_of(
        MARKUPS,
        st.sampled_from(LINE_ENDS),
        st.sampled_from(LINE_ENDS),
        st.builds(lambda text, times: text * times, st.sampled_from(SCRIPTS), st.integers(1, 30)),
        st.builds(
            lambda line, end, times: (line + end) * times, MARKUPS, st.sampled_from(LINE_ENDS), st.integers(1, 30)
        ),
        st.text(max_size=20),
    )
    return "".join(draw(st.lists(parts, max_size=30))).replace("\0", "")


@settings(max_examples=150, deadline=None)
@given(documents(), SIZES, st.data())
def test_every_promise_holds_for_any_markdown(text: str, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, (size - 1) // 2))
    tokenizer = WordTokenizer()

    chunks = chunk(text, outline_markdown(text), ChunkSettings(size, overlap), tokenizer)

    assert_promises(text, chunks, tokenizer, size=size)
    assert chunks == chunk(text, outline_markdown(text), ChunkSettings(size, overlap), tokenizer)
    for before, after in pairwise(chunks):
        assert len(tokenizer.token_starts(text[after.start : max(before.end, after.start)])) <= overlap


@settings(max_examples=80, deadline=None)
@given(documents(), SIZES)
def test_without_overlap_no_character_is_in_two_chunks(text: str, size: int) -> None:
    chunks = chunk(text, outline_plain(text), ChunkSettings(size, 0), WordTokenizer())

    assert all(before.end <= after.start for before, after in pairwise(chunks))


@settings(max_examples=80, deadline=None)
@given(documents(), SIZES)
def test_promises_hold_for_a_tokenizer_whose_tokens_begin_before_the_word(text: str, size: int) -> None:
    tokenizer = MarkedTokenizer()

    assert_promises(text, chunk(text, outline_markdown(text), ChunkSettings(size), tokenizer), tokenizer, size=size)


@settings(max_examples=80, deadline=None)
@given(documents(), SIZES)
def test_no_chunk_is_over_the_size_even_when_slices_count_more_than_their_part(text: str, size: int) -> None:
    tokenizer = DriftingTokenizer()

    chunks = chunk(text, outline_markdown(text), ChunkSettings(size), tokenizer)

    over = [c for c in chunks if len(tokenizer.token_starts(c.embedded_text)) + RESERVED_TOKENS > size]
    assert over == []


@settings(max_examples=60, deadline=None)
@given(documents(), st.lists(st.integers(0, 500), max_size=5))
def test_pages_ascend(text: str, page_starts: list[int]) -> None:
    outline = Outline(page_starts=tuple(sorted({0, *page_starts})))

    pages = [c.page or 0 for c in chunk(text, outline, ChunkSettings(32), WordTokenizer())]

    assert pages == sorted(pages)
    assert all(1 <= page <= len(outline.page_starts) for page in pages)


MILLION = 1_000_000
HOSTILE = {
    "no space": "a" * MILLION,
    "5 MB in one line": "some words here. " * (5 * MILLION // 17),
    "newlines": "\n" * MILLION,
    "newlines between letters": "a" + "\r\n" * MILLION + "b",
    "spaces": " " * MILLION + "a",
    "Thai": "สุนัขจิ้งจอกกระโดด" * 20_000,
    "headings": "# A\n" * 10_000,
    "one heading": "# " + "word " * 50_000,
    "deeper and deeper headings": "".join(f"{'#' * (i % 6 + 1)} {'title ' * 30}\n" for i in range(5_000)),
    "one row": "|a|b|\n|-|-|\n|x|" + "word " * 50_000,
    "one header": "|" + "a|" * 20_000 + "\n|" + "-|" * 20_000 + "\n|1|\n",
    "unclosed fences": "```py\n~~~\n````\n" * 10_000,
    "fence with a long info": "```" + "info " * 20_000 + "\ncode\n" * 1_000,
    "nested lists": "\n".join("  " * i + "- a" for i in range(300)),
    "nested quotes": ">" * 10_000 + " a",
    "combining marks": "e" + "\u0301" * 100_000,
    "invisible": "\u200b" * 100_000,
    "short paragraphs": "ab\n\n" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_chunked_to_its_end(name: str) -> None:
    text, tokenizer = HOSTILE[name], WordTokenizer()

    chunks = chunk(text, outline_markdown(text), ChunkSettings(), tokenizer)

    assert sum(tokenizer.encoded) <= 5 * len(text) + 100_000
    assert_promises(text, chunks, tokenizer, size=512)
    assert max((c.end - c.start for c in chunks), default=0) <= 512 * 20


@pytest.mark.parametrize("make", ["a", "some words here. ", "- item\n", "ab\n\n", "```\nx\n"])
def test_twice_the_text_is_about_twice_the_encoding(make: str) -> None:
    encoded = []
    for times in (20_000, 40_000):
        tokenizer = WordTokenizer()
        text = make * times
        chunk(text, outline_markdown(text), ChunkSettings(), tokenizer)
        encoded.append(sum(tokenizer.encoded))

    assert encoded[1] <= 2.2 * encoded[0]


@pytest.mark.skipif(not DOCS.is_dir(), reason="the shared Markdown pages are not beside the repository")
@pytest.mark.parametrize("size", [64, 512])
def test_real_documentation_keeps_every_promise(size: int) -> None:
    for path in sorted(DOCS.rglob("*.md")):
        text, tokenizer = path.read_bytes().decode(), WordTokenizer()

        chunks = chunk(text, outline_markdown(text), ChunkSettings(size, size // 8), tokenizer)

        assert_promises(text, chunks, tokenizer, size=size)


@pytest.mark.skipif(not DOCS.is_dir(), reason="the shared Markdown pages are not beside the repository")
def test_no_heading_of_real_documentation_is_parted_from_its_text() -> None:
    for path in sorted(DOCS.rglob("*.md")):
        text = path.read_bytes().decode()
        outline = outline_markdown(text)
        headings = {text[b.start : b.end].rstrip() for b in outline.blocks if b.kind == "heading"}

        chunks = chunk(text, outline, ChunkSettings(), WordTokenizer())

        assert [c.text for c in chunks[:-1] if c.text.splitlines()[-1] in headings] == []
