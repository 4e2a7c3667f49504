"""Announced writes: no store is called for a build before the intent to do so is committed."""

from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

from sqlalchemy import delete, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Transaction
from app.indexing.errors import WriteRefused
from app.indexing.models import IndexWrite

_SHARED = text("select pg_advisory_xact_lock_shared(hashtextextended('stackroom.work.' || :work_id, 0))")
_EXCLUSIVE = text("select pg_advisory_xact_lock(hashtextextended('stackroom.work.' || :work_id, 0))")
_EXPIRED = text("select work_id, document_id, generation_id, build from stackroom_expired_writes(:max_rows)")
# `W` is held, so the generation's state is that of now; the others' marks are looked at again when the document is
# marked, for which its row must be had first.
_PLACE: LiteralString = """
    select d.deleting_at is not null as deleting, w.deleting_at is null and k.deleting_at is null as is_open, g.state
      from kb_documents d
      join knowledge_bases k on k.id = d.kb_id
      join works w on w.id = d.work_id
      left join index_generations g on g.id = %(generation)b
     where d.id = %(document)b for update of d
"""
_ANNOUNCE: LiteralString = """
    insert into index_writes (document_id, generation_id, build, work_id, owner, lease_until)
    values (%(document)b, %(generation)b, %(build)b, %(work)b, %(owner)b, %(until)b) on conflict do nothing
"""
_NAMED: LiteralString = """
    select from work_knowledge_chunk_coordinates
     where work_id = %(work)b and document_id = %(document)b and generation_id = %(generation)b and build = %(build)b
"""


def shared_lock(work_id: UUID) -> str:
    """The statement that takes `W` shared: what a transaction that announces or goes live runs first."""
    return f"select pg_advisory_xact_lock_shared(hashtextextended('stackroom.work.{work_id}', 0))"


async def lock_work(session: AsyncSession, work_id: UUID, *, exclusive: bool = False) -> None:
    """The lock W of a Work: shared for intents and go-live, exclusive for flips and removals; it queues fairly."""
    await session.execute(_EXCLUSIVE if exclusive else _SHARED, {"work_id": str(work_id)})


async def announce(
    session: Transaction,
    work_id: UUID,
    *,
    document_id: UUID,
    generation_id: UUID,
    build: int,
    owner: UUID,
    lease_s: float,
) -> None:
    """Announce a write of a build to a generation; `W` is held (`shared_lock`). Raises: WriteRefused."""
    facts = {
        "document": document_id,
        "generation": generation_id,
        "build": build,
        "work": work_id,
        "owner": owner,
        "until": _until(lease_s),
    }
    async with driver_cursor(session, names=True) as cursor:
        await cursor.execute(_PLACE, facts)
        place = await cursor.fetchone()
        if place is None or place["deleting"]:
            raise WriteRefused("The document is being deleted.")
        if not place["is_open"] or place["state"] is None:
            raise WriteRefused("The knowledge base or Work is being deleted, or the index generation is gone.")
        if place["state"] not in ("active", "building"):
            raise WriteRefused(f"The index generation is '{place['state']}'.")
        await cursor.execute(_ANNOUNCE, facts)
        if cursor.rowcount != 1:
            raise WriteRefused("Another writer has announced this build.")


async def announce_deletion(
    session: AsyncSession,
    work_id: UUID,
    *,
    document_id: UUID,
    generation_id: UUID,
    build: int,
    owner: UUID,
    lease_s: float,
) -> bool | None:
    """Announce that a build which nobody names is deleted from a space: a writer of the same build has to wait.

    None: the document itself is gone, so nobody can write it. False: coordinates name the build, or a writer is at it.
    """
    facts = {
        "document": document_id,
        "generation": generation_id,
        "build": build,
        "work": work_id,
        "owner": owner,
        "until": _until(lease_s),
    }
    async with driver_cursor(session) as cursor:
        await cursor.execute("select from kb_documents where id = %(document)b for update", facts)
        if await cursor.fetchone() is None:
            return None
        await cursor.execute(_NAMED, facts)
        if await cursor.fetchone() is not None:
            return False
        await cursor.execute(_ANNOUNCE, facts)
        return cursor.rowcount == 1


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
