"""What a search may look at: every id authorised one by one, then one Work, its knowledge bases and documents."""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Database, Reach
from app.db.reading import ReadPool
from app.documents import service as documents
from app.documents.attributes import FilterComparison, FilterGroup, condition
from app.documents.models import Document
from app.errors import FieldFault
from app.identity.caller import Caller, WorkScope
from app.identity.contract import Access
from app.indexing.models import IndexGeneration
from app.knowledge_bases import service as knowledge_bases
from app.knowledge_bases.repository import list_searchable
from app.search.errors import TwoWorks
from app.tenancy.errors import WorkNotFound

# One statement answers all. The languages are a loose index scan: one step per language, however many documents.
_SNAPSHOT = """
    with recursive spoken as (
        (select language from kb_documents where work_id = %(work)b and live_build is not null
          order by language limit 1)
        union all
        select (select d.language from kb_documents d
                 where d.work_id = %(work)b and d.live_build is not null and d.language > s.language
                 order by d.language limit 1)
          from spoken s where s.language is not null
    )
    select w.organization_id, o.settings || w.settings, w.index_version, k.ids, k.chunks, k.length,
           (select array_agg(language) from spoken where language is not null) as languages,
           g.id, g.number, g.vector_store_id, g.store_instance_id, g.embedding_provider_id, g.provider_instance_id,
           g.embedding_model, g.model_fingerprint, g.dims
      from works w
      join organizations o on o.id = w.organization_id
      left join index_generations g on g.work_id = w.id and g.state = 'active'
      cross join lateral (
        select coalesce(array_agg(b.id order by b.id), '{}') as ids, coalesce(sum(b.live_chunks), 0)::bigint as chunks,
               coalesce(sum(b.live_length), 0)::bigint as length
          from knowledge_bases b
         where b.work_id = w.id and b.owner_type = 'user' and b.owner_id = %(user)b and b.deleting_at is null
           and (%(wanted)b::uuid[] is null or b.id = any(%(wanted)b::uuid[]))) k
     where w.id = %(work)b and w.organization_id = %(organization)b and w.deleting_at is null
"""
_GENERATION = (
    "id",
    "number",
    "vector_store_id",
    "store_instance_id",
    "embedding_provider_id",
    "provider_instance_id",
    "embedding_model",
    "model_fingerprint",
    "dims",
)


@dataclass(frozen=True)
class Allowed:
    """The searched set. `document_ids` None = every document of the knowledge bases.

    `chunks`, `length`: sums over the live builds of the knowledge bases, for BM25 and the plan of the vector leg;
    `eligible`: live chunks after the restriction to documents; `index_version`: rises with every change of the index.
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
    index_version: int


class Scoping:
    """Answers what a caller's search may look at."""

    def __init__(self, database: Database, reads: ReadPool, access: Access) -> None:
        self._database = database
        self._reads = reads
        self._access = access

    async def resolve(
        self,
        caller: Caller,
        *,
        work_id: UUID | None,
        knowledge_base_ids: Collection[UUID] | None,
        document_ids: Collection[UUID] | None,
        filtered: FilterComparison | FilterGroup | None,
    ) -> Allowed:
        """Authorise and narrow. Raises: NotFound for each id the caller may not see, TwoWorks.

        Most searches name nothing, or knowledge bases of the Work they are expected in: then one statement does both.
        """
        expected = work_id or caller.default_work_id
        if document_ids is None and expected is not None and caller.key_work_id in (None, expected):
            allowed = await self._look(caller, expected, knowledge_base_ids)
            if allowed is not None and set(knowledge_base_ids or ()) <= set(allowed.knowledge_base_ids):
                return await self._narrowed(caller, allowed, None, filtered)
        async with self._transaction(caller) as session:
            scope = await _one_work(session, caller, self._access, work_id, knowledge_base_ids, document_ids)
        allowed = await self._look(caller, scope.work_id, knowledge_base_ids)
        if allowed is None:  # deleted a moment ago
            raise WorkNotFound()
        return await self._narrowed(caller, allowed, document_ids, filtered)

    async def _look(self, caller: Caller, work_id: UUID, wanted: Collection[UUID] | None) -> Allowed | None:
        """One Work and the knowledge bases in it that the caller may see; None for a foreign or unknown Work."""
        reach = Reach.of(work_id, organizations=[caller.organization_id])
        values = {
            "work": work_id,
            "user": caller.user_id,
            "organization": caller.organization_id,
            "wanted": None if wanted is None else list(wanted),
        }
        rows = await self._reads.fetch(reach, _SNAPSHOT, values)
        return _allowed(caller, work_id, rows[0]) if rows else None

    async def _narrowed(
        self,
        caller: Caller,
        allowed: Allowed,
        document_ids: Collection[UUID] | None,
        filtered: FilterComparison | FilterGroup | None,
    ) -> Allowed:
        if document_ids is None and filtered is None:
            return allowed
        async with self._transaction(caller) as session:
            await self._access.enter_work(session, caller, allowed.scope.work_id)
            narrowed, eligible = await _narrow(
                session, allowed.scope, allowed.knowledge_base_ids, document_ids, filtered
            )
        return replace(allowed, document_ids=narrowed, eligible=eligible)

    def _transaction(self, caller: Caller) -> AbstractAsyncContextManager[AsyncSession]:
        return self._database.transaction(Reach.of(organizations=[caller.organization_id]))


def _allowed(caller: Caller, work_id: UUID, row: Sequence[Any]) -> Allowed:
    organization_id, settings, version, ids, chunks, length, languages = row[:7]
    generation = None
    if row[7] is not None:
        values = dict(zip(_GENERATION, row[7:], strict=True))
        generation = IndexGeneration(work_id=work_id, state="active", **values)
    return Allowed(
        scope=WorkScope(work_id, organization_id, caller.user_id, caller.has("write")),
        knowledge_base_ids=tuple(ids),
        document_ids=None,
        chunks=chunks,
        length=length,
        eligible=chunks,
        generation=generation,
        languages=frozenset([None, *(languages or ())]),
        max_results=settings.get("max_results"),
        index_version=version,
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
    filtered: FilterComparison | FilterGroup | None,
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
