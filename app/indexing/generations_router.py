"""Doors of index generations: list, build, follow, activate, cancel, go back; and what happened."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import select

from app.activity.entries import NEWEST, list_entries
from app.db.paging import after_key, paginate
from app.errors import NotFound
from app.http.openapi import problems
from app.http.session import SessionDep
from app.http.shapes import Shape
from app.identity.caller import Caller
from app.identity.dependencies import AccessDep, CallerDep, needs
from app.indexing import schemas
from app.indexing.commanding import GenerationCommands
from app.indexing.models import IndexGeneration
from app.indexing.remaining import count_documents
from app.tenancy.administering import view_work

router = APIRouter(prefix="/v1")
LAST_NUMBER = 2**31 - 1
EVENT_INTERVAL_S = 1.0
KEEPALIVE_S = 15.0
SAMPLES = 30  # a rate is that of the last half minute
_AS_USUAL, _NOTHING_MISSING = schemas.GenerationBuild(), schemas.GenerationActivate()  # without a body
ENDED = ("active", "retired", "removing", "removed", "failed", "cancelled")
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": (
            "A stream of events: `generation` with a GenerationAnswer and two more numbers as its data, until it is no"
            " longer being built: `documents_per_s` over the last half minute and `seconds_left` (null while there is"
            " no rate). A comment every 15 seconds while nothing changes."
        ),
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}


class PageQuery(Shape):
    """Place of a list."""

    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: Annotated[str, Query(max_length=2048)] | None = None


class ActivityQuery(PageQuery):
    """Which Work, and the place of the list. Without `work_id`: the caller's default Work."""

    work_id: UUID | None = None


@router.get(
    "/works/{work_id}/generations", operation_id="list_generations", tags=["works"], dependencies=[needs("read")]
)
async def list_generations(
    session: SessionDep, caller: CallerDep, work_id: UUID, query: Annotated[PageQuery, Query()]
) -> schemas.GenerationList:
    """List the index generations of a Work, newest first."""
    await view_work(session, caller, work_id)
    before = after_key(query.cursor, int, LAST_NUMBER)
    rows = await session.scalars(
        select(IndexGeneration)
        .where(IndexGeneration.work_id == work_id, IndexGeneration.number < before)
        .order_by(IndexGeneration.number.desc())
        .limit(query.limit + 1)
    )
    items, next_cursor = paginate(rows.all(), query.limit, lambda row: (row.number,))
    live = await count_documents(session, work_id)
    return schemas.GenerationList(items=[_generation(row, live) for row in items], next_cursor=next_cursor)


