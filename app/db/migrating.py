"""The schema: bring it to the newest revision, alone; and say how what is there relates to what this version needs."""

import functools
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psycopg
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

import app
from app.db.engine import DatabaseUnavailable, driver_url, sqlalchemy_url
from app.errors import Misconfigured, Unavailable

# `migrations` stands beside `app`: in the source tree and in an installed wheel alike.
MIGRATIONS = Path(app.__file__).resolve().parent.parent / "migrations"
BRANCHES = ("versions", "pgvector")
_ADVISORY_LOCK = 0x5374_6163_6B72_6F6F  # "Stackroo"
_POLL_S = 0.1


class SchemaBehind(Misconfigured):
    """The database's schema is older than this version of Stackroom: run `stackroom migrate`."""

    code = "schema_behind"


class SchemaAhead(Misconfigured):
    """The database was migrated by a newer version of Stackroom: install that version (or a later one)."""

    code = "schema_ahead"


class MigrationBusy(Unavailable):
    """Another process is migrating this database; try again when it has ended."""

    code = "migration_busy"


class MigrationNotPermitted(Misconfigured):
    """This login may not change the schema: migrate as the owner of the database and its tables."""

    code = "migration_not_permitted"


class MigrationBlocked(Unavailable):
    """A migration waited too long for a table that others are using; nothing of that step was changed. Try again."""

    code = "migration_blocked"


@dataclass(frozen=True)
class SchemaState:
    """How the schema found relates to the one expected; `sentence` says it with the way out."""

    kind: Literal["current", "behind", "ahead"]
    sentence: str

    @property
    def is_current(self) -> bool:
        """Whether requests can be served with this schema."""
        return self.kind == "current"

    def require_current(self) -> None:
        """Raises: SchemaBehind, SchemaAhead."""
        if self.kind == "behind":
            raise SchemaBehind(self.sentence)
        if self.kind == "ahead":
            raise SchemaAhead(self.sentence)


def migrate(
    url: str,
    *,
    without: Collection[str] = (),
    wait_s: float = 60,
    lock_timeout_s: float = 10,
    root: Path = MIGRATIONS,
) -> bool:
    """Bring the schema to the newest revisions; True when there was something to do.

    `url` must not lead through a transaction pooler. `without` names branches (labels) to leave alone, such as that
    of a disabled plugin. Each revision is one transaction; one process migrates at a time, others wait up to
    `wait_s`. A table in use is waited for up to `lock_timeout_s`.
    Raises: SchemaAhead, MigrationBusy, MigrationBlocked, MigrationNotPermitted, and whatever a revision raises.
    """
    engine = _engine(url)
    with engine.connect() as connection, _permitted(connection):
        if schema_state(connection, without=without, root=root).is_current:
            return False
        with _alone(connection, wait_s):
            state = schema_state(connection, without=without, root=root)
            if state.kind == "ahead":
                state.require_current()
            if state.kind == "behind":
                _upgrade(connection, without, lock_timeout_s, root)
            return state.kind == "behind"


def schema_state(connection: Connection, *, without: Collection[str] = (), root: Path = MIGRATIONS) -> SchemaState:
    """Compare the revisions in the database with those of this version.

    Over an `AsyncConnection`: `await connection.run_sync(schema_state)`. Ends no transaction that was open before.
    """
    began = connection.in_transaction()
    there = connection.execute(text("select to_regclass('alembic_version') is not null")).scalar_one()
    found = set(connection.execute(text("select version_num from alembic_version")).scalars()) if there else set()
    if not began:
        connection.rollback()
    return judge(found, without=without, root=root)


def judge(found: Collection[str], *, without: Collection[str] = (), root: Path = MIGRATIONS) -> SchemaState:
    """What the revisions found in a database mean for this version."""
    scripts = _scripts(root)
    unknown = sorted(revision for revision in found if not _knows(scripts, revision))
    if unknown:
        return SchemaState(
            "ahead",
            f"The database was migrated by a newer version of Stackroom (revision {', '.join(unknown)} is unknown to "
            "this one): install that version, or a later one.",
        )
    reached = {script.revision for script in scripts.get_all_current(tuple(found))}
    missing = sorted(head for head in _heads(scripts, without) if head not in reached)
    if missing:
        what = "older than this version of Stackroom needs" if found else "empty"
        return SchemaState(
            "behind",
            f"The database's schema is {what} (revision {', '.join(missing)} is missing): run `stackroom migrate`.",
        )
    return SchemaState("current", "The database's schema is the one this version needs.")


