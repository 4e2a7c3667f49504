"""Idempotency keys: the same request again gets the first answer again."""

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from app.db.base import new_id
from app.db.engine import Database, Reach
from app.documents.errors import IdempotencyMismatch, IdempotencyRunning
from app.documents.models import IdempotencyKey
from app.errors import Unavailable
from app.identity.caller import WorkScope
from app.logs import get_logger

log = get_logger()
TOUCH_INTERVAL_S = 15
ABANDONED_AFTER = timedelta(seconds=60)


@dataclass(frozen=True)
class Ticket:
    """A claimed key, or one whose first answer exists (`owner` None)."""

    work_id: UUID
    user_id: UUID
    route: str
    key: str
    owner: UUID | None


@dataclass(frozen=True)
class FirstAnswer:
    """The answer to the first request."""

    status_code: int
    body: dict[str, Any]


def fingerprint(parts: list[Any]) -> bytes:
    """What makes two requests the same: 32 bytes."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


async def claim(session: AsyncSession, scope: WorkScope, route: str, key: str) -> Ticket:
    """Claim the key, or find that an answer exists. Raises: IdempotencyRunning."""
    owner = new_id()
    mine = insert(IdempotencyKey).values(
        work_id=scope.work_id, user_id=scope.user_id, route=route, key=key, owner=owner
    )
    claimed = await session.scalar(
        mine.on_conflict_do_update(
            index_elements=[c.name for c in IdempotencyKey.__table__.primary_key],
            set_={"owner": owner, "created_at": func.now(), "touched_at": func.now()},
            where=IdempotencyKey.response.is_(None) & (IdempotencyKey.touched_at < func.now() - ABANDONED_AFTER),
        ).returning(IdempotencyKey.owner)
    )
    if claimed is not None:
        return Ticket(scope.work_id, scope.user_id, route, key, owner)
    response = await session.scalar(
        select(IdempotencyKey.response).where(*_where(Ticket(scope.work_id, scope.user_id, route, key, None)))
    )
    if response is None:
        raise IdempotencyRunning(retry_after_s=2)
    return Ticket(scope.work_id, scope.user_id, route, key, None)


async def find_first(session: AsyncSession, ticket: Ticket, wanted: bytes) -> FirstAnswer | None:
    """The first answer when there is one. Raises: IdempotencyMismatch, IdempotencyRunning."""
    row = (await session.scalars(select(IdempotencyKey).where(*_where(ticket)).with_for_update())).one_or_none()
    if row is None or (ticket.owner is not None and row.owner != ticket.owner):
        raise IdempotencyRunning(retry_after_s=2)
    if row.response is None or row.status_code is None:
        return None
    if row.fingerprint != wanted:
        raise IdempotencyMismatch()
    return FirstAnswer(row.status_code, row.response)


async def complete(session: AsyncSession, ticket: Ticket, wanted: bytes, answer: FirstAnswer) -> None:
    """Record the first answer in the transaction that makes it true."""
    await session.execute(
        update(IdempotencyKey)
        .where(*_where(ticket))
        .values(fingerprint=wanted, status_code=answer.status_code, response=answer.body)
    )


@asynccontextmanager
async def kept_alive(database: Database, ticket: Ticket) -> AsyncIterator[None]:
    """Touch a claimed key while the block runs; the key of a process that died is free soon after."""
    task = asyncio.create_task(_touch(database, ticket))
    try:
        yield
    finally:
        task.cancel()


async def _touch(database: Database, ticket: Ticket) -> None:
    while True:
        await asyncio.sleep(TOUCH_INTERVAL_S)
        try:
            async with database.transaction(Reach.of(ticket.work_id)) as session:
                await session.execute(
                    update(IdempotencyKey)
                    .where(*_where(ticket), IdempotencyKey.owner == ticket.owner)
                    .values(touched_at=func.now())
                )
        except Unavailable as error:
            log.warning("idempotency.touch_failed", code=error.code)


async def release_all(engine: AsyncEngine) -> None:
    """Free what was claimed before the database server started: its requests are over. As the tables' owner."""
    async with engine.begin() as connection:
        await connection.execute(
            delete(IdempotencyKey).where(
                IdempotencyKey.response.is_(None), IdempotencyKey.touched_at < func.pg_postmaster_start_time()
            )
        )


async def release(database: Database, scope: WorkScope, ticket: Ticket) -> None:
    """Free a claimed key after a failure."""
    if ticket.owner is None:
        return
    try:
        async with database.transaction(Reach.of(scope.work_id)) as session:
            await session.execute(
                delete(IdempotencyKey).where(
                    *_where(ticket), IdempotencyKey.owner == ticket.owner, IdempotencyKey.response.is_(None)
                )
            )
    except Unavailable as error:  # it is taken over when nobody touches it
        log.warning("idempotency.not_released", code=error.code)


def _where(ticket: Ticket) -> list[Any]:
    return [
        IdempotencyKey.work_id == ticket.work_id,
        IdempotencyKey.user_id == ticket.user_id,
        IdempotencyKey.route == ticket.route,
        IdempotencyKey.key == ticket.key,
    ]
