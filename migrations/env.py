"""Alembic's entry: online, over the connection that `app.db.migrating` hands in, or over `KB_DATABASE_URL`."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic import context
from sqlalchemy import Connection, Index, MetaData, create_engine
from sqlalchemy.pool import NullPool

import app
from app.db.base import Base
from app.db.engine import sqlalchemy_url

# Where rooms keep their tables, by house style.
TABLE_MODULES = ("models.py", "pins.py")
PGVECTOR_TABLES = "app.vector_stores.pgvector.tables"
LOCK_TIMEOUT = "10s"


def all_metadata() -> Sequence[MetaData]:
    """The tables of every room, and those of the pgvector plugin."""
    package = Path(app.__file__).parent
    for name in TABLE_MODULES:
        for path in sorted(package.rglob(name)):
            importlib.import_module(".".join(["app", *path.relative_to(package).with_suffix("").parts]))
    plugin = _pgvector_metadata()
    return [Base.metadata] if plugin is None else [Base.metadata, plugin]


def _pgvector_metadata() -> MetaData | None:
    try:
        module = importlib.import_module(PGVECTOR_TABLES)
    except ModuleNotFoundError as exc:
        if exc.name is not None and (exc.name == PGVECTOR_TABLES or PGVECTOR_TABLES.startswith(exc.name + ".")):
            return None  # a distribution without this plugin
        raise
    metadata: MetaData = module.metadata
    return metadata


def include_name(name: str | None, kind: str, parents: Any) -> bool:
    """Leave out the job library's tables: it owns them."""
    return not (kind == "table" and name is not None and name.startswith("procrastinate_"))


def include_object(item: Any, name: str | None, kind: str, reflected: bool, counterpart: Any) -> bool:
    """Leave out the indexes that jobs build for single Works at run time."""
    built_by_a_job = (
        kind == "index"
        and reflected
        and counterpart is None
        and isinstance(item, Index)
        and item.dialect_options["postgresql"]["using"] in {"hnsw", "ivfflat"}
    )
    return not built_by_a_job


def run(connection: Connection, metadata: Sequence[MetaData] | None) -> None:
    """Run the command: every revision is a transaction of its own."""
    context.configure(
        connection=connection,
        target_metadata=metadata,
        transaction_per_migration=True,
        include_name=include_name,
        include_object=include_object,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_over_environment() -> None:
    """For the `alembic` command at a terminal."""
    url = os.environ.get("KB_DATABASE_DIRECT_URL") or os.environ.get("KB_DATABASE_URL")
    if not url:
        raise SystemExit("Set KB_DATABASE_URL (or KB_DATABASE_DIRECT_URL) to the database to work on.")
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"prepare_threshold": None})
    with engine.connect() as connection:
        connection.exec_driver_sql(f"set lock_timeout = '{LOCK_TIMEOUT}'")
        connection.commit()
        run(connection, all_metadata())


if context.is_offline_mode():
    raise SystemExit("SQL scripts are not offered: some revisions look at the data they move.")
handed_in = context.config.attributes.get("connection")
if handed_in is None:
    run_over_environment()
else:
    # Comparing needs the tables of all rooms; upgrading does not, and starts sooner without.
    run(handed_in, all_metadata() if context.config.attributes.get("compare") else None)