def alembic_config(root: Path = MIGRATIONS) -> Config:
    """Alembic's configuration without a file: both branches, one version table.

    Put an open connection into `attributes["connection"]`; for `command.check`, also `attributes["compare"] = True`.
    """
    config = Config()
    config.set_main_option("script_location", _escaped(root))
    config.set_main_option("path_separator", "newline")
    config.set_main_option("version_locations", "\n".join(_escaped(root / branch) for branch in BRANCHES))
    return config


def wait_for_database(url: str, timeout_s: float) -> None:
    """Return when the database lets us in; try again with growing pauses.

    Raises: DatabaseUnavailable after `timeout_s`, with the driver's reason.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _POLL_S
    while True:
        try:
            psycopg.connect(driver_url(url), connect_timeout=5).close()
        except psycopg.OperationalError as exc:
            if time.monotonic() + pause_s > deadline:
                raise DatabaseUnavailable(f"The database did not answer within {timeout_s:g} s: {exc}") from exc
        else:
            return
        time.sleep(pause_s)
        pause_s = min(2.0, pause_s * 1.5)


def _engine(url: str) -> Engine:
    options = {"prepare_threshold": None, "connect_timeout": 5, "application_name": "stackroom migrate"}
    return create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args=options)


def _upgrade(connection: Connection, without: Collection[str], lock_timeout_s: float, root: Path) -> None:
    connection.exec_driver_sql(f"set lock_timeout = {int(lock_timeout_s * 1000)}")
    connection.commit()
    config = alembic_config(root)
    config.attributes["connection"] = connection
    try:
        for head in _heads(_scripts(root), without):
            command.upgrade(config, head)
    except DBAPIError as exc:
        if isinstance(exc.orig, psycopg.errors.LockNotAvailable):
            raise MigrationBlocked from exc
        raise


@contextmanager
def _permitted(connection: Connection) -> Iterator[None]:
    try:
        yield
    except DBAPIError as exc:
        if not isinstance(exc.orig, psycopg.errors.InsufficientPrivilege):
            raise
        login = connection.engine.url.username or "this login"
        reason = exc.orig.diag.message_primary
        raise MigrationNotPermitted(
            f"The login '{login}' may not change the schema ({reason}): migrate as the owner of the database and of its"
            " tables; KB_DATABASE_URL and KB_DATABASE_DIRECT_URL must name the same login."
        ) from exc


@contextmanager
def _alone(connection: Connection, wait_s: float) -> Iterator[None]:
    """Hold the lock under which one process migrates at a time. Raises: MigrationBusy."""
    deadline = time.monotonic() + wait_s
    while not _try_lock(connection):
        if time.monotonic() > deadline:
            raise MigrationBusy(f"Another process has been migrating this database for more than {wait_s:g} s.")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        _unlock(connection)


def _try_lock(connection: Connection) -> bool:
    got = connection.execute(text("select pg_try_advisory_lock(:key)"), {"key": _ADVISORY_LOCK}).scalar_one()
    connection.commit()
    return bool(got)


def _unlock(connection: Connection) -> None:
    if connection.in_transaction():
        connection.rollback()
    if connection.invalidated:
        return  # the lock went with the session
    connection.execute(text("select pg_advisory_unlock(:key)"), {"key": _ADVISORY_LOCK})
    connection.commit()


@functools.lru_cache(maxsize=8)
def _scripts(root: Path) -> ScriptDirectory:
    return ScriptDirectory.from_config(alembic_config(root))


def _knows(scripts: ScriptDirectory, revision: str) -> bool:
    try:
        return scripts.get_revision(revision).revision == revision
    except CommandError:
        return False


def _heads(scripts: ScriptDirectory, without: Collection[str]) -> list[str]:
    """The newest revisions; the platform's own before those of branches that build on it."""
    heads = [script for head in scripts.get_heads() if (script := scripts.get_revision(head))]
    wanted = [script for script in heads if not script.branch_labels & set(without)]
    return [script.revision for script in sorted(wanted, key=lambda s: (bool(s.branch_labels), s.revision))]


def _escaped(path: Path) -> str:
    return str(path).replace("%", "%%")
