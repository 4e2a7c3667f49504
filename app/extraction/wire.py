"""What travels between the service and its sandbox, as bytes.

Over the control socket go commands (with the file's own socket attached) and, back, how each child ended. Over a
file's own socket goes one request, a JSON array, until the end of the stream, and back one answer: the length of a
JSON head (4 bytes, big-endian), the head, then the text as UTF-8 until the end; a refusal has no text.
"""

import json
import struct
from dataclasses import asdict, dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

from app.extraction import contract
from app.extraction.contract import Extracted, ExtractionFailed, ExtractionWarning, Limits, Mark

COMMAND = struct.Struct(">BQ")  # RUN, STOP or RUN_ALONE, number of the file
STATUS = struct.Struct(">QBi")  # number of the file, an Ending, exit code or signal
RUN, STOP, RUN_ALONE = 1, 2, 3
EXIT_OUT_OF_MEMORY = 70

_LENGTH = struct.Struct(">I")
_FAILURES: dict[str, type[ExtractionFailed]] = {
    failure.code: failure
    for failure in (
        contract.ExtractionFailed,
        contract.Unsupported,
        contract.Encrypted,
        contract.Corrupt,
        contract.DocumentTooLarge,
        contract.ExtractionTimeout,
        contract.NoText,
        contract.BadEncoding,
    )
}


class Ending(IntEnum):
    """How a child ended."""

    EXITED = 0
    SIGNALLED = 1
    TIMED_OUT = 2
    NOT_STARTED = 3
    LOST = 4  # killed, perhaps before it began with this file: it had read others


@dataclass(frozen=True)
class Request:
    """One file to read."""

    path: Path
    name: str
    declared_type: str | None


class Incomplete(ValueError):
    """The answer ended too early: whoever wrote it was stopped."""


def request_to_bytes(request: Request) -> bytes:
    """A request as it is sent."""
    return json.dumps([str(request.path), request.name, request.declared_type]).encode()


def request_from_bytes(data: bytes | bytearray) -> Request:
    """The inverse of `request_to_bytes`."""
    path, name, declared_type = json.loads(data)
    return Request(Path(path), name, declared_type)


def limits_to_text(limits: Limits) -> str:
    """Limits as a command-line argument."""
    return json.dumps(asdict(limits))


def limits_from_text(text: str) -> Limits:
    """The inverse of `limits_to_text`."""
    return Limits(**json.loads(text))


def extracted_to_bytes(extracted: Extracted) -> bytes:
    """An answer that carries a text."""
    head = {
        "characters": len(extracted.text),
        "content_type": extracted.content_type,
        "markdown": extracted.markdown,
        "marks": [list(vars(mark).values()) for mark in extracted.marks],
        "page_starts": extracted.page_starts,
        "language": extracted.language,
        "warnings": [[warning.code, warning.message] for warning in extracted.warnings],
        "facts": dict(extracted.facts),
    }
    return _framed(head) + extracted.text.encode()


def failure_to_bytes(failure: ExtractionFailed) -> bytes:
    """An answer that says why there is no text."""
    return _framed({"failure": failure.code, "message": failure.message})


def unreadable_to_bytes(error: OSError) -> bytes:
    """An answer that says that the file could not be opened."""
    return _framed({"unreadable": error.errno, "message": error.strerror or ""})


def fault_to_bytes(kind: str, place: str) -> bytes:
    """An answer about a fault of a reader: the exception's type and where it arose, never the file's content."""
    return _framed({"fault": kind, "place": place})


def answer_from_bytes(data: bytes | bytearray) -> Extracted:
    """The text that an answer carries.

    Raises: the ExtractionFailed it carries, ReaderFault, OSError (the file could not be opened), Incomplete.
    """
    if len(data) < _LENGTH.size:
        raise Incomplete
    end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    if len(data) < end:
        raise Incomplete
    head: dict[str, Any] = json.loads(data[_LENGTH.size : end])
    if "failure" in head:
        raise _FAILURES[head["failure"]](head["message"])
    if "unreadable" in head:
        raise OSError(head["unreadable"], head["message"])
    if "fault" in head:
        raise ReaderFault(head["fault"], head["place"])
    try:
        text = str(memoryview(data)[end:], "utf-8")
    except UnicodeDecodeError as exc:
        raise Incomplete from exc
    if len(text) != head["characters"]:
        raise Incomplete
    return Extracted(
        text,
        head["content_type"],
        markdown=head["markdown"],
        marks=tuple(Mark(*fields) for fields in head["marks"]),
        page_starts=tuple(head["page_starts"]),
        language=head["language"],
        warnings=tuple(ExtractionWarning(*fields) for fields in head["warnings"]),
        facts=head["facts"],
    )


class ReaderFault(ExtractionFailed):
    """The file could not be read: the reader for its format stopped unexpectedly."""

    def __init__(self, kind: str, place: str) -> None:
        super().__init__()
        self.kind = kind
        self.place = place


def _framed(head: dict[str, Any]) -> bytes:
    encoded = json.dumps(head, separators=(",", ":")).encode()
    return _LENGTH.pack(len(encoded)) + encoded
