"""Every statement of a request or a round of upkeep reads big tables by index, and little of them, under the walls."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.entries import NEWEST, list_entries
from app.activity.receipts import find_receipt
from app.db.engine import Database, Reach
from app.db.reading import ReadPool
from app.documents import idempotency, repository
from app.documents.attributes import FilterComparison
from app.identity.caller import Caller, WorkScope
from app.indexing import writes
from app.indexing.remaining import (
    count_coordinates,
    count_documents,
    count_remaining,
    list_refusals,
    next_remaining,
)
from app.indexing.succession import generations_now
from app.knowledge_bases import repository as knowledge_bases
from app.search.fusion import Ref
from app.search.lexical import MOST_POSTINGS, TermMemory, search_lexical
from app.search.reading import fetch_live
from app.search.scoping import Scoping
from app.tenancy import service as tenancy
from app.tenancy.authenticating import KeyAuthenticator, WorkAccess
from tests.integration.walls.filled import DOCUMENTS, KEYS, SPANS, TERMS, WORKS, Filled, Place, Read, fill

GENERIC = 7  # a prepared statement may get a plan for any values from its sixth execution on
Statement = Callable[[AsyncSession, Place], Awaitable[object]]


@pytest.fixture(scope="module")
def filled() -> Filled:
    return fill()


def scope_of(place: Place) -> WorkScope:
    return WorkScope(place.work, place.organization, place.user, can_write=True)


def caller_of(place: Place) -> Caller:
    return Caller(uuid4(), place.user, "n", place.organization, "owner", frozenset({"write"}), None, place.work)


def filtered(**wanted: object) -> Statement:
    async def run(session: AsyncSession, place: Place) -> object:
        shape = repository.DocumentFilter(**wanted)  # type: ignore[arg-type]
        return await repository.list_documents(session, place.knowledge_base, shape, after=None, limit=20)

    return run


def locate(kind: str) -> Statement:
    async def run(session: AsyncSession, place: Place) -> object:
        wanted = {"work": place.work, "knowledge_base": place.knowledge_base, "document": place.documents[0]}
        statement = text("select * from stackroom_locate(:kind, :id)")
        return (await session.execute(statement, {"kind": kind, "id": wanted.get(kind, uuid4())})).all()

    return run


def function(call: str) -> Statement:
    async def run(session: AsyncSession, place: Place) -> object:
        return (await session.execute(text(f"select * from {call}"))).all()

    return run


OF_A_REQUEST: dict[str, Statement] = {
    "list documents": filtered(),
    "list documents by status": filtered(status="queued"),
    "list documents by name": filtered(name="n7"),
    "list documents by external id": filtered(external_id="e8"),
    "list documents by bytes": filtered(sha256=b"0" * 32),
    "find a document": lambda s, p: repository.find(s, scope_of(p), p.documents[0], lock=True),
    "find a twin by external id": lambda s, p: repository.find_twin(
        s, p.knowledge_base, external_id="e8", sha256=b"0" * 32
    ),
    "find a twin by bytes": lambda s, p: repository.find_twin(s, p.knowledge_base, external_id=None, sha256=b"0" * 32),
    "find the same bytes": lambda s, p: repository.find_same_bytes(
        s, p.knowledge_base, b"0" * 32, other_than=p.documents[0]
    ),
    "count the waiting": lambda s, p: repository.count_waiting(s, p.work),
    "count by status": lambda s, p: repository.StatusCounter().count_by_status(s, [p.knowledge_base]),
    "list spans": lambda s, p: repository.list_spans(s, p.documents[0], after=-1, limit=50),
    "list knowledge bases": lambda s, p: knowledge_bases.list_visible(
        s, [scope_of(p)], after=None, limit=50, name=None
    ),
    "find a receipt": lambda s, p: find_receipt(s, p.work, uuid4()),
    "claim an idempotency key": lambda s, p: idempotency.claim(s, scope_of(p), "route", uuid4().hex),
    "list Works": lambda s, p: tenancy.list_works(s, caller_of(p), after=None, limit=50),
    "list API keys": lambda s, p: tenancy.list_api_keys(s, caller_of(p), after=None, limit=50),
    "locate a Work": locate("work"),
    "locate a knowledge base": locate("knowledge_base"),
    "locate a document": locate("document"),
    "locate a receipt": locate("receipt"),
    "locate a generation": locate("generation"),
    "list what happened": lambda s, p: list_entries(s, p.work, before=NEWEST, limit=50),
    "generations now": lambda s, p: generations_now(s, p.work),
    "what a generation lacks": lambda s, p: next_remaining(s, p.work, uuid4(), after=None, limit=64),
    "how much a generation lacks": lambda s, p: count_remaining(s, p.work, uuid4()),
    "documents of a Work": lambda s, p: count_documents(s, p.work),
    "documents of a generation": lambda s, p: count_coordinates(s, uuid4()),
    "refused documents": lambda s, p: list_refusals(s, uuid4(), limit=50),
    "Works of an owner": lambda s, p: s.execute(
        text("select * from stackroom_works_with_owner(:user)"), {"user": p.user}
    ),
}
OF_UPKEEP: dict[str, Statement] = {
    "expired writes": lambda s, p: writes.list_expired(s, max_rows=200),
    "pending prunes": function("stackroom_pending_prunes(200)"),
    "stale uploads": function("stackroom_stale_uploads(interval '1 hour', 200)"),
    "due blobs": function("stackroom_due_blob_deletions(200)"),
    "open receipts": function("stackroom_open_receipts(interval '1 hour', 200)"),
    "stranded documents": function("stackroom_stranded_documents(interval '1 minute', 200)"),
    "Works to maintain": function("stackroom_works_to_maintain(200)"),
    "Works to reconcile": function("stackroom_works_to_reconcile(100)"),
    "idle sweeps": function("stackroom_idle_sweeps(100)"),
    "generations to remove": function("stackroom_generations_to_remove(interval '1 day', 100)"),
    "generations to check": function("stackroom_claim_check(interval '1 day', 100)"),
    "a page of all generations": function("stackroom_list_generations('00000000-0000-0000-0000-000000000000', 100)"),
    "old rows": function("stackroom_forget_old_rows(interval '24 hours', interval '90 days')"),
}


def seen(filled: Filled, reads: list[Read], most_rows: int) -> list[Read]:
    """Reads of big tables that scan all of them, or look at more rows than they should."""
    assert reads, "the server explained nothing"
    return [r for r in reads if r.table in filled.big and ("Seq Scan" in r.kind or r.rows > most_rows)]


def test_the_tables_of_the_test_are_big(filled: Filled) -> None:
    assert {"kb_documents", "kb_spans", "kb_terms", "works", "api_keys", "index_writes"} <= filled.big
    assert {"deletion_receipts", "blob_deletions", "pending_uploads", "index_generations"} <= filled.big


@pytest.mark.parametrize("name", OF_A_REQUEST)
async def test_a_request_reads_a_few_rows_by_index(filled: Filled, name: str) -> None:
    place = filled.place
    async with filled.explained() as (database, _, plans):
        async with database.transaction(Reach.of(place.work, organizations=[place.organization])) as session:
            await OF_A_REQUEST[name](session, place)

        assert seen(filled, plans.reads, most_rows=2 * DOCUMENTS) == []


@pytest.mark.parametrize("name", OF_UPKEEP)
async def test_upkeep_reads_what_is_due_by_index(filled: Filled, name: str) -> None:
    async with filled.explained() as (database, _, plans):
        async with database.unscoped() as session:
            await OF_UPKEEP[name](session, filled.place)

        assert seen(filled, plans.reads, most_rows=2 * WORKS) == []


@pytest.mark.parametrize("key", KEYS, ids=["of the largest organization", "of a small organization"])
async def test_a_key_is_looked_up_by_index(filled: Filled, key: str) -> None:
    async with filled.explained() as (database, reads, plans):
        authenticator = KeyAuthenticator(database, reads)
        for _ in range(GENERIC):
            await authenticator.authenticate(key)
        await authenticator.close()

        assert seen(filled, plans.reads, most_rows=2) == []


async def search(database: Database, reads: ReadPool, place: Place) -> None:
    scoping = Scoping(database, reads, WorkAccess())
    wanted = {"work_id": place.work, "knowledge_base_ids": [place.knowledge_base]}
    allowed = await scoping.resolve(caller_of(place), **wanted, document_ids=None, filtered=None)  # type: ignore[arg-type]
    await search_lexical(reads, allowed, "t1 t2 t3", top_k=20, memory=TermMemory())
    await search_lexical(
        reads, replace(allowed, chunks=MOST_POSTINGS), "t1 t2 t3", top_k=20, memory=TermMemory()
    )  # by plan
    narrowed = replace(allowed, document_ids=tuple(place.documents[:3]), eligible=3)
    await search_lexical(reads, narrowed, "t1 t2 t3", top_k=20, memory=TermMemory())
    live = await fetch_live(reads, allowed, [Ref(d, 0, 1) for d in place.documents[:20]])
    assert len(live) == 20


async def test_a_search_reads_its_own_work_by_index(filled: Filled) -> None:
    async with filled.explained() as (database, reads, plans):
        for _ in range(GENERIC):
            await search(database, reads, filled.place)

        assert any(r.table == "kb_terms" for r in plans.reads)
        assert seen(filled, plans.reads, most_rows=DOCUMENTS * TERMS) == []
        assert seen(filled, [r for r in plans.reads if r.table == "kb_spans"], most_rows=4 * SPANS) == []


def test_no_index_stands_on_what_row_level_security_keeps_from_using_it(filled: Filled) -> None:
    """`@>` may say something about rows it looks at, so that policies are applied first: no such index is ever used."""
    with psycopg.connect(filled.url) as owner:
        found = owner.execute(
            "select indexrelid::regclass::text from pg_index i join pg_class c on c.oid = i.indexrelid"
            " join pg_am a on a.oid = c.relam where c.relnamespace = 'public'::regnamespace and a.amname = 'gin'"
        ).fetchall()

    assert found == []


async def test_a_filter_reads_the_documents_of_its_own_work_only(filled: Filled) -> None:
    place = filled.place
    year = FilterComparison(type="eq", key="year", value=2007)
    async with filled.explained() as (database, reads, plans):
        scoping = Scoping(database, reads, WorkAccess())
        allowed = await scoping.resolve(
            caller_of(place), work_id=place.work, knowledge_base_ids=None, document_ids=None, filtered=year
        )

        assert allowed.document_ids
        assert seen(filled, plans.reads, most_rows=2 * DOCUMENTS) == []
