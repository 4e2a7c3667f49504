"""Text and structure of Word documents (Office Open XML): what a person sees in them."""

from collections.abc import Iterator
from pathlib import Path

from lxml import etree

from app.extraction.archive import Archive
from app.extraction.contract import Corrupt, Extracted, ExtractionWarning, Limits
from app.extraction.docx_inline import Inline, attribute, child, local, paragraph_content
from app.extraction.docx_styles import Styles
from app.extraction.html import add_html
from app.extraction.languages import iso_639_1
from app.extraction.ooxml import Package
from app.extraction.sniff import DOCX
from app.extraction.structure import TextBuilder

_WRAPPERS = frozenset({"sdt", "sdtContent", "customXml", "ins", "moveTo", "smartTag", "AlternateContent", "Choice"})
_NOTE_PARTS = {"footnote": "footnotes", "endnote": "endnotes", "comment": "comments"}
_MAX_SPAN = 63  # columns of a Word table
_NO_NOTES = frozenset({"separator", "continuationSeparator", "continuationNotice"})


def extract_docx(path: Path, limits: Limits) -> Extracted:
    """Headers, body and footers in reading order, with headings, lists and tables as marks.

    A footnote, comment or text box stands after the paragraph or table it belongs to; each distinct header and
    footer once. Deleted and hidden text is left out.
    Raises: Corrupt, Encrypted, DocumentTooLarge.
    """
    with Archive(path, limits) as archive:
        package = Package(archive)
        reader = _Reader(package, TextBuilder(limits.max_characters))
        reader.read()
        text, marks = reader.builder.finish()
        return Extracted(
            text, DOCX, marks=marks, language=_language(package), warnings=tuple(reader.warnings), facts=_facts(package)
        )


class _Reader:
    def __init__(self, package: Package, builder: TextBuilder) -> None:
        self.builder = builder
        self.warnings: list[ExtractionWarning] = []
        self._package = package
        self._styles = Styles(package)
        self._notes = {kind: self._read_notes(kind, part) for kind, part in _NOTE_PARTS.items()}

    def read(self) -> None:
        body = child(self._package.main, "body")
        if body is None:
            raise Corrupt("The file is damaged: the document has no body.")
        self._furniture("header")
        self._blocks(body)
        self._furniture("footer")

    def _blocks(self, parent: etree._Element) -> None:
        for element in parent:
            kind = local(element)
            if kind == "p":
                self._paragraph(element)
            elif kind == "tbl":
                self._table(element)
            elif kind == "altChunk":
                self._embedded(element)
            elif kind in _WRAPPERS:
                self._blocks(element)

    def _paragraph(self, element: etree._Element) -> None:
        content = paragraph_content(element)
        style = self._styles.of(element)
        if style.heading_level:
            self.builder.heading(content.text, style.heading_level)
        elif style.list_depth is not None:
            self.builder.list_item(content.text, style.list_depth)
        else:
            self.builder.block("paragraph", content.text)
        self._attached(content)

    def _attached(self, content: Inline) -> None:
        for box in content.boxes:
            self._blocks(box)
        for kind, number in content.references:
            note = self._notes[kind].get(number)
            if note:
                self.builder.block("paragraph", note)

    def _table(self, table: etree._Element) -> None:
        rows = list(_rows(table))
        cells = [list(_cells(row)) for row in rows]
        if all(len(row) <= 1 for row in cells):  # a frame around text, not a table of data
            for row in cells:
                for cell in row:
                    self._blocks(cell)
            return
        attached: list[Inline] = []
        grid = [
            self._grid_row(_skipped_columns(row), cells_of_row, attached)
            for row, cells_of_row in zip(rows, cells, strict=True)
        ]
        headers = next((i for i, row in enumerate(rows) if not _repeats_as_header(row)), len(rows))
        self.builder.table(grid, header_rows=max(headers, 1))
        for content in attached:
            self._attached(content)

    def _grid_row(self, skipped: int, cells: list[etree._Element], attached: list[Inline]) -> list[str]:
        """Texts of a row by column; a cell that spans stands once, the places it covers stay empty."""
        texts = [""] * skipped
        for cell in cells:
            contents = [paragraph_content(paragraph) for paragraph in _paragraphs(cell)]
            attached += contents
            texts.append(" ".join(content.text for content in contents if content.text.strip()))
            texts += [""] * (_count(child(child(cell, "tcPr"), "gridSpan")) - 1)
        return texts

    def _read_notes(self, kind: str, part: str) -> dict[str, str]:
        root = self._package.related(part)
        notes: dict[str, str] = {}
        for note in root if root is not None else ():
            if local(note) != kind or attribute(note, "type") in _NO_NOTES:
                continue
            lines = [paragraph_content(paragraph).text.strip() for paragraph in _paragraphs(note)]
            text = "\n".join(line for line in lines if line)
            author = attribute(note, "author")
            notes[attribute(note, "id") or ""] = f"{author}: {text}" if author and text else text
        return notes

    def _furniture(self, part: str) -> None:
        """Headers or footers, each distinct text once; bare page numbers are none."""
        seen: set[str] = set()
        for root in self._package.all_related(part):
            lines = [paragraph_content(paragraph).text for paragraph in _paragraphs(root)]
            text = "\n".join(" ".join(line.split()) for line in lines if line.strip())
            if text not in seen and any(character.isalpha() for character in text):
                seen.add(text)
                self.builder.block("paragraph", text)

    def _embedded(self, element: etree._Element) -> None:
        part = self._package.target(attribute(element, "id") or "")
        if part is not None and part.content_type in ("text/html", "application/xhtml+xml"):
            add_html(self.builder, self._package.read(part))
            return
        kind = part.content_type if part is not None else "unknown"
        self.warnings.append(ExtractionWarning("embedded_part_not_read", f"A part of type {kind} was not read."))


def _rows(parent: etree._Element) -> Iterator[etree._Element]:
    for element in parent:
        if local(element) == "tr":
            yield element
        elif local(element) in _WRAPPERS:
            yield from _rows(element)


def _cells(parent: etree._Element) -> Iterator[etree._Element]:
    for element in parent:
        if local(element) == "tc":
            yield element
        elif local(element) in _WRAPPERS:
            yield from _cells(element)


def _paragraphs(parent: etree._Element) -> Iterator[etree._Element]:
    """Paragraphs below `parent`, those of nested tables included, those of text boxes not."""
    for element in parent:
        if local(element) == "p":
            yield element
        elif local(element) in _WRAPPERS or local(element) in ("tbl", "tr", "tc"):
            yield from _paragraphs(element)


def _skipped_columns(row: etree._Element) -> int:
    return _count(child(child(row, "trPr"), "gridBefore"))


def _count(element: etree._Element | None) -> int:
    value = attribute(element, "val") or ""
    return min(int(value), _MAX_SPAN) if value.isascii() and value.isdigit() and len(value) < 6 else 0


def _repeats_as_header(row: etree._Element) -> bool:
    mark = child(child(row, "trPr"), "tblHeader")
    return mark is not None and attribute(mark, "val") not in ("0", "false", "off")


def _language(package: Package) -> str | None:
    core = package.core_properties
    return iso_639_1(core.findtext("{http://purl.org/dc/elements/1.1/}language")) if core is not None else None


def _facts(package: Package) -> dict[str, int | str]:
    core = package.core_properties
    title = core.findtext("{http://purl.org/dc/elements/1.1/}title") if core is not None else None
    return {"title": " ".join(title.split())} if title and title.strip() else {}
