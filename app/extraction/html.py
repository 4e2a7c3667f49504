"""Text and structure of HTML pages: what a reader of the page would call its content."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from resiliparse.parse.html import DocumentNode, ElementNode, HTMLTree, Node, TextNode

from app.extraction.contract import Corrupt, DocumentTooLarge, Extracted, Limits
from app.extraction.languages import iso_639_1
from app.extraction.structure import MAX_TITLE_CHARACTERS, TextBuilder
from app.extraction.text import claimed_xml_encoding, decode

CONTENT_TYPE = "text/html"

_NEVER_SEEN_LISTED = (
    "head script style template noscript iframe object embed audio video canvas svg datalist select rt rp annotation "
    "annotation-xml"
)
NEVER_SEEN: Final = frozenset(_NEVER_SEEN_LISTED.split())
FURNITURE: Final = frozenset({"nav"})
FURNITURE_ROLES: Final = frozenset({"navigation", "search"})
HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
_INLINE_LISTED = (
    "a abbr acronym b bdi bdo big button cite code data del dfn em font i img input ins kbd label mark math mi mn mo "
    "mrow ms msub msup mtext output picture q ruby rb s samp semantics small span strike strong sub sup time tt u var "
    "wbr"
)
INLINE: Final = frozenset(_INLINE_LISTED.split())
LANDMARKS: Final = ("main, [role=main]", "article, [role=article]")
_LAYOUT_SIGNS: Final = "table, h1, h2, h3, h4, h5, h6, pre"
_MAX_LANDMARKS = 200
_MAX_SPAN = 50
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
_SPACES = re.compile(r"[ \t\r\f]+")
_META_CHARSET = re.compile(rb"""<meta[^>]+?charset\s*=\s*["']?\s*([\w.:-]+)""", re.I)
_META_WINDOW = 4096


def extract_html(path: Path, limits: Limits) -> Extracted:
    """Text of the page's main part, with headings, lists, tables, code and quotes as marks.

    Scripts, styles, hidden nodes and navigation are left out. If exactly one `main` (else `article`) landmark has
    text, only that is taken; what would leave nothing is not done.
    Raises: BadEncoding, DocumentTooLarge.
    """
    if path.stat().st_size > limits.max_inflated_bytes:
        raise DocumentTooLarge
    data = path.read_bytes()
    tree, document = _parsed(data)
    text, marks = _fullest_reading(document, limits.max_characters).finish()
    root = document.query_selector("html[lang]")
    title = " ".join((tree.title or "").split())
    return Extracted(
        text,
        CONTENT_TYPE,
        marks=marks,
        language=iso_639_1(root.getattr("lang")) if root is not None else None,
        facts={"title": title} if title else {},
    )


def add_html(builder: TextBuilder, data: bytes) -> None:
    """Add the page's blocks to a text that is being built."""
    _, document = _parsed(data)
    _Reader(builder).read(document)


def _parsed(data: bytes) -> tuple[HTMLTree, DocumentNode]:
    """The tree, which must be kept as long as its document is used."""
    tree = HTMLTree.parse(decode(data, hint=_claimed_encoding(data)))
    if tree.document is None:
        raise Corrupt
    return tree, tree.document


def _claimed_encoding(data: bytes) -> str | None:
    found = _META_CHARSET.search(data[:_META_WINDOW])
    return found[1].decode("ascii") if found else claimed_xml_encoding(data)


def _fullest_reading(document: DocumentNode, max_characters: int) -> TextBuilder:
    for selector in LANDMARKS:
        readings = [_reading(landmark, max_characters) for landmark in _outermost(document, selector)]
        with_text = [reading for reading in readings if len(reading)]
        if len(with_text) == 1:
            return with_text[0]
    return _reading(document, max_characters)


def _reading(root: Node, max_characters: int) -> TextBuilder:
    pruned = TextBuilder(max_characters)
    _Reader(pruned).read(root)
    if len(pruned):
        return pruned
    whole = TextBuilder(max_characters)
    _Reader(whole, prunes=False).read(root)
    return whole


def _outermost(document: DocumentNode, selector: str) -> list[ElementNode]:
    found = list(document.query_selector_all(selector))
    if len(found) > _MAX_LANDMARKS:
        return []
    return [node for node in found if node.parent_element is None or node.parent_element.closest(selector) is None]


