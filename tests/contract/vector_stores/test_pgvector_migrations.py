"""The pgvector plugin's own migration branch, up, down and beside what the code expects."""

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, pool

from app.vector_stores.pgvector import schema, tables
from app.vector_stores.pgvector.extension import VectorExtensionMissing
from tests.contract.vector_stores.pgvector_data import do, look
from tests.postgres import dsn_of, fresh_database

TABLES = "SELECT count(*) FROM pg_class WHERE relname LIKE 'pgvector\\_%%' AND relkind = 'r' AND relname <> %s"


def test_the_migrations_make_what_the_tables_say(own_pgvector_dsn: str) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(own_pgvector_dsn), poolclass=pool.NullPool
    )
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "compare_type": True,
                "compare_server_default": True,
                "include_name": lambda name, kind, _parents: kind != "table" or name in tables.metadata.tables,
            },
        )
        differences = compare_metadata(context, tables.metadata)

    assert differences == []


def test_vectors_lie_in_the_row_and_not_beside_it(own_pgvector_dsn: str) -> None:
    sql = "SELECT attstorage FROM pg_attribute WHERE attrelid = 'pgvector_chunks'::regclass AND attname = 'embedding'"

    assert look(own_pgvector_dsn, sql) == [("p",)]


def test_down_leaves_nothing_and_up_again_works() -> None:
    dsn = fresh_database()
    schema.upgrade(dsn)
    schema.upgrade(dsn)
    assert look(dsn, TABLES, schema.VERSION_TABLE) == [(2,)]

    schema.downgrade(dsn)
    assert look(dsn, TABLES, schema.VERSION_TABLE) == [(0,)]

    schema.upgrade(dsn)
    assert look(dsn, TABLES, schema.VERSION_TABLE) == [(2,)]


def test_an_extension_that_may_not_be_created_stops_everything_with_the_sql_to_run() -> None:
    dsn = fresh_database()
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    do(dsn, f"CREATE ROLE plain_{name} LOGIN; ALTER DATABASE {name} OWNER TO plain_{name}")
    plain = dsn_of(str(name), user=f"plain_{name}")

    with pytest.raises(VectorExtensionMissing, match="CREATE EXTENSION vector;"):
        schema.upgrade(plain)

    assert look(dsn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'pgvector%%'") == [(0,)]


def test_a_login_that_may_make_no_role_gets_its_tables_all_the_same() -> None:
    dsn = fresh_database()
    name = psycopg.conninfo.conninfo_to_dict(dsn)["dbname"]
    do(dsn, f"CREATE ROLE plain_{name} LOGIN; ALTER DATABASE {name} OWNER TO plain_{name}")
    do(dsn, "CREATE EXTENSION vector")

    schema.upgrade(dsn_of(str(name), user=f"plain_{name}"))

    assert look(dsn, TABLES, schema.VERSION_TABLE) == [(2,)]
