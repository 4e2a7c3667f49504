"""Announced writes: no store is called for a build before the intent to do so is committed."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import delete, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.documents.models import Document
from app.indexing.errors import WriteRefused
from app.indexing.models import IndexGeneration, IndexWrite
from app.knowledge_bases.models import KnowledgeBase
from app.tenancy.models import Work

_SHARED = text("select pg_advisory_xact_lock_shared(hashtextextended('stackroom.work.' || :work_id, 0))")
_EXCLUSIVE = text("select pg_advisory_xact_lock(hashtextextended('stackroom.work.' || :work_id, 0))")
_EXPIRED = text("select work_id, document_id, generation_id, build from stackroom_expired_writes(:max_rows)")


async def lock_work(session: AsyncSession, work_id: UUID, *, exclusive: bool = False) -> None:
    """The lock W of a Work: shared for intents and go-live, exclusive for flips and removals; it queues fairly."""
    await session.execute(_EXCLUSIVE if exclusive else _SHARED, {"work_id": str(work_id)})


async def announce(
    session: AsyncSession,
    work_id: UUID,
    *,
    document_id: UUID,
    generation_id: UUID,
    build: int,
    owner: UUID,
    lease_s: float,
) -> None:
    """Announce a write of a build to a generation. Raises: WriteRefused."""
    await lock_work(session, work_id)
    query = select(Document.kb_id, Document.deleting_at).where(Document.id == document_id).with_for_update()
    row = (await session.execute(query)).one_or_none()
    if row is None or row.deleting_at is not None:
        raise WriteRefused("The document is being deleted.")
    places = (
        select(IndexGeneration.state)
        .join(Work, Work.id == IndexGeneration.work_id)
        .join(KnowledgeBase, KnowledgeBase.work_id == Work.id)
        .where(IndexGeneration.id == generation_id, KnowledgeBase.id == row.kb_id)
        .where(KnowledgeBase.deleting_at.is_(None), Work.deleting_at.is_(None))
    )
    state = await session.scalar(places)
    if state is None:
        raise WriteRefused("The knowledge base or Work is being deleted, or the index generation is gone.")
    if state not in ("active", "building"):
        raise WriteRefused(f"The index generation is '{state}'.")
    made = insert(IndexWrite).values(
        document_id=document_id,
        generation_id=generation_id,
        build=build,
        work_id=work_id,
        owner=owner,
        lease_until=_until(lease_s),
    )
    written = await session.scalar(made.on_conflict_do_nothing().returning(IndexWrite.build))
    if written is None:
        raise WriteRefused("Another writer has announced this build.")


async def renew(session: AsyncSession, *, document_id: UUID, build: int, owner: UUID, lease_s: float) -> bool:
    """Lengthen the lease of the owner's announced writes. False: it was taken away."""
    renewed = await session.scalars(
        update(IndexWrite)
        .where(IndexWrite.document_id == document_id, IndexWrite.build == build, IndexWrite.owner == owner)
        .values(lease_until=_until(lease_s))
        .returning(IndexWrite.build)
    )
    return bool(renewed.all())


async def withdraw(session: AsyncSession, *, document_id: UUID, generation_id: UUID, build: int, owner: UUID) -> bool:
    """Remove an announcement, after the build itself was deleted from the store. False: it was not the owner's."""
    removed = await session.scalar(
        delete(IndexWrite)
        .where(
            IndexWrite.document_id == document_id,
            IndexWrite.generation_id == generation_id,
            IndexWrite.build == build,
            IndexWrite.owner == owner,
        )
        .returning(IndexWrite.build)
    )
    return removed is not None


async def list_expired(session: AsyncSession, *, max_rows: int) -> list[tuple[UUID, UUID, UUID, int]]:
    """(work, document, generation, build) of announced writes whose owner is believed dead; of every Work."""
    return [(r[0], r[1], r[2], r[3]) for r in await session.execute(_EXPIRED, {"max_rows": max_rows})]


async def take_over(
    session: AsyncSession, *, document_id: UUID, generation_id: UUID, build: int, owner: UUID, lease_s: float
) -> bool:
    """Become the owner of an announced write whose lease has expired. False: somebody was faster."""
    now = datetime.now(UTC)
    taken = await session.scalar(
        update(IndexWrite)
        .where(
            IndexWrite.document_id == document_id,
            IndexWrite.generation_id == generation_id,
            IndexWrite.build == build,
            IndexWrite.lease_until < now,
        )
        .values(owner=owner, lease_until=_until(lease_s))
        .returning(IndexWrite.build)
    )
    return taken is not None


def _until(lease_s: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=lease_s)
