"""The sandbox's warm process: without threads, it forks children that read files, watches them and kills them in time.

A child that has parsed a format ends with that file. One that has only decoded plain text, a small one and quickly,
is handed further files, since a fork costs more than such a file. Each file has its own limit of time in any case.

Started by `sandbox.py` as `python -m app.extraction.sandbox_main LIMITS`, with its end of a socket pair as standard
input. It opens no file itself and ends when the other end is closed, that is also when the service is killed.
"""

import ctypes
import gc
import math
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NoReturn

from app.extraction import wire
from app.extraction.contract import DocumentTooLarge, ExtractionFailed, Limits
from app.extraction.dispatch import extract_kind, is_plain
from app.extraction.sniff import sniff
from app.extraction.text import decode
from app.extraction.wire import COMMAND, EXIT_OUT_OF_MEMORY, RUN, RUN_ALONE, STATUS, STOP, Ending

_LOOK_AROUND_S = 1.0  # how often the process looks whether its parent still lives
_PR_SET_PDEATHSIG = 1
_MAX_OPEN_FILES = 64
_LEASH_FD = 3
_DONE = b"."  # what a child says that has answered and may be handed another file
_MOST_FILES = 100  # of one child
_MOST_CPU_S = 1.0  # of a child that is handed another file; what it has used is added to every file's limit
_MOST_ANSWER_BYTES = 1 << 20  # the same, so that it has not grown
_IDLE_S = 5.0


@dataclass
class _Child:
    """A child and the file it reads; `number` is None while it waits for the next one."""

    number: int | None
    pid: int
    deadline: float
    leash: socket.socket
    is_overdue: bool = False
    is_used: bool = False  # it has read another file before


class Warden:
    """Obeys the commands that come over `control` until it is closed."""

    def __init__(self, control: socket.socket, limits: Limits) -> None:
        self._control = control
        self._limits = limits
        self._parent = os.getppid()
        self._children: list[_Child] = []
        self._selector = selectors.DefaultSelector()
        self._alarm, self._alarm_sender = socket.socketpair()

    def run(self) -> None:
        """Serve until the other end is closed or the parent is gone; no child survives."""
        self._alarm.setblocking(False)
        self._alarm_sender.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._alarm_sender.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        try:
            while os.getppid() == self._parent and self._turn():
                pass
        except ConnectionError:
            pass  # the service is gone
        finally:
            for child in self._children:
                _kill(child.pid)

    def _turn(self) -> bool:
        """Wait for the next thing to do and do it; False when the other end is closed."""
        next_deadline = min((child.deadline for child in self._children), default=math.inf)
        wait_s = min(max(next_deadline - time.monotonic(), 0), _LOOK_AROUND_S)
        ready = [key.fileobj for key, _ in self._selector.select(wait_s)]
        if self._alarm in ready:
            with suppress(BlockingIOError):
                self._alarm.recv(4096)
        for child in self._children:
            if child.leash in ready:
                self._hear(child)
        if self._control in ready and not self._obey():
            return False
        self._end_overdue()
        self._report_ended()
        return True

    def _obey(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, COMMAND.size, 1)
        if len(message) < COMMAND.size:
            return False
        command, number = COMMAND.unpack(message)
        if command in (RUN, RUN_ALONE) and descriptors:
            try:
                self._run(number, descriptors[0], alone=command == RUN_ALONE)
            finally:
                os.close(descriptors[0])
        elif command == STOP:
            for child in self._children:
                if child.number == number:
                    _kill(child.pid)
        return True

    def _run(self, number: int, descriptor: int, *, alone: bool) -> None:
        """Hand the file to a child that waits, else or `alone` to a new one."""
        deadline = time.monotonic() + self._limits.timeout_s
        for child in () if alone else self._children:
            if child.number is None and not child.is_overdue and _ended(child) is None:
                with suppress(OSError):
                    socket.send_fds(child.leash, [_DONE], [descriptor])
                    child.number, child.deadline, child.is_used = number, deadline, True
                    return
        self._start(number, descriptor, deadline)

    def _start(self, number: int, descriptor: int, deadline: float) -> None:
        own_pid = os.getpid()
        try:
            ours, theirs = socket.socketpair()
        except OSError as exc:
            self._report(number, Ending.NOT_STARTED, exc.errno or 0)
            return
        with theirs:
            try:
                pid = os.fork()
            except OSError as exc:
                ours.close()
                self._report(number, Ending.NOT_STARTED, exc.errno or 0)
                return
            if pid == 0:
                _be_child(descriptor, theirs.fileno(), self._limits, parent=own_pid)
        ours.setblocking(False)
        self._selector.register(ours, selectors.EVENT_READ)
        self._children.append(_Child(number, pid, deadline, ours))

    def _hear(self, child: _Child) -> None:
        """A child has read its file and waits for the next, unless its time was over first."""
        try:
            is_done = child.leash.recv(1) == _DONE
        except OSError:
            is_done = False
        if not is_done:  # it ends; how is told by the kernel
            self._selector.unregister(child.leash)
            return
        if child.number is not None and not child.is_overdue:
            self._report(child.number, Ending.EXITED, 0)
            child.number, child.deadline = None, time.monotonic() + _IDLE_S

    def _end_overdue(self) -> None:
        now = time.monotonic()
        for child in self._children:
            if child.deadline <= now and not child.is_overdue:
                child.is_overdue = True
                child.deadline = math.inf
                _kill(child.pid)

    def _report_ended(self) -> None:
        for child in list(self._children):
            ended = _ended(child)
            if ended is None:
                continue
            _kill(child.pid)  # whatever it has started itself
            os.waitpid(child.pid, 0)
            self._children.remove(child)
            with suppress(KeyError):
                self._selector.unregister(child.leash)
            child.leash.close()
            if child.number is None:
                continue
            if child.is_overdue:
                self._report(child.number, Ending.TIMED_OUT, 0)
            elif child.is_used and ended.si_code != os.CLD_EXITED:
                self._report(child.number, Ending.LOST, ended.si_status)
            else:
                ending = Ending.EXITED if ended.si_code == os.CLD_EXITED else Ending.SIGNALLED
                self._report(child.number, ending, ended.si_status)

    def _report(self, number: int, ending: Ending, status: int) -> None:
        self._control.sendall(STATUS.pack(number, ending, status))


