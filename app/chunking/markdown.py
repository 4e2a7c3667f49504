"""Structure of Markdown source, as markdown-it-py's line maps show it, in code points of the untouched text."""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.chunking.contract import Block, BlockKind, Outline
from app.chunking.plain import LINE_END

_FRONT_MATTER = re.compile(
    r"\ufeff?(?P<fence>---|\+\+\+)[ \t]*(?>\r\n|\r|\n)(?=[\w\"'#-])"
    r"(?:(?!(?P=fence))[^\r\n]*+(?>\r\n|\r|\n)){0,400}+(?P=fence)[ \t]*(?:[\r\n]|\Z)"
)
_ATTRIBUTES = re.compile(r"\s*\{:?\s*[#.][^{}]*\}\s*\Z")  # "## Title { #anchor }"
_ADMONITION_OPENS = re.compile(r"/{3,}[ \t]+\S[^\r\n]*\Z")  # "/// note | Title"
_ADMONITION_CLOSES = re.compile(r"/{3,}[ \t]*\Z")
_CONTAINERS: dict[str, BlockKind] = {
    "bullet_list_open": "list",
    "ordered_list_open": "list",
    "blockquote_open": "quote",
}
_PARAGRAPHS = frozenset({"paragraph_open", "html_block", "hr"})
_MAX_TITLE_SOURCE = 1_000  # characters of a heading's source that are read for its title


def outline_markdown(text: str) -> Outline:
    """Find headings, paragraphs, lists, quotes, fences, indented code and tables (CommonMark and GFM tables).

    Offsets are code points of `text` as given, whatever its line ends. Only headings outside lists and quotes count
    as headings; fences and tables inside lists and quotes are blocks of their own, the rest around them is list or
    quote. YAML or TOML front matter is one code block. The markers of an admonition (`/// note`, `///`) belong to the
    block they stand beside. Titles are plain text, without markup and without a trailing `{ #anchor }`.
    """
    front = _FRONT_MATTER.match(text)
    base = front.end() if front else 0
    blocks = [Block("code", 0, base)] if front else []
    blocks += _Walk(text, base).blocks()
    return Outline(blocks=tuple(_with_admonitions(text, blocks)))


class _Walk:
    """One pass over the parser's block tokens."""

    def __init__(self, text: str, base: int) -> None:
        self._text = text
        # The parser's line ends are these alone: no form feed, no U+2028.
        self._starts = [base, *(end.end() for end in LINE_END.finditer(text, base)), len(text)]
        self._parser = _parser()
        self._env: dict[str, object] = {}
        self._tokens = self._parser.parse(text[base:], self._env)

    def blocks(self) -> Iterator[Block]:
        """Yield the blocks in order."""
        at = 0
        while at < len(self._tokens):
            token = self._tokens[at]
            if token.level == 0 and token.type in _CONTAINERS:
                after = self._after_container(at)
                yield from self._container(token, self._tokens[at + 1 : after])
                at = after
                continue
            block = self._leaf(token, at)
            if block is not None:
                yield block
            at += 1

    def _after_container(self, at: int) -> int:
        closing = self._tokens[at].type.removesuffix("open") + "close"
        at += 1
        while self._tokens[at].level or self._tokens[at].type != closing:
            at += 1
        return at + 1

    def _container(self, opening: Token, inside: Sequence[Token]) -> Iterator[Block]:
        """Split a list or quote around the fences, tables and indented code inside it."""
        kind = _CONTAINERS[opening.type]
        start, end = self._range(opening)
        for at, token in enumerate(inside):
            if token.type not in ("fence", "code_block", "table_open"):
                continue
            block = self._code_or_table(token, inside[at : at + 2])
            if block.start < start:
                continue
            if self._text[start : block.start].strip():
                yield Block(kind, start, block.start)
            yield block
            start = block.end
        if self._text[start:end].strip():
            yield Block(kind, start, end)

    def _leaf(self, token: Token, at: int) -> Block | None:
        if token.type == "heading_open":
            start, end = self._range(token)
            return Block("heading", start, end, level=int(token.tag[1:]), title=self._title(self._tokens[at + 1]))
        if token.type in ("fence", "code_block", "table_open"):
            return self._code_or_table(token, self._tokens[at : at + 2])
        if token.type in _PARAGRAPHS and token.level == 0:
            return Block("paragraph", *self._range(token))
        return None

    def _code_or_table(self, token: Token, following: Sequence[Token]) -> Block:
        start, end = self._range(token)
        if token.type == "table_open":
            head = following[1].map or [0, 0]
            return Block("table", start, end, header_end=self._starts[head[0] + 2])  # names, then the dashes
        if token.type == "code_block":
            return Block("code", start, end)
        fence = self._text[start:end].rstrip()
        last_start = max(fence.rfind("\n"), fence.rfind("\r")) + 1
        last_line = fence[last_start:].strip(" \t>")
        is_closed = last_start > 0 and set(last_line) == {token.markup[0]} and len(last_line) >= len(token.markup)
        opening = token.markup + token.info.rstrip()
        return Block("code", start, end, opening=opening, closing=token.markup if is_closed else "")

    def _range(self, token: Token) -> tuple[int, int]:
        first, after = token.map or (0, 0)
        return self._starts[first], self._starts[min(after, len(self._starts) - 1)]

    def _title(self, inline: Token) -> str:
        source = _ATTRIBUTES.sub("", inline.content[:_MAX_TITLE_SOURCE])
        children: list[Token] = []
        self._parser.inline.parse(source, self._parser, self._env, children)
        return " ".join("".join(_plain(children)).split())


@functools.cache
def _parser() -> MarkdownIt:
    """One for all texts and threads: a parse keeps its state to itself, and building a parser takes a millisecond."""
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    for ruler in (parser.core.ruler, parser.block.ruler, parser.inline.ruler, parser.inline.ruler2):
        ruler.getRules("")  # what it would otherwise prepare in the first parse, which may be two at once
    return parser


def _plain(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.children:
            yield from _plain(token.children)
        elif token.type in ("text", "text_special", "code_inline"):
            yield token.content


def _with_admonitions(text: str, blocks: Sequence[Block]) -> Iterator[Block]:
    """Let an opening marker begin the block after it, a closing marker end the block before it."""
    waiting: Block | None = None  # the block that may still grow
    for block in blocks:
        if waiting is not None:
            if _is_marker(text, waiting, _ADMONITION_OPENS) and block.kind not in ("heading", "table"):
                block = replace(block, start=waiting.start)
            elif _is_marker(text, block, _ADMONITION_CLOSES) and waiting.kind not in ("heading", "table"):
                block = replace(waiting, end=block.end)
            else:
                yield waiting
        waiting = block
    if waiting is not None:
        yield waiting


def _is_marker(text: str, block: Block, marker: re.Pattern[str]) -> bool:
    return (
        block.kind == "paragraph"
        and text.startswith("///", block.start)
        and marker.match(text[block.start : block.end].rstrip()) is not None
    )