class _Reader:
    """Walks a tree in document order, without recursion, and adds its blocks to a text."""

    def __init__(self, builder: TextBuilder, *, prunes: bool = True) -> None:
        self._builder = builder
        self._prunes = prunes
        self._inline: list[str] = []
        self._ordinals: list[int | None] = []  # of each open list: number of its next item, None without numbers
        self._open_items = 0
        self._item_marker = ""
        self._open_quotes = 0

    def read(self, root: Node) -> None:
        """Add everything below `root`."""
        for node, is_entering in _steps(root, self._is_taken_care_of):
            if isinstance(node, TextNode):
                self._inline.append((node.value or "").replace("\n", " "))
            elif isinstance(node, ElementNode):
                self._element(node.tag or "", is_entering)
        self._flush()

    def _is_taken_care_of(self, node: ElementNode) -> bool:
        """True where a subtree is left out, or has been read here as one block."""
        tag = node.tag or ""
        if self._is_left_out(node):
            return True
        if tag in HEADINGS and len(title := self._text_of(node)) <= MAX_TITLE_CHARACTERS:
            self._flush()
            self._builder.heading(title, HEADINGS[tag])
        elif tag == "pre":
            self._flush()
            self._builder.block("code", _raw_text(node))
        elif tag == "table" and (rows := self._data_rows(node)):
            self._flush()
            self._table(node, rows)
        else:
            return False
        return True

    def _element(self, tag: str, is_entering: bool) -> None:
        if tag == "br":
            if is_entering:
                self._inline.append("\n")
        elif tag not in INLINE:
            self._flush()
            if tag in ("ul", "ol", "menu"):
                self._list(tag, is_entering)
            elif tag == "li":
                self._item(is_entering)
            elif tag == "blockquote":
                self._open_quotes += 1 if is_entering else -1

    def _list(self, tag: str, is_entering: bool) -> None:
        if is_entering:
            self._ordinals.append(1 if tag == "ol" else None)
            return
        self._ordinals.pop()
        if not self._ordinals:
            self._builder.end_list()

    def _item(self, is_entering: bool) -> None:
        self._open_items += 1 if is_entering else -1
        self._item_marker = ""
        if is_entering:
            ordinal = self._ordinals[-1] if self._ordinals else None
            self._item_marker = "- " if ordinal is None else f"{ordinal}. "
            if ordinal is not None:
                self._ordinals[-1] = ordinal + 1

    def _flush(self) -> None:
        if not self._inline:
            return
        text = re.sub(r" *\n *", "\n", _SPACES.sub(" ", "".join(self._inline))).strip()
        self._inline.clear()
        if not text:
            return
        if self._open_items:
            self._builder.list_item(text, self._open_items - 1, marker=self._item_marker or "  ")
            self._item_marker = ""
        else:
            self._builder.block("quote" if self._open_quotes else "paragraph", text)

    def _text_of(self, root: ElementNode) -> str:
        """Visible text of a subtree on one line; blocks in it are parted by spaces."""
        parts: list[str] = []
        for node, _ in _steps(root, self._is_left_out):
            if isinstance(node, TextNode):
                parts.append(node.value or "")
            elif (node.tag or "") not in INLINE:
                parts.append(" ")
        return " ".join("".join(parts).split())

    def _is_left_out(self, node: ElementNode) -> bool:
        tag = node.tag or ""
        return tag in NEVER_SEEN or (self._prunes and _is_pruned(node, tag))

    def _data_rows(self, table: ElementNode) -> list[ElementNode]:
        """The rows of a table of data; none for one that only lays out the page."""
        if table.getattr("role") in ("presentation", "none") or table.query_selector(_LAYOUT_SIGNS) is not None:
            return []
        rows = [row for row in table.get_elements_by_tag_name("tr") if not self._is_left_out(row)]
        return rows if any(len(_cells(row)) > 1 for row in rows) else []

    def _table(self, table: ElementNode, rows: list[ElementNode]) -> None:
        caption = table.query_selector("caption")
        if caption is not None:
            self._builder.block("paragraph", self._text_of(caption))
        open_spans: dict[int, int] = {}
        grid = [self._grid_row(row, open_spans) for row in rows]
        width = max(len(cells) for cells in grid)
        headers = next((i for i, row in enumerate(rows) if not _is_header(row)), len(rows))
        self._builder.table([cells + [""] * (width - len(cells)) for cells in grid], header_rows=max(headers, 1))

    def _grid_row(self, row: ElementNode, open_spans: dict[int, int]) -> list[str]:
        """Texts of a row by column; a cell that spans stands once, the places it covers stay empty."""
        texts: list[str] = []
        cells = [cell for cell in _cells(row) if not self._is_left_out(cell)]
        for cell in cells:
            while open_spans.get(len(texts)):
                open_spans[len(texts)] -= 1
                texts.append("")
            columns, lines = _span(cell, "colspan"), _span(cell, "rowspan")
            for column in range(len(texts), len(texts) + columns):
                open_spans[column] = lines - 1
            texts += [self._text_of(cell), *[""] * (columns - 1)]
        while open_spans.get(len(texts)):
            open_spans[len(texts)] -= 1
            texts.append("")
        return texts


def _steps(root: Node, is_skipped: Callable[[ElementNode], bool]) -> Iterator[tuple[Node, bool]]:
    """Every text and element below `root` that is not skipped, on the way in and (elements) on the way out."""
    path: list[Node] = []
    node = root.first_child
    while node is not None or path:
        if node is None:
            node = path.pop()
            yield node, False
            node = node.next_sibling
        elif isinstance(node, ElementNode) and not is_skipped(node):
            yield node, True
            path.append(node)
            node = node.first_child
        else:
            if isinstance(node, TextNode):
                yield node, True
            node = node.next_sibling


def _is_pruned(node: ElementNode, tag: str) -> bool:
    if tag in FURNITURE or node.getattr("role") in FURNITURE_ROLES or node.hasattr("hidden"):
        return True
    if tag == "dialog" and not node.hasattr("open"):
        return True
    if tag == "a" and "headerlink" in (node.getattr("class") or ""):
        return True
    style = node.getattr("style")
    return bool(style and _HIDDEN_STYLE.search(style))


def _raw_text(root: ElementNode) -> str:
    """Text of a `pre` as it is laid out."""
    parts: list[str] = []
    for node, is_entering in _steps(root, lambda element: (element.tag or "") in NEVER_SEEN):
        if isinstance(node, TextNode):
            parts.append(node.value or "")
        elif is_entering and node.tag == "br":
            parts.append("\n")
    return "".join(parts).replace("\r\n", "\n")


def _cells(row: ElementNode) -> list[ElementNode]:
    return [cell for cell in row.children if cell.tag in ("td", "th")]


def _is_header(row: ElementNode) -> bool:
    parent = row.parent_element
    return (parent is not None and parent.tag == "thead") or all(cell.tag == "th" for cell in _cells(row))


def _span(cell: ElementNode, attribute: str) -> int:
    value = (cell.getattr(attribute) or "").strip()
    return min(max(int(value), 1), _MAX_SPAN) if value.isascii() and value.isdigit() and len(value) < 6 else 1
