"""Token counts of any slice of a text, from one encode of the whole."""

from bisect import bisect_left

from app.chunking.contract import Tokenizer

_CHARACTERS_PER_TOKEN = 20
_MAX_REMEMBERED = 256  # starts, so that a long blank stretch before one is not read again and again


class Ruler:
    """Measures slices in tokens. A slice is also bounded in characters, 20 for each token it may hold.

    The second bound matters where many characters are few tokens: blank stretches, runs of unknown characters.
    """

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self._text = text
        self._starts = tokenizer.token_starts(text)
        self._firsts: dict[int, int] = {}

    def count(self, start: int, end: int) -> int:
        """Return the tokens of text[start:end].

        Exact when the slice lies between white space, for tokenizers whose tokens do not reach across it;
        elsewhere a token or two off.
        """
        return max(0, bisect_left(self._starts, end) - self._first(start))

    def fits(self, start: int, end: int, budget: int) -> bool:
        """Whether text[start:end] is within `budget` tokens and the characters that go with them."""
        return end - start <= budget * _CHARACTERS_PER_TOKEN and self.count(start, end) <= budget

    def reach(self, start: int, budget: int) -> int:
        """Return the largest end for which text[start:end] fits; more than `start` except at the end of the text."""
        beyond = self._first(start) + budget
        end = self._starts[beyond] if beyond < len(self._starts) else len(self._text)
        return min(max(end, start + 1), start + max(1, budget) * _CHARACTERS_PER_TOKEN, len(self._text))

    def back(self, end: int, tokens: int) -> int:
        """Return the offset that lies `tokens` tokens before `end`."""
        first = bisect_left(self._starts, end) - tokens
        return self._starts[first] if 0 <= first < len(self._starts) else 0

    def _first(self, start: int) -> int:
        """Return the index of the token that text[start] belongs to.

        A token that begins in the white space before `start` (a word's mark) counts as the slice's own,
        since the slice alone would have it too.
        """
        found = self._firsts.get(start)
        if found is None:
            if len(self._firsts) >= _MAX_REMEMBERED:
                self._firsts.clear()
            found = self._firsts[start] = self._find_first(start)
        return found

    def _find_first(self, start: int) -> int:
        index = bisect_left(self._starts, start)
        if index == 0:
            return 0
        if index == len(self._starts) or self._starts[index] > start:
            return index - 1
        before, text = self._starts[index - 1], self._text
        if text[start - 1].isspace() and text[before].isspace() and text[before:start].isspace():
            return index - 1
        return index
