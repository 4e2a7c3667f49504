"""Text of PDF files, page by page."""

import ctypes
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pypdfium2 as pdfium
import pypdfium2.raw as pdfium_c

from app.extraction.contract import Corrupt, DocumentTooLarge, Encrypted, Extracted, ExtractionWarning, Limits, NoText
from app.extraction.languages import iso_639_1

CONTENT_TYPE = "application/pdf"
PAGE_GAP = "\n\n"

_HYPHEN = "\ufffe"  # pdfium's sign for a hyphen at a line end, in place of hyphen and line end
_HYPHENATED = re.compile(rf"(\w*){_HYPHEN}(\w*)")
_WORD = re.compile(r"\w+(?:-\w+)*")
_COLLAPSED = 0.01  # points; pdfium leaves out text that is narrower
_IDENTITY = pdfium_c.FS_MATRIX(1, 0, 0, 1, 0, 0)


def extract_pdf(path: Path, limits: Limits) -> Extracted:
    """Text of all pages, parted by a blank line.

    Pages without text are counted in the warning `pages_without_text`; a file of nothing else is `NoText`.
    Raises: Encrypted (a password is asked for), Corrupt, NoText, DocumentTooLarge.
    """
    document = _opened(path)
    try:
        total = len(document)
        pages = list(_bounded(_pages(document, total), limits.max_characters))
        language = _language(document)
    finally:
        document.close()
    if not total:
        raise Corrupt("The file is damaged: it has no pages.")
    without = sum(not page.strip() for page in pages)
    if without == total:
        raise NoText("The file holds no text on any page; a scan needs text recognition first.")
    text, page_starts = _joined(pages)
    warnings: tuple[ExtractionWarning, ...] = ()
    if without:
        message = f"{without} of {total} pages hold no text (empty, scans or pictures only)."
        warnings = (ExtractionWarning("pages_without_text", message),)
    return Extracted(
        text, CONTENT_TYPE, page_starts=page_starts, language=language, warnings=warnings, facts={"pages": total}
    )


def _opened(path: Path) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError as exc:
        if exc.err_code in (pdfium_c.FPDF_ERR_PASSWORD, pdfium_c.FPDF_ERR_SECURITY):
            raise Encrypted from exc
        raise Corrupt from exc


def _pages(document: pdfium.PdfDocument, total: int) -> Iterator[str]:
    has_form = document.get_formtype() != pdfium_c.FORMTYPE_NONE
    if has_form:
        document.init_forms()
    for number in range(total):
        try:
            page = document[number]
            if has_form:  # what was filled in becomes part of the page
                page.flatten()
                page.close()
                page = document[number]
        except pdfium.PdfiumError:  # a page that cannot be loaded has no text, and is counted so
            yield ""
            continue
        try:
            yield _page_text(page)
        finally:
            page.close()


def _page_text(page: pdfium.PdfPage) -> str:
    is_vertical = _widen_collapsed(page)
    text_page = page.get_textpage()
    try:
        if is_vertical:
            lines = [found.extract() for found in page.get_objects([pdfium_c.FPDF_PAGEOBJ_TEXT], textpage=text_page)]
            return "\n".join(line for line in lines if line)
        text: str = text_page.get_text_range()
        return text.replace("\r\n", "\n").replace("\r", "\n")
    finally:
        text_page.close()


def _widen_collapsed(page: pdfium.PdfPage) -> bool:
    """Give text without width a stroke, so that pdfium does not leave it out; say whether that is most of the page.

    Vertical writing in a font that is neither embedded nor installed has no glyphs and thus no width (pdfium 8149).
    Its columns are then read in the order in which they were written.
    """
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    texts = collapsed = 0
    for index in range(pdfium_c.FPDFPage_CountObjects(page)):
        found = pdfium_c.FPDFPage_GetObject(page, index)
        if pdfium_c.FPDFPageObj_GetType(found) != pdfium_c.FPDF_PAGEOBJ_TEXT:
            continue
        texts += 1
        pdfium_c.FPDFPageObj_GetBounds(found, left, bottom, right, top)
        if right.value - left.value < _COLLAPSED < top.value - bottom.value:
            collapsed += 1
            pdfium_c.FPDFTextObj_SetTextRenderMode(found, pdfium_c.FPDF_TEXTRENDERMODE_STROKE)
            pdfium_c.FPDFPageObj_TransformF(found, _IDENTITY)  # makes pdfium measure it again
    return collapsed * 2 > texts


def _bounded(pages: Iterator[str], max_characters: int) -> Iterator[str]:
    length = 0
    for page in pages:
        length += len(page)
        if length > max_characters:
            raise DocumentTooLarge(f"The file holds more than {max_characters} characters of text.")
        yield page


def _joined(pages: list[str]) -> tuple[str, tuple[int, ...]]:
    words = (
        Counter(word.lower() for page in pages for word in _WORD.findall(page)) if _has_hyphens(pages) else Counter()
    )
    parts: list[str] = []
    starts: list[int] = []
    length = 0
    for page in pages:
        text = _HYPHENATED.sub(lambda found: _rejoined(found, words), page).replace(_HYPHEN, "-").strip()
        if text and length:
            parts.append(PAGE_GAP)
            length += len(PAGE_GAP)
        starts.append(length)
        parts.append(text)
        length += len(text)
    return "".join(parts), tuple(starts)


def _has_hyphens(pages: list[str]) -> bool:
    return any(_HYPHEN in page for page in pages)


def _rejoined(found: re.Match[str], words: Counter[str]) -> str:
    """Decide whether a hyphen at a line end belongs to the word: the rest of the document knows how it is written."""
    before, after = found.groups()
    whole, compound = (before + after).lower(), f"{before}-{after}".lower()
    keeps_hyphen = words[compound] > words[whole] or not (before and after) or after[0].isupper() or after[0].isdigit()
    return f"{before}-{after}" if keeps_hyphen else before + after


def _language(document: pdfium.PdfDocument) -> str | None:
    length = pdfium_c.FPDFCatalog_GetLanguage(document, None, 0)
    if not 2 < length <= 128:
        return None
    buffer = ctypes.create_string_buffer(length)
    pdfium_c.FPDFCatalog_GetLanguage(document, ctypes.cast(buffer, ctypes.POINTER(pdfium_c.FPDF_WCHAR)), length)
    return iso_639_1(buffer.raw.decode("utf-16-le", "replace").rstrip("\x00"))
