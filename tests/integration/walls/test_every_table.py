"""The second wall, table by table: the list comes from the catalogue, so a new table is tested at birth."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Database, Reach, make_engine
from tests.integration.walls.catalogue import Catalogue, Table, Tenant
from tests.service import platform_database

# What the named functions may answer: ids, and what is needed to decide who asks. No names, no content.
ANSWERS = {
    "stackroom_find_api_key": {
        "id",
        "organization_id",
        "user_id",
        "user_name",
        "work_id",
        "scopes",
        "expires_at",
        "revoked_at",
        "last_used_at",
        "role",
        "default_work_id",
    },
    "stackroom_locate": {"work_id", "organization_id", "deleting"},
    "stackroom_works_with_owner": {"work_id"},
    "stackroom_organization_of": {"organization_id"},
    "stackroom_expired_writes": {"work_id", "document_id", "generation_id", "build"},
    "stackroom_pending_prunes": {"work_id", "document_id", "generation_id"},
    "stackroom_stale_uploads": {"work_id", "id"},
    "stackroom_due_blob_deletions": {"work_id", "id", "storage_key"},
    "stackroom_open_receipts": {"work_id", "id", "kind", "object_id"},
    "stackroom_stranded_documents": {"work_id", "document_id"},
    "stackroom_works_to_maintain": {"work_id", "index_version"},
    "stackroom_forget_old_rows": set(),
    "stackroom_works_to_reconcile": {"work_id"},
    "stackroom_environment_is": set(),
    "stackroom_idle_sweeps": {"work_id", "generation_id"},
    "stackroom_generations_to_remove": {"work_id", "generation_id"},
    "stackroom_list_generations": {"work_id", "generation_id"},
    "stackroom_claim_check": {"work_id", "generation_id"},
}
OF_THE_QUEUE = {
    ("procrastinate_jobs", "INSERT"),
    ("procrastinate_jobs.id", "SELECT"),
    ("procrastinate_jobs.queueing_lock", "SELECT"),
    ("procrastinate_events", "INSERT"),
}


@pytest.fixture(scope="module")
def url() -> str:
    return platform_database()


@pytest.fixture(scope="module")
def catalogue(url: str) -> Iterator[Catalogue]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield Catalogue(connection)


@pytest.fixture(scope="module")
def ours(catalogue: Catalogue) -> Tenant:
    return catalogue.add_tenant()


@pytest.fixture(scope="module")
def theirs(catalogue: Catalogue) -> Tenant:
    return catalogue.add_tenant()


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    made = Database(make_engine(url))
    yield made
    await made.close()


def reach_of(tenant: Tenant) -> Reach:
    return Reach.of(tenant.work, organizations=[tenant.organization])


def test_every_table_is_closed_and_says_whose_a_row_is(catalogue: Catalogue) -> None:
    assert len(catalogue.tables) > 20
    assert catalogue.open_tables() == []


def test_a_new_table_without_a_policy_is_noticed() -> None:
    with psycopg.connect(platform_database(), autocommit=True) as connection:
        connection.execute("create table forgotten (work_id uuid not null, note text)")
        connection.execute("create table half_done (work_id uuid not null)")
        connection.execute("alter table half_done enable row level security")
        connection.execute("create table ownerless (id int)")

        assert Catalogue(connection).open_tables() == ["forgotten", "half_done", "ownerless"]


async def test_without_a_reach_no_table_shows_a_row(
    catalogue: Catalogue, database: Database, ours: Tenant, theirs: Tenant
) -> None:
    async with database.unscoped() as session:
        shown = {t.name: await count(session, t.name) for t in catalogue.tables}

    assert {name: number for name, number in shown.items() if number} == {}


async def test_a_reach_shows_its_own_rows_and_no_others(
    catalogue: Catalogue, database: Database, ours: Tenant, theirs: Tenant
) -> None:
    async with database.transaction(reach_of(ours)) as session:
        for table in catalogue.tables:
            owners = await session.scalars(text(f"select {table.column} from {table.name}"))
            assert list(owners) == [ours.owns(table)], table.name


async def test_the_reach_of_a_work_alone_shows_nothing_of_its_organization(
    catalogue: Catalogue, database: Database, ours: Tenant
) -> None:
    async with database.transaction(Reach.of(ours.work)) as session:
        shown = {t.name for t in catalogue.tables if t.side == "organization" and await count(session, t.name)}

    assert shown == set()


async def test_rows_of_another_tenant_are_neither_changed_nor_deleted(
    catalogue: Catalogue, database: Database, ours: Tenant, theirs: Tenant
) -> None:
    async with database.transaction(reach_of(ours)) as session:
        for table in catalogue.tables:
            owner = {"owner": theirs.owns(table)}
            same = f"update {table.name} set {table.column} = {table.column} where {table.column} = :owner"
            assert await affected(session, same, owner) == 0, table.name
            gone = f"delete from {table.name} where {table.column} = :owner"
            assert await affected(session, gone, owner) == 0, table.name


async def test_no_row_is_put_into_another_tenants_place(
    catalogue: Catalogue, database: Database, ours: Tenant, theirs: Tenant
) -> None:
    for table in catalogue.tables:
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
            await insert_copy(database, reach_of(ours), table, theirs)


async def test_no_row_of_ours_is_moved_into_another_tenants_place(
    catalogue: Catalogue, database: Database, ours: Tenant, theirs: Tenant
) -> None:
    for table in catalogue.tables:
        if table.name == "works":  # its id is its own name, and belongs to no one else's place
            continue
        with pytest.raises(DBAPIError, match="row-level security"):
            await move(database, reach_of(ours), table, theirs.owns(table))


async def test_a_new_work_needs_the_organization_it_is_put_into(database: Database, theirs: Tenant) -> None:
    work = uuid4()

    with pytest.raises(DBAPIError, match="row-level security"):
        await add_work(database, Reach.of(work), work, theirs.organization)
    await add_work(database, Reach.of(work, organizations=[theirs.organization]), work, theirs.organization)


async def test_an_instance_of_the_environment_is_read_by_all_and_changed_by_none(
    database: Database, ours: Tenant
) -> None:
    made = {"id": uuid4(), "fingerprint": uuid4().hex}
    add = (
        "insert into plugin_instances (id, plugin_id, category, rung, fingerprint, public_settings)"
        " values (:id, 'pgvector', 'vector-store', 'environment', :fingerprint, '{}')"
    )
    mine = "where id = :id"

    async with database.transaction(reach_of(ours)) as session:
        await session.execute(text(add), made)
        assert await session.scalar(text(f"select fingerprint from plugin_instances {mine}"), made)
        assert await affected(session, f"update plugin_instances set plugin_id = 'other' {mine}", made) == 0
        assert await affected(session, f"delete from plugin_instances {mine}", made) == 0
        await session.rollback()


async def test_deleting_ones_own_rows_cascades_to_nobody_elses(
    catalogue: Catalogue, url: str, database: Database, theirs: Tenant
) -> None:
    leaving = catalogue.add_tenant()

    async with database.transaction(reach_of(leaving)) as session:
        await session.execute(text("delete from kb_documents"))

    with psycopg.connect(url) as owner:
        for table in ("kb_documents", "kb_revisions", "kb_spans", "kb_terms", "index_writes"):
            left = owner.execute(f"select work_id from {table}".encode()).fetchall()
            assert (theirs.work,) in left, table
            assert (leaving.work,) not in left, table


def test_the_named_functions_answer_ids_only(url: str) -> None:
    with psycopg.connect(url) as owner:
        rows = owner.execute(
            "select proname, coalesce((select array_agg(n) from unnest(proargnames, proargmodes) as a(n, m)"
            " where m = 't'), '{}') from pg_proc where pronamespace = 'public'::regnamespace and prosecdef"
        ).fetchall()

    assert {name: set(columns) for name, columns in rows} == ANSWERS


def test_the_named_functions_look_in_their_own_schema_and_in_temporary_tables_last(url: str) -> None:
    with psycopg.connect(url) as owner:
        rows = owner.execute(
            "select proname, proconfig from pg_proc where pronamespace = 'public'::regnamespace and prosecdef"
        ).fetchall()

    assert {(name, *config) for name, config in rows} == {(name, "search_path=public, pg_temp") for name, _ in rows}


async def test_a_temporary_table_does_not_stand_in_front_of_a_real_one(database: Database, ours: Tenant) -> None:
    async with database.unscoped() as session:
        await session.execute(text("create temporary table works (id uuid, organization_id uuid, deleting_at date)"))
        found = await session.execute(text("select * from stackroom_locate('work', :id)"), {"id": ours.work})

        assert [tuple(row) for row in found] == [(ours.work, ours.organization, False)]


def test_the_role_may_put_jobs_into_the_queue_and_nothing_else_there(url: str) -> None:
    with psycopg.connect(url) as owner:
        tables = owner.execute(
            "select c.relname, p from pg_class c, unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p"
            " where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'"
            " and (c.relname like 'procrastinate%' or c.relname = 'alembic_version')"
            " and has_table_privilege('stackroom_app', c.oid, p)"
        ).fetchall()
        columns = owner.execute(
            "select c.relname || '.' || a.attname, p from pg_class c join pg_attribute a on a.attrelid = c.oid,"
            " unnest(array['SELECT', 'UPDATE']) p"
            " where c.relnamespace = 'public'::regnamespace and c.relname like 'procrastinate%' and c.relkind = 'r'"
            " and a.attnum > 0 and has_column_privilege('stackroom_app', c.oid, a.attnum, p)"
        ).fetchall()

    assert {*tables, *columns} == OF_THE_QUEUE


def test_the_role_owns_nothing_and_may_not_pass_the_wall(url: str) -> None:
    with psycopg.connect(url) as owner:
        role = owner.execute(
            "select rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolcanlogin from pg_roles"
            " where rolname = 'stackroom_app'"
        ).fetchone()
        owned = owner.execute("select relname from pg_class where relowner = 'stackroom_app'::regrole").fetchall()

    assert role == (False, False, False, False, False)
    assert owned == []


async def count(session: AsyncSession, table: str) -> int:
    return int(await session.scalar(text(f"select count(*) from {table}")) or 0)


async def affected(session: AsyncSession, statement: str, values: Mapping[str, object]) -> int:
    return int((await session.execute(text(statement), values)).rowcount)  # type: ignore[attr-defined]


async def insert_copy(database: Database, reach: Reach, table: Table, tenant: Tenant) -> None:
    """Insert the tenant's row again; the wall speaks before any unique index does."""
    row = tenant.rows[table.name]
    columns = ", ".join(f'"{name}"' for name in row)
    source = f"select {columns} from jsonb_populate_record(null::{table.name}, %s)"
    statement = f"insert into {table.name} ({columns}) overriding system value {source}"
    async with database.transaction(reach) as session, driver_cursor(session) as cursor:
        await cursor.execute(statement.encode(), (Jsonb(row, dumps=as_json),))


def as_json(row: object) -> str:
    return json.dumps(row, default=lambda v: "\\x" + bytes(v).hex() if isinstance(v, bytes | memoryview) else str(v))


async def move(database: Database, reach: Reach, table: Table, owner: UUID) -> None:
    async with database.transaction(reach) as session:
        await session.execute(text(f"update {table.name} set {table.column} = :owner"), {"owner": owner})


async def add_work(database: Database, reach: Reach, work: UUID, organization: UUID) -> None:
    async with database.transaction(reach) as session:
        values = {"work": work, "organization": organization}
        insert = "insert into works (id, organization_id, name, settings, index_version) values"
        await session.execute(text(f"{insert} (:work, :organization, 'Work', '{{}}', 0)"), values)
