"""Queries for documents: only those in knowledge bases that the scope's user may see."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString
from uuid import UUID

from sqlalchemy import Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.documents.models import Document, Revision, Span
from app.identity.caller import WorkScope
from app.knowledge_bases.models import KnowledgeBase
from app.knowledge_bases.repository import visible

MAX_COUNTED_WAITING = 1000
_WAITING: LiteralString = """
    select count(*) from (
        select from kb_documents where work_id = %(work)b and status in ('queued', 'processing') limit %(most)b) w
"""


@dataclass(frozen=True)
class DocumentFilter:
    """Equality filters of a list of documents; None = any."""

    status: str | None = None
    name: str | None = None
    external_id: str | None = None
    sha256: bytes | None = None


def _visible_documents(scope: WorkScope) -> Select[Document]:
    return (
        select(Document)
        .join(KnowledgeBase, KnowledgeBase.id == Document.kb_id)
        .where(Document.work_id == scope.work_id, Document.deleting_at.is_(None), visible(scope))
    )


async def find(session: AsyncSession, scope: WorkScope, document_id: UUID, *, lock: bool = False) -> Document | None:
    """A visible document that is not being deleted."""
    query = _visible_documents(scope).where(Document.id == document_id)
    if lock:
        query = query.with_for_update(of=Document)
    return (await session.scalars(query)).one_or_none()


async def list_documents(
    session: AsyncSession, kb_id: UUID, wanted: DocumentFilter, *, after: UUID | None, limit: int
) -> Sequence[Document]:
    """At most `limit` documents of one knowledge base that are not being deleted, oldest first."""
    query = select(Document).where(Document.kb_id == kb_id, Document.deleting_at.is_(None))
    if wanted.status is not None:
        query = query.where(Document.status == wanted.status)
    if wanted.name is not None:
        query = query.where(Document.name == wanted.name)
    if wanted.external_id is not None:
        query = query.where(Document.external_id == wanted.external_id)
    if wanted.sha256 is not None:
        query = query.where(Document.sha256 == wanted.sha256)
    if after is not None:
        query = query.where(Document.id > after)
    return (await session.scalars(query.order_by(Document.id).limit(limit))).all()


async def find_twin(session: AsyncSession, kb_id: UUID, *, external_id: str | None, sha256: bytes) -> Document | None:
    """The document that an upload belongs to: by external id, else by bytes among those without one. Locked."""
    query = select(Document).where(Document.kb_id == kb_id, Document.deleting_at.is_(None)).with_for_update()
    if external_id is not None:
        query = query.where(Document.external_id == external_id)
    else:
        query = query.where(Document.external_id.is_(None), Document.sha256 == sha256)
    return (await session.scalars(query)).one_or_none()


async def find_same_bytes(session: AsyncSession, kb_id: UUID, sha256: bytes, *, other_than: UUID) -> UUID | None:
    """Another document of the knowledge base with these bytes."""
    query = (
        select(Document.id)
        .where(
            Document.kb_id == kb_id,
            Document.sha256 == sha256,
            Document.deleting_at.is_(None),
            Document.id != other_than,
        )
        .order_by(Document.id)
        .limit(1)
    )
    return await session.scalar(query)


async def get_revision(session: AsyncSession, document_id: UUID, revision: int) -> Revision | None:
    """One revision of a document."""
    return await session.get(Revision, (document_id, revision))


async def count_waiting(session: AsyncSession, work_id: UUID) -> int:
    """How many documents of the Work wait or are being processed, counted up to a bound."""
    async with driver_cursor(session) as cursor:
        await cursor.execute(_WAITING, {"work": work_id, "most": MAX_COUNTED_WAITING})
        row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


async def list_spans(session: AsyncSession, document_id: UUID, *, after: int, limit: int) -> Sequence[Span]:
    """At most `limit` spans of the live build, by chunk index."""
    query = (
        select(Span)
        .where(Span.document_id == document_id, Span.chunk_index > after)
        .order_by(Span.chunk_index)
        .limit(limit)
    )
    return (await session.scalars(query)).all()


class StatusCounter:
    """Answers `knowledge_bases.DocumentCounter`."""

    async def count_by_status(
        self, session: AsyncSession, knowledge_base_ids: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[str, int]]:
        """Knowledge base → status → number, in one query over an index."""
        query = (
            select(Document.kb_id, Document.status, func.count())
            .where(Document.kb_id.in_(knowledge_base_ids))
            .group_by(Document.kb_id, Document.status)
        )
        counts: dict[UUID, dict[str, int]] = {}
        for kb_id, status, number in await session.execute(query):
            counts.setdefault(kb_id, {})[status] = number
        return counts
