"""The outline flattened: every stretch of text that may stand in a chunk, with the heading path in force there."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from app.chunking.contract import Block, BlockKind, Outline
from app.chunking.plain import LINE_END, paragraphs, trimmed

_MAX_TITLE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Unit:
    """A block or paragraph text[start:end], beginning and ending with a visible character.

    `path` is in force after it (a heading's own title included), `context_path` is what its readers need told.
    `body_start`: no cut up to here (after a fence's first line, a table's header rows).
    `body_end`: no cut between lines from here on (before a fence's last line).
    `repeated`: what stands before each continuation of it.
    """

    kind: BlockKind
    start: int
    end: int
    path: tuple[str, ...]
    context_path: tuple[str, ...]
    body_start: int
    body_end: int
    level: int = 0
    repeated: str = ""

    @property
    def is_prose(self) -> bool:
        """Whether it may be cut between sentences without harm."""
        return self.kind not in ("code", "table")

    def rest_from(self, start: int) -> Self:
        """What remains of it after a cut."""
        return replace(self, start=start, context_path=self.path, body_start=start)


def units(text: str, outline: Outline) -> Iterator[Unit]:
    """Yield the units of a text in order; together they hold every visible character of it.

    Blocks that run over the end of the text or over one another are clipped; gaps between them are paragraphs.
    """
    sections: list[tuple[int, str]] = []
    path: tuple[str, ...] = ()
    at = 0
    for block in outline.blocks:
        start, end = max(block.start, at), min(block.end, len(text))
        if start >= end:
            continue
        yield from _paragraphs(text, at, start, path)
        at = end
        start, end = trimmed(text, start, end)
        if start == end:
            continue
        if block.kind == "heading":
            above = _path(sections, below=block.level)
            sections = [section for section in sections if section[0] < block.level]
            sections.append((block.level, " ".join(block.title.split())[:_MAX_TITLE_CHARACTERS]))
            path = _path(sections)
            yield Unit("heading", start, end, path, above, body_start=start, body_end=end, level=block.level)
        else:
            yield _body(text, block, start, end, path)
    yield from _paragraphs(text, at, len(text), path)


def _paragraphs(text: str, start: int, end: int, path: tuple[str, ...]) -> Iterator[Unit]:
    for first, after in paragraphs(text, start, end):
        yield Unit("paragraph", first, after, path, path, body_start=first, body_end=after)


def _path(sections: list[tuple[int, str]], below: int = 7) -> tuple[str, ...]:
    return tuple(title for level, title in sections if level < below and title)


def _body(text: str, block: Block, start: int, end: int, path: tuple[str, ...]) -> Unit:
    body_start, body_end, repeated = start, end, ""
    if block.kind == "table" and block.header_end is not None and start < block.header_end < end:
        repeated, body_start = text[start : block.header_end].strip(), block.header_end
    elif block.kind == "code" and block.opening:
        repeated, body_start, body_end = block.opening, *_fence(text, block, start, end)
    return Unit(block.kind, start, end, path, path, body_start=body_start, body_end=body_end, repeated=repeated)


def _fence(text: str, block: Block, start: int, end: int) -> tuple[int, int]:
    """Return where the code inside a fence begins and ends. Other lines may stand around it, in the same block."""
    first_end = LINE_END.search(text, max(start, text.find(block.opening[:3], start, end)), end)
    inside = first_end.end() if first_end else end
    closing = text.rfind(block.closing, inside, end) if block.closing else -1
    if closing < 0:
        return inside, end
    return inside, max(inside, text.rfind("\n", inside, closing) + 1, text.rfind("\r", inside, closing) + 1)
