"""The data directory: one holder at a time, and who may go where in it."""

import fcntl
import os
import pwd
import stat
import subprocess
from pathlib import Path
from types import TracebackType
from typing import TypedDict

from app.errors import Conflict, Misconfigured

_SERVICE_USER = "embedded_postgres"


class DataDirectoryInUse(Conflict):
    """Another process is using this data directory."""

    code = "data_directory_in_use"


class NoServiceUser(Misconfigured):
    """PostgreSQL refuses to run as root, and no other user could be made for it."""

    code = "no_service_user"


class DataDirectoryLock:
    """At most one holder per data directory; the system lets go when the holder dies, however it dies."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir.absolute() / "lock"
        self._fd: int | None = None

    def __enter__(self) -> "DataDirectoryLock":
        """Take the lock. Raises: DataDirectoryInUse, naming the holder."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode("ascii", "replace").strip()
            os.close(fd)
            raise DataDirectoryInUse(
                f"The data directory {self._path.parent} is in use by process {holder or '(unknown)'}: "
                "stop that one, or choose another directory with --data-dir."
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Identity(TypedDict, total=False):
    """Arguments of `subprocess` that say as whom a program runs; empty = as we do."""

    user: int
    group: int
    extra_groups: list[int]


def identity_of_owner(path: Path) -> Identity:
    """As whom a program runs that owns `path`: only root can be somebody else."""
    if os.geteuid() != 0:
        return {}
    owner = path.stat()
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def service_user() -> tuple[int, int]:
    """User and group id of the user without rights as whom root runs the database; made when absent.

    Raises: NoServiceUser.
    """
    try:
        entry = pwd.getpwnam(_SERVICE_USER)
    except KeyError:
        _make_service_user()
        entry = pwd.getpwnam(_SERVICE_USER)
    return entry.pw_uid, entry.pw_gid


def _make_service_user() -> None:
    command = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", _SERVICE_USER]
    way_out = "run Stackroom as an ordinary user, or set KB_DATABASE_URL."
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    except FileNotFoundError as exc:
        raise NoServiceUser(f"PostgreSQL refuses to run as root, and useradd is not installed: {way_out}") from exc
    if done.returncode != 0:
        raise NoServiceUser(f"PostgreSQL refuses to run as root, and useradd failed ({done.stderr.strip()}): {way_out}")


def let_others_pass(path: Path) -> None:
    """Let other users walk through (not list) the directories above `path`, so that a service user can reach it."""
    for directory in path.resolve().parents:
        mode = directory.stat().st_mode
        if not mode & stat.S_IXOTH:
            directory.chmod(stat.S_IMODE(mode) | stat.S_IXOTH)
