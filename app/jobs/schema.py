"""The queue library's own tables, installed by a migration of ours."""

from importlib.metadata import version
from pathlib import Path

import procrastinate
from sqlalchemy import Connection

# The schema of this version is what the migration installs; another version may need a migration of its own
# (a test compares).
SCHEMA_VERSION = "3.10.0"
_TABLES = (
    "procrastinate_events",
    "procrastinate_periodic_defers",
    "procrastinate_jobs",
    "procrastinate_workers",
)


def installed_version() -> str:
    """The version of the library that is installed."""
    return version("procrastinate")


def apply_schema(connection: Connection) -> None:
    """Create the library's tables, types and functions."""
    path = Path(procrastinate.__file__).parent / "sql" / "schema.sql"
    connection.exec_driver_sql(path.read_text(encoding="utf-8").replace("%", "%%"))


def drop_schema(connection: Connection) -> None:
    """Remove everything that `apply_schema` made, jobs included."""
    functions = connection.exec_driver_sql(
        "select oid::regprocedure::text from pg_proc"
        " where pronamespace = current_schema()::regnamespace and proname like 'procrastinate%%'"
    )
    for (signature,) in functions.all():
        connection.exec_driver_sql(f"drop function if exists {signature} cascade")
    for table in _TABLES:
        connection.exec_driver_sql(f"drop table if exists {table} cascade")
    types = connection.exec_driver_sql(
        "select t.typname from pg_type t where t.typnamespace = current_schema()::regnamespace"
        " and t.typname like 'procrastinate%%' and t.typtype in ('e', 'c')"
    )
    for (name,) in types.all():
        connection.exec_driver_sql(f"drop type if exists {name} cascade")
