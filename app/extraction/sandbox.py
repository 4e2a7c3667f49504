"""The extractor the service uses: every file is read in a process of its own that may be killed."""

import asyncio
import itertools
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from app.errors import Unavailable
from app.extraction import wire
from app.extraction.contract import Corrupt, DocumentTooLarge, Extracted, ExtractionTimeout, Limits
from app.extraction.fingerprint import fingerprint
from app.extraction.wire import (
    COMMAND,
    EXIT_OUT_OF_MEMORY,
    RUN,
    RUN_ALONE,
    STATUS,
    STOP,
    Ending,
    Incomplete,
    ReaderFault,
)

_GRACE_S: Final = 10.0  # beyond a file's own time limit; only a hanging machine ever uses it up
_READ_BYTES: Final = 1 << 20
_DECODED_ON_THE_LOOP_BYTES: Final = 1 << 16
_MAX_HEAD_BYTES: Final = 1 << 28
_INHERITED: Final = ("PATH", "LD_LIBRARY_PATH")  # everything else, secrets above all, stays outside
_OUT_OF_MEMORY_SIGNALS: Final = frozenset({signal.SIGKILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGILL})

_log = structlog.get_logger(__name__)


class SandboxUnavailable(Unavailable):
    """No process could be started to read the file; it will be tried again."""

    code = "sandbox_unavailable"


class SandboxedExtractor:
    """An `Extractor` that reads up to `processes` files at a time, each within `limits`.

    The warm process is started with the first file and again whenever it has died. `temp_dir` is where libraries
    may look for scratch space; nothing is written there today. To be used from one event loop.
    """

    def __init__(self, limits: Limits | None = None, *, processes: int = 2, temp_dir: Path | None = None) -> None:
        self._limits = limits or Limits()
        self._temp_dir = temp_dir or Path(tempfile.gettempdir())
        self._slots = asyncio.Semaphore(processes)
        self._starting = asyncio.Lock()
        self._warm: _WarmProcess | None = None
        self._directory = Path.cwd()
        self._is_closed = False
        self._fingerprint = fingerprint()

    @property
    def fingerprint(self) -> str:
        """Versions of everything that decides what the text is."""
        return self._fingerprint

    async def extract(self, path: Path, *, name: str, declared_type: str | None) -> Extracted:
        """Extract the text of a local file; `name` is the uploader's, `declared_type` the sender's claim.

        Cancelling the call kills the process that reads the file.
        Raises: a subclass of ExtractionFailed (permanent); SandboxUnavailable; OSError when `path` cannot be opened.
        """
        request = wire.request_to_bytes(wire.Request(self._directory / path, name, declared_type))
        async with self._slots:
            for alone in (False, True):  # a process may have been killed before it came to this file: once more
                warm = await self._running()
                try:
                    return await warm.read(request, alone=alone)
                except _WarmProcessDied:
                    _log.warning("extraction.sandbox_died")
                except _ReaderLost:
                    _log.warning("extraction.reader_lost")
                except ReaderFault as fault:
                    _log.error("extraction.reader_fault", kind=fault.kind, place=fault.place)
                    raise
        raise SandboxUnavailable

    async def close(self) -> None:
        """End all processes. Files being read end as SandboxUnavailable, as does every later call."""
        self._is_closed = True
        async with self._starting:
            if self._warm is not None:
                await self._warm.close()
                self._warm = None

    async def _running(self) -> "_WarmProcess":
        async with self._starting:
            if self._is_closed:
                raise SandboxUnavailable("The service is stopping.")
            if self._warm is not None and not self._warm.is_alive:
                await self._warm.close()
                self._warm = None
            if self._warm is None:
                self._warm = _WarmProcess(self._limits, self._temp_dir)
            return self._warm


class _WarmProcessDied(Exception):
    """The warm process ended before the file did."""


class _ReaderLost(Exception):
    """The process that had read other files was killed before or while it read this one."""


