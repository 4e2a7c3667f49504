"""Structure of plain text: paragraphs between blank lines, and nothing that would have to be guessed."""

import re
from collections.abc import Iterator

from app.chunking.contract import Block, Outline

LINE_END = re.compile(r"\r\n|\r|\n")
# Atomic, so that the two halves of one \r\n are never taken for two line ends.
_BLANK_LINES = re.compile(r"(?>\r\n|\r|\n)(?:[^\S\r\n]*+(?>\r\n|\r|\n))++")


def outline_plain(text: str) -> Outline:
    """Find the paragraphs of a text; they are separated by blank lines (\\n, \\r\\n, \\r, also mixed).

    Underlines, numbers and capitals are not taken for headings: a wrong heading would mislabel all that follows.
    """
    return Outline(blocks=tuple(Block("paragraph", start, end) for start, end in paragraphs(text, 0, len(text))))


def paragraphs(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each paragraph within text[start:end], without the white space around it."""
    for gap in _BLANK_LINES.finditer(text, start, end):
        yield from _if_any(text, start, gap.start())
        start = gap.end()
    yield from _if_any(text, start, end)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Narrow a range until it neither begins nor ends with white space; start == end when it holds nothing else."""
    piece = text[start:end]
    end -= len(piece) - len(piece.rstrip())
    start = min(end, start + len(piece) - len(piece.lstrip()))
    return start, end


def _if_any(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    start, end = trimmed(text, start, end)
    if start < end:
        yield start, end
