"""Plugin instances: a plugin with settings, recorded once per place, opened when first needed and kept open."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import ColumnElement, delete, select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.base import new_id
from app.db.engine import Database, Reach, widen
from app.errors import Misconfigured, Unavailable
from app.plugins.endpoints import ChecksEndpoints, EndpointGuard
from app.plugins.errors import SealedSettingsUnreadable
from app.plugins.fields import kinds
from app.plugins.pins import PluginInstance
from app.plugins.registry import Plugin, Registry
from app.plugins.sealing import Sealer, fingerprint, with_facts

InstanceRung = Literal["environment", "organization", "work"]
Build = Callable[[Plugin, BaseModel], Any]
LOOK_AGAIN_S = 5.0
CLOSE_AFTER_S = 120.0  # what was replaced may still be answering somebody
_ORGANIZATION = text("select organization_id from stackroom_organization_of(:work_id)")


class InstanceNotFound(Misconfigured):
    """The plugin instance that an index names does not exist any more."""

    code = "instance_not_found"


class EndpointsNotChecked(Misconfigured):
    """A tenant set this plugin's endpoint, and the plugin can't check where it connects; an operator may set it."""

    code = "endpoints_not_checked"


@dataclass(frozen=True)
class Owner:
    """Who chose the settings of an instance."""

    rung: InstanceRung
    organization_id: UUID | None = None
    work_id: UUID | None = None


@dataclass
class _Opened:
    """A plugin object, the row it was made of, and when that was last looked at."""

    built: Any
    rung: str
    state: tuple[bytes | None, bool]
    looked_at: float


class Instances:
    """Records instances and opens them. `environment`: plugin id → the settings that the operator gave it.

    `guard` looks at the endpoints of settings that no operator made; None = private ones are allowed to everybody.
    `look_again_s`: a tenant's rotated secret is in use after at most so long.
    """

    def __init__(
        self,
        database: Database,
        registry: Registry,
        sealer: Sealer,
        environment: Mapping[str, BaseModel],
        build: Build,
        guard: EndpointGuard | None = None,
        look_again_s: float = LOOK_AGAIN_S,
    ) -> None:
        self._database = database
        self._registry = registry
        self._sealer = sealer
        self._environment = environment
        self._build = build
        self.guard = guard
        self._look_again_s = look_again_s
        self._open: dict[UUID, _Opened] = {}
        self._replaced: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    def build(self, plugin: Plugin, settings: BaseModel, *, trusted: bool = True) -> Any:
        """A plugin object; `trusted` False = a tenant named its endpoints, so every connection is checked.

        Raises: MissingExtra, EndpointsNotChecked.
        """
        if trusted or self.guard is None or not kinds(type(settings)).endpoint:
            return self._build(plugin, settings)
        if not isinstance(plugin.cls, ChecksEndpoints):
            raise EndpointsNotChecked()
        return plugin.cls.build_guarded(settings, self.guard)

    async def ensure(
        self, session: AsyncSession, plugin: Plugin, settings: BaseModel, owner: Owner, *, trusted: bool = True
    ) -> UUID:
        """The instance of this plugin at this place with these facts for this owner."""
        values = {
            "plugin_id": plugin.manifest.id,
            "category": plugin.manifest.category,
            "rung": owner.rung,
            "organization_id": owner.organization_id,
            "work_id": owner.work_id,
            "fingerprint": fingerprint(plugin.manifest, settings, plugin=plugin.cls),
        }
        found = await self._find(session, values)
        if found is None:
            made = insert(PluginInstance).values(
                id=new_id(), **values, sealed_settings=self._sealer.seal(settings), trusted=trusted, public_settings={}
            )
            await session.execute(made.on_conflict_do_nothing())
            found = await self._find(session, values)
        if found is None:
            raise InstanceNotFound()
        if found.sealed_settings is None:  # its settings had been removed while nothing used them
            await self._seal_anew(session, found.id, settings, trusted)
        return found.id

    async def refresh(
        self, session: AsyncSession, plugin: Plugin, settings: BaseModel, owner: Owner, *, trusted: bool
    ) -> None:
        """Give the owner's instances at this place today's secrets; each keeps the facts it was made with."""
        place = self._place(plugin, settings)
        for row in await session.scalars(select(PluginInstance).where(*_owned(owner, plugin.manifest.id))):
            if row.sealed_settings is None:
                continue
            try:
                old = self._sealer.open(row.sealed_settings, plugin.manifest.settings_model)
            except SealedSettingsUnreadable:
                continue
            if self._place(plugin, old) == place:
                await self._seal_anew(session, row.id, with_facts(plugin.manifest, settings, old), trusted)

    async def ids_of(self, session: AsyncSession, plugin_id: str, owner: Owner) -> Sequence[UUID]:
        """The owner's instances of a plugin."""
        return (await session.scalars(select(PluginInstance.id).where(*_owned(owner, plugin_id)))).all()

    async def forget(self, session: AsyncSession, unused: Sequence[UUID], remembered: Sequence[UUID]) -> None:
        """Remove instances, and the settings of those that only the history of an index still names."""
        await session.execute(delete(PluginInstance).where(PluginInstance.id.in_(unused)))
        await session.execute(
            update(PluginInstance).where(PluginInstance.id.in_(remembered)).values(sealed_settings=None, trusted=False)
        )

    async def are_at_one_place(self, session: AsyncSession, plugin: Plugin, one: UUID, other: UUID) -> bool:
        """Whether two instances differ in their facts at most, so that the same model gives the same vectors."""
        rows = [await session.get(PluginInstance, instance_id) for instance_id in (one, other)]
        sealed = [row.sealed_settings for row in rows if row is not None and row.sealed_settings is not None]
        model = plugin.manifest.settings_model
        return len(sealed) == 2 and len({self._place(plugin, self._sealer.open(s, model)) for s in sealed}) == 1

    async def _find(self, session: AsyncSession, values: Mapping[str, Any]) -> PluginInstance | None:
        query = select(PluginInstance)
        for name, value in values.items():
            column = getattr(PluginInstance, name)
            query = query.where(column.is_(None) if value is None else column == value)
        return (await session.scalars(query)).one_or_none()

    async def _seal_anew(self, session: AsyncSession, instance_id: UUID, settings: BaseModel, trusted: bool) -> None:
        await session.execute(
            update(PluginInstance)
            .where(PluginInstance.id == instance_id, PluginInstance.rung != "environment")
            .values(sealed_settings=self._sealer.seal(settings), trusted=trusted)
        )

    async def open(self, work_id: UUID, instance_id: UUID) -> Any:
        """The plugin object of an instance. Raises: InstanceNotFound, UnknownPlugin, BrokenPlugin, MissingExtra."""
        known = self._open.get(instance_id)
        if known is not None and not self._is_due(known):
            return known.built
        async with self._opening:
            known = self._open.get(instance_id)
            if known is None:
                known = self._open[instance_id] = await self._make(work_id, instance_id)
            elif self._is_due(known):
                known = await self._look_again(work_id, instance_id, known)
            return known.built

    async def open_chosen_by_environment(self, plugin_id: str) -> list[Any]:
        """Open the instances of a plugin that the environment chose, whatever Works use them."""
        nobody = UUID(int=0)
        async with self._database.unscoped() as session:
            query = select(PluginInstance.id).where(
                PluginInstance.plugin_id == plugin_id, PluginInstance.rung == "environment"
            )
            ids = (await session.scalars(query)).all()
        return [await self.open(nobody, instance_id) for instance_id in ids]

    async def _make(self, work_id: UUID, instance_id: UUID) -> _Opened:
        row = await self._row(work_id, instance_id)
        if row is None:
            raise InstanceNotFound()
        plugin = self._registry.get(row.plugin_id)
        trusted = row.trusted or row.rung == "environment"
        built = self.build(plugin, self._settings(row, plugin), trusted=trusted)
        return _Opened(built, row.rung, (row.sealed_settings, row.trusted), time.monotonic())

    async def _look_again(self, work_id: UUID, instance_id: UUID, known: _Opened) -> _Opened:
        """What is open, or a new one where the settings have been sealed anew. Without an answer all stays as it is."""
        known.looked_at = time.monotonic()
        try:
            row = await self._row(work_id, instance_id)
        except Unavailable:
            return known
        if row is not None and (row.sealed_settings, row.trusted) == known.state:
            return known
        made = self._open[instance_id] = await self._make(work_id, instance_id)
        closing = asyncio.create_task(_close_later(known.built))
        self._replaced.add(closing)
        closing.add_done_callback(self._replaced.discard)
        return made

    async def _row(self, work_id: UUID, instance_id: UUID) -> PluginInstance | None:
        async with self._database.transaction(Reach.of(work_id)) as session:
            organization_id = await session.scalar(_ORGANIZATION, {"work_id": work_id})
            if organization_id is not None:
                await widen(session, organizations=[organization_id])
            return await session.get(PluginInstance, instance_id)

    def _settings(self, row: PluginInstance, plugin: Plugin) -> BaseModel:
        """The environment's settings of today where they still name this place, with this instance's facts.

        Else, and for a tenant's instance, the sealed ones.
        """
        present = self._environment.get(row.plugin_id) if row.rung == "environment" else None
        if present is not None and fingerprint(plugin.manifest, present, plugin=plugin.cls) == row.fingerprint:
            return present
        if row.sealed_settings is None:
            raise InstanceNotFound()
        sealed = self._sealer.open(row.sealed_settings, plugin.manifest.settings_model)
        if present is not None and self._place(plugin, present) == self._place(plugin, sealed):
            return with_facts(plugin.manifest, present, sealed)
        return sealed

    def _place(self, plugin: Plugin, settings: BaseModel) -> str:
        return fingerprint(plugin.manifest, settings, plugin=plugin.cls, place_only=True)

    def _is_due(self, opened: _Opened) -> bool:
        return opened.rung != "environment" and time.monotonic() - opened.looked_at >= self._look_again_s

    async def close(self) -> None:
        """Close everything that was opened."""
        replaced = list(self._replaced)
        for task in replaced:
            task.cancel()
        await asyncio.gather(*replaced, return_exceptions=True)
        for opened in list(self._open.values()):
            await opened.built.close()
        self._open.clear()


async def _close_later(built: Any) -> None:
    try:
        await asyncio.sleep(CLOSE_AFTER_S)
    finally:
        await built.close()


def _owned(owner: Owner, plugin_id: str) -> list[ColumnElement[bool]]:
    return [
        PluginInstance.plugin_id == plugin_id,
        PluginInstance.rung == owner.rung,
        PluginInstance.organization_id == owner.organization_id,
        PluginInstance.work_id.is_(None) if owner.work_id is None else PluginInstance.work_id == owner.work_id,
    ]
