"""Receipts: what a deletion still has to remove; kept 90 days after it closes."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.models import DeletionReceipt
from app.db.base import new_id


async def open_receipt(
    session: AsyncSession,
    work_id: UUID,
    *,
    kind: Literal["document", "knowledge_base", "work", "generation"],
    object_id: UUID,
    knowledge_base_id: UUID | None,
    owner: tuple[str, UUID],
    requested_by: UUID | None,
) -> UUID:
    """A new open receipt; its id."""
    receipt = DeletionReceipt(
        id=new_id(),
        work_id=work_id,
        kind=kind,
        object_id=object_id,
        knowledge_base_id=knowledge_base_id,
        owner_type=owner[0],
        owner_id=owner[1],
        requested_by=requested_by,
    )
    session.add(receipt)
    await session.flush()
    return receipt.id


async def find_receipt(session: AsyncSession, work_id: UUID, object_id: UUID) -> DeletionReceipt | None:
    """The newest receipt of an object."""
    query = (
        select(DeletionReceipt)
        .where(DeletionReceipt.work_id == work_id, DeletionReceipt.object_id == object_id)
        .order_by(DeletionReceipt.id.desc())
        .limit(1)
    )
    return (await session.scalars(query)).one_or_none()


async def note_stores(
    session: AsyncSession, receipt_id: UUID, stores: Sequence[dict[str, Any]], *, close: bool
) -> None:
    """Write what remains in each store; close at zero everywhere."""
    receipt = await session.get(DeletionReceipt, receipt_id)
    if receipt is None or receipt.closed_at is not None:
        return
    receipt.stores = list(stores)
    if close:
        receipt.closed_at = datetime.now(UTC)
