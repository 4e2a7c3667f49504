"""Leases of announced writes: renewed while a writer works, and a time limit on every store call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

from app.db.engine import Database, Reach
from app.errors import Unavailable
from app.indexing import writes
from app.logs import get_logger

log = get_logger()


@asynccontextmanager
async def renewed(
    database: Database, work_id: UUID, *, document_id: UUID, build: int, owner: UUID, lease_s: float
) -> AsyncIterator[None]:
    """Renew the lease at a third of its time while the block runs.

    A renewal that fails is not repeated in haste: go-live finds out whether the announcement is still the owner's.
    """
    task = asyncio.create_task(_renew(database, work_id, document_id, build, owner, lease_s))
    try:
        yield
    finally:
        task.cancel()


async def _renew(database: Database, work_id: UUID, document_id: UUID, build: int, owner: UUID, lease_s: float) -> None:
    while True:
        await asyncio.sleep(lease_s / 3)
        try:
            async with database.transaction(Reach.of(work_id)) as session:
                held = await writes.renew(session, document_id=document_id, build=build, owner=owner, lease_s=lease_s)
        except Unavailable as error:
            log.warning("index_write.not_renewed", code=error.code)
            continue
        if not held:
            log.warning("index_write.lost", document_id=str(document_id), build=build)
            return
