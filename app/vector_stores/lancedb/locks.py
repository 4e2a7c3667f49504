"""Writers and droppers of a table keep apart, between the tasks and processes that share a directory.

LanceDB settles writers among themselves, but a commit that meets a `drop_table` halfway revives a table without its
files. So whoever changes a table holds its lock shared, and whoever drops it holds it alone. Object storage has no such
lock: there the service's own order (no delete while a writer's lease lives, delete and count again) has to do.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from zlib import crc32

from app.vector_stores.contract import VectorStoreUnavailable

STRIPES = 64  # a fixed set of files: one per table could never be removed safely
FIRST_WAIT_S, LONGEST_WAIT_S = 0.001, 0.05


class Locks:
    """Advisory file locks in a directory; in none (`directory` None) nobody waits for anybody."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    @asynccontextmanager
    async def shared(self, table: str, *, wait_s: float) -> AsyncIterator[None]:
        """For as many at a time as like. Raises: VectorStoreUnavailable when it takes too long."""
        async with self._held(table, fcntl.LOCK_SH, wait_s) as held:
            if not held:
                raise VectorStoreUnavailable("the table is being dropped")
            yield

    @asynccontextmanager
    async def alone(self, table: str, *, wait_s: float) -> AsyncIterator[None]:
        """For one at a time, and nobody beside. Raises: VectorStoreUnavailable when it takes too long."""
        async with self._held(table, fcntl.LOCK_EX, wait_s) as held:
            if not held:
                raise VectorStoreUnavailable("the table is being written to")
            yield

    @asynccontextmanager
    async def if_free(self, task: str) -> AsyncIterator[bool]:
        """Whether nobody else is at this task; if so, nobody else will be."""
        async with self._held(task, fcntl.LOCK_EX, 0.0) as held:
            yield held

    @asynccontextmanager
    async def _held(self, name: str, kind: int, wait_s: float) -> AsyncIterator[bool]:
        if self._directory is None:
            yield True
            return
        descriptor = self._open(name)
        try:
            yield await _taken(descriptor, kind, wait_s)
        finally:
            os.close(descriptor)  # lets go of the lock

    def _open(self, name: str) -> int:
        assert self._directory is not None
        kind = "upkeep" if name.startswith("upkeep ") else "table"
        path = self._directory / f"{kind}-{crc32(name.encode()) % STRIPES:02d}"
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            self._directory.mkdir(parents=True, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


async def _taken(descriptor: int, kind: int, wait_s: float) -> bool:
    loop = asyncio.get_running_loop()
    ends_at, pause_s = loop.time() + wait_s, FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if loop.time() >= ends_at:
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)
        else:
            return True
