"""The engine, and the one way to open a transaction: with the reach of whoever asks."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection as MappedConnection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.util import greenlet_spawn

from app.errors import Unavailable

APP_ROLE = "stackroom_app"
PREPARE_THRESHOLD = 2  # a statement is prepared when it comes for the third time
_WIDEN: LiteralString = (
    "select set_config('stackroom.works', %s, true), set_config('stackroom.organizations', %s, true)"
)
_AS_IT_IS = {"no_parameters": True}  # the simple protocol, in which a message may hold two statements
_WALL = text(
    """
    select coalesce((select pg_has_role(oid, case when current_setting('server_version_num')::int >= 160000
                                                  then 'SET' else 'MEMBER' end)
                       from pg_roles where rolname = :role), false),
           to_regclass('works') is not null
    """
)


class DatabaseUnavailable(Unavailable):
    """The database does not answer; try again in a few seconds."""

    code = "database_unavailable"


@dataclass(frozen=True)
class Reach:
    """The Works and organizations whose rows a transaction can see; empty = none."""

    works: frozenset[UUID] = frozenset()
    organizations: frozenset[UUID] = frozenset()

    @classmethod
    def of(cls, *works: UUID, organizations: Iterable[UUID] = ()) -> "Reach":
        """Reach of exactly these Works."""
        return cls(frozenset(works), frozenset(organizations))


@dataclass(frozen=True)
class Bare:
    """A transaction for `driver_cursor` alone. `info` as in a session: `driver`, `reach`, `database`."""

    info: dict[str, Any]


Transaction = AsyncSession | Bare


@dataclass
class Database:
    """An engine with its sessions.

    `second_wall`: whether the role without ownership is there and is used; None until a transaction has looked.
    """

    engine: AsyncEngine
    second_wall: bool | None = None
    statement_timeout_s: float = 30
    sessions: async_sessionmaker[AsyncSession] = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = async_sessionmaker(self.engine, expire_on_commit=False, info={"database": self})

    @asynccontextmanager
    async def transaction(
        self, reach: Reach, *, timeout_s: float | None = None, first: str = ""
    ) -> AsyncIterator[AsyncSession]:
        """One transaction under row-level security; commits at the end.

        `first` is run in the message that begins: a statement whose rows nobody needs, with ids and words of ours only.
        Raises: DatabaseUnavailable when the server is away or no connection is free in time.
        """
        begin = await self.begin(reach, timeout_s=timeout_s)
        if first:
            begin = f"{begin}; {first}"
        async with _translated(), self.sessions.begin() as session:
            connection = await session.connection()
            await connection.exec_driver_sql(begin, execution_options=_AS_IT_IS)
            session.info["reach"] = reach
            driver = session.info["driver"] = (await connection.get_raw_connection()).driver_connection
            yield session
            _refuse_aborted(driver)

    @asynccontextmanager
    async def bare(self, reach: Reach, *, first: str = "") -> AsyncIterator[Bare]:
        """`transaction` without the object mapper, whose session alone costs as much as twenty statements.

        Raises: DatabaseUnavailable.
        """
        begin = await self.begin(reach)
        async with _translated(), self._driver(f"{begin}; {first}" if first else begin) as driver:
            try:
                yield Bare({"database": self, "reach": reach, "driver": driver})
            except BaseException:
                with suppress(psycopg.Error):  # what has happened is the error to tell
                    await driver.rollback()
                raise
            _refuse_aborted(driver)
            await driver.commit()

    @asynccontextmanager
    async def _driver(self, begin: str) -> AsyncIterator[AsyncConnection[Any]]:
        """A connection of the engine's pool on which `begin` has been said."""
        while True:
            pooled = await greenlet_spawn(self.engine.sync_engine.raw_connection)
            driver: Any = pooled.driver_connection
            try:
                await driver.execute(begin.encode(), prepare=False)
                break
            except psycopg.OperationalError:
                await greenlet_spawn(pooled.invalidate)
                if not driver.closed:
                    raise
                # It died in the pool, with nothing done yet. Where the server is away, another can't be made.
            except BaseException:
                await greenlet_spawn(pooled.invalidate)
                raise
        try:
            yield driver
        finally:
            if not driver.closed and driver.info.transaction_status == TransactionStatus.IDLE:
                await greenlet_spawn(pooled.close)
            else:  # cut off in the middle of something
                await greenlet_spawn(pooled.invalidate)

    @asynccontextmanager
    async def unscoped(self) -> AsyncIterator[AsyncSession]:
        """One transaction that sees no tenant's row: for the named functions that cross Works."""
        async with self.transaction(Reach()) as session:
            yield session

    @asynccontextmanager
    async def owner_connection(self) -> AsyncIterator[MappedConnection]:
        """A connection as the tables' owner, to look at the schema itself. Raises: DatabaseUnavailable."""
        async with _translated(), self.engine.connect() as connection:
            yield connection

    async def has_second_wall(self) -> bool:
        """Whether row-level security binds the transactions. Looked up once; a database without a schema has it coming.

        Raises: DatabaseUnavailable.
        """
        if self.second_wall is None:
            async with self.owner_connection() as connection:
                can_take, has_schema = (await connection.execute(_WALL, {"role": APP_ROLE})).one()
            if not can_take and not has_schema:
                return True
            self.second_wall = bool(can_take)
        return self.second_wall

    async def begin(self, reach: Reach, *, timeout_s: float | None = None, read_only: bool = False) -> str:
        """BEGIN, the role and the reach as one message: one round trip. Only ids and numbers of ours stand in it.

        Raises: DatabaseUnavailable.
        """
        role = f"set_config('role', '{APP_ROLE}', true), " if await self.has_second_wall() else ""
        timeout_ms = int((timeout_s or self.statement_timeout_s) * 1000)
        return (
            f"begin{' read only' if read_only else ''}; select {role}"
            f"set_config('stackroom.works', '{array_literal(reach.works)}', true),"
            f" set_config('stackroom.organizations', '{array_literal(reach.organizations)}', true),"
            f" set_config('statement_timeout', '{timeout_ms}', true)"
        )

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


