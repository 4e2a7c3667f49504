"""Changing what a Work or an organization says: looked at, checked without a transaction, then stored in one.

The checks may ask the network (a name, a vendor's package), so no lock is held meanwhile: what was looked at is
compared again when it is stored, and a change in between means another round.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Database, Reach, widen
from app.identity.caller import Caller
from app.indexing.errors import ChangedMeanwhile, PluginInUse
from app.indexing.facts import Level, PluginSay, Standing, organization_standing, work_standing
from app.indexing.going_live import find_active
from app.indexing.models import Coordinates, IndexGeneration
from app.indexing.reconciling import mark_due
from app.plugins.instances import InstanceRung, Instances, Owner
from app.plugins.pins import OrganizationPlugin, WorkPlugin
from app.plugins.registry import Registry
from app.plugins.sealing import Sealer
from app.tenancy.administering import administer, administer_work
from app.tenancy.models import Organization, Work

ROUNDS = 3


@dataclass(frozen=True)
class Target:
    """Whose word is read or changed: a Work's, or an organization's."""

    id: UUID
    is_work: bool


@dataclass(frozen=True)
class View:
    """What is said, and the index that a Work has."""

    standing: Standing
    active: IndexGeneration | None = None

    @property
    def own(self) -> Level:
        """The level that this is about."""
        return self.standing.organization if self.standing.work_id is None else self.standing.work

    def with_own(self, level: Level) -> "View":
        """The same with another word."""
        if self.standing.work_id is None:
            return replace(self, standing=replace(self.standing, organization=level))
        return replace(self, standing=replace(self.standing, work=level))


Plan = Callable[[View], Awaitable[Level]]
Also = Callable[[AsyncSession], Awaitable[None]]


class Changer:
    """Reads and stores what is said."""

    def __init__(self, database: Database, registry: Registry, sealer: Sealer, instances: Instances) -> None:
        self._database = database
        self._registry = registry
        self._sealer = sealer
        self._instances = instances

    async def look(self, caller: Caller, target: Target) -> View:
        """Raises: WorkNotFound, OrganizationNotFound, Forbidden."""
        async with self._database.transaction(Reach.of(organizations=[caller.organization_id])) as session:
            return await _enter(session, caller, target)

    async def change(
        self,
        caller: Caller,
        target: Target,
        plan: Plan,
        *,
        forget: str | None = None,
        before: Also | None = None,
        also: Also | None = None,
    ) -> View:
        """Store what `plan` makes of the present word; answers the new one. The index is compared with it soon.

        `forget`: a plugin whose own instances go with it. `before` and `also`: what else happens in the transaction,
        before the Work's row is locked (who needs `W` takes it here, as go-live does) and after all is stored.
        Raises: as `look`, `plan` and `also`, ChangedMeanwhile, PluginInUse.
        """
        for _ in range(ROUNDS):
            seen = await self.look(caller, target)
            wanted = await plan(seen)
            async with self._database.transaction(Reach.of(organizations=[caller.organization_id])) as session:
                if before is not None:
                    await before(session)
                present = await _enter(session, caller, target, lock=True)
                if present.standing != seen.standing:
                    continue
                if forget is not None:
                    await self._forget(session, present.standing, forget)
                await self._store(session, present, wanted)
                if also is not None:
                    await also(session)
                standing = present.standing
                await mark_due(session, work_id=standing.work_id, organization_id=standing.organization_id)
                return present.with_own(wanted)
        raise ChangedMeanwhile()

    async def works_that_pin(self, organization_id: UUID, plugin_id: str) -> int:
        """How many Works of an organization pin a plugin."""
        async with self._database.transaction(Reach.of(organizations=[organization_id])) as session:
            works = await session.scalars(select(Work.id).where(Work.organization_id == organization_id))
            await widen(session, *works)
            pins = await session.scalars(
                select(WorkPlugin.work_id).where(WorkPlugin.plugin_id == plugin_id, WorkPlugin.pinned)
            )
            return len(pins.all())

    async def _store(self, session: AsyncSession, present: View, wanted: Level) -> None:
        standing, old = present.standing, present.own
        if wanted.settings != old.settings:
            row: Work | Organization
            if standing.work_id is None:
                row = await session.get_one(Organization, standing.organization_id)
            else:
                row = await session.get_one(Work, standing.work_id)
            row.settings = dict(wanted.settings)
            await session.flush()
        table, key = _table(standing)
        gone = [plugin_id for plugin_id in old.plugins if plugin_id not in wanted.plugins]
        own = [getattr(table, name) == value for name, value in key.items()]
        await session.execute(delete(table).where(*own, table.plugin_id.in_(gone)))
        changed = [say for plugin_id, say in wanted.plugins.items() if old.plugins.get(plugin_id) != say]
        for say in sorted(changed, key=lambda say: say.pinned):  # one pin per category, at every moment
            await self._store_say(session, standing, say)
            if say.sealed_settings is not None and say.sealed_settings != _sealed(old, say.plugin_id):
                await self._refresh(session, standing, say)

    async def _store_say(self, session: AsyncSession, standing: Standing, say: PluginSay) -> None:
        table, key = _table(standing)
        values = {
            "category": say.category,
            "enabled": say.enabled,
            "pinned": say.pinned,
            "sealed_settings": say.sealed_settings,
            "trusted": say.trusted,
            "updated_at": datetime.now(UTC),
        }
        put = insert(table).values(**key, plugin_id=say.plugin_id, **values)
        await session.execute(put.on_conflict_do_update(index_elements=[*key, "plugin_id"], set_=values))

    async def _refresh(self, session: AsyncSession, standing: Standing, say: PluginSay) -> None:
        """Instances in use get today's secrets at once."""
        plugin = self._registry.find(say.plugin_id)
        if plugin is not None and say.sealed_settings is not None:
            settings = self._sealer.open(say.sealed_settings, plugin.manifest.settings_model)
            await self._instances.refresh(session, plugin, settings, _owner(standing), trusted=say.trusted)

    async def _forget(self, session: AsyncSession, standing: Standing, plugin_id: str) -> None:
        """Remove the plugin's instances, unless an index uses one. Raises: PluginInUse."""
        ids = await self._instances.ids_of(session, plugin_id, _owner(standing))
        if not ids:
            return
        if standing.work_id is None:
            works = await session.scalars(select(Work.id).where(Work.organization_id == standing.organization_id))
            await widen(session, *works)
        named = (
            await session.execute(
                select(
                    IndexGeneration.number,
                    IndexGeneration.state,
                    IndexGeneration.store_instance_id,
                    IndexGeneration.provider_instance_id,
                ).where(IndexGeneration.store_instance_id.in_(ids) | IndexGeneration.provider_instance_id.in_(ids))
            )
        ).all()
        using = sorted({row.number for row in named if row.state != "removed"})
        held = await session.scalar(select(Coordinates.document_id).where(Coordinates.instance_id.in_(ids)).limit(1))
        if using or held is not None:
            raise PluginInUse(
                f"An index still uses these settings of '{plugin_id}'. Unpin it or pin another one; when the index"
                " that replaces it is active and the old one removed, the settings can go.",
                generations=using,
            )
        history = {one for row in named for one in (row.store_instance_id, row.provider_instance_id)}
        remembered = [one for one in ids if one in history]
        await self._instances.forget(session, [one for one in ids if one not in history], remembered)


