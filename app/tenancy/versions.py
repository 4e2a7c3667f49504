"""The version of a Work's index: raised by the last statement of every change that a search could see."""

from typing import LiteralString
from uuid import UUID

from app.db.driver import driver_cursor
from app.db.engine import Transaction

_RAISE: LiteralString = "update works set index_version = index_version + 1 where id = %(id)b"


async def raise_index_version(session: Transaction, work_id: UUID) -> None:
    """Call it last: the row stays locked until the transaction ends."""
    async with driver_cursor(session) as cursor:
        await cursor.execute(_RAISE, {"id": work_id})
