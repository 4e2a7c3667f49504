"""One change of an index at a time in a database.

Two builds on one table deadlock: each holds the table and waits for the other's snapshot to end. A session that waits
in `pg_advisory_lock` holds a snapshot too, so the lock is asked for again and again, and never waited for.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.vector_stores.pgvector.connections import Connection

KEY = {"key": 0x5BEC_0002}
ASK_AGAIN_S = 0.2


@asynccontextmanager
async def index_lock(connection: Connection, *, wait_s: float) -> AsyncIterator[bool]:
    """Whether the lock was had within `wait_s` seconds; it ends with the block, or with the connection."""
    until = time.monotonic() + wait_s
    while not (locked := await _ask(connection)) and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(ASK_AGAIN_S)  # the one who has it may be another process, so no event tells of its end
    try:
        yield locked
    finally:
        if locked and not connection.closed:
            await connection.execute("SELECT pg_advisory_unlock(%(key)s)", KEY)


async def _ask(connection: Connection) -> bool:
    found = await (await connection.execute("SELECT pg_try_advisory_lock(%(key)s)", KEY)).fetchone()
    return bool(found and found[0])
