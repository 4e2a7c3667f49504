"""Bring a database that holds nothing else of the service to the plugin's schema, and back.

The service's own database gets the same branch from the service's migrations. A database named by the plugin's `dsn`
has only this branch, noted in a table of its own, so that whatever else lives there keeps its own Alembic.
"""

import threading
from collections.abc import Callable
from importlib.resources import files
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, pool, text

VERSION_TABLE = "pgvector_alembic_version"
LOCK = 0x5BEC_0001  # one migration at a time, of all processes
_ONE_AT_A_TIME = threading.Lock()  # Alembic's `op` belongs to the whole process


def upgrade(dsn: str, revision: str = "pgvector@head") -> None:
    """Migrate up. `dsn`: a libpq connection string of the tables' owner; blocks.

    Raises: VectorExtensionMissing before anything is changed.
    """
    scripts = _scripts()
    _run(dsn, lambda rev, _context: scripts._upgrade_revs(revision, rev))


def downgrade(dsn: str, revision: str = "base") -> None:
    """Migrate down; `base` leaves nothing of the plugin but the extension."""
    scripts = _scripts()
    _run(dsn, lambda rev, _context: scripts._downgrade_revs(revision, rev))


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(files("migrations.pgvector")), version_locations=[str(files("migrations.pgvector"))])


def _run(dsn: str, steps: Callable[[Any, MigrationContext], Any]) -> None:
    with _ONE_AT_A_TIME:
        _run_alone(dsn, steps)


def _run_alone(dsn: str, steps: Callable[[Any, MigrationContext], Any]) -> None:
    import psycopg

    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=pool.NullPool)
    try:
        with engine.begin() as connection, EnvironmentContext(Config(), _scripts(), fn=steps) as environment:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            environment.configure(connection=connection, version_table=VERSION_TABLE)
            with environment.begin_transaction():
                environment.run_migrations()
    finally:
        engine.dispose()
