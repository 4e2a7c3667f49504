"""The driver's own cursor inside the running transaction, for bulk statements with binary arrays and for hot paths."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection, AsyncCursor
from psycopg.rows import dict_row, tuple_row
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Transaction


async def driver_connection(session: Transaction) -> AsyncConnection[Any]:
    """The psycopg connection of the session's transaction; what it does commits or rolls back with the session."""
    connection = session.info.get("driver")  # put there by `Database`
    if connection is None and isinstance(session, AsyncSession):
        connection = (await (await session.connection()).get_raw_connection()).driver_connection
    if not isinstance(connection, AsyncConnection):
        raise TypeError("the engine does not use psycopg's asynchronous connection")
    return connection


@asynccontextmanager
async def driver_cursor(session: Transaction, *, names: bool = False) -> AsyncIterator[AsyncCursor[Any]]:
    """A cursor on that connection; rows are tuples, or with `names` dictionaries."""
    rows: Any = dict_row if names else tuple_row
    async with (await driver_connection(session)).cursor(row_factory=rows) as cursor:
        yield cursor
