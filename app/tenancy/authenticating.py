"""Token → caller, and caller → Work: the answers to `identity.Authenticator` and `identity.Access`."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import LiteralString
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Database, Reach, Transaction, widen
from app.db.reading import ReadPool
from app.errors import Unauthenticated, Unavailable
from app.identity.caller import Caller, WorkScope
from app.identity.contract import ObjectKind
from app.logs import get_logger
from app.tenancy.errors import NoDefaultWork, WorkNotFound
from app.tenancy.keys import hash_key

log = get_logger()
_FIND: LiteralString = "select * from stackroom_find_api_key(%(key_hash)b)"
_TOUCH = text(
    "update api_keys set last_used_at = now()"
    " where id = :id and (last_used_at is null or last_used_at < now() - interval '1 minute')"
)
_LOCATE: LiteralString = "select work_id, organization_id, deleting from stackroom_locate(%(kind)s, %(id)b)"
_OWNED = text("select work_id from stackroom_works_with_owner(:user_id)")


class KeyAuthenticator:
    """Looks a key up by its hash, on every request: a revoked key is refused at once."""

    def __init__(self, database: Database, reads: ReadPool) -> None:
        self._database = database
        self._reads = reads
        self._touches: set[asyncio.Task[None]] = set()

    async def authenticate(self, token: str) -> Caller:
        """Raises: Unauthenticated for an unknown, expired or revoked key alike."""
        row = await self._reads.fetch_one(_FIND, {"key_hash": hash_key(token)})
        now = datetime.now(UTC)
        if row is None or row["revoked_at"] is not None or (row["expires_at"] is not None and row["expires_at"] <= now):
            raise Unauthenticated()
        if row["last_used_at"] is None or row["last_used_at"] < now - timedelta(minutes=1):
            self._note_use(row["id"], row["organization_id"])
        return Caller(
            key_id=row["id"],
            user_id=row["user_id"],
            user_name=row["user_name"],
            organization_id=row["organization_id"],
            role=row["role"],
            scopes=frozenset(row["scopes"]),
            key_work_id=row["work_id"],
            default_work_id=row["work_id"] or row["default_work_id"],
        )

    async def close(self) -> None:
        """Wait for the notes of use that are on their way."""
        await asyncio.gather(*self._touches)

    def _note_use(self, key_id: UUID, organization_id: UUID) -> None:
        task = asyncio.create_task(self._touch(key_id, organization_id))
        self._touches.add(task)
        task.add_done_callback(self._touches.discard)

    async def _touch(self, key_id: UUID, organization_id: UUID) -> None:
        try:
            async with self._database.transaction(Reach.of(organizations=[organization_id])) as session:
                await session.execute(_TOUCH, {"id": key_id})
        except Unavailable as error:
            log.warning("api_key.use_not_noted", code=error.code)


class WorkAccess:
    """Decides who may enter a Work: members of its organization, with a key not bound to another Work."""

    async def enter_work(self, session: AsyncSession, caller: Caller, work_id: UUID) -> WorkScope:
        """Raises: WorkNotFound."""
        scope = await self.find_work_of(session, caller, "work", work_id)
        if scope is None:
            raise WorkNotFound()
        return scope

    async def enter_default_work(self, session: AsyncSession, caller: Caller) -> WorkScope:
        """Raises: NoDefaultWork."""
        if caller.default_work_id is None:
            raise NoDefaultWork()
        return await self.enter_work(session, caller, caller.default_work_id)

    async def find_work_of(
        self, session: Transaction, caller: Caller, kind: ObjectKind, object_id: UUID
    ) -> WorkScope | None:
        """None for a foreign, deleted or unknown object alike."""
        async with driver_cursor(session) as cursor:
            await cursor.execute(_LOCATE, {"kind": kind, "id": object_id})
            row = await cursor.fetchone()
        if row is None:
            return None
        work_id, organization_id, is_deleting = row
        if is_deleting or organization_id != caller.organization_id or caller.key_work_id not in (None, work_id):
            return None
        await widen(session, work_id)
        return _scope(caller, work_id)

    async def enter_owned_works(self, session: AsyncSession, caller: Caller) -> list[WorkScope]:
        """Every Work in which the caller owns a knowledge base."""
        if caller.key_work_id is not None:
            return [await self.enter_work(session, caller, caller.key_work_id)]
        rows = await session.execute(_OWNED, {"user_id": caller.user_id})
        works = [row.work_id for row in rows]
        await widen(session, *works)
        return [_scope(caller, work_id) for work_id in works]


def _scope(caller: Caller, work_id: UUID) -> WorkScope:
    return WorkScope(
        work_id=work_id,
        organization_id=caller.organization_id,
        user_id=caller.user_id,
        can_write=caller.has("write"),
    )