def main() -> None:
    """Take the control socket from standard input and serve it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the service decides when this process ends
    control = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    decode("Détection : les modèles du détecteur sont lus ici, une fois pour tous les enfants.".encode("cp1252"))
    gc.collect()
    gc.freeze()
    Warden(control, wire.limits_from_text(sys.argv[1])).run()


def _kill(pid: int) -> None:
    """Kill a child and its group; a child that has not yet made its own group is killed alone."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _ended(child: _Child) -> "os.waitid_result | None":
    """How a child ended. Looked at, not collected: while it is a zombie its group's number goes to nobody else."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def _be_child(descriptor: int, leash: int, limits: Limits, *, parent: int) -> NoReturn:
    """Read a file, and further ones while they are only plain text, and end; nothing of the warm process runs on."""
    status = 1
    try:
        gc.disable()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        _die_with(parent)
        stream, control = _keep(descriptor, leash)
        os.dup2(0, 2)
        _confine(limits)
        for files_left in reversed(range(_MOST_FILES)):
            with stream:
                answer, was_plain = _answer(stream, limits)
                stream.sendall(answer)
            has_grown = len(answer) > _MOST_ANSWER_BYTES or time.process_time() > _MOST_CPU_S
            if not (files_left and was_plain) or has_grown:
                break
            control.sendall(_DONE)
            message, descriptors, _, _ = socket.recv_fds(control, len(_DONE), 1)
            if not message or not descriptors:
                break
            stream = socket.socket(fileno=descriptors[0])
        status = 0
    except MemoryError:
        status = EXIT_OUT_OF_MEMORY
    finally:
        os._exit(status)


def _keep(descriptor: int, leash: int) -> tuple[socket.socket, socket.socket]:
    """The two sockets of a child, and nothing else that the warm process has open."""
    stream = os.dup(descriptor)
    while stream <= _LEASH_FD:  # not to be overwritten
        stream = os.dup(descriptor)
    os.dup2(leash, _LEASH_FD)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(_LEASH_FD + 1, stream)
    os.closerange(stream + 1, most)
    return socket.socket(fileno=stream), socket.socket(fileno=_LEASH_FD)


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when the warm one dies (Linux; elsewhere the time limit does)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _confine(limits: Limits) -> None:
    cpu_s = math.ceil(limits.timeout_s + _MOST_CPU_S)
    for what, most in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _MAX_OPEN_FILES),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (most, most))
    with suppress(OSError):  # not on every system; where the machine runs short, this process is to go first
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(stream: socket.socket, limits: Limits) -> tuple[bytes, bool]:
    """The answer to the request on a file's own socket, and whether the file was only decoded and all went well."""
    received = bytearray()
    while step := stream.recv(65_536):
        received += step
    request = wire.request_from_bytes(received)
    try:
        request.path.open("rb").close()
    except OSError as exc:
        return wire.unreadable_to_bytes(exc), False
    try:
        kind = sniff(request.path, name=request.name, declared_type=request.declared_type, limits=limits)
        return wire.extracted_to_bytes(extract_kind(request.path, kind, limits=limits)), is_plain(kind)
    except ExtractionFailed as exc:
        return wire.failure_to_bytes(exc), False
    except (MemoryError, RecursionError):
        return wire.failure_to_bytes(DocumentTooLarge()), False
    except Exception as exc:  # a library's surprise at a hostile file; this child ends anyway, the service logs it
        return wire.fault_to_bytes(type(exc).__name__, _place(exc.__traceback__)), False


def _place(trace: TracebackType | None) -> str:
    """Where an exception arose, without its message, which may quote the file."""
    frames = traceback.extract_tb(trace)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"


if __name__ == "__main__":
    main()
