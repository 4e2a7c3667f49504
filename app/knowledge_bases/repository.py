"""Queries for knowledge bases: only what the scope's user may see."""

from collections.abc import Collection, Sequence
from typing import LiteralString
from uuid import UUID

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Transaction
from app.identity.caller import WorkScope
from app.knowledge_bases.models import KnowledgeBase

_ADD_LIVE: LiteralString = """
    update knowledge_bases set live_chunks = live_chunks + %(chunks)b, live_length = live_length + %(length)b
     where id = %(id)b
"""

_IS_VISIBLE: LiteralString = """
    select true from knowledge_bases
     where id = %(id)b and work_id = %(work)b and owner_type = 'user' and owner_id = %(user)b and deleting_at is null
"""


def visible(scope: WorkScope) -> ColumnElement[bool]:
    """The condition of a knowledge base that this scope may open: its user's own ones of its Work."""
    return and_(
        KnowledgeBase.work_id == scope.work_id,
        KnowledgeBase.owner_type == "user",
        KnowledgeBase.owner_id == scope.user_id,
        KnowledgeBase.deleting_at.is_(None),
    )


async def find(session: AsyncSession, scope: WorkScope, kb_id: UUID, *, lock: bool = False) -> KnowledgeBase | None:
    """A visible knowledge base; `lock` holds off its deletion until the transaction ends."""
    query = select(KnowledgeBase).where(KnowledgeBase.id == kb_id, visible(scope))
    if lock:
        query = query.with_for_update(read=True, key_share=True)
    return (await session.scalars(query)).one_or_none()


async def is_visible(session: Transaction, scope: WorkScope, kb_id: UUID, *, lock: bool = False) -> bool:
    """Whether `find` would find it, with its `lock`."""
    async with driver_cursor(session) as cursor:
        facts = {"id": kb_id, "work": scope.work_id, "user": scope.user_id}
        await cursor.execute(_IS_VISIBLE + " for key share" if lock else _IS_VISIBLE, facts)
        return await cursor.fetchone() is not None


async def list_visible(
    session: AsyncSession, scopes: Sequence[WorkScope], *, after: UUID | None, limit: int, name: str | None
) -> Sequence[KnowledgeBase]:
    """At most `limit` visible knowledge bases of these Works, oldest first."""
    if not scopes:
        return []
    query = select(KnowledgeBase).where(
        KnowledgeBase.work_id.in_([s.work_id for s in scopes]),
        KnowledgeBase.owner_type == "user",
        KnowledgeBase.owner_id == scopes[0].user_id,
        KnowledgeBase.deleting_at.is_(None),
    )
    if name is not None:
        query = query.where(KnowledgeBase.name == name)
    if after is not None:
        query = query.where(KnowledgeBase.id > after)
    return (await session.scalars(query.order_by(KnowledgeBase.id).limit(limit))).all()


async def list_searchable(
    session: AsyncSession, scope: WorkScope, wanted: Collection[UUID] | None
) -> Sequence[tuple[UUID, int, int]]:
    """(id, live chunks, live length) of the visible knowledge bases, of the wanted ones only when given."""
    query = select(KnowledgeBase.id, KnowledgeBase.live_chunks, KnowledgeBase.live_length).where(visible(scope))
    if wanted is not None:
        query = query.where(KnowledgeBase.id.in_(wanted))
    return [(row[0], row[1], row[2]) for row in await session.execute(query.order_by(KnowledgeBase.id))]


async def add_live(session: Transaction, kb_id: UUID, *, chunks: int, length: int) -> None:
    """Add to the sums over live builds; negative numbers take away."""
    async with driver_cursor(session) as cursor:
        await cursor.execute(_ADD_LIVE, {"id": kb_id, "chunks": chunks, "length": length})
