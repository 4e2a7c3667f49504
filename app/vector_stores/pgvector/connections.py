"""The plugin's own connections: a lazily opened pool, walled transactions, and the translation of errors."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, TypeVar
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout
from sqlalchemy.exc import DBAPIError

from app.errors import AppError
from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreRefused, VectorStoreUnavailable
from app.vector_stores.pgvector import statements
from app.vector_stores.pgvector.binary import adapters

CONNECT_TIMEOUT_S = 5
_PLAIN = re.compile(r"[A-Za-z0-9_{}-]*")
LOCK_TIMEOUT_S = 10.0

# What a server answers before it lets a login in. psycopg gives no SQLSTATE for a refused connection, only the text.
REFUSED_LOGIN = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "does not exist",
    "permission denied",
    "is not permitted to log in",
)
MISCONFIGURED = (
    errors.InvalidAuthorizationSpecification,
    errors.InvalidCatalogName,
    errors.InsufficientPrivilege,
    errors.UndefinedTable,
    errors.UndefinedColumn,
    errors.UndefinedObject,
    errors.UndefinedFunction,
)
TOO_MUCH = errors.ProgramLimitExceeded  # psycopg files it under OperationalError, but waiting won't help
CUT_OFF = (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow, errors.IdleSessionTimeout)

Connection = AsyncConnection[tuple[Any, ...]]
T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """What is learned once about the database. `role` is None where the second wall can't be put up."""

    halfvec_oid: int
    extension_version: str
    role: str | None


@dataclass(frozen=True)
class Knobs:
    """What else the first statement of a transaction sets: SQL of `set_config` calls, and their values."""

    sql: LiteralString = ""
    values: tuple[tuple[str, str], ...] = ()


