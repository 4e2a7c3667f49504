"""Chunks made final: trimmed, counted, placed on their page, and never over the size."""

from bisect import bisect_right
from collections.abc import Sequence

from app.chunking.context import Context
from app.chunking.contract import Chunk, Tokenizer
from app.chunking.cutting import sentence_cut
from app.chunking.plain import trimmed
from app.chunking.ruler import Ruler


class Emitter:
    """Collects the chunks. A count close to the limit, or of a slice cut inside a line of words, is made again."""

    def __init__(self, text: str, page_starts: Sequence[int], *, ruler: Ruler, tokenizer: Tokenizer, room: int) -> None:
        self.chunks: list[Chunk] = []
        self._text = text
        self._page_starts = page_starts
        self._ruler = ruler
        self._tokenizer = tokenizer
        self._room = room
        self._margin = 4 + room // 32
        self._counted = (0, 0, "", 0)  # what was counted last: start, end, context, tokens

    def excess(self, start: int, end: int, *, context: Context) -> int:
        """Return by how many tokens context and text[start:end] exceed a chunk; 0 or less: they fit.

        Between white space the estimate is believed here; `emit` makes sure of it.
        """
        start, end = trimmed(self._text, start, end)
        estimate = context.tokens + self._ruler.count(start, end)
        if estimate <= self._room - self._margin or self._stands_free(start, end):
            return estimate - self._room
        return self._exact(start, end, context) - self._room

    def emit(self, start: int, end: int, *, path: tuple[str, ...], context: Context) -> None:
        """Add text[start:end] as a chunk; as several where it is over the size after all."""
        start, end = trimmed(self._text, start, end)
        while start < end:
            cut, tokens = self._within_size(start, end, context)
            self._append(start, cut, path=path, context=context, tokens=tokens)
            start, end = trimmed(self._text, cut, end)

    def _within_size(self, start: int, end: int, context: Context) -> tuple[int, int]:
        """Return the end of the longest beginning of text[start:end] that fits, at least one character, and its count.

        Counted whole, the text may be a few tokens shorter than counted in pieces; mostly one count settles it.
        """
        tokens = self._tokens(start, end, context)
        budget = self._room - context.tokens
        while tokens > self._room and end - start > 1 and budget > 0:
            budget = min(budget - 1, budget - (tokens - self._room))
            limit = min(self._ruler.reach(start, max(1, budget)), end - 1)
            _, end = trimmed(self._text, start, sentence_cut(self._text, start, limit=limit, wanted=limit))
            tokens = self._exact(start, end, context)
        return end, tokens

    def _append(self, start: int, end: int, *, path: tuple[str, ...], context: Context, tokens: int) -> None:
        page = max(1, bisect_right(self._page_starts, start)) if self._page_starts else None
        self.chunks.append(
            Chunk(
                chunk_index=len(self.chunks),
                start=start,
                end=end,
                text=self._text[start:end],
                context=context.text,
                heading_path=path,
                page=page,
                token_count=tokens,
            )
        )

    def _tokens(self, start: int, end: int, context: Context) -> int:
        estimate = context.tokens + self._ruler.count(start, end)
        if estimate <= self._room - self._margin and self._stands_free(start, end):
            return estimate
        return self._exact(start, end, context)

    def _stands_free(self, start: int, end: int) -> bool:
        """Whether white space, or the text's end, is on both sides: then a slice's tokens are those of the whole."""
        text = self._text
        return (start == 0 or text[start - 1].isspace()) and (end == len(text) or text[end].isspace())

    def _exact(self, start: int, end: int, context: Context) -> int:
        if self._counted[:3] != (start, end, context.text):
            tokens = len(self._tokenizer.token_starts(context.text + self._text[start:end]))
            self._counted = (start, end, context.text, tokens)
        return self._counted[3]
