"""Keyset cursors: opaque to clients, checked on the way in, compared with a unique order in SQL."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, tuple_

from app.errors import FieldFault, Invalid

KeyPart = datetime | UUID | int | str
Key = tuple[KeyPart, ...]
Item = TypeVar("Item")
Part = TypeVar("Part", UUID, int, str)
FIRST_ID = UUID(int=0)  # before every id of ours

LOCATION = ("query", "cursor")
_MAX_CURSOR_CHARACTERS = 4096
_BIGINT = 2**63


class CursorMalformed(Invalid):
    """This cursor was not made by this list; start again without one."""

    code = "cursor_malformed"

    def __init__(self) -> None:
        super().__init__(faults=[FieldFault(LOCATION, "not a cursor of this list")])


@dataclass(frozen=True)
class Cursor:
    """The order key of the last item that a client has seen."""

    key: Key

    def encode(self) -> str:
        """The cursor as clients pass it around: URL-safe, without meaning to them."""
        packed = json.dumps([_pack(part) for part in self.key], separators=(",", ":"))
        return base64.urlsafe_b64encode(packed.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str, kinds: tuple[type[KeyPart], ...]) -> "Cursor":
        """Read a cursor whose key has exactly these kinds of parts.

        Raises: CursorMalformed for anything that `encode` of the same list could not have made.
        """
        if not text or len(text) > _MAX_CURSOR_CHARACTERS:
            raise CursorMalformed
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            parts = json.loads(raw.decode("utf-8"))
            if not isinstance(parts, list) or len(parts) != len(kinds):
                raise CursorMalformed
            return cls(tuple(_unpack(part, kind) for part, kind in zip(parts, kinds, strict=True)))
        except (binascii.Error, ValueError, RecursionError) as exc:
            raise CursorMalformed from exc


def after_key(text: str | None, kind: type[Part], default: Part) -> Part:
    """The only part of a cursor's key, or `default` without a cursor. Raises: CursorMalformed."""
    if text is None:
        return default
    part = Cursor.decode(text, (kind,)).key[0]
    if not isinstance(part, kind):
        raise CursorMalformed
    return part


def paginate(items: Sequence[Item], limit: int, key: Callable[[Item], Key]) -> tuple[list[Item], str | None]:
    """Cut a list, fetched with `limit + 1`, to a page; the cursor is None on the last page.

    `key` gives the parts of the order of one item; together they must be unique.
    """
    page = list(items[:limit])
    if len(items) <= limit or not page:
        return page, None
    return page, Cursor(key(page[-1])).encode()


def after(cursor: Cursor, *columns: Any, descending: bool = False) -> ColumnElement[bool]:
    """The condition "behind this cursor" for a query ordered by these columns, all in one direction."""
    order = tuple_(*columns)
    behind = tuple_(*cursor.key)
    return order < behind if descending else order > behind


def _pack(part: KeyPart) -> int | str:
    if isinstance(part, datetime):
        return part.isoformat()
    return str(part) if isinstance(part, UUID) else part


def _unpack(part: object, kind: type[KeyPart]) -> KeyPart:
    if kind is int:
        if type(part) is not int or not -_BIGINT <= part < _BIGINT:
            raise CursorMalformed
        return part
    if not isinstance(part, str) or "\x00" in part:
        raise CursorMalformed
    part.encode("utf-8")  # a lone surrogate is a ValueError here instead of an error of the driver later
    if kind is datetime:
        moment = datetime.fromisoformat(part)
        if moment.tzinfo is None:
            raise CursorMalformed
        return moment
    return UUID(part) if kind is UUID else part
