"""Doors of the settings of Works and organizations."""

from collections.abc import Mapping
from uuid import UUID

from fastapi import APIRouter, Request

from app.http.openapi import problems
from app.identity.dependencies import CallerDep, needs
from app.indexing import schemas
from app.indexing.changing import Target
from app.indexing.tenant_settings import TenantSettings, Value

router = APIRouter(prefix="/v1")


@router.get(
    "/works/{work_id}/settings", operation_id="get_work_settings", tags=["works"], dependencies=[needs("admin")]
)
async def get_work_settings(request: Request, caller: CallerDep, work_id: UUID) -> schemas.SettingsAnswer:
    """Show the settings of a Work: what holds, and which rung says so."""
    return _answer(await _settings(request).get(caller, Target(work_id, is_work=True)))


@router.patch(
    "/works/{work_id}/settings",
    operation_id="change_work_settings",
    responses=problems(409),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def change_work_settings(
    request: Request, caller: CallerDep, work_id: UUID, body: schemas.SettingsPatch
) -> schemas.SettingsAnswer:
    """Change the settings of a Work (JSON Merge Patch). The two ids are its pins of a store and a provider."""
    patch = body.model_dump(exclude_unset=True)
    return _answer(await _settings(request).change(caller, Target(work_id, is_work=True), patch))


@router.get(
    "/organizations/{organization_id}/settings",
    operation_id="get_organization_settings",
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def get_organization_settings(
    request: Request, caller: CallerDep, organization_id: UUID
) -> schemas.SettingsAnswer:
    """Show the settings of an organization: what holds for a Work that says nothing, and which rung says so."""
    return _answer(await _settings(request).get(caller, Target(organization_id, is_work=False)))


@router.patch(
    "/organizations/{organization_id}/settings",
    operation_id="change_organization_settings",
    responses=problems(409),
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def change_organization_settings(
    request: Request, caller: CallerDep, organization_id: UUID, body: schemas.SettingsPatch
) -> schemas.SettingsAnswer:
    """Change the settings of an organization (JSON Merge Patch)."""
    patch = body.model_dump(exclude_unset=True)
    return _answer(await _settings(request).change(caller, Target(organization_id, is_work=False), patch))


def _settings(request: Request) -> TenantSettings:
    settings: TenantSettings = request.app.state.tenant_settings
    return settings


def _answer(values: Mapping[str, Value]) -> schemas.SettingsAnswer:
    return schemas.SettingsAnswer.model_validate(
        {name: {"value": value.value, "rung": value.rung, "own": value.own} for name, value in values.items()}
    )
