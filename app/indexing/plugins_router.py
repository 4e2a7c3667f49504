"""Doors of single plugins: what a Work or an organization says of them, and trying settings out."""

from uuid import UUID

from fastapi import APIRouter, Request

from app.http.openapi import problems
from app.identity.dependencies import CallerDep, needs
from app.indexing import schemas
from app.indexing.changing import Target
from app.indexing.pinning import KEPT, Entry, Pinning, Wanted

router = APIRouter(prefix="/v1")


@router.post(
    "/plugins/{plugin_id}/check",
    operation_id="check_plugin",
    responses=problems(409),
    tags=["plugins"],
    dependencies=[needs("admin")],
)
async def check_plugin(
    request: Request, caller: CallerDep, plugin_id: schemas.PluginId, body: schemas.PluginCheck
) -> schemas.PluginCheckAnswer:
    """Try settings of a plugin: it is asked once, nothing is stored."""
    answer = await _pinning(request).check(caller, plugin_id, body.settings)
    return schemas.PluginCheckAnswer(available=answer.ok, reason=answer.reason, facts=dict(answer.facts))


@router.get("/works/{work_id}/plugins", operation_id="list_work_plugins", tags=["works"], dependencies=[needs("admin")])
async def list_work_plugins(request: Request, caller: CallerDep, work_id: UUID) -> schemas.PluginEntryList:
    """List the plugins with what this Work says of them."""
    return await _list(request, caller, Target(work_id, is_work=True))


@router.get(
    "/works/{work_id}/plugins/{plugin_id}",
    operation_id="get_work_plugin",
    tags=["works"],
    dependencies=[needs("admin")],
)
async def get_work_plugin(
    request: Request, caller: CallerDep, work_id: UUID, plugin_id: schemas.PluginId
) -> schemas.PluginEntry:
    """What this Work says of a plugin."""
    return _entry(await _pinning(request).get_entry(caller, Target(work_id, is_work=True), plugin_id))


@router.put(
    "/works/{work_id}/plugins/{plugin_id}",
    operation_id="set_work_plugin",
    responses=problems(409),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def set_work_plugin(
    request: Request, caller: CallerDep, work_id: UUID, plugin_id: schemas.PluginId, body: schemas.PluginPut
) -> schemas.PluginEntry:
    """Enable, pin or configure a plugin for this Work; pinning moves the pin of its category."""
    return await _put(request, caller, Target(work_id, is_work=True), plugin_id, body)


@router.delete(
    "/works/{work_id}/plugins/{plugin_id}",
    operation_id="forget_work_plugin",
    status_code=204,
    responses=problems(409),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def forget_work_plugin(request: Request, caller: CallerDep, work_id: UUID, plugin_id: schemas.PluginId) -> None:
    """Say nothing of a plugin any more and remove its settings, unless an index of this Work uses them."""
    await _pinning(request).remove(caller, Target(work_id, is_work=True), plugin_id)


@router.get(
    "/organizations/{organization_id}/plugins",
    operation_id="list_organization_plugins",
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def list_organization_plugins(
    request: Request, caller: CallerDep, organization_id: UUID
) -> schemas.PluginEntryList:
    """List the plugins with what this organization says of them."""
    return await _list(request, caller, Target(organization_id, is_work=False))


@router.get(
    "/organizations/{organization_id}/plugins/{plugin_id}",
    operation_id="get_organization_plugin",
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def get_organization_plugin(
    request: Request, caller: CallerDep, organization_id: UUID, plugin_id: schemas.PluginId
) -> schemas.PluginEntry:
    """What this organization says of a plugin."""
    return _entry(await _pinning(request).get_entry(caller, Target(organization_id, is_work=False), plugin_id))


@router.put(
    "/organizations/{organization_id}/plugins/{plugin_id}",
    operation_id="set_organization_plugin",
    responses=problems(409),
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def set_organization_plugin(
    request: Request, caller: CallerDep, organization_id: UUID, plugin_id: schemas.PluginId, body: schemas.PluginPut
) -> schemas.PluginEntry:
    """Enable, pin or configure a plugin for every Work of this organization that says nothing else."""
    return await _put(request, caller, Target(organization_id, is_work=False), plugin_id, body)


@router.delete(
    "/organizations/{organization_id}/plugins/{plugin_id}",
    operation_id="forget_organization_plugin",
    status_code=204,
    responses=problems(409),
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def forget_organization_plugin(
    request: Request, caller: CallerDep, organization_id: UUID, plugin_id: schemas.PluginId
) -> None:
    """Say nothing of a plugin any more and remove its settings, unless an index of some Work uses them."""
    await _pinning(request).remove(caller, Target(organization_id, is_work=False), plugin_id)


async def _list(request: Request, caller: CallerDep, target: Target) -> schemas.PluginEntryList:
    entries = await _pinning(request).list_entries(caller, target)
    return schemas.PluginEntryList(items=[_entry(entry) for entry in entries], next_cursor=None)


async def _put(
    request: Request, caller: CallerDep, target: Target, plugin_id: str, body: schemas.PluginPut
) -> schemas.PluginEntry:
    settings = body.settings if "settings" in body.model_fields_set else KEPT
    return _entry(await _pinning(request).put(caller, target, plugin_id, Wanted(body.enabled, body.pinned, settings)))


def _pinning(request: Request) -> Pinning:
    pinning: Pinning = request.app.state.pinning
    return pinning


def _entry(found: Entry) -> schemas.PluginEntry:
    return schemas.PluginEntry(
        plugin_id=found.plugin_id,
        name=found.name,
        category=found.category,
        enabled=found.enabled,
        pinned=found.pinned,
        disabled_by=found.disabled_by,
        settings=found.settings,
        secrets_set=found.secrets_set,
    )