class Connections:
    """Connections to one database. Nothing connects before it is needed; nothing reconnects after `close`.

    `migrate`: brings the database of a connection string to our schema, before the first use; blocks.
    """

    def __init__(
        self,
        dsn: str,
        *,
        direct_dsn: str,
        role: str | None,
        pool_size: int,
        pool_wait_s: float,
        migrate: Callable[[str], None] | None = None,
    ) -> None:
        self._dsn, self._direct_dsn, self._role, self._migrate = dsn, direct_dsn, role, migrate
        self._pool_size, self._pool_wait_s = pool_size, pool_wait_s
        self._opening = asyncio.Lock()
        self._pool: AsyncConnectionPool[Connection] | None = None
        self._facts: Facts | None = None
        self._closed = False

    async def facts(self) -> Facts:
        """What is known of the database; the first call connects.

        Raises: VectorStoreUnavailable, VectorStoreMisconfigured.
        """
        await self._open()
        assert self._facts is not None
        return self._facts

    @asynccontextmanager
    async def transaction(
        self, work_id: UUID, *, timeout_s: float, knobs: Knobs | None = None
    ) -> AsyncIterator[Connection]:
        """A transaction that sees one Work; its first statement puts up the wall and sets the knobs.

        Raises: VectorStoreUnavailable, VectorStoreMisconfigured, VectorStoreRefused.
        """
        pool = await self._open()
        sql, values = self._entering(work_id, timeout_s, knobs or Knobs())
        with translated():
            async with pool.connection() as connection:
                await connection.execute(_begin(sql, values))
                try:
                    yield connection
                except BaseException:
                    await connection.rollback()
                    raise
                await connection.commit()

    async def run(
        self,
        work_id: UUID,
        body: Callable[[Connection], Awaitable[T]],
        *,
        timeout_s: float,
        knobs: Knobs | None = None,
    ) -> T:
        """`body` in a transaction of its own; once more when the connection turns out to be dead.

        So `body` has to be idempotent, which every promise of a vector store is.
        Raises: VectorStoreUnavailable, VectorStoreMisconfigured, VectorStoreRefused.
        """
        try:
            async with self.transaction(work_id, timeout_s=timeout_s, knobs=knobs) as connection:
                return await body(connection)
        except VectorStoreUnavailable as exc:
            if not _was_cut_off(exc.__cause__):
                raise
        await self._drop_dead_connections()
        async with self.transaction(work_id, timeout_s=timeout_s, knobs=knobs) as connection:
            return await body(connection)

    async def fetch(
        self, work_id: UUID, sql: str, values: Mapping[str, object], *, timeout_s: float, knobs: Knobs | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of one reading statement in a transaction of its own, in one round trip; repeated as in `run`.

        What a pipeline sends before its end is one transaction, without BEGIN and COMMIT: with it role, reach and
        knobs end, whether it succeeds or fails.
        Raises: VectorStoreUnavailable, VectorStoreMisconfigured, VectorStoreRefused.
        """
        try:
            return await self._fetch(work_id, sql, values, timeout_s, knobs or Knobs())
        except VectorStoreUnavailable as exc:
            if not _was_cut_off(exc.__cause__):
                raise
        await self._drop_dead_connections()
        return await self._fetch(work_id, sql, values, timeout_s, knobs or Knobs())

    async def _fetch(
        self, work_id: UUID, sql: str, values: Mapping[str, object], timeout_s: float, knobs: Knobs
    ) -> list[tuple[Any, ...]]:
        pool = await self._open()
        enter, bound = self._entering(work_id, timeout_s, knobs)
        with translated():
            async with pool.connection() as connection:
                entering, cursor = connection.cursor(), connection.cursor(binary=True)
                async with connection.pipeline():
                    await entering.execute(enter, bound)
                    await cursor.execute(sql, values)
                return await cursor.fetchall()

    def _entering(self, work_id: UUID, timeout_s: float, knobs: Knobs) -> tuple[LiteralString, dict[str, str]]:
        """What the first statement of a transaction says."""
        assert self._facts is not None
        sql, values = statements.BEGIN_AS + knobs.sql, dict(knobs.values)
        if self._facts.role is not None:
            sql, values["role"] = sql + statements.TAKE_ROLE, self._facts.role
        values["works"] = f"{{{work_id}}}"
        values["timeout_ms"] = str(int(timeout_s * 1000))
        values["lock_timeout_ms"] = str(int(LOCK_TIMEOUT_S * 1000))
        return sql, values

    @asynccontextmanager
    async def direct(self) -> AsyncIterator[Connection]:
        """A connection outside the pool, in autocommit and past any pooler, as the owner of the tables.

        For what can't run in a transaction: CREATE, REINDEX and DROP INDEX CONCURRENTLY.
        """
        with translated():
            connection = await self._connect(self._direct_dsn)
            try:
                yield connection
            finally:
                await connection.close()

    async def ping(self) -> Facts:
        """One round trip."""
        pool = await self._open()
        with translated():
            async with pool.connection() as connection:
                await connection.execute("SELECT 1")
        return await self.facts()

    async def close(self) -> None:
        """Let go of every connection; safe to repeat."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _drop_dead_connections(self) -> None:
        pool = self._pool
        if pool is not None:
            with translated():
                await pool.check()

    async def _open(self) -> "AsyncConnectionPool[Connection]":
        if self._pool is not None:
            return self._pool
        async with self._opening:
            if self._closed:
                raise VectorStoreUnavailable("this vector store has been closed")
            if self._pool is None:
                with translated():
                    # Looked at by hand first: a pool would hide a wrong password behind a timeout.
                    async with await self._connect(self._dsn) as connection:
                        if self._migrate is not None:
                            await asyncio.to_thread(self._migrate, self._direct_dsn)
                        self._facts = await self._look(connection)
                    self._pool = self._new_pool()
                    await self._pool.open()
            return self._pool

    def _new_pool(self) -> "AsyncConnectionPool[Connection]":
        return AsyncConnectionPool(
            self._dsn,
            kwargs={
                "autocommit": True,  # `transaction()` opens the transactions
                "prepare_threshold": None,  # no generic plans, and what a transaction-mode pooler wants
                "context": adapters(),
                "connect_timeout": CONNECT_TIMEOUT_S,
            },
            min_size=1,
            max_size=self._pool_size,
            timeout=self._pool_wait_s,
            # A pool waits twice as long before each new attempt to connect. Given up soon, the next request begins
            # anew, so that a database which is back after an hour is not noticed minutes later.
            reconnect_timeout=self._pool_wait_s,
            name="pgvector",
            open=False,
        )

    async def _connect(self, dsn: str) -> Connection:
        return await AsyncConnection.connect(
            dsn, autocommit=True, prepare_threshold=None, context=adapters(), connect_timeout=CONNECT_TIMEOUT_S
        )

    async def _look(self, connection: Connection) -> Facts:
        found = await (await connection.execute(statements.LOOK)).fetchone()
        if found is None or found[0] is None:
            raise VectorStoreMisconfigured(
                "this database has no type 'halfvec'; a superuser runs: CREATE EXTENSION vector; (0.8 or later)"
            )
        role = self._role
        if role is not None:
            try:
                async with connection.transaction():
                    await connection.execute("SELECT set_config('role', %s, true)", (role,))
            except (errors.InvalidParameterValue, errors.InsufficientPrivilege, errors.UndefinedObject):
                role = None  # no such role, or not ours to take: said in `is_available`
        return Facts(halfvec_oid=int(str(found[0])), extension_version=str(found[1]), role=role)


def _begin(sql: str, values: Mapping[str, str]) -> bytes:
    """BEGIN and the settings of the transaction as one message: a round trip less for every call of the store."""
    for value in values.values():
        if not _PLAIN.fullmatch(value):
            raise VectorStoreRefused("a setting of the transaction is not plain")
    return ("BEGIN; " + sql % {name: f"'{value}'" for name, value in values.items()}).encode()


@contextmanager
def translated() -> Iterator[None]:
    """Turn psycopg's errors into the contract's, cause attached, without the server's text."""
    try:
        yield
    except AppError:
        raise
    except psycopg.Error as exc:
        raise _ours(exc) from exc
    except DBAPIError as exc:  # of a migration
        raise (_ours(exc.orig) if isinstance(exc.orig, psycopg.Error) else _silent()) from exc
    except OSError as exc:
        raise _silent() from exc


def _silent() -> VectorStoreUnavailable:
    return VectorStoreUnavailable("the database of the vector store does not answer")


def _was_cut_off(cause: BaseException | None) -> bool:
    """Whether the connection died under us: a server that restarted leaves a pool full of dead ones."""
    if isinstance(cause, PoolTimeout | PoolClosed):
        return False
    return isinstance(cause, CUT_OFF) or (isinstance(cause, psycopg.OperationalError) and cause.sqlstate is None)


def _ours(exc: psycopg.Error) -> AppError:
    kind = type(exc).__name__
    if isinstance(exc, MISCONFIGURED):
        return VectorStoreMisconfigured(f"the database of the vector store refuses us or lacks our tables ({kind})")
    if isinstance(exc, TOO_MUCH):
        return VectorStoreRefused(f"more than the database of the vector store can hold in one place ({kind})")
    if isinstance(exc, errors.QueryCanceled):
        return VectorStoreUnavailable("the database of the vector store took too long")
    if isinstance(exc, PoolClosed):
        return VectorStoreUnavailable("this vector store has been closed")
    if isinstance(exc, psycopg.OperationalError | psycopg.InterfaceError):
        if exc.sqlstate is None and any(words in str(exc) for words in REFUSED_LOGIN):
            return VectorStoreMisconfigured(
                "the database of the vector store refuses our login or has no such database"
            )
        return _silent()
    return VectorStoreRefused(f"the database of the vector store refuses this ({kind})")
