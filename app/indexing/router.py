"""Doors of the index: which plugins there are, and what a Work would get and why."""

from uuid import UUID

from fastapi import APIRouter, Request

from app.db.engine import Database, Reach
from app.identity.dependencies import AccessDep, CallerDep, needs
from app.indexing import schemas
from app.indexing.choosing import Chooser
from app.indexing.going_live import find_active
from app.plugins.manifest import VectorStoreManifest
from app.plugins.registry import Plugin, Registry
from app.plugins.selection import Selection
from app.vector_stores.contract import Availability

router = APIRouter(prefix="/v1")


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
