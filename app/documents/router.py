"""Doors of the documents that exist; the door of uploads is `upload_router`."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import APIRouter, Query, Request
from starlette.responses import StreamingResponse

from app.activity.models import DeletionReceipt
from app.db.engine import Database, Reach
from app.db.paging import FIRST_ID, after_key, paginate
from app.documents import schemas, service
from app.documents.errors import DocumentNotFound
from app.documents.repository import DocumentFilter
from app.http.openapi import problems
from app.http.session import SessionDep
from app.http.shapes import CleanText, Shape
from app.identity.caller import Caller
from app.identity.contract import Access
from app.identity.dependencies import AccessDep, CallerDep, needs
from app.storage.contract import BlobStore

router = APIRouter(prefix="/v1", tags=["documents"])
EVENT_INTERVAL_S = 0.5
EVENT_KEEPALIVE_S = 15
_BYTES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The bytes",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {
            "Content-Length": {"description": "Their number.", "schema": {"type": "integer"}},
            "Content-Disposition": {"description": "`attachment`, with the name.", "schema": {"type": "string"}},
        },
    }
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "A stream of events: `document` with a DocumentAnswer as its data, at last maybe `deleted` with `{id}`;"
            " a comment every 15 seconds while nothing changes."
        ),
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class ListQuery(Shape):
    """Filters and place of a list of documents."""

    status: schemas.DocumentStatus | None = None
    name: Annotated[CleanText, Query(max_length=255)] | None = None
    external_id: Annotated[CleanText, Query(max_length=1024)] | None = None
    sha256: Annotated[str, Query(pattern="^[0-9a-f]{64}$")] | None = None
    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: Annotated[str, Query(max_length=2048)] | None = None


class ChunkQuery(Shape):
    """Place of a list of chunks."""

    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: Annotated[str, Query(max_length=2048)] | None = None


@router.get(
    "/knowledge-bases/{knowledge_base_id}/documents", operation_id="list_documents", dependencies=[needs("read")]
)
async def list_documents(
    session: SessionDep,
    caller: CallerDep,
    access: AccessDep,
    knowledge_base_id: UUID,
    query: Annotated[ListQuery, Query()],
) -> schemas.DocumentList:
    """List the documents of a knowledge base from upload on, oldest first."""
    wanted = DocumentFilter(
        status=query.status,
        name=query.name,
        external_id=query.external_id,
        sha256=bytes.fromhex(query.sha256) if query.sha256 else None,
    )
    after = after_key(query.cursor, UUID, FIRST_ID)
    rows = await service.list_page(
        session, caller, access, knowledge_base_id, wanted, after=after, limit=query.limit + 1
    )
    items, next_cursor = paginate(rows, query.limit, lambda row: (row.id,))
    return schemas.DocumentList(items=[schemas.document_answer(row) for row in items], next_cursor=next_cursor)


@router.get("/documents/{document_id}", operation_id="get_document", dependencies=[needs("read")])
async def get_document(
    session: SessionDep, caller: CallerDep, access: AccessDep, document_id: UUID
) -> schemas.DocumentAnswer:
    """One document and how far it has come."""
    _, document = await service.enter(session, caller, access, document_id)
    return schemas.document_answer(document)


@router.patch("/documents/{document_id}", operation_id="change_document", dependencies=[needs("write")])
async def change_document(
    session: SessionDep, caller: CallerDep, access: AccessDep, document_id: UUID, body: schemas.DocumentPatch
) -> schemas.DocumentAnswer:
    """Change name or attributes (JSON Merge Patch)."""
    changes = body.model_dump(exclude_unset=True)
    return schemas.document_answer(await service.change(session, caller, access, document_id, changes))


@router.delete(
    "/documents/{document_id}", operation_id="delete_document", status_code=202, dependencies=[needs("write")]
)
async def delete_document(
    session: SessionDep, caller: CallerDep, access: AccessDep, document_id: UUID
) -> schemas.DeletionAccepted:
    """Delete a document; nothing of it is found from now on."""
    return schemas.DeletionAccepted(receipt_id=await service.delete(session, caller, access, document_id))


@router.get("/documents/{document_id}/deletion", operation_id="get_document_deletion", dependencies=[needs("read")])
async def get_document_deletion(
    session: SessionDep, caller: CallerDep, access: AccessDep, document_id: UUID
) -> schemas.DeletionState:
    """How far the deletion of a document has come; kept 90 days after it closes."""
    return _deletion(await service.get_deletion(session, caller, access, document_id))


@router.post(
    "/documents/{document_id}/retry",
    operation_id="retry_document",
    status_code=202,
    responses=problems(409),
    dependencies=[needs("write")],
)
async def retry_document(
    session: SessionDep, caller: CallerDep, access: AccessDep, document_id: UUID
) -> schemas.DocumentAnswer:
    """Try a failed or waiting document again."""
    return schemas.document_answer(await service.retry(session, caller, access, document_id))


@router.post(
    "/documents/{document_id}/re-embed",
    operation_id="re_embed_document",
    status_code=202,
    responses=problems(409),
    dependencies=[needs("write")],
)
async def re_embed_document(
    session: SessionDep, caller: CallerDep, access: AccessDep, document_id: UUID
) -> schemas.DocumentAnswer:
    """Build a document anew; it stays searchable meanwhile."""
    return schemas.document_answer(await service.re_embed(session, caller, access, document_id))


@router.get("/documents/{document_id}/chunks", operation_id="list_chunks", dependencies=[needs("read")])
async def list_chunks(
    session: SessionDep,
    caller: CallerDep,
    access: AccessDep,
    document_id: UUID,
    query: Annotated[ChunkQuery, Query()],
) -> schemas.ChunkList:
    """List the chunks of the live build in the order of the text."""
    _, document = await service.enter(session, caller, access, document_id)
    after = after_key(query.cursor, int, -1)
    spans = await service.list_chunks(session, document, after=after, limit=query.limit + 1)
    items, next_cursor = paginate(spans, query.limit, lambda span: (span.chunk_index,))
    return schemas.ChunkList(
        items=[
            schemas.ChunkAnswer(
                chunk_index=s.chunk_index,
                text=s.text,
                start=s.start,
                end=s.end,
                page=s.page,
                heading_path=s.heading_path,
                token_count=s.token_count,
            )
            for s in items
        ],
        next_cursor=next_cursor,
    )


@router.get("/documents/{document_id}/text", operation_id="get_document_text", dependencies=[needs("read")])
async def get_document_text(
    request: Request, caller: CallerDep, access: AccessDep, document_id: UUID
) -> schemas.DocumentText:
    """The extracted text of the live revision."""
    async with _database(request).transaction(Reach.of(organizations=[caller.organization_id])) as session:
        _, document = await service.enter(session, caller, access, document_id)
        revision = await service.get_live_revision(session, document)
    text = await _storage(request).read_text(str(revision.text_key))
    return schemas.DocumentText(document_id=document.id, revision=revision.revision, text=text)


@router.get(
    "/documents/{document_id}/content",
    operation_id="get_document_content",
    responses=_BYTES,
    dependencies=[needs("read")],
    response_class=StreamingResponse,
)
async def get_document_content(
    request: Request, caller: CallerDep, access: AccessDep, document_id: UUID
) -> StreamingResponse:
    """The newest original bytes, as a download."""
    async with _database(request).transaction(Reach.of(organizations=[caller.organization_id])) as session:
        _, document = await service.enter(session, caller, access, document_id)
        revision = await service.get_newest_revision(session, document)
    headers = {
        "Content-Length": str(revision.size_bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(document.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
    }
    return StreamingResponse(
        _storage(request).read_stream(revision.storage_key), media_type="application/octet-stream", headers=headers
    )


@router.get(
    "/documents/{document_id}/events",
    operation_id="watch_document",
    responses=_EVENTS,
    dependencies=[needs("read")],
    response_class=StreamingResponse,
)
async def watch_document(
    request: Request, caller: CallerDep, access: AccessDep, document_id: UUID
) -> StreamingResponse:
    """Server-sent events: the document after each change, until it is terminal or deleted."""
    database = _database(request)
    first = await _look(database, access, caller, document_id)
    if first is None:
        raise DocumentNotFound()
    return StreamingResponse(_events(request, database, access, caller, first), media_type="text/event-stream")


async def _events(
    request: Request, database: Database, access: Access, caller: Caller, first: schemas.DocumentAnswer
) -> AsyncIterator[str]:
    last: schemas.DocumentAnswer | None = None
    quiet_s = 0.0
    now: schemas.DocumentAnswer | None = first
    while now is not None and not await request.is_disconnected():
        if now != last:
            yield f"event: document\ndata: {now.model_dump_json()}\n\n"
            last, quiet_s = now, 0.0
            if now.terminal:
                return
        elif quiet_s >= EVENT_KEEPALIVE_S:
            yield ": still here\n\n"
            quiet_s = 0.0
        await asyncio.sleep(EVENT_INTERVAL_S)
        quiet_s += EVENT_INTERVAL_S
        now = await _look(database, access, caller, first.id)
    if now is None:
        yield f"event: deleted\ndata: {json.dumps({'id': str(first.id)})}\n\n"


async def _look(database: Database, access: Access, caller: Caller, document_id: UUID) -> schemas.DocumentAnswer | None:
    async with database.transaction(Reach.of(organizations=[caller.organization_id])) as session:
        try:
            _, document = await service.enter(session, caller, access, document_id)
        except DocumentNotFound:
            return None
        return schemas.document_answer(document)


def _deletion(receipt: DeletionReceipt) -> schemas.DeletionState:
    return schemas.DeletionState(
        state="open" if receipt.closed_at is None else "closed",
        stores=[
            schemas.StoreRemaining(vector_store_id=s["vector_store_id"], remaining=s["remaining"])
            for s in receipt.stores or []
        ],
    )


def _database(request: Request) -> Database:
    database: Database = request.app.state.database
    return database


def _storage(request: Request) -> BlobStore:
    storage: BlobStore = request.app.state.storage
    return storage