class _WarmProcess:
    """The service's end of one warm process."""

    def __init__(self, limits: Limits, temp_dir: Path) -> None:
        self._limits = limits
        self._numbers = itertools.count(1)
        self._endings: dict[int, asyncio.Future[tuple[Ending, int]]] = {}
        self._control, theirs = socket.socketpair()
        self._control.setblocking(False)
        with theirs:
            try:
                self._process = _start(theirs, limits, temp_dir)
            except OSError as exc:
                self._control.close()
                raise SandboxUnavailable from exc
        self.is_alive = True
        self._listener = asyncio.create_task(self._listen())

    async def read(self, request: bytes, *, alone: bool = False) -> Extracted:
        """Have one file read, `alone` by a process that has read nothing else.

        Raises: as `SandboxedExtractor.extract`, _WarmProcessDied, and _ReaderLost unless `alone`.
        """
        number = next(self._numbers)
        ending = asyncio.get_running_loop().create_future()
        self._endings[number] = ending
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                self._command(RUN_ALONE if alone else RUN, number, theirs)
            async with asyncio.timeout(self._limits.timeout_s + _GRACE_S):
                answer = await self._exchange(ours, request)
                how, status = await ending
        except TimeoutError:
            self._process.kill()
            raise self._timed_out() from None
        finally:
            ours.close()
            del self._endings[number]
            if not ending.done() and self.is_alive:
                with suppress(_WarmProcessDied):
                    self._command(STOP, number)
        self._refuse_unless_complete(how, status)
        try:
            if len(answer) <= _DECODED_ON_THE_LOOP_BYTES:
                return wire.answer_from_bytes(answer)
            return await asyncio.to_thread(wire.answer_from_bytes, answer)
        except Incomplete as exc:
            raise ReaderFault(f"exit code {status}", "unknown") from exc

    async def close(self) -> None:
        """End the process and everything it has started, and wait for that."""
        self.is_alive = False
        self._listener.cancel()
        with suppress(asyncio.CancelledError):
            await self._listener
        self._control.close()
        self._fail_all()
        try:
            await asyncio.to_thread(self._process.wait, 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)

    def _command(self, command: int, number: int, attached: socket.socket | None = None) -> None:
        message = COMMAND.pack(command, number)
        try:
            if attached is None:
                self._control.send(message)
            else:
                socket.send_fds(self._control, [message], [attached.fileno()])
        except OSError as exc:
            self.is_alive = False
            raise _WarmProcessDied from exc

    async def _exchange(self, stream: socket.socket, request: bytes) -> bytearray:
        loop = asyncio.get_running_loop()
        answer = bytearray()
        most = self._limits.max_characters * 4 + _MAX_HEAD_BYTES
        try:
            await loop.sock_sendall(stream, request)
            stream.shutdown(socket.SHUT_WR)
            while step := await loop.sock_recv(stream, _READ_BYTES):
                answer += step
                if len(answer) > most:
                    raise DocumentTooLarge
        except ConnectionError:
            answer.clear()  # the child is gone; how it ended says why
        return answer

    def _refuse_unless_complete(self, how: Ending, status: int) -> None:
        if how is Ending.LOST:
            raise _ReaderLost
        if how is Ending.NOT_STARTED:
            raise SandboxUnavailable(f"No process could be started to read the file: {os.strerror(status)}.")
        if how is Ending.TIMED_OUT or (how is Ending.SIGNALLED and status == signal.SIGXCPU):
            raise self._timed_out()
        if how is Ending.SIGNALLED:
            if status in _OUT_OF_MEMORY_SIGNALS:
                raise DocumentTooLarge("The file needs more memory than one file may use.")
            raise Corrupt("The file makes its reader crash.")
        if status == EXIT_OUT_OF_MEMORY:
            raise DocumentTooLarge("The file needs more memory than one file may use.")

    def _timed_out(self) -> ExtractionTimeout:
        return ExtractionTimeout(f"The file took longer than {self._limits.timeout_s:g} seconds to read.")

    async def _listen(self) -> None:
        """Hand each ending to whoever waits for it, until the process is gone."""
        loop = asyncio.get_running_loop()
        received = bytearray()
        with suppress(ConnectionError):
            while step := await loop.sock_recv(self._control, 4096):
                received += step
                while len(received) >= STATUS.size:
                    number, how, status = STATUS.unpack_from(received)
                    del received[: STATUS.size]
                    ending = self._endings.get(number)
                    if ending is not None and not ending.done():
                        ending.set_result((Ending(how), status))
        self.is_alive = False
        self._fail_all()

    def _fail_all(self) -> None:
        for ending in self._endings.values():
            if not ending.done():
                ending.set_exception(_WarmProcessDied())


def _start(control: socket.socket, limits: Limits, temp_dir: Path) -> "subprocess.Popen[bytes]":
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),  # the same modules as here
        "LC_ALL": "C.UTF-8",
        "TMPDIR": str(temp_dir),
    }
    return subprocess.Popen(  # noqa: S603 - no word of the command comes from outside
        [sys.executable, "-P", "-m", "app.extraction.sandbox_main", wire.limits_to_text(limits)],
        stdin=control.fileno(),
        stdout=subprocess.DEVNULL,
        env=environment,
        cwd=temp_dir,
        start_new_session=True,  # Ctrl-C is for the service
    )
