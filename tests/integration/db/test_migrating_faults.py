"""Migrations and the first key where something is in the way: rights, other processes, an old key."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from alembic import command
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.pool import NullPool

import app.assembly  # every table of the platform is known after this import
from app.assembly import rotate_sealed_settings
from app.db.base import Base
from app.db.engine import make_engine, sqlalchemy_url
from app.db.migrating import MigrationBusy, MigrationNotPermitted, alembic_config, migrate
from app.plugins.errors import SealedSettingsUnreadable
from app.plugins.sealing import Sealer
from app.settings import Settings
from app.tenancy.bootstrap import bootstrap
from app.tenancy.keys import hash_key
from app.vector_stores.pgvector.settings import PgvectorSettings
from tests.postgres import as_owner, fresh_database
from tests.service import REPOSITORY, platform_database, url_of

assert app.assembly


def empty_database() -> str:
    return url_of(conninfo_to_dict(fresh_database()))


@pytest.fixture
def outsider() -> Iterator[str]:
    """A login that owns nothing."""
    name = f"outsider_{uuid4().hex[:8]}"
    with as_owner() as owner:
        owner.execute(f"create role {name} login".encode())
        yield name
        owner.execute(f"drop role {name}".encode())


def as_login(url: str, name: str) -> str:
    return url_of({**conninfo_to_dict(url), "user": name})


def test_downgrade_leaves_no_type_no_policy_and_no_right_of_ours() -> None:
    url = empty_database()
    migrate(url)
    config = alembic_config()
    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")

    with psycopg.connect(url) as owner:
        types = owner.execute(
            "select typname from pg_type t where typnamespace = 'public'::regnamespace and typname !~ 'alembic'"
            " and not exists (select from pg_depend d where d.objid = t.oid and d.deptype = 'e')"
            " and not exists (select from pg_type e join pg_depend d on d.objid = e.oid and d.deptype = 'e'"
            "                  where e.typarray = t.oid)"
        ).fetchall()
        policies = owner.execute("select polname from pg_policy").fetchall()

    assert (types, policies) == ([], [])


def test_constraints_have_exactly_the_names_of_the_convention() -> None:
    with psycopg.connect(platform_database()) as owner:
        rows = owner.execute(
            "select conrelid::regclass::text, conname from pg_constraint"
            " where connamespace = 'public'::regnamespace and contype in ('p', 'u', 'f', 'c')"
        ).fetchall()
    there = {name: {c for t, c in rows if t == name} for name in Base.metadata.tables}

    named = postgresql.dialect().identifier_preparer.format_constraint  # type: ignore[no-untyped-call]
    wanted = {name: {named(c) for c in table.constraints} for name, table in Base.metadata.tables.items()}
    assert there == wanted


def test_a_login_that_may_not_change_the_schema_is_told_so(outsider: str) -> None:
    url = empty_database()

    with pytest.raises(MigrationNotPermitted, match=outsider):
        migrate(as_login(url, outsider))

    with psycopg.connect(url) as owner:
        assert owner.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)


def test_a_login_that_does_not_own_the_tables_is_told_so(outsider: str) -> None:
    with pytest.raises(MigrationNotPermitted, match=outsider):
        migrate(as_login(platform_database(), outsider))


def test_a_migration_that_another_process_is_doing_is_waited_for_and_then_given_up() -> None:
    url = empty_database()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("select pg_advisory_lock(%s)", (0x5374_6163_6B72_6F6F,))

        with pytest.raises(MigrationBusy, match="Another process"):
            migrate(url, wait_s=0.3)

    assert migrate(url) is True


def test_two_processes_migrate_and_make_the_first_key_together(tmp_path: Path) -> None:
    url = empty_database()
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("KB_")},
        "KB_DATABASE_URL": url,
        "KB_DATA_DIR": str(tmp_path),
    }

    def run(_: int) -> "subprocess.CompletedProcess[str]":
        arguments = [sys.executable, "-m", "app.cli", "migrate"]
        return subprocess.run(arguments, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=90)

    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(run, range(2)))

    assert [e.returncode for e in ended] == [0, 0], [e.stderr for e in ended]
    assert keys_of(url) == [hash_key((tmp_path / "first-api-key").read_text().strip())]


async def test_bootstraps_at_once_make_one_key_and_the_file_holds_it(tmp_path: Path) -> None:
    url = platform_database()
    engine = make_engine(url, begins=True)

    await asyncio.gather(*(bootstrap(engine, data_dir=tmp_path, bootstrap_key=None) for _ in range(4)))
    await engine.dispose()

    assert keys_of(url) == [hash_key((tmp_path / "first-api-key").read_text().strip())]
    assert [path.name for path in tmp_path.iterdir()] == ["first-api-key"]


async def test_a_given_key_is_made_once_and_lies_in_no_file(tmp_path: Path) -> None:
    url, key = platform_database(), "a-key-that-an-operator-has-chosen-0123456789"
    engine = make_engine(url, begins=True)

    await asyncio.gather(*(bootstrap(engine, data_dir=tmp_path, bootstrap_key=key) for _ in range(4)))
    await engine.dispose()

    assert keys_of(url) == [hash_key(key)]
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_a_crash_left_behind_is_written_anew(tmp_path: Path) -> None:
    url = platform_database()
    (tmp_path / "first-api-key").write_text("a key that no transaction has committed\n")
    engine = make_engine(url, begins=True)

    await bootstrap(engine, data_dir=tmp_path, bootstrap_key=None)
    await engine.dispose()

    assert keys_of(url) == [hash_key((tmp_path / "first-api-key").read_text().strip())]
    assert (tmp_path / "first-api-key").stat().st_mode & 0o777 == 0o600


def keys_of(url: str) -> list[bytes]:
    with psycopg.connect(url) as owner:
        return [bytes(row[0]) for row in owner.execute("select key_hash from api_keys").fetchall()]


def sealed_rows(url: str, sealed: bytes) -> None:
    """A sealed setting in every table that has one."""
    organization, work = uuid4(), uuid4()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("insert into organizations (id, name, settings) values (%s, 'o', '{}')", (organization,))
        owner.execute(
            "insert into works (id, organization_id, name, settings, index_version) values (%s, %s, 'w', '{}', 0)",
            (work, organization),
        )
        owner.execute(
            "insert into plugin_instances (id, plugin_id, category, rung, work_id, fingerprint, public_settings,"
            " sealed_settings) values (gen_random_uuid(), 'p', 'vector-store', 'work', %s, 'f', '{}', %s)",
            (work, sealed),
        )
        for table, column, place in (("work", "work_id", work), ("organization", "organization_id", organization)):
            owner.execute(
                f"insert into {table}_plugins ({column}, plugin_id, category, enabled, pinned, sealed_settings)"
                " values (%s, 'p', 'vector-store', true, false, %s)".encode(),
                (place, sealed),
            )


def sealed_there(url: str) -> list[bytes]:
    with psycopg.connect(url) as owner:
        return [
            bytes(row[0])
            for table in ("plugin_instances", "work_plugins", "organization_plugins")
            for row in owner.execute(f"select sealed_settings from {table}".encode()).fetchall()
        ]


def settings_of(url: str, data_dir: Path, *keys: str) -> Settings:
    return Settings.model_validate({"database_url": url, "data_dir": data_dir, "secret_keys": keys})


async def test_rotation_seals_every_setting_with_the_first_key(tmp_path: Path) -> None:
    url = platform_database()
    old, new = Sealer.generate_key(), Sealer.generate_key()
    sealed_rows(url, Sealer([old]).seal(PgvectorSettings()))

    await rotate_sealed_settings(settings_of(url, tmp_path, new, old))

    found = sealed_there(url)
    assert len(found) == 3
    assert [Sealer([new]).open(sealed, PgvectorSettings) for sealed in found] == [PgvectorSettings()] * 3
    await rotate_sealed_settings(settings_of(url, tmp_path, new))
    assert sealed_there(url) == found


async def test_a_setting_that_no_key_opens_stops_the_rotation_and_nothing_is_changed(tmp_path: Path) -> None:
    url = platform_database()
    old, new = Sealer.generate_key(), Sealer.generate_key()
    sealed_rows(url, Sealer([old]).seal(PgvectorSettings()))
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("update organization_plugins set sealed_settings = '\\x00'")
    before = sealed_there(url)

    with pytest.raises(SealedSettingsUnreadable):
        await rotate_sealed_settings(settings_of(url, tmp_path, new, old))

    assert sealed_there(url) == before
