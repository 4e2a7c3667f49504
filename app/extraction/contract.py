"""What an extractor is given and what it gives back. All offsets are code points of the extracted text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from app.errors import AppError

MarkKind = Literal["heading", "paragraph", "list", "code", "table", "quote"]


class ExtractionFailed(AppError):
    """The document's text could not be extracted. Permanent: only a new attempt changes it."""

    code = "extraction_failed"


class Unsupported(ExtractionFailed):
    """This type of file is not supported."""

    code = "unsupported"


class Encrypted(ExtractionFailed):
    """The file is encrypted or asks for a password; upload it without one."""

    code = "encrypted"


class Corrupt(ExtractionFailed):
    """The file is damaged or is not what its name says."""

    code = "corrupt"


class DocumentTooLarge(ExtractionFailed):
    """The file unpacks to more than the service accepts."""

    code = "too_large"


class ExtractionTimeout(ExtractionFailed):
    """The file took too long to read."""

    code = "timeout"


class NoText(ExtractionFailed):
    """The file holds no text (empty, a scan or pictures only; a scan needs text recognition first)."""

    code = "no_text"


class BadEncoding(ExtractionFailed):
    """The text's encoding could not be recognised."""

    code = "bad_encoding"


@dataclass(frozen=True)
class Mark:
    """A structural block: text[start:end]; fields as those of `chunking.Block`."""

    kind: MarkKind
    start: int
    end: int
    level: int = 0
    title: str = ""
    header_end: int | None = None
    opening: str = ""
    closing: str = ""


@dataclass(frozen=True)
class ExtractionWarning:
    """Something the uploader should know although the document is usable."""

    code: str
    message: str


@dataclass(frozen=True)
class Extracted:
    """The text of a file. No NUL, no lone surrogate, never blank (that is `NoText`).

    `markdown` = the text is Markdown source: its structure is found by chunking, not by marks.
    `page_starts[i]` = offset where page i + 1 starts; empty for formats without pages.
    `content_type` = detected, not declared. `language` = ISO 639-1 when the file itself says so.
    """

    text: str
    content_type: str
    markdown: bool = False
    marks: tuple[Mark, ...] = ()
    page_starts: tuple[int, ...] = ()
    language: str | None = None
    warnings: tuple[ExtractionWarning, ...] = ()
    facts: Mapping[str, int | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """Bounds of one extraction."""

    timeout_s: float = 60
    memory_bytes: int = 4 * 1024**3
    max_characters: int = 50_000_000
    max_inflated_bytes: int = 512 * 1024**2
    max_archive_entries: int = 20_000


class Extractor(Protocol):
    """Bytes in a local file to text. Safe to call from the event loop: the work is done elsewhere."""

    @property
    def fingerprint(self) -> str:
        """Changes when the text of some file could."""
        ...

    async def extract(self, path: Path, *, name: str, declared_type: str | None) -> Extracted:
        """Raises: a subclass of ExtractionFailed; anything else is a fault of ours."""
        ...

    async def close(self) -> None:
        """End the sandbox process."""
        ...