async def widen(session: Transaction, *works: UUID, organizations: Iterable[UUID] = ()) -> None:
    """Let the running transaction see these too (a new Work's id is added before its row is inserted)."""
    reach: Reach = session.info["reach"]
    wider = Reach(reach.works.union(works), reach.organizations.union(organizations))
    if wider == reach:
        return
    session.info["reach"] = wider
    driver: AsyncConnection[Any] = session.info["driver"]
    await driver.execute(_WIDEN, (array_literal(wider.works), array_literal(wider.organizations)))


def _refuse_aborted(driver: Any) -> None:
    if driver.info.transaction_status == TransactionStatus.INERROR:
        raise RuntimeError("an error was passed over: COMMIT would roll back without a word")


@asynccontextmanager
async def _translated() -> AsyncIterator[None]:
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, psycopg.OperationalError, psycopg.InterfaceError) as exc:
        raise DatabaseUnavailable(retry_after_s=2) from exc
    except DBAPIError as exc:
        if exc.connection_invalidated:
            raise DatabaseUnavailable(retry_after_s=2) from exc
        raise


def array_literal(ids: Iterable[UUID]) -> str:
    """Ids as the text of a Postgres array."""
    return "{" + ",".join(sorted(str(i) for i in ids)) + "}"


def make_engine(
    url: str,
    *,
    pool_size: int = 5,
    max_overflow: int = 5,
    pool_timeout_s: float = 5,
    application_name: str = "stackroom",
    prepares: bool = False,
    begins: bool = False,
) -> AsyncEngine:
    """An engine that works behind a transaction pooler: every knob is local to a transaction.

    `url` is any Postgres URL (`postgresql://`, `postgres://` or with `+psycopg`). `prepares` = statements are planned
    once per connection, which a transaction pooler would not allow. `begins` = the driver begins transactions by
    itself; without it whoever uses the engine sends BEGIN, as `Database.transaction` does together with the reach.
    """
    return create_async_engine(
        sqlalchemy_url(url),
        pool_size=pool_size,
        max_overflow=max_overflow,
        pool_timeout=pool_timeout_s,
        pool_use_lifo=True,
        connect_args={
            "prepare_threshold": PREPARE_THRESHOLD if prepares else None,
            "connect_timeout": 5,
            "application_name": application_name,
            "autocommit": not begins,  # from the connection's start: set for each checkout, it would be one more wait
        },
    )


def sqlalchemy_url(url: str) -> str:
    """The URL with the driver that we use."""
    for prefix in ("postgresql+psycopg://", "postgresql://", "postgres://"):
        if url.startswith(prefix):
            return "postgresql+psycopg://" + url[len(prefix) :]
    raise ValueError("KB_DATABASE_URL must start with postgresql://")


def driver_url(url: str) -> str:
    """The URL as libpq reads it."""
    return sqlalchemy_url(url).replace("postgresql+psycopg://", "postgresql://", 1)
