"""Who may look at a Work, and who may change one or an organization: its administrators, and operators."""

from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import widen
from app.errors import Forbidden
from app.identity.caller import Caller
from app.tenancy.errors import OrganizationNotFound, WorkNotFound
from app.tenancy.models import Organization, Work

_LOCATE = text("select work_id, organization_id, deleting from stackroom_locate('work', :id)")


def is_administrator(caller: Caller) -> bool:
    """Whether the caller administers their own organization."""
    return caller.has("operator") or (caller.has("admin") and caller.role in ("owner", "admin"))


async def administer(session: AsyncSession, caller: Caller, organization_id: UUID) -> Organization:
    """Only an operator reaches another organization; only its administrators change their own.

    Raises: OrganizationNotFound, Forbidden.
    """
    if organization_id != caller.organization_id:
        if not caller.has("operator"):
            raise OrganizationNotFound()
        await widen(session, organizations=[organization_id])
    found = await session.get(Organization, organization_id)
    if found is None:
        raise OrganizationNotFound()
    if not is_administrator(caller):
        raise Forbidden("Only an administrator of the organization may do that.")
    if caller.key_work_id is not None:
        raise Forbidden("A key bound to a Work can't change the organization.")
    return found


async def view_work(session: AsyncSession, caller: Caller, work_id: UUID) -> Work:
    """A Work of the caller's organization; for an operator any. The transaction then sees its rows.

    Raises: WorkNotFound for a foreign, deleted or unknown Work alike.
    """
    row = (await session.execute(_LOCATE, {"id": work_id})).one_or_none()
    if row is None or row.deleting or caller.key_work_id not in (None, work_id):
        raise WorkNotFound()
    if row.organization_id != caller.organization_id and not caller.has("operator"):
        raise WorkNotFound()
    await widen(session, work_id, organizations=[row.organization_id])
    return await session.get_one(Work, work_id)


async def administer_work(session: AsyncSession, caller: Caller, work_id: UUID) -> Work:
    """The same for whoever wants to change it. Raises: WorkNotFound, Forbidden."""
    found = await view_work(session, caller, work_id)
    if not is_administrator(caller):
        raise Forbidden("Only an administrator of the organization may do that.")
    return found
