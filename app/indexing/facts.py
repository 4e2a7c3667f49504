"""What the choice of an index depends on, apart from plugins."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, LiteralString
from uuid import UUID

from app.db.driver import driver_cursor
from app.db.engine import Transaction, widen

_WORK: LiteralString = "select organization_id, settings from works where id = %(work)b"
_ORGANIZATION: LiteralString = "select settings from organizations where id = %(organization)b"


@dataclass(frozen=True)
class WorkFacts:
    """Settings of a Work and of its organization."""

    work_id: UUID
    organization_id: UUID
    work_settings: Mapping[str, Any]
    organization_settings: Mapping[str, Any]


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
