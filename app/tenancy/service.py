"""Use cases of the tenants: organizations, users, Works and API keys."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.base import new_id
from app.db.engine import widen
from app.errors import Conflict, FieldFault, Forbidden, Invalid
from app.identity.caller import Caller, Scope
from app.tenancy.administering import administer, administer_work, is_administrator
from app.tenancy.errors import ApiKeyNotFound, OrganizationNotFound, UserNotFound, WorkNotFound
from app.tenancy.keys import hash_key, new_key, visible_prefix
from app.tenancy.models import ApiKey, Organization, OrganizationMember, User, Work


class SubjectTaken(Conflict):
    """This organization already has a user with that subject."""

    code = "subject_taken"


@dataclass(frozen=True)
class NewKey:
    """What a new API key may do and for whom."""

    name: str
    organization_id: UUID | None
    user_id: UUID | None
    work_id: UUID | None
    scopes: Sequence[str]
    expires_at: datetime | None


async def create_organization(session: AsyncSession, caller: Caller, *, name: str) -> Organization:
    """A new organization; operators only. Raises: Forbidden."""
    caller.require("operator")
    organization = Organization(id=new_id(), name=name, settings={}, created_at=datetime.now(UTC))
    await widen(session, organizations=[organization.id])
    session.add(organization)
    await session.flush()
    return organization


async def create_user(
    session: AsyncSession, caller: Caller, *, organization_id: UUID, subject: str, name: str, role: str
) -> User:
    """A new user with a role. Raises: OrganizationNotFound, SubjectTaken, Forbidden."""
    await administer(session, caller, organization_id)
    if role == "owner" and not (caller.has("operator") or caller.role == "owner"):
        raise Forbidden("Only an owner makes another owner.")
    user = User(id=new_id(), organization_id=organization_id, subject=subject, name=name, created_at=datetime.now(UTC))
    session.add(user)
    try:
        async with session.begin_nested():
            await session.flush()
    except IntegrityError as exc:
        raise SubjectTaken() from exc
    session.add(OrganizationMember(organization_id=organization_id, user_id=user.id, role=role))
    await session.flush()
    return user


async def create_work(session: AsyncSession, caller: Caller, *, organization_id: UUID | None, name: str) -> Work:
    """A new Work. Raises: OrganizationNotFound, Forbidden."""
    organization_id = organization_id or caller.organization_id
    await administer(session, caller, organization_id)
    work = Work(id=new_id(), organization_id=organization_id, name=name, settings={}, created_at=datetime.now(UTC))
    await widen(session, work.id)
    session.add(work)
    await session.flush()
    return work


async def list_works(session: AsyncSession, caller: Caller, *, after: UUID | None, limit: int) -> Sequence[Work]:
    """At most `limit` Works of the caller's organization, oldest first."""
    query = select(Work).where(Work.organization_id == caller.organization_id, Work.deleting_at.is_(None))
    if caller.key_work_id is not None:
        query = query.where(Work.id == caller.key_work_id)
    if after is not None:
        query = query.where(Work.id > after)
    return (await session.scalars(query.order_by(Work.id).limit(limit))).all()


async def rename_work(session: AsyncSession, caller: Caller, work_id: UUID, name: str | None) -> Work:
    """Give a Work another name; None changes nothing. Raises: WorkNotFound, Forbidden."""
    work = await administer_work(session, caller, work_id)
    if name is not None:
        work.name = name
        await session.flush()
    return work


async def get_work(session: AsyncSession, work_id: UUID) -> Work:
    """A Work that the transaction has entered. Raises: WorkNotFound."""
    work = await session.get(Work, work_id)
    if work is None or work.deleting_at is not None:
        raise WorkNotFound()
    return work


async def get_organization(session: AsyncSession, organization_id: UUID) -> Organization:
    """An organization within the transaction's reach. Raises: OrganizationNotFound."""
    organization = await session.get(Organization, organization_id)
    if organization is None:
        raise OrganizationNotFound()
    return organization


async def create_api_key(session: AsyncSession, caller: Caller, wanted: NewKey) -> tuple[ApiKey, str]:
    """A new API key and its text, which is kept nowhere.

    Raises: OrganizationNotFound, UserNotFound, WorkNotFound, Invalid, Forbidden (a scope beyond the caller's own).
    """
    organization_id = wanted.organization_id or caller.organization_id
    user_id = wanted.user_id or caller.user_id
    for_self = organization_id == caller.organization_id and user_id == caller.user_id
    if not for_self or "operator" in wanted.scopes or "admin" in wanted.scopes:
        await administer(session, caller, organization_id)
    missing = [s for s in wanted.scopes if not caller.has(cast("Scope", s))]
    if missing:
        raise Forbidden(f"A key can't be given more than the caller's own scopes; missing here: {', '.join(missing)}.")
    if wanted.expires_at is not None and wanted.expires_at <= datetime.now(UTC):
        raise Invalid("expires_at lies in the past.", faults=[FieldFault(("body", "expires_at"), "lies in the past")])
    if caller.key_work_id is not None and wanted.work_id != caller.key_work_id:
        raise Forbidden("A key bound to a Work makes only keys bound to the same Work.")
    if await session.get(OrganizationMember, (organization_id, user_id)) is None:
        raise UserNotFound()
    if wanted.work_id is not None:
        work = await session.get(Work, wanted.work_id)
        if work is None or work.organization_id != organization_id:
            raise WorkNotFound()
    key = new_key()
    row = api_key_row(key, name=wanted.name, organization_id=organization_id, user_id=user_id, scopes=wanted.scopes)
    row.work_id, row.expires_at = wanted.work_id, wanted.expires_at
    session.add(row)
    await session.flush()
    return row, key


def api_key_row(key: str, *, name: str, organization_id: UUID, user_id: UUID, scopes: Sequence[str]) -> ApiKey:
    """The row of a key: its hash and the first characters, never the key."""
    return ApiKey(
        id=new_id(),
        organization_id=organization_id,
        user_id=user_id,
        name=name,
        key_hash=hash_key(key),
        prefix=visible_prefix(key),
        scopes=sorted(scopes),
        created_at=datetime.now(UTC),
    )


async def list_api_keys(session: AsyncSession, caller: Caller, *, after: UUID | None, limit: int) -> Sequence[ApiKey]:
    """The caller's own keys; an administrator's list holds the whole organization's."""
    query = select(ApiKey).where(ApiKey.organization_id == caller.organization_id)
    if not is_administrator(caller):
        query = query.where(ApiKey.user_id == caller.user_id)
    if caller.key_work_id is not None:
        query = query.where(ApiKey.work_id == caller.key_work_id)
    if after is not None:
        query = query.where(ApiKey.id > after)
    return (await session.scalars(query.order_by(ApiKey.id).limit(limit))).all()


async def revoke_api_key(session: AsyncSession, caller: Caller, api_key_id: UUID) -> None:
    """Refuse the key from the next request on; repeating it changes nothing. Raises: ApiKeyNotFound."""
    row = await session.get(ApiKey, api_key_id)
    if row is None or row.organization_id != caller.organization_id:
        raise ApiKeyNotFound()
    if row.user_id != caller.user_id and not is_administrator(caller):
        raise ApiKeyNotFound()
    if caller.key_work_id is not None and row.work_id != caller.key_work_id:
        raise ApiKeyNotFound()
    row.revoked_at = row.revoked_at or datetime.now(UTC)
