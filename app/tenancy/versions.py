"""The version of a Work's index: raised by the last statement of every change that a search could see."""

from uuid import UUID

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from app.tenancy.models import Work


async def raise_index_version(session: AsyncSession, work_id: UUID) -> None:
    """Call it last: the row stays locked until the transaction ends."""
    await session.execute(
        update(Work)
        .where(Work.id == work_id)
        .values(index_version=Work.index_version + 1)
        .execution_options(synchronize_session=False)
    )
