"""The driver's own cursor inside the running transaction, for bulk statements with binary arrays."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection, AsyncCursor
from sqlalchemy.ext.asyncio import AsyncSession


async def driver_connection(session: AsyncSession) -> AsyncConnection[Any]:
    """The psycopg connection of the session's transaction; what it does commits or rolls back with the session."""
    raw = await (await session.connection()).get_raw_connection()
    connection = raw.driver_connection
    if not isinstance(connection, AsyncConnection):
        raise TypeError("the engine does not use psycopg's asynchronous connection")
    return connection


@asynccontextmanager
async def driver_cursor(session: AsyncSession) -> AsyncIterator[AsyncCursor[Any]]:
    """A cursor on that connection."""
    async with (await driver_connection(session)).cursor() as cursor:
        yield cursor