@router.post(
    "/works/{work_id}/generations",
    operation_id="build_generation",
    status_code=202,
    responses=problems(409, 503),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def build_generation(
    request: Request,
    response: Response,
    caller: CallerDep,
    work_id: UUID,
    body: schemas.GenerationBuild = _AS_USUAL,
) -> schemas.GenerationAnswer:
    """Build the index that the settings want, beside the active one; it is switched to when it is complete."""
    made = await _commands(request).build(caller, work_id, forced=body.force)
    response.headers["Location"] = f"/v1/works/{work_id}/generations/{made.id}"
    return _generation(made)


@router.get(
    "/works/{work_id}/generations/{generation_id}",
    operation_id="get_generation",
    tags=["works"],
    dependencies=[needs("read")],
)
async def get_generation(
    request: Request, caller: CallerDep, work_id: UUID, generation_id: UUID
) -> schemas.GenerationAnswer:
    """Show one index generation."""
    commands = _commands(request)
    found = await commands.get(caller, work_id, generation_id)
    return _generation(found, await commands.count_live(work_id) if found.state == "active" else None)


@router.get(
    "/works/{work_id}/generations/{generation_id}/refused",
    operation_id="list_refused_documents",
    tags=["works"],
    dependencies=[needs("admin")],
)
async def list_refused_documents(
    request: Request, caller: CallerDep, work_id: UUID, generation_id: UUID, query: Annotated[PageQuery, Query()]
) -> schemas.RefusalList:
    """List the documents that this generation's provider or store refuses."""
    after = after_key(query.cursor, UUID, UUID(int=0))
    rows = await _commands(request).refusals(caller, work_id, generation_id, after=after, limit=query.limit + 1)
    items, next_cursor = paginate(rows, query.limit, lambda row: (row.document_id,))
    answers = [
        schemas.RefusalAnswer(document_id=row.document_id, code=row.code, message=row.message, accepted=row.accepted)
        for row in items
    ]
    return schemas.RefusalList(items=answers, next_cursor=next_cursor)


@router.get(
    "/works/{work_id}/generations/{generation_id}/events",
    operation_id="watch_generation",
    responses=_EVENTS,
    tags=["works"],
    dependencies=[needs("read")],
    response_class=StreamingResponse,
)
async def watch_generation(
    request: Request, caller: CallerDep, work_id: UUID, generation_id: UUID
) -> StreamingResponse:
    """Server-sent events: the generation with rate and estimate, until it is no longer being built."""
    first = await _commands(request).get(caller, work_id, generation_id)
    return StreamingResponse(_events(request, caller, first), media_type="text/event-stream")


@router.post(
    "/works/{work_id}/generations/{generation_id}/activate",
    operation_id="activate_generation",
    status_code=202,
    responses=problems(409),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def activate_generation(
    request: Request,
    caller: CallerDep,
    work_id: UUID,
    generation_id: UUID,
    body: schemas.GenerationActivate = _NOTHING_MISSING,
) -> schemas.GenerationAnswer:
    """Switch to a generation that lacks nothing but refused documents, which `allow_missing` accepts."""
    commands = _commands(request)
    return _generation(await commands.activate(caller, work_id, generation_id, allow_missing=body.allow_missing))


@router.post(
    "/works/{work_id}/generations/{generation_id}/cancel",
    operation_id="cancel_generation",
    status_code=202,
    responses=problems(409),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def cancel_generation(
    request: Request, caller: CallerDep, work_id: UUID, generation_id: UUID
) -> schemas.GenerationAnswer:
    """Stop building a generation; the active one stays as it is."""
    return _generation(await _commands(request).cancel(caller, work_id, generation_id))


@router.post(
    "/works/{work_id}/generations/{generation_id}/rollback",
    operation_id="roll_back_to_generation",
    status_code=202,
    responses=problems(409),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def roll_back_to_generation(
    request: Request, caller: CallerDep, work_id: UUID, generation_id: UUID
) -> schemas.GenerationAnswer:
    """Go back to a retired generation, and pin the store, provider and model that it was made with."""
    return _generation(await _commands(request).roll_back(caller, work_id, generation_id))


@router.get("/activity", operation_id="list_activity", tags=["works"], dependencies=[needs("read")])
async def list_activity(
    session: SessionDep, caller: CallerDep, access: AccessDep, query: Annotated[ActivityQuery, Query()]
) -> schemas.ActivityList:
    """List what happened to a Work, newest first."""
    work_id = query.work_id
    if work_id is None:
        work_id = (await access.enter_default_work(session, caller)).work_id
    else:
        await view_work(session, caller, work_id)
    before = after_key(query.cursor, UUID, NEWEST)
    rows = await list_entries(session, work_id, before=before, limit=query.limit + 1)
    items, next_cursor = paginate(rows, query.limit, lambda row: (row.id,))
    answers = [
        schemas.ActivityAnswer(
            id=row.id, work_id=row.work_id, kind=row.kind, facts=row.facts, created_at=row.created_at
        )
        for row in items
    ]
    return schemas.ActivityList(items=answers, next_cursor=next_cursor)


async def _events(request: Request, caller: Caller, now: IndexGeneration) -> AsyncIterator[str]:
    commands, loop = _commands(request), asyncio.get_running_loop()
    samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES)
    last, quiet_s = "", 0.0
    while not await request.is_disconnected():
        samples.append((loop.time(), now.documents_done))
        said = _progress(now, samples).model_dump_json()
        if said != last:
            yield f"event: generation\ndata: {said}\n\n"
            last, quiet_s = said, 0.0
        elif quiet_s >= KEEPALIVE_S:
            yield ": still here\n\n"
            quiet_s = 0.0
        if now.state in ENDED:
            return
        await asyncio.sleep(EVENT_INTERVAL_S)
        quiet_s += EVENT_INTERVAL_S
        try:
            now = await commands.get(caller, now.work_id, now.id)
        except NotFound:  # the Work is being deleted, or the caller may see it no longer
            return


def _progress(row: IndexGeneration, samples: deque[tuple[float, int]]) -> schemas.GenerationProgress:
    (began, had), (ended, has) = samples[0], samples[-1]
    rate = (has - had) / (ended - began) if row.state == "building" and ended > began and has > had else None
    left = max(0, row.documents_total - row.documents_refused - row.documents_done)
    return schemas.GenerationProgress(
        **_generation(row).model_dump(),
        documents_per_s=None if rate is None else round(rate, 2),
        seconds_left=None if rate is None else round(left / rate, 1),
    )


def _commands(request: Request) -> GenerationCommands:
    commands: GenerationCommands = request.app.state.generation_commands
    return commands


def _generation(row: IndexGeneration, live: int | None = None) -> schemas.GenerationAnswer:
    """`live` = how many documents the Work has: the counters of a row are those of its sweep, an active one goes on."""
    total = row.documents_total if live is None or row.state != "active" else live
    done = row.documents_done if live is None or row.state != "active" else max(0, live - row.documents_refused)
    return schemas.GenerationAnswer(
        id=row.id,
        number=row.number,
        state=row.state,
        vector_store_id=row.vector_store_id,
        embedding_mode=row.embedding_mode,
        embedding_provider_id=row.embedding_provider_id,
        embedding_model=row.embedding_model,
        dims=row.dims,
        documents_done=done,
        documents_total=total,
        documents_refused=row.documents_refused,
        error=row.error,
        created_at=row.created_at,
        activated_at=row.activated_at,
    )
