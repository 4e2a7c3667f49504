"""A multipart body as a stream: fields are small and collected, the file's bytes pass through."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import FieldFault, Invalid

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_FIELD_BYTES = 128 * 1024
MAX_PARTS = 20
MAX_HEADER_BYTES = 16 * 1024


@dataclass(frozen=True)
class PartBegin:
    """A part begins; `filename` is None for a plain field."""

    name: str
    filename: str | None
    content_type: str | None


@dataclass(frozen=True)
class PartData:
    """Bytes of the present part."""

    data: bytes


@dataclass(frozen=True)
class PartEnd:
    """The present part ends."""


Event = PartBegin | PartData | PartEnd


def boundary_of(content_type: str) -> bytes:
    """The boundary of a `multipart/form-data` content type. Raises: Invalid."""
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary:
        raise Invalid(
            "Send the file as multipart/form-data with a field named 'file'.",
            faults=[FieldFault(("header", "content-type"), "must be multipart/form-data with a boundary")],
        )
    return bytes(boundary)


async def parts(body: AsyncIterator[bytes], boundary: bytes) -> AsyncIterator[Event]:
    """The parts of a body, as they arrive. Raises: Invalid for a body that is not well formed or ends early."""
    collector = _Collector()
    parser = MultipartParser(boundary, collector.callbacks())
    try:
        async for block in body:
            if block:
                parser.write(block)
                for event in collector.take():
                    yield event
        parser.finalize()
    except ValueError as exc:  # the parser's own errors derive from it
        raise malformed() from exc
    for event in collector.take():
        yield event
    if not collector.finished:
        raise malformed()


def malformed() -> Invalid:
    """The error of a body that is not well formed."""
    return Invalid(
        "The multipart body is not well formed or ended early.", faults=[FieldFault(("body",), "malformed multipart")]
    )


class _Collector:
    def __init__(self) -> None:
        self.finished = False
        self._events: list[Event] = []
        self._field = b""
        self._value = b""
        self._headers: dict[bytes, bytes] = {}
        self._parts = 0

    def callbacks(self) -> "MultipartCallbacks":
        return {
            "on_part_begin": self._begin,
            "on_header_field": self._header_field,
            "on_header_value": self._header_value,
            "on_header_end": self._header_end,
            "on_headers_finished": self._headers_finished,
            "on_part_data": self._data,
            "on_part_end": lambda: self._events.append(PartEnd()),
            "on_end": self._end,
        }

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _begin(self) -> None:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise ValueError("too many parts")
        self._headers = {}

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._bound()

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]
        self._bound()

    def _bound(self) -> None:
        if len(self._field) + len(self._value) > MAX_HEADER_BYTES:
            raise ValueError("part header too long")

    def _header_end(self) -> None:
        self._headers[self._field.lower()] = self._value
        self._field = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        filename = options.get(b"filename")
        content_type = self._headers.get(b"content-type")
        self._events.append(
            PartBegin(
                name=options.get(b"name", b"").decode("utf-8", "replace"),
                filename=None if filename is None else filename.decode("utf-8", "replace"),
                content_type=None if content_type is None else content_type.decode("latin-1"),
            )
        )

    def _data(self, data: bytes, start: int, end: int) -> None:
        self._events.append(PartData(data[start:end]))

    def _end(self) -> None:
        self.finished = True
