"""What a generation still lacks: a query, not a cursor, so a sweep can stop and go on anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import delete, func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.documents.models import Document
from app.indexing.models import Coordinates, IndexGeneration, IndexRefusal

# Live documents whose coordinates are missing or name another build; those refused as they are now are left out.
_REMAINING = """
      from kb_documents d
      left join work_knowledge_chunk_coordinates c
        on c.work_id = d.work_id and c.document_id = d.id and c.generation_id = :generation
     where d.work_id = :work and d.live_build is not null and d.deleting_at is null
       and c.build is distinct from d.live_build
       and not exists (select from index_refusals r
                        where r.generation_id = :generation and r.document_id = d.id and r.build = d.live_build)
"""
_NEXT = text(f"select d.id, d.live_build, d.kb_id {_REMAINING} and d.id > :after order by d.id limit :limit")
_COUNT = text(f"select count(*) {_REMAINING}")


@dataclass(frozen=True)
class Live:
    """A document and the build that searches answer with."""

    document_id: UUID
    build: int
    kb_id: UUID


async def next_remaining(
    session: AsyncSession, work_id: UUID, generation_id: UUID, *, after: UUID | None, limit: int
) -> list[Live]:
    """The next documents that the generation lacks, by id."""
    facts = {"generation": generation_id, "work": work_id, "after": after or UUID(int=0), "limit": limit}
    return [Live(*row) for row in await session.execute(_NEXT, facts)]


async def count_remaining(session: AsyncSession, work_id: UUID, generation_id: UUID) -> int:
    """How many documents the generation lacks, without those refused."""
    found = await session.scalar(_COUNT, {"generation": generation_id, "work": work_id})
    return int(found or 0)


async def count_documents(session: AsyncSession, work_id: UUID) -> int:
    """How many documents of the Work are live."""
    query = select(func.count()).select_from(Document)
    live = Document.work_id == work_id, Document.live_build.is_not(None), Document.deleting_at.is_(None)
    return await session.scalar(query.where(*live)) or 0


async def refuse(
    session: AsyncSession, generation: IndexGeneration, document: Live, *, code: str, message: str
) -> None:
    """List a document that the generation's provider or store refuses for good; nobody has accepted that yet."""
    values = {
        "generation_id": generation.id,
        "document_id": document.document_id,
        "work_id": generation.work_id,
        "build": document.build,
        "code": code,
        "message": message[:2_000],
        "accepted": False,
    }
    put = insert(IndexRefusal).values(**values)
    changed = {name: values[name] for name in ("build", "code", "message", "accepted")}
    await session.execute(put.on_conflict_do_update(index_elements=["generation_id", "document_id"], set_=changed))


async def list_refusals(
    session: AsyncSession,
    generation_id: UUID,
    *,
    accepted: bool | None = None,
    after: UUID | None = None,
    limit: int,
) -> Sequence[IndexRefusal]:
    """Documents that are refused as they are now, by document id. `accepted` None = all."""
    query = (
        select(IndexRefusal)
        .join(Document, Document.id == IndexRefusal.document_id)
        .where(
            IndexRefusal.generation_id == generation_id,
            IndexRefusal.build == Document.live_build,
            Document.deleting_at.is_(None),
            IndexRefusal.document_id > (after or UUID(int=0)),
        )
        .order_by(IndexRefusal.document_id)
        .limit(limit)
    )
    if accepted is not None:
        query = query.where(IndexRefusal.accepted == accepted)
    return (await session.scalars(query)).all()


async def drop_outdated_refusals(session: AsyncSession, generation_id: UUID) -> None:
    """Forget refusals of builds that are live no longer."""
    outdated = select(Document.id).where(
        Document.id == IndexRefusal.document_id, Document.live_build == IndexRefusal.build
    )
    await session.execute(
        delete(IndexRefusal)
        .where(IndexRefusal.generation_id == generation_id, ~outdated.exists())
        .execution_options(synchronize_session=False)
    )


async def count_coordinates(session: AsyncSession, generation_id: UUID) -> int:
    """How many documents are in the generation."""
    query = select(func.count()).select_from(Coordinates).where(Coordinates.generation_id == generation_id)
    return await session.scalar(query) or 0
