"""Doors of the index: which plugins there are, what a Work would get and why, and its generations."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query, Request
from sqlalchemy import select

from app.db.engine import Database, Reach
from app.db.paging import after_key, paginate
from app.http.session import SessionDep
from app.http.shapes import Shape
from app.identity.dependencies import AccessDep, CallerDep, needs
from app.indexing import schemas
from app.indexing.choosing import Chooser
from app.indexing.going_live import find_active
from app.indexing.models import IndexGeneration
from app.plugins.manifest import VectorStoreManifest
from app.plugins.registry import Plugin, Registry
from app.plugins.selection import Selection
from app.vector_stores.contract import Availability

router = APIRouter(prefix="/v1")
LAST_NUMBER = 2**31 - 1


class PageQuery(Shape):
    """Place of a list."""

    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: Annotated[str, Query(max_length=2048)] | None = None


@router.get("/plugins", operation_id="list_plugins", tags=["plugins"], dependencies=[needs("read")])
async def list_plugins(request: Request) -> schemas.PluginList:
    """List the installed plugins with tenancy shape, limits and settings; the broken ones with the reason."""
    registry: Registry = request.app.state.registry
    chooser: Chooser = request.app.state.chooser
    items = [_plugin(plugin, await chooser.probes.of_environment(plugin)) for plugin in registry.plugins()]
    items += [_broken(name, reason) for name, reason in registry.broken_reasons().items()]
    return schemas.PluginList(items=items, next_cursor=None)


@router.get("/works/{work_id}/resolution", operation_id="explain_work", tags=["works"], dependencies=[needs("read")])
async def explain_work(
    request: Request, caller: CallerDep, access: AccessDep, work_id: UUID
) -> schemas.ResolutionAnswer:
    """Explain which store, provider, mode and model this Work gets: which rung decided, and why not the others."""
    database: Database = request.app.state.database
    chooser: Chooser = request.app.state.chooser
    async with database.transaction(Reach.of(organizations=[caller.organization_id])) as session:
        await access.enter_work(session, caller, work_id)
        active = await find_active(session, work_id)
    found = await chooser.explain(work_id, active)
    embedding = found.embedding
    return schemas.ResolutionAnswer(
        vector_store=_selection(found.store),
        embedding_provider=None if found.provider is None else _selection(found.provider),
        embedding_mode=None if embedding is None else embedding.mode,
        embedding_model=None if embedding is None else embedding.model,
        dims=None if embedding is None else embedding.dimensions,
        levels=[
            schemas.LevelAnswer(
                setting=look.setting, level=look.level, value=look.value, outcome=look.outcome, reason=look.reason
            )
            for look in (() if embedding is None else embedding.looked)
        ],
        problem=found.problem,
        active_generation_id=None if active is None else active.id,
    )


@router.get(
    "/works/{work_id}/generations", operation_id="list_generations", tags=["works"], dependencies=[needs("read")]
)
async def list_generations(
    session: SessionDep, caller: CallerDep, access: AccessDep, work_id: UUID, query: Annotated[PageQuery, Query()]
) -> schemas.GenerationList:
    """List the index generations of a Work, newest first."""
    await access.enter_work(session, caller, work_id)
    before = after_key(query.cursor, int, LAST_NUMBER)
    rows = await session.scalars(
        select(IndexGeneration)
        .where(IndexGeneration.work_id == work_id, IndexGeneration.number < before)
        .order_by(IndexGeneration.number.desc())
        .limit(query.limit + 1)
    )
    items, next_cursor = paginate(rows.all(), query.limit, lambda row: (row.number,))
    return schemas.GenerationList(items=[_generation(row) for row in items], next_cursor=next_cursor)


def _generation(row: IndexGeneration) -> schemas.GenerationAnswer:
    return schemas.GenerationAnswer(
        id=row.id,
        number=row.number,
        state=row.state,
        vector_store_id=row.vector_store_id,
        embedding_mode=row.embedding_mode,
        embedding_provider_id=row.embedding_provider_id,
        embedding_model=row.embedding_model,
        dims=row.dims,
        documents_done=row.documents_done,
        documents_total=row.documents_total,
        documents_refused=row.documents_refused,
        error=row.error,
        created_at=row.created_at,
        activated_at=row.activated_at,
    )


def _selection(found: Selection) -> schemas.SelectionAnswer:
    return schemas.SelectionAnswer(
        plugin_id=found.plugin_id,
        rung=found.rung,
        rungs=[
            schemas.RungAnswer(rung=r.rung, candidate=r.candidate, outcome=r.outcome, reason=r.reason)
            for r in found.rungs
        ],
    )


def _plugin(plugin: Plugin, answer: Availability) -> schemas.PluginAnswer:
    manifest = plugin.manifest
    abilities = (
        manifest.store.model_dump()
        if isinstance(manifest, VectorStoreManifest)
        else dict.fromkeys(manifest.capabilities, True)
    )
    return schemas.PluginAnswer(
        id=manifest.id,
        name=manifest.name,
        version=manifest.version,
        category=manifest.category,
        distribution=manifest.distribution,
        system_plugin=manifest.system_plugin,
        available=answer.ok,
        reason=answer.reason,
        capabilities=abilities,
        settings_schema=manifest.settings_model.model_json_schema(),
        extra=manifest.extra,
        tested_against=manifest.tested_against,
    )


def _broken(name: str, reason: str) -> schemas.PluginAnswer:
    return schemas.PluginAnswer(
        id=name,
        name=name,
        version="",
        category="",
        distribution="registry",
        system_plugin=False,
        available=False,
        reason=reason,
        capabilities={},
        settings_schema={},
        extra=None,
        tested_against="",
    )
