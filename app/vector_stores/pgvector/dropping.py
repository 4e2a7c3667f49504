"""How a space goes: its index first (dead rows in a graph cost), then its rows in batches, then its number."""

from contextlib import suppress
from typing import LiteralString
from uuid import UUID

from psycopg import errors

from app.vector_stores.contract import Space
from app.vector_stores.pgvector import statements
from app.vector_stores.pgvector.catalogue import SpaceRow, find_space
from app.vector_stores.pgvector.connections import Connection, Connections
from app.vector_stores.pgvector.index_lock import index_lock

BATCH_ROWS = 20_000
WAIT_FOR_BUILD_S = 5.0
DROP_INDEX: LiteralString = "DROP INDEX CONCURRENTLY IF EXISTS "


async def drop_space(connections: Connections, work_id: UUID, space: Space, *, timeout_s: float) -> None:
    """Leave nothing of the space; without one, do nothing. Safe beside writers, and safe to repeat."""

    async def look(connection: Connection) -> SpaceRow | None:
        return await find_space(connection, work_id, space)

    row = await connections.run(work_id, look, timeout_s=timeout_s)
    if row is None:
        return
    values = {"space_no": row.space_no, "work_id": work_id, "most": BATCH_ROWS}
    if row.index_state != "none":
        await _drop_index(connections, row.space_no)

    async def delete_some(connection: Connection) -> int:
        return (await connection.execute(statements.DELETE_SOME_OF_SPACE, values)).rowcount

    while await connections.run(work_id, delete_some, timeout_s=timeout_s) == BATCH_ROWS:
        pass

    async def close(connection: Connection) -> None:
        # Writers hold the space; once this lock is had there is none, and the next one finds no space.
        await connection.execute(statements.CLOSE_SPACE, values)
        while (await connection.execute(statements.DELETE_SOME_OF_SPACE, values)).rowcount:
            pass
        await connection.execute(statements.DROP_SPACE, values)

    await connections.run(work_id, close, timeout_s=timeout_s)


async def _drop_index(connections: Connections, space_no: int) -> None:
    async with connections.direct() as connection, index_lock(connection, wait_s=WAIT_FOR_BUILD_S) as locked:
        if not locked:
            return  # another index is being built: the rows go now, and `maintain` finds the index without a space
        with suppress(errors.InsufficientPrivilege):  # not the owner here; likewise
            await connection.execute(DROP_INDEX + statements.ann_index(space_no))
