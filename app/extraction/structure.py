"""Builds a text out of blocks and remembers where each one stands."""

from app.extraction.contract import DocumentTooLarge, Mark, MarkKind

BLOCK_GAP = "\n\n"
MAX_MARKS = 500_000
MAX_TITLE_CHARACTERS = 500  # what is longer heads nothing: a heading that was never closed, or misused


class TextBuilder:
    """Collects blocks in reading order; the offsets of its marks are exact by construction.

    Blocks are parted by a blank line, items of one list by a line end. Blank blocks are dropped. Paragraphs get no
    mark: they are what stands between marks.
    Raises: DocumentTooLarge as soon as the text exceeds `max_characters` or has more than 500,000 marks.
    """

    def __init__(self, max_characters: int) -> None:
        self._max_characters = max_characters
        self._parts: list[str] = []
        self._length = 0
        self._marks: list[Mark] = []
        self._list_is_open = False

    def __len__(self) -> int:
        return self._length

    def heading(self, text: str, level: int) -> None:
        """Add a heading; its title is the text on one line. A text too long for a title becomes a paragraph."""
        title = " ".join(text.split())
        if len(title) > MAX_TITLE_CHARACTERS:
            self.block("paragraph", text)
            return
        self._add("heading", title, level=min(max(level, 1), 6), title=title)

    def block(self, kind: MarkKind, text: str) -> None:
        """Add a paragraph, quote or piece of code."""
        self._add(kind, text.strip("\n") if kind == "code" else text.strip())

    def list_item(self, text: str, depth: int = 0, *, marker: str = "- ") -> None:
        """Add one item (line ends inside it become spaces); items that follow each other are one list."""
        line = " ".join(text.split())
        if not line:
            return
        line = "  " * depth + marker + line
        if not self._list_is_open:
            self._add("list", line)
            self._list_is_open = True
            return
        last = self._marks.pop()
        self._write("\n" + line)
        self._marks.append(Mark("list", last.start, self._length))

    def end_list(self) -> None:
        """The next item begins another list."""
        self._list_is_open = False

    def table(self, rows: list[list[str]], *, header_rows: int = 1) -> None:
        """Add a table as one line of `| cell | cell |` a row; wholly empty rows are dropped."""
        cells = [[" ".join(cell.split()) for cell in row] for row in rows]
        lines = ["| " + " | ".join(row) + " |" for row in cells if any(row)]
        if not lines:
            return
        headers = [row for row in cells[:header_rows] if any(row)]
        header_length = sum(len(line) + 1 for line in lines[: len(headers)]) if len(lines) > len(headers) else 0
        self._add("table", "\n".join(lines), header_length=header_length)

    def finish(self) -> tuple[str, tuple[Mark, ...]]:
        """The whole text and its marks, ascending and not overlapping."""
        return "".join(self._parts), tuple(self._marks)

    def _add(self, kind: MarkKind, text: str, *, level: int = 0, title: str = "", header_length: int = 0) -> None:
        if not text.strip():
            return
        self._list_is_open = False
        if self._length:
            self._write(BLOCK_GAP)
        start = self._length
        self._write(text)
        if kind == "paragraph":
            return
        if len(self._marks) == MAX_MARKS:
            raise DocumentTooLarge(f"The file holds more than {MAX_MARKS} headings, lists and tables.")
        header_end = start + header_length if header_length else None
        self._marks.append(Mark(kind, start, self._length, level, title, header_end))

    def _write(self, text: str) -> None:
        self._length += len(text)
        if self._length > self._max_characters:
            raise DocumentTooLarge(f"The file holds more than {self._max_characters} characters of text.")
        self._parts.append(text)
