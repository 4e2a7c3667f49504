"""The two outboxes of bytes: uploads that belong to nothing yet, and blobs that are superfluous."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString
from uuid import UUID

from sqlalchemy import delete, func, text, update

from app.db.base import new_id
from app.db.driver import driver_cursor
from app.db.engine import Database, Reach, Transaction
from app.documents.models import BlobDeletion, PendingUpload
from app.errors import Unavailable
from app.logs import get_logger
from app.storage.contract import BlobStore

log = get_logger()
TOUCH_INTERVAL_S = 60
_ADD: LiteralString = "insert into pending_uploads (id, work_id, storage_key) values (%(id)b, %(work)b, %(key)s)"
_ADOPT: LiteralString = "delete from pending_uploads where id = %(id)b"
_DROP: LiteralString = """
    insert into blob_deletions (id, work_id, storage_key)
    select d.id, %(work)b, d.key from unnest(%(ids)b::uuid[], %(keys)b::text[]) as d(id, key)
"""
_STALE = text("select work_id, id from stackroom_stale_uploads(make_interval(secs => :seconds), :max_rows)")
_DUE = text("select work_id, id, storage_key from stackroom_due_blob_deletions(:max_rows)")


def original_key(work_id: UUID) -> str:
    """A new key for the bytes of an upload: invented, never from a name."""
    return f"{work_id}/original/{new_id()}"


def text_key(work_id: UUID) -> str:
    """A new key for an extracted text."""
    return f"{work_id}/text/{new_id()}"


async def add_pending(session: Transaction, work_id: UUID, storage_key: str) -> UUID:
    """Note bytes that are about to be written."""
    pending_id = new_id()
    async with driver_cursor(session) as cursor:
        await cursor.execute(_ADD, {"id": pending_id, "work": work_id, "key": storage_key})
    return pending_id


async def adopt_pending(session: Transaction, pending_id: UUID) -> bool:
    """Take the bytes over: remove the note. False = the cleaner was faster and they are lost."""
    async with driver_cursor(session) as cursor:
        return (await cursor.execute(_ADOPT, {"id": pending_id})).rowcount == 1


async def drop_blobs(session: Transaction, work_id: UUID, storage_keys: Sequence[str]) -> None:
    """Note blobs as superfluous, in the transaction that makes them so."""
    if storage_keys:
        async with driver_cursor(session) as cursor:
            await cursor.execute(
                _DROP, {"work": work_id, "ids": [new_id() for _ in storage_keys], "keys": [*storage_keys]}
            )


async def abandon(database: Database, work_id: UUID, pending_id: UUID, storage_key: str) -> None:
    """Give up bytes that were written or half written."""
    try:
        async with database.transaction(Reach.of(work_id)) as session:
            if await adopt_pending(session, pending_id):
                await drop_blobs(session, work_id, [storage_key])
    except Unavailable as error:  # the cleaner finds the row by its last touch
        log.warning("upload.abandoned_later", code=error.code)


@asynccontextmanager
async def kept_alive(database: Database, work_id: UUID, pending_id: UUID) -> AsyncIterator[None]:
    """Touch the note once a minute while the block runs."""
    task = asyncio.create_task(_touch(database, work_id, pending_id))
    try:
        yield
    finally:
        task.cancel()


async def _touch(database: Database, work_id: UUID, pending_id: UUID) -> None:
    while True:
        await asyncio.sleep(TOUCH_INTERVAL_S)
        try:
            async with database.transaction(Reach.of(work_id)) as session:
                await session.execute(
                    update(PendingUpload).where(PendingUpload.id == pending_id).values(touched_at=func.now())
                )
        except Unavailable as error:
            log.warning("upload.touch_failed", code=error.code)


async def clean_uploads(database: Database, *, older_than_s: float, max_rows: int = 200) -> int:
    """Move uploads that nobody has touched for long to the blob deletions; how many."""
    async with database.unscoped() as session:
        rows = (await session.execute(_STALE, {"seconds": older_than_s, "max_rows": max_rows})).all()
    for work_id, pending_id in rows:
        async with database.transaction(Reach.of(work_id)) as session:
            key = await session.scalar(
                delete(PendingUpload)
                .where(
                    PendingUpload.id == pending_id,
                    PendingUpload.touched_at < func.now() - func.make_interval(0, 0, 0, 0, 0, 0, older_than_s),
                )
                .returning(PendingUpload.storage_key)
            )
            if key is not None:
                await drop_blobs(session, work_id, [key])
    return len(rows)


async def delete_blobs(database: Database, storage: BlobStore, *, max_rows: int = 500) -> int:
    """Delete what is due, then its notes; how many. A storage that is away leaves the notes for the next round."""
    async with database.unscoped() as session:
        rows = (await session.execute(_DUE, {"max_rows": max_rows})).all()
    by_work: dict[UUID, list[UUID]] = {}
    for work_id, row_id, key in rows:
        await storage.delete(key)
        by_work.setdefault(work_id, []).append(row_id)
    for work_id, ids in by_work.items():
        async with database.transaction(Reach.of(work_id)) as session:
            await session.execute(delete(BlobDeletion).where(BlobDeletion.id.in_(ids)))
    return len(rows)
