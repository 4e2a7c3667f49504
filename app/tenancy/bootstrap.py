"""The first organization, owner, Work and key, made once; who calls first wins, the others change nothing."""

import os
from pathlib import Path
from uuid import UUID

from sqlalchemy import func, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from app.db.base import new_id
from app.logs import get_logger
from app.tenancy.keys import hash_key, new_key
from app.tenancy.models import ApiKey, Organization, OrganizationMember, User, Work
from app.tenancy.service import api_key_row

log = get_logger()
FIRST_KEY_FILE = "first-api-key"
_LOCK = text("select pg_advisory_xact_lock(hashtextextended('stackroom.bootstrap', 0))")


async def bootstrap(engine: AsyncEngine, *, data_dir: Path, bootstrap_key: str | None) -> None:
    """Make the first key when there is none, or the given one when it is not there yet. Runs as the tables' owner.

    `engine` must begin transactions by itself (`begins`).

    Without a given key the text goes to `<data_dir>/first-api-key`, readable by its owner only, before the
    transaction commits: a crash in between leaves a file whose key is unknown, and the next call writes it anew.
    """
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(_LOCK)
        if bootstrap_key is not None:
            known = await session.scalar(select(ApiKey.id).where(ApiKey.key_hash == hash_key(bootstrap_key)))
            if known is None:
                await _make_first(session, bootstrap_key)
        elif await session.scalar(select(func.count()).select_from(select(ApiKey.id).limit(1).subquery())) == 0:
            key = new_key()
            _write_key(data_dir / FIRST_KEY_FILE, key)
            await _make_first(session, key)


async def _make_first(session: AsyncSession, key: str) -> None:
    organization = await _first_organization(session)
    owner = await _first_owner(session, organization)
    row = api_key_row(
        key,
        name="first key",
        organization_id=organization,
        user_id=owner,
        scopes=["read", "write", "admin", "operator"],
    )
    session.add(row)
    await session.flush()
    log.info("tenancy.bootstrapped", organization_id=str(organization), prefix=row.prefix)


async def _first_organization(session: AsyncSession) -> UUID:
    existing = await session.scalar(select(Organization.id).order_by(Organization.id).limit(1))
    if existing is not None:
        return existing
    organization = Organization(id=new_id(), name="Default", settings={})
    session.add(organization)
    await session.flush()
    session.add(Work(id=new_id(), organization_id=organization.id, name="Default", settings={}))
    await session.flush()
    return organization.id


async def _first_owner(session: AsyncSession, organization_id: UUID) -> UUID:
    existing = await session.scalar(
        select(OrganizationMember.user_id)
        .where(OrganizationMember.organization_id == organization_id, OrganizationMember.role == "owner")
        .order_by(OrganizationMember.user_id)
        .limit(1)
    )
    if existing is not None:
        return existing
    owner = User(id=new_id(), organization_id=organization_id, subject="owner", name="Owner")
    session.add(owner)
    await session.flush()
    session.add(OrganizationMember(organization_id=organization_id, user_id=owner.id, role="owner"))
    await session.flush()
    return owner.id


def _write_key(path: Path, key: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
