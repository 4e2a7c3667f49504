"""What happened to a Work: written in the transaction in which it happened."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.models import ActivityEntry
from app.db.base import new_id

Kind = Literal["KB_REEMBED_STARTED", "KB_REEMBED_COMPLETED", "KB_REEMBED_FAILED"]
NEWEST: Final = UUID(int=2**128 - 1)


async def note_entry(session: AsyncSession, work_id: UUID, kind: Kind, facts: Mapping[str, Any]) -> None:
    """Add an entry. `facts` are ids, numbers and names of plugins and models, never content."""
    session.add(ActivityEntry(id=new_id(), work_id=work_id, kind=kind, facts=dict(facts)))
    await session.flush()


async def list_entries(session: AsyncSession, work_id: UUID, *, before: UUID, limit: int) -> Sequence[ActivityEntry]:
    """Entries of a Work that the transaction has entered, newest first."""
    query = (
        select(ActivityEntry)
        .where(ActivityEntry.work_id == work_id, ActivityEntry.id < before)
        .order_by(ActivityEntry.id.desc())
        .limit(limit)
    )
    return (await session.scalars(query)).all()
