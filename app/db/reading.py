"""Hot reads: a pool of bare connections, and transactions that cost one round trip."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, LiteralString

from psycopg import AsyncConnection, InterfaceError, OperationalError
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from app.db.engine import APP_ROLE, PREPARE_THRESHOLD, Database, DatabaseUnavailable, Reach, array_literal, driver_url

Connection = AsyncConnection[Any]
_ENTER: LiteralString = (
    "select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %(timeout)b, true),"
    " set_config('stackroom.works', %(works)b, true), set_config('stackroom.organizations', %(organizations)b, true)"
)
_TAKE_ROLE: LiteralString = ", set_config('role', %(role)b, true)"


class ReadPool:
    """Opened by its first use. The same rules as `Database`: the reach is set in the statement that begins.

    `prepares`: statements said often on a connection are prepared; never behind a transaction pooler, where the next
    one may reach another server.
    """

    def __init__(
        self, url: str, database: Database, *, max_size: int, wait_s: float, timeout_s: float, prepares: bool
    ) -> None:
        self._database = database
        self._timeout_s = timeout_s
        self._opening = asyncio.Lock()
        self._is_open = False
        self._pool = AsyncConnectionPool[Connection](
            driver_url(url),
            kwargs={
                "autocommit": True,
                "prepare_threshold": PREPARE_THRESHOLD if prepares else None,
                "connect_timeout": 5,
                "application_name": "stackroom reads",
            },
            min_size=1,
            max_size=max_size,
            timeout=wait_s,
            name="reads",
            open=False,
        )

    @asynccontextmanager
    async def transaction(self, reach: Reach) -> AsyncIterator[Connection]:
        """A read-only transaction under row-level security. Raises: DatabaseUnavailable."""
        begin = await self._database.begin(reach, timeout_s=self._timeout_s, read_only=True)
        async with self._connection() as connection:
            await connection.execute(begin.encode())
            try:
                yield connection
            except BaseException:
                await connection.rollback()
                raise
            await connection.commit()

    async def fetch(self, reach: Reach, statement: LiteralString, values: Mapping[str, object]) -> list[Any]:
        """The rows of one statement under row-level security, in one round trip. Raises: DatabaseUnavailable.

        What a pipeline sends before its end is one transaction, without BEGIN and COMMIT: with it the role, the reach
        and the time limit end, whether it succeeds or fails.
        """
        enter = _ENTER
        facts = {
            "timeout": str(int(self._timeout_s * 1000)),
            "works": array_literal(reach.works),
            "organizations": array_literal(reach.organizations),
        }
        if await self._database.has_second_wall():
            enter, facts["role"] = _ENTER + _TAKE_ROLE, APP_ROLE
        async with self._connection() as connection:
            entering, cursor = connection.cursor(), connection.cursor(binary=True)
            async with connection.pipeline():
                await entering.execute(enter, facts)
                await cursor.execute(statement, values)
            return await cursor.fetchall()

    async def fetch_one(self, statement: LiteralString, values: Mapping[str, object]) -> Mapping[str, Any] | None:
        """The row of a single statement outside a transaction: for the named functions. Raises: DatabaseUnavailable."""
        async with self._connection() as connection, connection.cursor(binary=True) as cursor:
            try:
                async with asyncio.timeout(self._timeout_s):  # no transaction, so no statement_timeout either
                    await cursor.execute(statement, values)
            except TimeoutError as exc:
                raise DatabaseUnavailable(retry_after_s=2) from exc
            row = await cursor.fetchone()
            names = [column.name for column in cursor.description or ()]
            return None if row is None else dict(zip(names, row, strict=True))

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        try:
            if not self._is_open:
                async with self._opening:
                    await self._pool.open()
                    self._is_open = True
            async with self._pool.connection() as connection:
                yield connection
        except (OperationalError, InterfaceError, PoolTimeout) as exc:
            await self._drop_dead()
            raise DatabaseUnavailable(retry_after_s=2) from exc

    async def _drop_dead(self) -> None:
        """A server that went away took every connection along: look at them now, not one per request."""
        try:
            await self._pool.check()
        except (OperationalError, InterfaceError, PoolTimeout):
            return  # it is still away

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()
