"""What the choice of an index depends on: what a Work and its organization say of settings and plugins."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Transaction, widen
from app.plugins.pins import OrganizationPlugin, WorkPlugin
from app.tenancy.models import Organization

_WORK: LiteralString = "select organization_id, settings from works where id = %(work)b"
_ORGANIZATION: LiteralString = "select settings from organizations where id = %(organization)b"


@dataclass(frozen=True)
class WorkFacts:
    """Settings of a Work and of its organization."""

    work_id: UUID
    organization_id: UUID
    work_settings: Mapping[str, Any]
    organization_settings: Mapping[str, Any]


@dataclass(frozen=True)
class PluginSay:
    """What a Work or an organization says of a plugin. `trusted` = an operator set its endpoints and paths."""

    plugin_id: str
    category: str
    enabled: bool = True
    pinned: bool = False
    sealed_settings: bytes | None = None
    trusted: bool = False


@dataclass(frozen=True)
class Level:
    """What one of them says: its settings, and its word on plugins by their id."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    plugins: Mapping[str, PluginSay] = field(default_factory=dict)

    def pin(self, category: str) -> str | None:
        """The plugin that is pinned here."""
        return next((say.plugin_id for say in self.plugins.values() if say.pinned and say.category == category), None)


@dataclass(frozen=True)
class Standing:
    """Both levels of a Work; of an organization by itself `work_id` is None and the Work's level is empty."""

    organization_id: UUID
    work_id: UUID | None
    organization: Level
    work: Level = Level()


async def work_facts(session: Transaction, work_id: UUID) -> WorkFacts:
    """Settings of a Work that the transaction has entered, and of its organization."""
    async with driver_cursor(session) as cursor:
        await cursor.execute(_WORK, {"work": work_id})
        work = await cursor.fetchone()
        if work is None:
            raise LookupError("the transaction has not entered this Work")
        await widen(session, organizations=[work[0]])
        await cursor.execute(_ORGANIZATION, {"organization": work[0]})
        organization = await cursor.fetchone()
    return WorkFacts(
        work_id=work_id,
        organization_id=work[0],
        work_settings=work[1],
        organization_settings={} if organization is None else organization[0],
    )


async def work_standing(session: AsyncSession, work_id: UUID) -> Standing:
    """Everything that is said for a Work that the transaction has entered."""
    facts = await work_facts(session, work_id)
    rows = await session.scalars(select(WorkPlugin).where(WorkPlugin.work_id == work_id))
    work = Level(facts.work_settings, {row.plugin_id: _say(row) for row in rows})
    above = Level(facts.organization_settings, await _organization_plugins(session, facts.organization_id))
    return Standing(facts.organization_id, work_id, above, work)


async def organization_standing(session: AsyncSession, organization_id: UUID) -> Standing:
    """Everything that an organization within the transaction's reach says."""
    organization = await session.get_one(Organization, organization_id)
    plugins = await _organization_plugins(session, organization_id)
    return Standing(organization_id, None, Level(organization.settings, plugins))


async def _organization_plugins(session: AsyncSession, organization_id: UUID) -> dict[str, PluginSay]:
    rows = await session.scalars(
        select(OrganizationPlugin).where(OrganizationPlugin.organization_id == organization_id)
    )
    return {row.plugin_id: _say(row) for row in rows}


def _say(row: WorkPlugin | OrganizationPlugin) -> PluginSay:
    return PluginSay(row.plugin_id, row.category, row.enabled, row.pinned, row.sealed_settings, row.trusted)
