"""Use cases of knowledge bases."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.receipts import open_receipt
from app.db.base import new_id
from app.db.engine import Transaction
from app.identity.caller import Caller, WorkScope
from app.identity.contract import Access
from app.jobs.queue import enqueue
from app.knowledge_bases import repository
from app.knowledge_bases.errors import KnowledgeBaseNotFound, TeamNotFound, UserNotAllowed
from app.knowledge_bases.models import KnowledgeBase


@dataclass(frozen=True)
class NewKnowledgeBase:
    """What a new knowledge base is to be. `owner` = (type, id), None = the caller."""

    name: str
    description: str = ""
    work_id: UUID | None = None
    owner: tuple[str, UUID] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


async def create(session: AsyncSession, caller: Caller, access: Access, wanted: NewKnowledgeBase) -> KnowledgeBase:
    """A new knowledge base. Raises: WorkNotFound, TeamNotFound, UserNotAllowed."""
    if wanted.work_id is None:
        scope = await access.enter_default_work(session, caller)
    else:
        scope = await access.enter_work(session, caller, wanted.work_id)
    scope.require_write()
    owner_type, owner_id = wanted.owner or ("user", caller.user_id)
    if owner_type == "team":
        raise TeamNotFound()
    if owner_id != caller.user_id:
        raise UserNotAllowed()
    now = datetime.now(UTC)
    made = KnowledgeBase(
        id=new_id(),
        work_id=scope.work_id,
        owner_type=owner_type,
        owner_id=owner_id,
        name=wanted.name,
        description=wanted.description,
        attributes=wanted.attributes,
        created_at=now,
        updated_at=now,
    )
    session.add(made)
    await session.flush()
    return made


async def enter(
    session: AsyncSession, caller: Caller, access: Access, kb_id: UUID, *, lock: bool = False
) -> tuple[WorkScope, KnowledgeBase]:
    """Authorise one knowledge base, whoever asks and wherever it is. Raises: KnowledgeBaseNotFound."""
    scope = await access.find_work_of(session, caller, "knowledge_base", kb_id)
    found = None if scope is None else await repository.find(session, scope, kb_id, lock=lock)
    if scope is None or found is None:
        raise KnowledgeBaseNotFound()
    return scope, found


async def authorise(
    session: Transaction, caller: Caller, access: Access, kb_id: UUID, *, lock: bool = False
) -> WorkScope:
    """`enter` for those who need no row. Raises: KnowledgeBaseNotFound."""
    scope = await access.find_work_of(session, caller, "knowledge_base", kb_id)
    if scope is None or not await repository.is_visible(session, scope, kb_id, lock=lock):
        raise KnowledgeBaseNotFound()
    return scope


async def list_page(
    session: AsyncSession,
    caller: Caller,
    access: Access,
    *,
    work_id: UUID | None,
    name: str | None,
    after: UUID | None,
    limit: int,
) -> Sequence[KnowledgeBase]:
    """What the caller may open, in one Work or in all of them."""
    if work_id is not None:
        scopes = [await access.enter_work(session, caller, work_id)]
    else:
        scopes = await access.enter_owned_works(session, caller)
    return await repository.list_visible(session, scopes, after=after, limit=limit, name=name)


async def change(
    session: AsyncSession, caller: Caller, access: Access, kb_id: UUID, changes: dict[str, Any]
) -> KnowledgeBase:
    """Apply a merge patch of name, description and attributes. Raises: KnowledgeBaseNotFound."""
    scope, found = await enter(session, caller, access, kb_id)
    scope.require_write()
    if changes.get("name") is not None:
        found.name = changes["name"]
    if "description" in changes:
        found.description = changes["description"] or ""
    if "attributes" in changes:
        found.attributes = merge_patch(found.attributes, changes["attributes"] or {})
    found.updated_at = datetime.now(UTC)
    await session.flush()
    return found


async def delete(session: AsyncSession, caller: Caller, access: Access, kb_id: UUID) -> UUID:
    """Mark it: from now on neither it nor a document of it is found; a job removes the rest. Answers the receipt."""
    scope, found = await enter(session, caller, access, kb_id)
    scope.require_write()
    await session.refresh(found, with_for_update=True)
    if found.deleting_at is not None:
        raise KnowledgeBaseNotFound()
    found.deleting_at = datetime.now(UTC)
    receipt_id = await open_receipt(
        session,
        scope.work_id,
        kind="knowledge_base",
        object_id=found.id,
        knowledge_base_id=found.id,
        owner=(found.owner_type, found.owner_id),
        requested_by=caller.user_id,
    )
    await enqueue(
        session,
        "forget_knowledge_base",
        args={"work_id": str(scope.work_id), "receipt_id": str(receipt_id), "knowledge_base_id": str(found.id)},
        lock=f"forget:{found.id}",
        queueing_lock=f"forget:{found.id}",
        queue="forget",
    )
    await session.flush()
    return receipt_id


def merge_patch(present: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """JSON Merge Patch (RFC 7396) of one object."""
    merged = dict(present)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            inner = merged.get(key)
            merged[key] = merge_patch(inner if isinstance(inner, dict) else {}, value)
        else:
            merged[key] = value
    return merged
