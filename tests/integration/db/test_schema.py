"""The schema: up, down, up; models and migrations agree; behind, ahead and extension missing are said apart."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic import command
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from app.db.engine import make_engine, sqlalchemy_url
from app.db.migrating import alembic_config, migrate, schema_state
from app.jobs.schema import SCHEMA_VERSION, installed_version
from app.tenancy.bootstrap import bootstrap
from app.vector_stores.pgvector.extension import VectorExtensionMissing
from tests.postgres import as_owner, fresh_database
from tests.service import platform_database, url_of


def empty_database() -> str:
    return url_of(conninfo_to_dict(fresh_database()))


def kind(url: str) -> str:
    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        return schema_state(connection).kind


def test_up_down_and_up_again() -> None:
    url = empty_database()

    assert kind(url) == "behind"
    assert migrate(url) is True
    assert kind(url) == "current"
    assert migrate(url) is False
    config = alembic_config()
    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    with psycopg.connect(url) as connection:
        left = connection.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'S', 'v')"
        ).fetchall()
        functions = connection.execute(
            "select proname from pg_proc p where pronamespace = 'public'::regnamespace and not exists"
            " (select from pg_depend d where d.objid = p.oid and d.deptype = 'e')"
        ).fetchall()
    assert [row[0] for row in left] == ["alembic_version"]
    assert functions == []
    assert migrate(url) is True


def test_models_and_migrations_agree() -> None:
    url = platform_database()
    config = alembic_config()
    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        config.attributes["connection"] = connection
        config.attributes["compare"] = True

        command.check(config)


def test_every_constraint_and_index_is_named_by_the_convention() -> None:
    with psycopg.connect(platform_database()) as connection:
        names = connection.execute(
            "select conname from pg_constraint where connamespace = 'public'::regnamespace"
            " and contype in ('p', 'u', 'f', 'c')"
            " and conrelid::regclass::text not like 'procrastinate%' and conrelid::regclass::text <> 'alembic_version'"
        ).fetchall()

    assert names
    assert [n for (n,) in names if not n.startswith(("pk_", "uq_", "fk_", "ck_"))] == []


def test_a_newer_schema_is_said_to_be_ahead() -> None:
    url = platform_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("insert into alembic_version values ('9999')")

    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        state = schema_state(connection)

    assert state.kind == "ahead"
    assert "newer version" in state.sentence


def test_several_processes_migrate_at_once_and_one_does_it() -> None:
    url = empty_database()

    with ThreadPoolExecutor(3) as pool:
        done = list(pool.map(lambda _: migrate(url), range(3)))

    assert sorted(done) == [False, False, True]


def test_a_missing_extension_that_may_not_be_made_is_said_with_the_sql() -> None:
    url = empty_database()
    parts = conninfo_to_dict(url)
    with as_owner() as owner:
        owner.execute("drop role if exists plain_owner")
        owner.execute("create role plain_owner login")
        owner.execute(f"alter database {parts['dbname']} owner to plain_owner".encode())

    with pytest.raises(VectorExtensionMissing, match=r"(?i)create extension"):
        migrate(url_of({**parts, "user": "plain_owner"}))

    assert kind(url) == "behind"


def test_the_queue_librarys_schema_is_that_of_the_installed_version() -> None:
    assert installed_version() == SCHEMA_VERSION, "write a migration for the new schema of procrastinate"


async def test_the_first_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    engine = make_engine(platform_database(), begins=True)
    await bootstrap(engine, data_dir=tmp_path, bootstrap_key=None)
    first = (tmp_path / "first-api-key").read_text()

    await bootstrap(engine, data_dir=tmp_path, bootstrap_key=None)
    await engine.dispose()

    assert (tmp_path / "first-api-key").read_text() == first
    assert (tmp_path / "first-api-key").stat().st_mode & 0o777 == 0o600
