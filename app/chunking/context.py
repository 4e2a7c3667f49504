"""What stands before a chunk when it is embedded: heading path, repeated table header, reopened fence."""

from dataclasses import dataclass

from app.chunking.contract import Tokenizer

_SEPARATOR = " > "
_ELLIPSIS = "…"
_MAX_REPEATED_CHARACTERS = 20  # for each token a chunk may hold


@dataclass(frozen=True, slots=True)
class Context:
    """The text, empty or ending with a line end, and its tokens."""

    text: str
    tokens: int


class Contexts:
    """Builds contexts; the same path is counted once."""

    def __init__(self, tokenizer: Tokenizer, *, size_tokens: int, reserved_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_path = size_tokens // 4
        self._max_repeated = (size_tokens - reserved_tokens - self._max_path) // 2
        self._known: dict[tuple[tuple[str, ...], str], Context] = {}

    def of(self, path: tuple[str, ...], repeated: str = "") -> Context:
        """Return the context under a heading path, with a table header or opening fence to repeat.

        The path takes at most a quarter of a chunk: outer titles are left out first, at last the innermost is
        shortened. A header that would take more than about a third of the chunk is not repeated.
        """
        if len(repeated) > self._max_repeated * _MAX_REPEATED_CHARACTERS:
            repeated = ""
        known = self._known.get((path, repeated))
        if known is None:
            known = self._known[path, repeated] = self._build(path, repeated)
        return known

    def _build(self, path: tuple[str, ...], repeated: str) -> Context:
        if repeated:
            if self._count(repeated + "\n") > self._max_repeated:
                return self.of(path)
            text = self.of(path).text + repeated + "\n"
        else:
            text = self._heading_line(path)
        return Context(text, self._count(text) if text else 0)

    def _heading_line(self, path: tuple[str, ...]) -> str:
        for outermost in range(len(path)):
            line = _SEPARATOR.join(path[outermost:]) + "\n"
            if self._count(line) <= self._max_path:
                return line
        return self._shortened(path[-1]) if path else ""

    def _shortened(self, title: str) -> str:
        starts = self._tokenizer.token_starts(title)
        for kept in range(min(self._max_path, len(starts) - 1), 0, -1):
            line = title[: starts[kept]].rstrip() + _ELLIPSIS + "\n"
            if self._count(line) <= self._max_path:
                return line
        return ""

    def _count(self, text: str) -> int:
        return len(self._tokenizer.token_starts(text))
