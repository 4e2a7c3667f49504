"""Which number a space has, and what is remembered of it between questions."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from app.vector_stores.contract import Space
from app.vector_stores.pgvector import statements
from app.vector_stores.pgvector.connections import Connection

REMEMBERED_SPACES = 20_000
REMEMBERED_S = 10.0  # how long an index that has just become ready may stay unused


@dataclass(frozen=True)
class SpaceRow:
    """A space as the catalogue has it. `space_no` is never given twice, so an old one names nothing, not another."""

    space_no: int
    index_state: str
    index_kind: str | None
    row_count: int
    index_rows: int | None
    index_bytes: int | None

    @property
    def has_index(self) -> bool:
        """Whether the space's own index is complete."""
        return self.index_state == "ready"


class SpaceMemory:
    """Spaces seen lately. What it says may be out of date; `forget` what proves to be."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[UUID, Space], tuple[float, SpaceRow]] = OrderedDict()

    def recall(self, work_id: UUID, space: Space, *, whatever_its_age: bool = False) -> SpaceRow | None:
        """The row, if it was seen within the last `REMEMBERED_S` seconds or its age doesn't matter.

        It doesn't where no index would be used: the number stays that of the space for as long as the space exists.
        """
        until, row = self._rows.get((work_id, space), (0.0, None))
        return row if whatever_its_age or until > time.monotonic() else None

    def remember(self, work_id: UUID, space: Space, row: SpaceRow) -> None:
        """Keep the row; the oldest makes room."""
        self._rows[work_id, space] = (time.monotonic() + REMEMBERED_S, row)
        self._rows.move_to_end((work_id, space))
        if len(self._rows) > REMEMBERED_SPACES:
            self._rows.popitem(last=False)

    def forget(self, work_id: UUID, space: Space) -> None:
        """Look again next time."""
        self._rows.pop((work_id, space), None)


async def find_space(connection: Connection, work_id: UUID, space: Space) -> SpaceRow | None:
    """The space's row, or None when nothing was ever written to it, or it was dropped."""
    return await _row(connection, statements.FIND_SPACE, work_id, space)


async def hold_space(connection: Connection, work_id: UUID, space: Space) -> SpaceRow:
    """The space's row, made if need be, and held against removal until the transaction ends."""
    while True:  # a second round only if the space is dropped between the two statements
        row = await _row(connection, statements.HOLD_SPACE, work_id, space)
        if row is not None:
            return row
        await connection.execute(
            statements.ADD_SPACE,
            {"work_id": work_id, "space_key": statements.space_key(space), "dims": space.dims},
        )


async def _row(connection: Connection, sql: LiteralString, work_id: UUID, space: Space) -> SpaceRow | None:
    cursor = await connection.execute(sql, {"work_id": work_id, "space_key": statements.space_key(space)})
    found = await cursor.fetchone()
    return None if found is None else SpaceRow(*found)
