"""The file: a connection for each thread, statements off the event loop, SQLite's errors as the contract's."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreUnavailable

T = TypeVar("T")
BUSY_WAIT_S = 10.0
SCHEMA = """
create table if not exists chunks (
    work blob, space text, document blob, build integer, chunk integer, base blob, vector blob,
    primary key (work, space, document, build, chunk)
) without rowid
"""


class Database:
    """Opened by the first statement, so that building a store connects to nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mine = threading.local()
        self._opening = threading.Lock()
        self._opened: list[sqlite3.Connection] = []

    async def run(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Do something with a connection in a thread, as one transaction; `writes` waits for other writers first.

        Raises: VectorStoreUnavailable (the file can't be opened, or is busy), VectorStoreMisconfigured (no database).
        """
        try:
            return await asyncio.to_thread(self._run, work, writes)
        except sqlite3.OperationalError as exc:
            raise VectorStoreUnavailable("the SQLite file can't be opened or is busy") from exc
        except sqlite3.DatabaseError as exc:
            raise VectorStoreMisconfigured("the file is not a SQLite database") from exc

    def _run(self, work: Callable[[sqlite3.Connection], T], writes: bool) -> T:
        connection = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self._open()
        connection.execute("begin immediate" if writes else "begin")
        try:
            result = work(connection)
        except BaseException:
            connection.execute("rollback")
            raise
        connection.execute("commit")
        return result

    def _open(self) -> sqlite3.Connection:
        with self._opening:
            connection = sqlite3.connect(self._path, timeout=BUSY_WAIT_S, isolation_level=None, check_same_thread=False)
            self._opened.append(connection)
            deadline = time.monotonic() + BUSY_WAIT_S
            while True:  # SQLite's own patience does not cover the change of the journal's mode
                try:
                    connection.execute("pragma journal_mode = wal")
                    connection.execute(SCHEMA)
                except sqlite3.OperationalError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
                else:
                    return connection

    def close(self) -> None:
        """Close every thread's connection."""
        while self._opened:
            self._opened.pop().close()
        self._mine = threading.local()
