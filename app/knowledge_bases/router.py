"""Doors of the knowledge bases."""

from collections.abc import Mapping
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.paging import FIRST_ID, after_key, paginate
from app.http.openapi import problems
from app.http.session import SessionDep
from app.http.shapes import CleanText, Shape
from app.identity.dependencies import AccessDep, CallerDep, needs
from app.knowledge_bases import schemas, service
from app.knowledge_bases.contract import DocumentCounter
from app.knowledge_bases.models import KnowledgeBase

router = APIRouter(prefix="/v1/knowledge-bases", tags=["knowledge-bases"])


class ListQuery(Shape):
    """Filters and place of a list of knowledge bases."""

    work_id: UUID | None = None
    name: Annotated[CleanText, Query(max_length=255)] | None = None
    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: Annotated[str, Query(max_length=2048)] | None = None


@router.post(
    "",
    operation_id="create_knowledge_base",
    status_code=201,
    responses=problems(404),
    dependencies=[needs("write")],
)
async def create_knowledge_base(
    session: SessionDep, caller: CallerDep, access: AccessDep, body: schemas.KnowledgeBaseCreate
) -> schemas.KnowledgeBaseAnswer:
    """Create a knowledge base."""
    wanted = service.NewKnowledgeBase(
        name=body.name,
        description=body.description,
        work_id=body.work_id,
        owner=(body.owner.type, body.owner.id) if body.owner else None,
        attributes=body.attributes,
    )
    made = await service.create(session, caller, access, wanted)
    return _answer(made, {})


@router.get("", operation_id="list_knowledge_bases", responses=problems(404), dependencies=[needs("read")])
async def list_knowledge_bases(
    request: Request,
    session: SessionDep,
    caller: CallerDep,
    access: AccessDep,
    query: Annotated[ListQuery, Query()],
) -> schemas.KnowledgeBaseList:
    """List the knowledge bases that the caller may open, oldest first."""
    after = after_key(query.cursor, UUID, FIRST_ID)
    rows = await service.list_page(
        session, caller, access, work_id=query.work_id, name=query.name, after=after, limit=query.limit + 1
    )
    items, next_cursor = paginate(rows, query.limit, lambda row: (row.id,))
    counts = await _counter(request).count_by_status(session, [row.id for row in items])
    return schemas.KnowledgeBaseList(
        items=[_answer(row, counts.get(row.id, {})) for row in items], next_cursor=next_cursor
    )


@router.get("/{knowledge_base_id}", operation_id="get_knowledge_base", dependencies=[needs("read")])
async def get_knowledge_base(
    request: Request, session: SessionDep, caller: CallerDep, access: AccessDep, knowledge_base_id: UUID
) -> schemas.KnowledgeBaseAnswer:
    """One knowledge base with the number of its documents by status."""
    _, found = await service.enter(session, caller, access, knowledge_base_id)
    return await _counted(request, session, found)


@router.patch("/{knowledge_base_id}", operation_id="change_knowledge_base", dependencies=[needs("write")])
async def change_knowledge_base(
    request: Request,
    session: SessionDep,
    caller: CallerDep,
    access: AccessDep,
    knowledge_base_id: UUID,
    body: schemas.KnowledgeBasePatch,
) -> schemas.KnowledgeBaseAnswer:
    """Change name, description or attributes (JSON Merge Patch)."""
    changes = body.model_dump(exclude_unset=True)
    return await _counted(request, session, await service.change(session, caller, access, knowledge_base_id, changes))


@router.delete(
    "/{knowledge_base_id}", operation_id="delete_knowledge_base", status_code=202, dependencies=[needs("write")]
)
async def delete_knowledge_base(
    session: SessionDep, caller: CallerDep, access: AccessDep, knowledge_base_id: UUID
) -> schemas.KnowledgeBaseDeletion:
    """Delete a knowledge base and everything in it; nothing of it is found from now on."""
    return schemas.KnowledgeBaseDeletion(receipt_id=await service.delete(session, caller, access, knowledge_base_id))


async def _counted(request: Request, session: AsyncSession, row: KnowledgeBase) -> schemas.KnowledgeBaseAnswer:
    counts = await _counter(request).count_by_status(session, [row.id])
    return _answer(row, counts.get(row.id, {}))


def _counter(request: Request) -> DocumentCounter:
    counter: DocumentCounter = request.app.state.document_counter
    return counter


def _answer(row: KnowledgeBase, counts: Mapping[str, int]) -> schemas.KnowledgeBaseAnswer:
    return schemas.KnowledgeBaseAnswer(
        id=row.id,
        work_id=row.work_id,
        owner=schemas.Owner.model_validate({"type": row.owner_type, "id": row.owner_id}),
        name=row.name,
        description=row.description,
        attributes=row.attributes,
        document_counts=schemas.DocumentCounts(**counts),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
