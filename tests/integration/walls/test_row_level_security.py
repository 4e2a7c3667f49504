"""The second wall: every tenant table shows only what the transaction's reach holds."""

from collections.abc import AsyncIterator, Iterator
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import select, text
from sqlalchemy.exc import DBAPIError

from app.db.engine import Database, Reach, make_engine
from app.knowledge_bases.models import KnowledgeBase
from tests.service import platform_database

LIBRARY = "procrastinate_"
FREE = {"alembic_version"}
FUNCTIONS = {
    "stackroom_find_api_key",
    "stackroom_locate",
    "stackroom_works_with_owner",
    "stackroom_organization_of",
    "stackroom_expired_writes",
    "stackroom_pending_prunes",
    "stackroom_stale_uploads",
    "stackroom_due_blob_deletions",
    "stackroom_open_receipts",
    "stackroom_stranded_documents",
    "stackroom_forget_old_rows",
    "stackroom_works_to_maintain",
    "stackroom_works_to_reconcile",
    "stackroom_environment_is",
    "stackroom_idle_sweeps",
    "stackroom_generations_to_remove",
    "stackroom_list_generations",
    "stackroom_claim_check",
}


@pytest.fixture(scope="module")
def url() -> str:
    return platform_database()


@pytest.fixture
def owner(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
async def database(url: str) -> AsyncIterator[Database]:
    made = Database(make_engine(url))
    yield made
    await made.close()


def two_works(owner: psycopg.Connection) -> tuple[UUID, UUID, UUID, UUID]:
    """(organization A, Work A, organization B, Work B), each with a knowledge base and a document."""
    ids = []
    for name in ("A", "B"):
        organization, work, kb = uuid4(), uuid4(), uuid4()
        owner.execute("insert into organizations (id, name, settings) values (%s, %s, '{}')", (organization, name))
        owner.execute(
            "insert into works (id, organization_id, name, settings, index_version) values (%s, %s, %s, '{}', 0)",
            (work, organization, name),
        )
        owner.execute(
            "insert into knowledge_bases (id, work_id, owner_type, owner_id, name, description, attributes,"
            " live_chunks, live_length) values (%s, %s, 'user', %s, 'kb', '', '{}', 0, 0)",
            (kb, work, uuid4()),
        )
        ids += [organization, work]
    return ids[0], ids[1], ids[2], ids[3]


def test_every_table_has_row_level_security_and_a_policy(owner: psycopg.Connection) -> None:
    rows = owner.execute(
        "select c.relname, c.relrowsecurity, count(p.oid) from pg_class c left join pg_policy p on p.polrelid = c.oid"
        " where c.relnamespace = 'public'::regnamespace and c.relkind = 'r' group by 1, 2"
    ).fetchall()
    tables = {name: (secured, policies) for name, secured, policies in rows if not name.startswith(LIBRARY)}

    assert set(tables) - FREE >= {"works", "kb_documents", "kb_spans", "kb_terms", "pgvector_chunks", "api_keys"}
    assert {name for name, (secured, policies) in tables.items() if not (secured and policies)} == FREE


async def test_a_transaction_without_reach_sees_nothing(owner: psycopg.Connection, database: Database) -> None:
    two_works(owner)
    tables = [
        row[0]
        for row in owner.execute(
            "select relname from pg_class where relnamespace = 'public'::regnamespace and relrowsecurity"
        ).fetchall()
    ]

    async with database.unscoped() as session:
        for table in tables:
            if table == "plugin_instances":  # instances of the environment belong to nobody
                continue
            assert await session.scalar(text(f"select count(*) from {table}")) == 0, table


async def test_a_reach_shows_its_own_work_and_refuses_to_write_into_another(
    owner: psycopg.Connection, database: Database
) -> None:
    _, ours, _, theirs = two_works(owner)

    async with database.transaction(Reach.of(ours)) as session:
        assert set(await session.scalars(select(KnowledgeBase.work_id))) == {ours}
        changed = await session.execute(text("update knowledge_bases set name = 'x' where work_id = :w"), {"w": theirs})
        assert changed.rowcount == 0  # type: ignore[attr-defined]
    with pytest.raises(DBAPIError, match="row-level security"):
        await insert_into(database, Reach.of(ours), theirs)


async def insert_into(database: Database, reach: Reach, work_id: UUID) -> None:
    async with database.transaction(reach) as session:
        session.add(KnowledgeBase(work_id=work_id, owner_type="user", owner_id=uuid4(), name="x", attributes={}))
        await session.flush()


def test_the_functions_that_cross_works_are_the_named_ones_and_not_for_everybody(owner: psycopg.Connection) -> None:
    rows = owner.execute(
        "select proname, prosecdef, proconfig, has_function_privilege('public', oid, 'execute') from pg_proc"
        " where pronamespace = 'public'::regnamespace and prosecdef"
    ).fetchall()

    assert {row[0] for row in rows} == FUNCTIONS
    assert all(any(c.startswith("search_path=") for c in row[2]) for row in rows)
    assert not any(row[3] for row in rows)


async def test_nothing_of_a_transactions_reach_is_left_on_its_connection(url: str, owner: psycopg.Connection) -> None:
    _, ours, _, _ = two_works(owner)
    database = Database(make_engine(url, pool_size=1, max_overflow=0))

    async with database.transaction(Reach.of(ours)):
        pass
    async with database.engine.connect() as connection:
        role, works = (
            await connection.execute(text("select current_user, current_setting('stackroom.works', true)"))
        ).one()
    await database.close()

    assert role == conninfo_to_dict(url)["user"]
    assert not works
