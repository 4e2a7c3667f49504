"""What a search may look at: every id authorised one by one, then one Work, its knowledge bases and documents."""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from app.documents import service as documents
from app.documents.attributes import Comparison, Group, condition
from app.documents.models import Document
from app.errors import FieldFault
from app.identity.caller import Caller, WorkScope
from app.identity.contract import Access
from app.indexing.going_live import find_active
from app.indexing.models import IndexGeneration
from app.knowledge_bases import service as knowledge_bases
from app.knowledge_bases.repository import list_searchable
from app.search.errors import TwoWorks
from app.tenancy.service import get_work

# A loose index scan: one step per language, however many documents there are.
_LANGUAGES = text(
    """
    with recursive found as (
        (select language from kb_documents where work_id = :work_id and live_build is not null
          order by language limit 1)
        union all
        select (select d.language from kb_documents d
                 where d.work_id = :work_id and d.live_build is not null and d.language > f.language
                 order by d.language limit 1)
          from found f where f.language is not null
    )
    select language from found where language is not null
    """
)


@dataclass(frozen=True)
class Allowed:
    """The searched set. `document_ids` None = every document of the knowledge bases.

    `chunks`, `length`: sums over the live builds of the knowledge bases, for BM25 and the plan of the vector leg;
    `eligible`: live chunks after the restriction to documents.
    """

    scope: WorkScope
    knowledge_base_ids: tuple[UUID, ...]
    document_ids: tuple[UUID, ...] | None
    chunks: int
    length: int
    eligible: int
    generation: IndexGeneration | None
    languages: frozenset[str | None]
    max_results: int | None


async def resolve(
    session: AsyncSession,
    caller: Caller,
    access: Access,
    *,
    work_id: UUID | None,
    knowledge_base_ids: Collection[UUID] | None,
    document_ids: Collection[UUID] | None,
    filtered: Comparison | Group | None,
) -> Allowed:
    """Authorise and narrow. Raises: NotFound for each id the caller may not see, TwoWorks."""
    scope = await _one_work(session, caller, access, work_id, knowledge_base_ids, document_ids)
    searchable = await list_searchable(session, scope, knowledge_base_ids)
    kb_ids = tuple(row[0] for row in searchable)
    chunks, length = sum(row[1] for row in searchable), sum(row[2] for row in searchable)
    eligible, narrowed = chunks, None
    if document_ids is not None or filtered is not None:
        narrowed, eligible = await _narrow(session, scope, kb_ids, document_ids, filtered)
    languages = await session.scalars(_LANGUAGES, {"work_id": scope.work_id})
    work = await get_work(session, scope.work_id)
    return Allowed(
        scope=scope,
        knowledge_base_ids=kb_ids,
        document_ids=narrowed,
        chunks=chunks,
        length=length,
        eligible=eligible,
        generation=await find_active(session, scope.work_id),
        languages=frozenset([None, *languages]),
        max_results=work.settings.get("max_results"),
    )


async def _one_work(
    session: AsyncSession,
    caller: Caller,
    access: Access,
    work_id: UUID | None,
    knowledge_base_ids: Collection[UUID] | None,
    document_ids: Collection[UUID] | None,
) -> WorkScope:
    found: list[WorkScope] = []
    if work_id is not None:
        found.append(await access.enter_work(session, caller, work_id))
    found += await _of_knowledge_bases(session, caller, access, knowledge_base_ids or ())
    found += await _of_documents(session, caller, access, document_ids or ())
    if not found:
        return await access.enter_default_work(session, caller)
    if len({scope.work_id for scope in found}) > 1:
        raise TwoWorks(faults=[FieldFault(("body",), "the ids belong to more than one Work")])
    return found[0]


async def _of_knowledge_bases(
    session: AsyncSession, caller: Caller, access: Access, ids: Collection[UUID]
) -> list[WorkScope]:
    """The first id is located alone; those of the same Work then take one query, strangers one each."""
    waiting = sorted(set(ids))
    found: list[WorkScope] = []
    while waiting:
        scope, _ = await knowledge_bases.enter(session, caller, access, waiting[0])
        found.append(scope)
        here = {row[0] for row in await list_searchable(session, scope, waiting)}
        waiting = [kb_id for kb_id in waiting[1:] if kb_id not in here]
    return found


async def _of_documents(
    session: AsyncSession, caller: Caller, access: Access, ids: Collection[UUID]
) -> list[WorkScope]:
    waiting = sorted(set(ids))
    found: list[WorkScope] = []
    while waiting:
        scope, _ = await documents.enter(session, caller, access, waiting[0])
        found.append(scope)
        kb_ids = [row[0] for row in await list_searchable(session, scope, None)]
        query = select(Document.id).where(
            Document.id.in_(waiting), Document.kb_id.in_(kb_ids), Document.deleting_at.is_(None)
        )
        here = set(await session.scalars(query))
        waiting = [document_id for document_id in waiting[1:] if document_id not in here]
    return found


async def _narrow(
    session: AsyncSession,
    scope: WorkScope,
    kb_ids: Collection[UUID],
    document_ids: Collection[UUID] | None,
    filtered: Comparison | Group | None,
) -> tuple[tuple[UUID, ...], int]:
    query = select(Document.id, Document.chunk_count).where(
        Document.work_id == scope.work_id, Document.kb_id.in_(kb_ids), Document.live_build.is_not(None)
    )
    if document_ids is not None:
        query = query.where(Document.id.in_(document_ids))
    if filtered is not None:
        query = query.where(condition(filtered, Document.attributes.expression))
    rows = (await session.execute(query)).all()
    return tuple(row[0] for row in rows), sum(row[1] for row in rows)
