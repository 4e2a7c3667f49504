"""Forgetting: what a deletion still has to remove, counted to zero before its receipt closes."""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.receipts import note_stores
from app.db.engine import Database, Reach
from app.documents import outbox
from app.documents.models import Document, Revision
from app.documents.service import mark_deleting
from app.errors import AppError
from app.indexing.models import Coordinates, IndexGeneration, IndexWrite
from app.indexing.routing import Routing, space_of
from app.jobs.queue import JobRetry
from app.knowledge_bases.models import KnowledgeBase
from app.logs import get_logger
from app.tenancy.versions import raise_index_version

log = get_logger()
MARK_BATCH = 50


@dataclass(frozen=True)
class _Place:
    """A space of a store that may hold chunks of the document."""

    generation: IndexGeneration
    instance_id: UUID

    @property
    def vector_store_id(self) -> str:
        return self.generation.vector_store_id or ""


@dataclass
class Forgetting:
    """The use case behind `forget_document` and `forget_knowledge_base`. Repeating it changes nothing."""

    database: Database
    routing: Routing
    store_call_timeout_s: float
    retry_wait_s: float

    async def forget_document(self, work_id: UUID, document_id: UUID, receipt_id: UUID) -> None:
        """Remove a marked document everywhere. Raises: JobRetry while a store is away or a writer's lease lives."""
        async with self._transaction(work_id) as session:
            document = await session.get(Document, document_id)
            if document is None:
                await note_stores(session, receipt_id, [], close=True)
                return
            if document.deleting_at is None:
                return
            places = await _places(session, document_id)
            await note_stores(session, receipt_id, [_line(p, -1) for p in places], close=False)
            writing = await _living_leases(session, document_id)
        if writing:
            raise JobRetry(self.retry_wait_s)
        remaining = {place.generation.id: await self._empty(work_id, document_id, place) for place in places}
        lines = [_line(place, remaining[place.generation.id]) for place in places]
        if any(line["remaining"] for line in lines):
            async with self._transaction(work_id) as session:
                await note_stores(session, receipt_id, lines, close=False)
            raise JobRetry(self.retry_wait_s)
        await self._remove(work_id, document_id, receipt_id, lines)

    async def _empty(self, work_id: UUID, document_id: UUID, place: _Place) -> int:
        """Delete and count; -1 when the store is away."""
        try:
            store = await self.routing.store_at(work_id, place.instance_id)
            async with asyncio.timeout(self.store_call_timeout_s):
                await store.delete_by_document(work_id, document_id, space_of(place.generation))
                return await store.count(work_id, space_of(place.generation), document_id)
        except (AppError, TimeoutError) as error:
            log.warning("forget.store_away", error=type(error).__name__, vector_store_id=place.vector_store_id)
            return -1

    async def _remove(self, work_id: UUID, document_id: UUID, receipt_id: UUID, lines: list[dict[str, Any]]) -> None:
        """Blobs to the outbox, then the rows, then the receipt: one transaction.

        Announcements whose leases have expired are dropped first: their builds were deleted and counted above.
        """
        async with self._transaction(work_id) as session:
            await session.execute(select(Document.id).where(Document.id == document_id).with_for_update())
            await session.execute(
                delete(IndexWrite).where(IndexWrite.document_id == document_id, IndexWrite.lease_until < func.now())
            )
            late = await _living_leases(session, document_id)
            if not late:
                rows = await session.execute(
                    select(Revision.storage_key, Revision.text_key).where(Revision.document_id == document_id)
                )
                await outbox.drop_blobs(session, work_id, _keys(rows))
                await session.execute(delete(Document).where(Document.id == document_id))
                await note_stores(session, receipt_id, lines, close=True)
        if late:
            raise JobRetry(self.retry_wait_s)
        log.info("document.forgotten", document_id=str(document_id))

    async def forget_knowledge_base(self, work_id: UUID, knowledge_base_id: UUID, receipt_id: UUID) -> None:
        """Mark every document, in batches; when none is left, remove the row. Raises: JobRetry until then."""
        while await self._mark_batch(work_id, knowledge_base_id):
            pass
        async with self._transaction(work_id) as session:
            left = await session.scalar(
                select(func.count()).select_from(Document).where(Document.kb_id == knowledge_base_id)
            )
            if not left:
                await session.execute(delete(KnowledgeBase).where(KnowledgeBase.id == knowledge_base_id))
                await note_stores(session, receipt_id, [], close=True)
                await raise_index_version(session, work_id)
                log.info("knowledge_base.forgotten", knowledge_base_id=str(knowledge_base_id))
                return
        raise JobRetry(min(self.retry_wait_s, 2.0))

    async def _mark_batch(self, work_id: UUID, knowledge_base_id: UUID) -> bool:
        async with self._transaction(work_id) as session:
            base = await session.get(KnowledgeBase, knowledge_base_id)
            if base is None:
                return False
            query = (
                select(Document)
                .where(Document.kb_id == knowledge_base_id, Document.deleting_at.is_(None))
                .order_by(Document.id)
                .limit(MARK_BATCH)
                .with_for_update()
            )
            found = (await session.scalars(query)).all()
            for document in found:
                await mark_deleting(session, document, owner=(base.owner_type, base.owner_id), requested_by=None)
            return bool(found)

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))


async def _places(session: AsyncSession, document_id: UUID) -> list[_Place]:
    """Every space that coordinates or announced writes of the document name."""
    named = select(Coordinates.generation_id).where(Coordinates.document_id == document_id)
    announced = select(IndexWrite.generation_id).where(IndexWrite.document_id == document_id)
    query = (
        select(IndexGeneration)
        .where(IndexGeneration.id.in_(named.union(announced)), IndexGeneration.store_instance_id.is_not(None))
        .order_by(IndexGeneration.number)
    )
    generations = (await session.scalars(query)).all()
    return [_Place(g, g.store_instance_id) for g in generations if g.store_instance_id is not None]


async def _living_leases(session: AsyncSession, document_id: UUID) -> bool:
    query = select(IndexWrite.build).where(IndexWrite.document_id == document_id, IndexWrite.lease_until >= func.now())
    return await session.scalar(query.limit(1)) is not None


def _line(place: _Place, remaining: int) -> dict[str, Any]:
    return {
        "vector_store_id": place.vector_store_id,
        "instance_id": str(place.instance_id),
        "remaining": remaining,
    }


def _keys(rows: Iterable[Any]) -> list[str]:
    return [key for row in rows for key in row if key is not None]
