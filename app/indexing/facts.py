"""What the choice of an index depends on, apart from plugins."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import widen
from app.tenancy.models import Organization, Work


@dataclass(frozen=True)
class WorkFacts:
    """Settings of a Work and of its organization."""

    work_id: UUID
    organization_id: UUID
    work_settings: Mapping[str, Any]
    organization_settings: Mapping[str, Any]


async def work_facts(session: AsyncSession, work_id: UUID) -> WorkFacts:
    """Settings of a Work that the transaction has entered, and of its organization."""
    work = await session.get_one(Work, work_id)
    await widen(session, organizations=[work.organization_id])
    organization = await session.get(Organization, work.organization_id)
    return WorkFacts(
        work_id=work_id,
        organization_id=work.organization_id,
        work_settings=work.settings,
        organization_settings={} if organization is None else organization.settings,
    )
