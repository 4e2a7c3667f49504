"""Says what a file is: from its bytes first, then from its name, last from what the sender declared."""

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from app.extraction.archive import Archive
from app.extraction.compound import stream_names
from app.extraction.contract import Corrupt, Encrypted, Limits, Unsupported

Family = Literal["pdf", "docx", "html", "text", "markdown", "notebook"]

HEAD_BYTES = 65_536

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"

# Signatures of binary formats: offset, bytes, content type. Text formats have none that can be trusted.
SIGNATURES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (8, b"WEBP", "image/webp"),
    (0, b"\x00\x00\x01\x00", "image/x-icon"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"BZh", "application/x-bzip2"),
    (0, b"\xfd7zXZ\x00", "application/x-xz"),
    (0, b"\x28\xb5\x2f\xfd", "application/zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "application/x-7z-compressed"),
    (0, b"Rar!\x1a\x07", "application/vnd.rar"),
    (257, b"ustar", "application/x-tar"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"\xcf\xfa\xed\xfe", "application/x-mach-binary"),
    (0, b"\xca\xfe\xba\xbe", "application/java-vm"),
    (0, b"\x00asm", "application/wasm"),
    (0, b"SQLite format 3\x00", "application/vnd.sqlite3"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "application/ogg"),
    (0, b"fLaC", "audio/flac"),
    (8, b"WAVE", "audio/wav"),
    (8, b"AVI ", "video/x-msvideo"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (0, b"wOFF", "font/woff"),
    (0, b"wOF2", "font/woff2"),
    (0, b"\x00\x01\x00\x00\x00", "font/ttf"),
    (0, b"\xffWPC", "application/vnd.wordperfect"),
)

# Names of text formats: what they say is believed before any look at the text (an e-mail may hold HTML).
TEXT_TYPES: dict[str, str] = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".htm": "text/html",
    ".html": "text/html",
    ".xhtml": "text/html",
    ".csv": "text/csv",
    ".tsv": "text/tab-separated-values",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".ndjson": "application/jsonl",
    ".geojson": "application/geo+json",
    ".ipynb": "application/x-ipynb+json",
    ".xml": "application/xml",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
    ".toml": "application/toml",
    ".rst": "text/x-rst",
    ".tex": "text/x-tex",
    ".css": "text/css",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".eml": "message/rfc822",
    ".mht": "multipart/related",
    ".mhtml": "multipart/related",
    ".rtf": "application/rtf",
}
_PLAIN_EXTENSIONS_LISTED = (
    ".txt .text .log .asc .adoc .asciidoc .org .textile .srt .vtt .ini .cfg .conf .properties .env .diff .patch .po "
    ".bib .sql .graphql .proto .tf .gradle .cmake .mk .bat .ps1 .sh .bash .zsh .fish .py .pyi .rb .pl .pm .php .java "
    ".kt .kts .scala .groovy .c .h .cc .cpp .cxx .hpp .hh .cs .fs .vb .go .rs .swift .m .mm .r .jl .lua .dart .ex "
    ".exs .erl .hs .ml .clj .lisp .el .ts .tsx .jsx .vue .svelte .scss .less .ics .vcf"
)
PLAIN_EXTENSIONS = frozenset(_PLAIN_EXTENSIONS_LISTED.split())
# Names of binary formats: content that is not of such a format is damaged, not text.
_BINARY_EXTENSIONS_LISTED = (
    ".pdf .docx .docm .dotx .doc .dot .xlsx .xlsm .xls .xlsb .pptx .pptm .ppsx .ppt .odt .ods .odp .epub .msg"
)
_UNREAD_EXTENSIONS_LISTED = ".zip .gz .7z .rar .png .jpg .jpeg .gif .tif .tiff .webp .mp3 .mp4 .exe .dll"
UNREAD_EXTENSIONS = frozenset(_UNREAD_EXTENSIONS_LISTED.split())
BINARY_EXTENSIONS = frozenset(_BINARY_EXTENSIONS_LISTED.split())
UNREAD_TEXT = frozenset({"message/rfc822", "multipart/related", "application/rtf", "application/postscript"})
FAMILIES: dict[str, Family] = {
    "application/pdf": "pdf",
    DOCX: "docx",
    "text/html": "html",
    "text/markdown": "markdown",
    "application/x-ipynb+json": "notebook",
}
DECLARED_ALIASES = {
    "text/x-markdown": "text/markdown",
    "application/xhtml+xml": "text/html",
    "text/rtf": "application/rtf",
}
LABELS = {
    XLSX: "Excel workbooks",
    PPTX: "PowerPoint presentations",
    "application/msword": "Word 97-2003 documents",
    "application/vnd.ms-excel": "Excel 97-2003 workbooks",
    "application/vnd.ms-powerpoint": "PowerPoint 97-2003 presentations",
    "application/vnd.ms-outlook": "Outlook messages",
    "application/rtf": "RTF documents",
    "message/rfc822": "E-mail messages",
    "application/epub+zip": "EPUB books",
    "application/zip": "Archives",
}
_TEXT_WINDOW = 4096
_PDF_WINDOW = 1024  # readers accept the header anywhere in the first kilobyte
_HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S
)
_XML_START = re.compile(rb"\s*<\?xml\s")


