"""`stackroom serve`: the embedded database, one API process and the job workers, as one process group."""

import asyncio
import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rich.console import Console

from app import logs
from app.db.data_directory import DataDirectoryLock
from app.db.embedded import EmbeddedServer
from app.errors import AppError
from app.settings import Settings

READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 15
QUICK_DEATH_S = 10
MAX_QUICK_DEATHS = 5
_PR_SET_PDEATHSIG = 1
console = Console(highlight=False)


def die_with_parent() -> None:
    """Ask the kernel to end this process when its parent ends, however that happens (Linux only)."""
    if sys.platform != "linux":
        return
    parent = os.environ.get("STACKROOM_PARENT_PID")
    if parent is None:
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if str(os.getppid()) != parent:  # it ended before we asked
        raise SystemExit(1)


@dataclass
class Child:
    """A child process that is started again when it dies."""

    name: str
    command: Sequence[str]
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = None
    started: float = 0
    quick_deaths: int = 0

    def start(self) -> None:
        """Start it in a session of its own: a Ctrl-C on the terminal is for the parent, who stops all in order."""
        self.started = time.monotonic()
        self.process = subprocess.Popen(  # noqa: S603 - our own program
            self.command, env=self.environment, start_new_session=True
        )

    def ended(self) -> int | None:
        """Its exit code, None while it runs."""
        return None if self.process is None else self.process.poll()

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def wait_or_kill(self, deadline: float) -> None:
        """Wait until the deadline, then SIGKILL its group."""
        if self.process is None:
            return
        try:
            self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@dataclass
class Supervisor:
    """Keeps the children running until a signal or a child that dies again and again ends it."""

    children: list[Child]
    stopping: bool = False
    exit_code: int = 0
    _signalled: list[int] = field(default_factory=list)

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: stop in order; a second signal changes nothing."""
        self._signalled.append(number)
        self.stopping = True

    def run(self) -> int:
        """Watch until told to stop; the exit code."""
        while not self.stopping:
            for child in self.children:
                code = child.ended()
                if code is not None:
                    self._after_death(child, code)
            time.sleep(0.2)
        return self.exit_code

    def _after_death(self, child: Child, code: int) -> None:
        quick = time.monotonic() - child.started < QUICK_DEATH_S
        child.quick_deaths = child.quick_deaths + 1 if quick else 1
        if child.quick_deaths >= MAX_QUICK_DEATHS:
            console.print(f"[red]{child.name} ended {MAX_QUICK_DEATHS} times in a row (exit code {code}); stopping.[/]")
            self.exit_code, self.stopping = code if code > 0 else 1, True
            return
        console.print(f"{child.name} ended with exit code {code}; starting it again.")
        time.sleep(min(5.0, 0.2 * 2**child.quick_deaths))
        child.start()

    def stop(self) -> None:
        """Ask everyone at once, then wait for each."""
        for child in self.children:
            child.ask_to_stop()
        deadline = time.monotonic() + STOP_TIMEOUT_S
        for child in self.children:
            child.wait_or_kill(deadline)


def serve(settings: Settings, host: str, port: int, workers: int) -> int:
    """Run everything until Ctrl-C or SIGTERM; the exit code."""
    logs.configure(level="warning", form=settings.log_format)
    started = time.monotonic()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    try:
        with DataDirectoryLock(settings.data_dir), _database(settings) as database:
            return _serve(settings, database, host, port, workers, started)
    except AppError as error:
        console.print(f"[red]{error.message}[/]")
        return 1


@contextlib.contextmanager
def _database(settings: Settings) -> Iterator["_Database"]:
    """The external database, or the embedded one, launched but not waited for."""
    if settings.database_url is not None:
        yield _Database(settings.database_url.get_secret_value(), None, False)
        return
    server = EmbeddedServer(settings.data_dir)
    existed = (server.directory / "PG_VERSION").exists()
    console.print("Starting the database …")
    try:
        server.launch()
        yield _Database(server.dsn, server, existed)
    finally:
        server.stop()


@dataclass(frozen=True)
class _Database:
    """Where the database is; `server` when it is ours; `existed` = an earlier start has made its schema."""

    dsn: str
    server: EmbeddedServer | None
    existed: bool


def _serve(settings: Settings, database: _Database, host: str, port: int, workers: int, started: float) -> int:
    """The API starts beside the database when there was one before; workers start when the schema is right."""
    if not _is_free(host, port):
        console.print(f"[red]Port {port} on {host} is in use; choose another with --port.[/]")
        return 1
    supervisor = Supervisor(_children(settings, database.dsn, host, port, workers))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, supervisor.handle)
    try:
        if database.existed:
            supervisor.children[0].start()
        _prepare(settings, database)
        for child in supervisor.children:
            if child.process is None:
                child.start()
        if _wait_until_ready(supervisor, host, port):
            _announce(settings, host, port, time.monotonic() - started)
            code = supervisor.run()
        else:
            code = supervisor.exit_code or (0 if supervisor.stopping else 1)
    finally:
        console.print("Stopping …")
        supervisor.stop()
    return code


def _prepare(settings: Settings, database: _Database) -> None:
    from app.assembly import prepare_database

    _ensure_model(settings)
    if database.server is not None:
        database.server.wait_until_ready()
    asyncio.run(prepare_database(settings, database.dsn, alone=database.server is not None))


def _ensure_model(settings: Settings) -> None:
    from app.ai_providers.packaged import ModelNotBuilt, build_model, open_model

    try:
        open_model(settings.model_location)
    except ModelNotBuilt:
        console.print("Building the packaged embedding model (once, about half a minute) …")
        build_model(settings.model_location)


def _children(settings: Settings, dsn: str, host: str, port: int, workers: int) -> list[Child]:
    environment = {
        **os.environ,
        "KB_DATABASE_URL": dsn,
        "KB_DATA_DIR": str(settings.data_dir.absolute()),
        "STACKROOM_PARENT_PID": str(os.getpid()),
    }
    program = [sys.executable, "-m", "app.cli"]
    api = Child("API", [*program, "api", "--host", host, "--port", str(port)], environment)
    return [api, *(Child(f"worker {n + 1}", [*program, "worker"], environment) for n in range(workers))]


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _address(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host  # noqa: S104
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _wait_until_ready(supervisor: Supervisor, host: str, port: int) -> bool:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and not supervisor.stopping:
        try:
            with urllib.request.urlopen(f"{_address(host, port)}/readyz", timeout=5):  # noqa: S310
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        for child in supervisor.children:
            code = child.ended()
            if code is not None:
                console.print(
                    f"[red]{child.name} ended with exit code {code} before it was ready; see its log above.[/]"
                )
                supervisor.exit_code = code if code > 0 else 1
                return False
    return False


def _announce(settings: Settings, host: str, port: int, took_s: float) -> None:
    address = _address(host, port)
    key_file: Path = settings.data_dir.absolute() / "first-api-key"
    console.print(f"\n[bold]Stackroom is ready[/] after {took_s:.1f} s")
    console.print(f"  address    {address}/v1")
    console.print(f"  try it     {address}/docs")
    if settings.bootstrap_api_key is not None:
        console.print("  first key  the one in KB_BOOTSTRAP_API_KEY")
    elif key_file.exists():
        console.print(f"  first key  in {key_file}", soft_wrap=True)
    console.print("  Ctrl-C stops everything.\n")
