"""From a file to its text: sniff, read with the module of that format, clean. Runs inside the sandbox."""

from pathlib import Path

from app.extraction.cleaning import clean
from app.extraction.contract import BadEncoding, DocumentTooLarge, Extracted, Limits, Unsupported
from app.extraction.docx import extract_docx
from app.extraction.html import extract_html
from app.extraction.notebook import read_notebook
from app.extraction.pdf import extract_pdf
from app.extraction.sniff import Kind, sniff
from app.extraction.text import claimed_xml_encoding, decode

_MAX_BYTES_PER_CHARACTER = 4


def extract_file(path: Path, *, name: str, declared_type: str | None, limits: Limits) -> Extracted:
    """Extract the text of the file at `path`; `name` is what the uploader called it.

    Raises: a subclass of ExtractionFailed. Time and memory are the sandbox's affair.
    """
    return extract_kind(path, sniff(path, name=name, declared_type=declared_type, limits=limits), limits=limits)


def extract_kind(path: Path, kind: Kind, *, limits: Limits) -> Extracted:
    """Extract the text of a file whose type is known. Raises: as `extract_file`."""
    return clean(_read(path, kind, limits), max_characters=limits.max_characters)


def is_plain(kind: Kind) -> bool:
    """Whether the file is only decoded: no parser of a format, and no library in C, ever sees it."""
    return kind.family in ("text", "markdown")


def _read(path: Path, kind: Kind, limits: Limits) -> Extracted:
    if kind.family == "pdf":
        return extract_pdf(path, limits)
    if kind.family == "docx":
        return extract_docx(path, limits)
    if kind.family == "html":
        return extract_html(path, limits)
    text = _decoded(path, kind, limits)
    if kind.family == "notebook":
        return read_notebook(text)
    return Extracted(text, kind.content_type, markdown=kind.family == "markdown")


def _decoded(path: Path, kind: Kind, limits: Limits) -> str:
    if path.stat().st_size > limits.max_characters * _MAX_BYTES_PER_CHARACTER:
        raise DocumentTooLarge(f"The file holds more than {limits.max_characters} characters of text.")
    data = path.read_bytes()
    try:
        return decode(data, hint=claimed_xml_encoding(data))
    except BadEncoding as exc:
        if kind.is_certain:
            raise
        raise Unsupported("The file is binary and of no known type.") from exc
