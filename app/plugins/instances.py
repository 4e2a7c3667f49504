"""Plugin instances: a plugin with settings, recorded once per place, opened when first needed and kept open."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.base import new_id
from app.db.engine import Database, Reach, widen
from app.errors import Misconfigured
from app.plugins.pins import PluginInstance
from app.plugins.registry import Plugin, Registry
from app.plugins.sealing import Sealer, fingerprint

InstanceRung = Literal["environment", "organization", "work"]
Build = Callable[[Plugin, BaseModel], Any]
_ORGANIZATION = text("select organization_id from stackroom_organization_of(:work_id)")


class InstanceNotFound(Misconfigured):
    """The plugin instance that an index names does not exist any more."""

    code = "instance_not_found"


@dataclass(frozen=True)
class Owner:
    """Who chose the settings of an instance."""

    rung: InstanceRung
    organization_id: UUID | None = None
    work_id: UUID | None = None


class Instances:
    """Records instances and opens them. `environment`: plugin id → the settings that the operator gave it."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        sealer: Sealer,
        environment: Mapping[str, BaseModel],
        build: Build,
    ) -> None:
        self._database = database
        self._registry = registry
        self._sealer = sealer
        self._environment = environment
        self.build = build
        self._open: dict[UUID, Any] = {}
        self._opening = asyncio.Lock()

    async def ensure(self, session: AsyncSession, plugin: Plugin, settings: BaseModel, owner: Owner) -> UUID:
        """The instance of this plugin at this place for this owner; a rotated secret is sealed anew in place."""
        where = fingerprint(plugin.manifest, settings, plugin=plugin.cls)
        values = {
            "plugin_id": plugin.manifest.id,
            "category": plugin.manifest.category,
            "rung": owner.rung,
            "organization_id": owner.organization_id,
            "work_id": owner.work_id,
            "fingerprint": where,
        }
        found = await self._find(session, values)
        if found is not None:
            return found
        made = insert(PluginInstance).values(
            id=new_id(), **values, sealed_settings=self._sealer.seal(settings), public_settings={}
        )
        await session.execute(made.on_conflict_do_nothing())
        found = await self._find(session, values)
        if found is None:
            raise InstanceNotFound()
        return found

    async def _find(self, session: AsyncSession, values: Mapping[str, Any]) -> UUID | None:
        query = select(PluginInstance.id)
        for name, value in values.items():
            column = getattr(PluginInstance, name)
            query = query.where(column.is_(None) if value is None else column == value)
        return (await session.scalars(query)).one_or_none()

    async def open(self, work_id: UUID, instance_id: UUID) -> Any:
        """The plugin object of an instance. Raises: InstanceNotFound, UnknownPlugin, BrokenPlugin, MissingExtra."""
        known = self._open.get(instance_id)
        if known is not None:
            return known
        async with self._opening:
            if instance_id not in self._open:
                self._open[instance_id] = await self._make(work_id, instance_id)
            return self._open[instance_id]

    async def open_chosen_by_environment(self, plugin_id: str) -> list[Any]:
        """Open the instances of a plugin that the environment chose, whatever Works use them."""
        nobody = UUID(int=0)
        async with self._database.unscoped() as session:
            query = select(PluginInstance.id).where(
                PluginInstance.plugin_id == plugin_id, PluginInstance.rung == "environment"
            )
            ids = (await session.scalars(query)).all()
        return [await self.open(nobody, instance_id) for instance_id in ids]

    async def _make(self, work_id: UUID, instance_id: UUID) -> Any:
        async with self._database.transaction(Reach.of(work_id)) as session:
            organization_id = await session.scalar(_ORGANIZATION, {"work_id": work_id})
            if organization_id is not None:
                await widen(session, organizations=[organization_id])
            row = await session.get(PluginInstance, instance_id)
        if row is None:
            raise InstanceNotFound()
        plugin = self._registry.get(row.plugin_id)
        return self.build(plugin, self._settings(row, plugin))

    def _settings(self, row: PluginInstance, plugin: Plugin) -> BaseModel:
        """Today's settings where they still name this place (secrets may have been rotated), else the sealed ones."""
        present = self._environment.get(row.plugin_id)
        here = present is not None and fingerprint(plugin.manifest, present, plugin=plugin.cls) == row.fingerprint
        if row.rung == "environment" and present is not None and here:
            return present
        if row.sealed_settings is None:
            raise InstanceNotFound()
        return self._sealer.open(row.sealed_settings, plugin.manifest.settings_model)

    async def close(self) -> None:
        """Close everything that was opened."""
        for opened in list(self._open.values()):
            await opened.close()
        self._open.clear()
