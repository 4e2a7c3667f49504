"""Where to cut a unit that is too long for a chunk: lines, items, sentences, words, at last between graphemes."""

import re

from semantic_text_splitter import TextSplitter

from app.chunking.plain import LINE_END
from app.chunking.units import Unit

_LOOK_AHEAD = 64  # characters after the limit, which show whether a sentence or word ends at it
_MIN_FILL = 8  # a sentence's end is taken when at least 1/8 of the chunk lies before it
_ITEM = re.compile(r"[\r\n][ \t>]*(?:[-*+•‣·]|\d{1,9}[.)])[ \t]")
_SENTENCE_END = re.compile(r"[.!?…。！？।॥؟۔።։။។᠃][^\w\s]{0,4}\s*\Z")


def best_cut(text: str, unit: Unit, *, start: int, aim: int, limit: int) -> int:
    """Return an offset in (unit.start, limit], the best one to end a chunk that began at `start`.

    Code and tables are cut after a line, nearest to `aim` (start < aim <= limit); lists before an item; the rest,
    and lines and items that are too long, after a sentence, else a word, else a grapheme.
    """
    cut: int | None = None
    if not unit.is_prose:
        cut = _line_cut(text, unit, aim=aim, limit=limit)
    elif unit.kind == "list":
        cut = _item_cut(text, unit, start=start, limit=limit)
    if cut is None:
        base = unit.body_start if unit.start <= unit.body_start < limit else unit.start
        cut = sentence_cut(text, base, limit=limit, wanted=start + (limit - start) // _MIN_FILL)
    return cut


def sentence_cut(text: str, base: int, *, limit: int, wanted: int) -> int:
    """Return the last end of a sentence in (base, limit]; of a word or grapheme when that lies before `wanted`.

    Boundaries are those of Unicode (UAX 29); single line ends are white space, not boundaries.
    """
    cut = base + _first_piece(text, base, limit)
    if cut < min(wanted, limit):
        cut += _first_piece(text, cut, limit)
    if not _SENTENCE_END.search(text, max(base, cut - 16), cut):
        line = max(text.rfind("\n", base, cut), text.rfind("\r", base, cut)) + 1
        if line > (base + limit) // 2:
            return line
    return cut


def overlap_start(text: str, first: int, cut: int) -> int:
    """Return where the first sentence begins in text[first:cut], else the first word, else `cut`.

    Text before the first boundary is the rest of a sentence and left out.
    """
    window = _one_line(text[first:cut])
    pieces = TextSplitter((1, len(window) + 1), trim=False).chunk_indices(window)
    if len(pieces) > 1:
        return first + pieces[1][0]
    word = re.search(r"\s+(?=\S)", window)
    return first + word.end() if word else cut


def _first_piece(text: str, base: int, limit: int) -> int:
    window = _one_line(text[base : limit + _LOOK_AHEAD])
    pieces = TextSplitter(limit - base, trim=False).chunks(window)
    return len(pieces[0]) if pieces else limit - base


def _one_line(text: str) -> str:
    """Blank out line ends, one for one: to the splitter they would outrank sentences."""
    return text.replace("\r", " ").replace("\n", " ")


def _line_cut(text: str, unit: Unit, *, aim: int, limit: int) -> int | None:
    """Return the last line start in (body_start, aim], else the first in (aim, limit]; before `body_end`."""
    low = max(unit.start, unit.body_start)
    cut = None
    for line in LINE_END.finditer(text, low, limit):
        if line.end() < unit.body_end and (cut is None or line.end() <= aim):
            cut = line.end()
    return cut


def _item_cut(text: str, unit: Unit, *, start: int, limit: int) -> int | None:
    """Return the last item start in (unit.start, limit] that leaves the chunk at least a quarter full."""
    low = max(unit.start, start + (limit - start) // 4)
    cut = None
    for item in _ITEM.finditer(text, low, limit):
        cut = item.start() + 1
    return cut
