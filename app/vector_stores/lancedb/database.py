"""The connection to one LanceDB database: opened when first needed, its calls limited in time, repeated in conflict."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from app.plugins.manifest import PluginManifest
from app.vector_stores.contract import VectorStoreUnavailable
from app.vector_stores.lancedb.failures import Contended, TableGone, translated
from app.vector_stores.lancedb.locks import Locks
from app.vector_stores.lancedb.places import Place
from app.vector_stores.lancedb.rows import schema_of
from app.vector_stores.lancedb.sdk import Sdk, load
from app.vector_stores.lancedb.settings import LanceDbSettings

T = TypeVar("T")
Table = Any

ATTEMPTS = 6
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0
METADATA_CACHE_MB = 64
LOCKS = ".locks"


class Database:
    """Opens a table for each call: that costs 0.15 ms, and no handle outlives a table that another process drops."""

    def __init__(self, settings: LanceDbSettings, *, directory: Path | None, manifest: PluginManifest) -> None:
        """`directory` is where the tables are; None = in `settings.uri`."""
        self._settings, self._manifest = settings, manifest
        self.directory = directory
        self.locks = Locks(None if directory is None else directory / LOCKS)
        self._opening = asyncio.Lock()
        self._sdk: Sdk | None = None
        self._connection: Any = None
        self._is_closed = False

    async def sdk(self) -> Sdk:
        """LanceDB's package; the first call imports it. Raises: MissingExtra."""
        if self._sdk is None:
            self._sdk = await load(self._manifest)
        return self._sdk

    async def connection(self) -> Any:
        """The connection; the first call opens it.

        Raises: MissingExtra, VectorStoreUnavailable, VectorStoreMisconfigured.
        """
        sdk = await self.sdk()
        async with self._opening:
            if self._is_closed:
                raise VectorStoreUnavailable("this vector store has been closed")
            if self._connection is None:
                with translated():
                    self._connection = await sdk.lancedb.connect_async(
                        self._settings.uri if self.directory is None else str(self.directory),
                        read_consistency_interval=timedelta(0),  # commits of other processes are seen by the next read
                        storage_options=self._settings.options() if self.directory is None else None,
                        session=sdk.lancedb.Session(
                            index_cache_size_bytes=self._settings.cache_mb << 20,
                            metadata_cache_size_bytes=METADATA_CACHE_MB << 20,
                        ),
                    )
            return self._connection

    async def read(self, place: Place, body: Callable[[Table], Awaitable[T]], *, timeout_s: float) -> T | None:
        """What `body` makes of the table; None when there is no table. Files may be tidied away under a reader:
        then it reads once more.

        Raises: VectorStoreUnavailable, VectorStoreMisconfigured, VectorStoreRefused.
        """

        async def attempt() -> T | None:
            try:
                return await body(await self._open(place))
            except TableGone:
                return None

        return await self._repeated(attempt, timeout_s)

    async def change(self, place: Place, body: Callable[[Table], Awaitable[T]], *, timeout_s: float) -> T | None:
        """The same for a body that commits: nobody drops the table meanwhile."""

        async def attempt() -> T | None:
            async with self.locks.shared(place.table, wait_s=timeout_s):
                try:
                    return await body(await self._open(place))
                except TableGone:
                    return None

        return await self._repeated(attempt, timeout_s)

    async def fill(self, place: Place, body: Callable[[Table], Awaitable[T]], *, timeout_s: float) -> T:
        """The same for a body that needs the table: it is made when it isn't there."""

        async def attempt() -> T:
            async with self.locks.shared(place.table, wait_s=timeout_s):
                try:
                    return await body(await self._open_or_make(place))
                except TableGone as exc:
                    raise Contended("the table was dropped while it was written to") from exc

        return await self._repeated(attempt, timeout_s)

    async def drop(self, place: Place, *, timeout_s: float) -> None:
        """The table is gone with its files."""

        async def attempt() -> None:
            async with self.locks.alone(place.table, wait_s=timeout_s):
                connection = await self.connection()
                with translated():
                    await connection.drop_table(place.table, ignore_missing=True)

        await self._repeated(attempt, timeout_s)

    async def ping(self) -> None:
        """One cheap round trip. Raises: as `connection`."""
        connection = await self.connection()
        with translated():
            await connection.list_tables(limit=1)

    async def close(self) -> None:
        """Let go of the connection; nothing opens it again."""
        async with self._opening:
            self._is_closed = True
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    async def _open(self, place: Place) -> Table:
        connection = await self.connection()
        with translated():
            return await connection.open_table(place.table)

    async def _open_or_make(self, place: Place) -> Table:
        try:
            return await self._open(place)
        except TableGone:
            connection, schema = await self.connection(), schema_of(await self.sdk(), place.space)
            with translated():
                return await connection.create_table(place.table, schema=schema, exist_ok=True)

    async def _repeated(self, attempt: Callable[[], Awaitable[T]], timeout_s: float) -> T:
        await self.sdk()  # its import is not on the clock
        with translated():
            async with asyncio.timeout(timeout_s):
                async for turn in AsyncRetrying(
                    retry=retry_if_exception_type(Contended),
                    stop=stop_after_attempt(ATTEMPTS),
                    wait=wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S),
                    reraise=True,
                ):
                    with turn, translated():
                        return await attempt()
        raise AssertionError("unreachable: reraise=True")  # for the type checker