@dataclass(frozen=True)
class Kind:
    """What a file is. `is_certain`: bytes or name say so; otherwise it is text only if it reads as text."""

    content_type: str
    family: Family
    is_certain: bool = True


def sniff(path: Path, *, name: str, declared_type: str | None, limits: Limits) -> Kind:
    """Detect the type of the file at `path`; `name` is what the uploader called it.

    Raises: Unsupported (naming the type), Encrypted (Office files with a password), Corrupt (a broken archive,
    or content that is not what a binary format's name says), DocumentTooLarge (an archive with too many entries).
    """
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    extension = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    binary = _binary_type(path, head, extension, limits)
    if binary is not None:
        family = FAMILIES.get(binary)
        if family is None:
            raise unsupported(binary)
        return Kind(binary, family)
    return _text_kind(head, extension, declared_type)


def unsupported(content_type: str) -> Unsupported:
    """The error that names the detected type."""
    label = LABELS.get(content_type)
    return Unsupported(
        f"{label} ({content_type}) are not supported." if label else f"Files of type {content_type} are not supported."
    )


def _binary_type(path: Path, head: bytes, extension: str, limits: Limits) -> str | None:
    is_named_text = extension in TEXT_TYPES or extension in PLAIN_EXTENSIONS
    if head.startswith(b"%PDF-") or (not is_named_text and b"%PDF-" in head[:_PDF_WINDOW]):
        return "application/pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        with Archive(path, limits) as archive:
            return _archive_type(archive)
    if head.startswith(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"):
        return _compound_type(stream_names(path))
    if head.startswith(rb"{\rtf"):
        return "application/rtf"
    if _reads_as_text(head):  # some signatures are words that a text may begin with
        return None
    return next((kind for offset, signature, kind in SIGNATURES if head.startswith(signature, offset)), None)


def _reads_as_text(head: bytes) -> bool:
    try:
        head[:_TEXT_WINDOW].decode()
    except UnicodeDecodeError as exc:
        if exc.end < _TEXT_WINDOW:  # a character cut by the window's edge is no fault
            return False
    return b"\x00" not in head


def _archive_type(archive: Archive) -> str:
    names = archive.names
    for folder, content_type in (("word/", DOCX), ("xl/", XLSX), ("ppt/", PPTX)):
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return content_type
    if "mimetype" in names:  # OpenDocument and EPUB name themselves in their first member
        declared = archive.read("mimetype")[:100].decode("ascii", "replace").strip()
        if re.fullmatch(r"application/[\w.+-]+", declared):
            return declared
    return "application/zip"


def _compound_type(streams: frozenset[str]) -> str:
    if "EncryptedPackage" in streams:
        raise Encrypted
    for stream, content_type in (
        ("WordDocument", "application/msword"),
        ("Workbook", "application/vnd.ms-excel"),
        ("Book", "application/vnd.ms-excel"),
        ("PowerPoint Document", "application/vnd.ms-powerpoint"),
        ("__properties_version1.0", "application/vnd.ms-outlook"),
    ):
        if stream in streams:
            return content_type
    return "application/x-ole-storage"


def _text_kind(head: bytes, extension: str, declared_type: str | None) -> Kind:
    declared = (declared_type or "").partition(";")[0].strip().lower()
    declared = DECLARED_ALIASES.get(declared, declared)
    if extension in TEXT_TYPES:
        return _readable(TEXT_TYPES[extension])
    if extension in PLAIN_EXTENSIONS:
        return _readable("text/markdown" if declared == "text/markdown" else "text/plain")
    if _HTML_START.match(head.replace(b"\x00", b"").removeprefix(b"\xef\xbb\xbf")):
        return Kind("text/html", "html")
    if extension in UNREAD_EXTENSIONS and head.strip():
        raise unsupported("application/octet-stream")
    if extension in BINARY_EXTENSIONS and head.strip():
        raise Corrupt(f"The file is not what its name says: its content is not that of a {extension} file.")
    if declared in TEXT_TYPES.values() or declared.startswith("text/"):
        return _readable(declared)
    if _XML_START.match(head.removeprefix(b"\xef\xbb\xbf")):
        return Kind("application/xml", "text")
    return Kind("text/plain", "text", is_certain=False)


def _readable(content_type: str) -> Kind:
    if content_type in UNREAD_TEXT:
        raise unsupported(content_type)
    return Kind(content_type, FAMILIES.get(content_type, "text"))
