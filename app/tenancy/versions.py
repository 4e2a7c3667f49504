"""The version of a Work's index: raised by the last statement of every change that a search could see."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

_RAISE = text("update works set index_version = index_version + 1 where id = :id")


async def raise_index_version(session: AsyncSession, work_id: UUID) -> None:
    """Call it last: the row stays locked until the transaction ends."""
    await session.execute(_RAISE, {"id": work_id})