async def _enter(session: AsyncSession, caller: Caller, target: Target, *, lock: bool = False) -> View:
    if target.is_work:
        await administer_work(session, caller, target.id)
        if lock:
            await session.execute(_locked(select(Work).where(Work.id == target.id)))
        standing = await work_standing(session, target.id)
        return View(standing, await find_active(session, target.id))
    await administer(session, caller, target.id)
    if lock:
        await session.execute(_locked(select(Organization).where(Organization.id == target.id)))
    return View(await organization_standing(session, target.id))


def _locked(query: Select[Any]) -> Select[Any]:
    """The row as it is once we have it to ourselves, not as it was read before."""
    return query.with_for_update().execution_options(populate_existing=True)


def _table(standing: Standing) -> tuple[type[WorkPlugin] | type[OrganizationPlugin], Mapping[str, Any]]:
    if standing.work_id is None:
        return OrganizationPlugin, {"organization_id": standing.organization_id}
    return WorkPlugin, {"work_id": standing.work_id}


def _owner(standing: Standing) -> Owner:
    rung: InstanceRung = "organization" if standing.work_id is None else "work"
    return Owner(rung, standing.organization_id, standing.work_id)


def _sealed(level: Level, plugin_id: str) -> bytes | None:
    say = level.plugins.get(plugin_id)
    return None if say is None else say.sealed_settings
