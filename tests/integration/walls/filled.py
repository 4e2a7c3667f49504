"""A database with many Works in it, written by SQL alone, and the plans of the statements that run on it."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from psycopg.errors import Diagnostic
from sqlalchemy import event

from app.db.engine import Database, Reach, make_engine
from app.db.reading import ReadPool
from app.tenancy.keys import hash_key
from tests.service import platform_database

WORKS, DOCUMENTS, SPANS, TERMS = 200, 50, 5, 20  # documents of a Work; spans and terms of a document
CROWD = 3000  # Works of one large organization, without documents
KEYS = ("the-key-of-the-largest-organization-012345", "the-key-of-a-small-organization-0123456789")
BIG = 1000  # rows from which on a table is read by index only

FILL = f"""
create temp table w as
    select i, gen_random_uuid() as org, gen_random_uuid() as work, gen_random_uuid() as usr, gen_random_uuid() as kb,
           gen_random_uuid() as gen, gen_random_uuid() as instance
      from generate_series(1, {WORKS}) i;
create temp table d as
    select w.*, n, gen_random_uuid() as doc from w, generate_series(1, {DOCUMENTS}) n;
insert into organizations (id, name, settings) select org, 'o' || i, '{{}}' from w;
insert into users (id, organization_id, subject, name) select usr, org, 's', 'n' from w;
insert into organization_members (organization_id, user_id, role) select org, usr, 'owner' from w;
insert into works (id, organization_id, name, settings, index_version, maintained_version)
    select work, org, 'w', '{{}}', 1, case when i % 20 = 0 then 0 else 1 end from w;
insert into works (id, organization_id, name, settings, index_version, maintained_version)
    select gen_random_uuid(), org, 'crowd', '{{}}', 1, 1 from w, generate_series(1, {CROWD}) where i = 1;
insert into api_keys (id, organization_id, user_id, name, key_hash, prefix, scopes)
    select gen_random_uuid(), org, usr, 'k', sha256((i || '-' || n)::bytea), 'srk_', '{{write}}'
      from w, generate_series(1, 20) n;
insert into plugin_instances (id, plugin_id, category, rung, work_id, fingerprint, public_settings)
    select instance, 'pgvector', 'vector-store', 'work', work, 'f', '{{}}' from w;
insert into knowledge_bases (id, work_id, owner_type, owner_id, name, description, attributes, live_chunks, live_length)
    select kb, work, 'user', usr, 'kb', '', '{{}}', {DOCUMENTS * SPANS}, {DOCUMENTS * SPANS * 100} from w;
insert into knowledge_bases (id, work_id, owner_type, owner_id, name, description, attributes, live_chunks, live_length)
    select gen_random_uuid(), work, 'user', gen_random_uuid(), 'kb', '', '{{}}', 0, 0
      from w, generate_series(1, 9);
insert into index_generations (id, work_id, number, state, vector_store_id, store_instance_id, documents_done,
                               documents_total, documents_refused)
    select gen, work, 1, 'active', 'pgvector', instance, 0, 0, 0 from w;
insert into index_generations (id, work_id, number, state, documents_done, documents_total, documents_refused)
    select gen_random_uuid(), work, n, 'retired', 0, 0, 0 from w, generate_series(2, 8) n;
insert into kb_documents (id, work_id, kb_id, external_id, name, content_type, size_bytes, sha256, attributes,
                          revision, live_revision, build, live_build, status, attempts, error_retryable, warnings,
                          chunks_done, chunks_total, chunk_count, token_count, lexical_length, language, updated_at)
    select doc, work, kb, case when n % 2 = 0 then 'e' || n end, 'n' || n, 'text/plain', 1, sha256(doc::text::bytea),
           jsonb_build_object('year', 2000 + n % 20), 1, 1, 1, 1,
           case when n % 25 = 0 then 'queued' else 'ready' end, 0, false, '[]', 0, 0, {SPANS}, 100, 100,
           case when n % 3 = 0 then 'de' else 'en' end, now() - interval '1 hour' from d;
insert into kb_revisions (document_id, revision, work_id, sha256, size_bytes, name, storage_key)
    select doc, 1, work, sha256(doc::text::bytea), 1, 'n', doc::text from d;
insert into kb_spans (document_id, chunk_index, work_id, build, heading_path, token_count, context, content_sha256,
                      text)
    select doc, c, work, 1, '{{}}', 20, '', sha256('x'), repeat('some text ', 20)
      from d, generate_series(0, {SPANS - 1}) c;
insert into kb_terms (work_id, term, document_id, kb_id, build, data)
    select work, 't' || (n * 7 + t * 13) % 100, doc, kb, 1, '\\x010000016400' from d, generate_series(1, {TERMS}) t;
insert into work_knowledge_chunk_coordinates (work_id, document_id, generation_id, vector_store_id, instance_id, build,
                                              chunk_count, last_embedded_at, prune_pending)
    select work, doc, gen, 'pgvector', instance, 1, {SPANS}, now(), n % 50 = 0 from d;
insert into index_writes (document_id, generation_id, build, work_id, owner, lease_until)
    select doc, gen, 2, work, gen_random_uuid(), now() + case when n % 50 = 0 then -1 else 1 end * interval '1 hour'
      from d;
insert into deletion_receipts (id, work_id, kind, object_id, owner_type, owner_id, created_at, closed_at)
    select gen_random_uuid(), work, 'document', gen_random_uuid(), 'user', usr, now() - interval '1 day',
           case when n % 50 > 0 then now() end from d;
insert into pending_uploads (id, work_id, storage_key, touched_at)
    select gen_random_uuid(), work, gen_random_uuid()::text, now() - (n % 50 = 0)::int * interval '1 day' from d;
insert into blob_deletions (id, work_id, storage_key, not_before)
    select gen_random_uuid(), work, 'k', now() + interval '1 hour' * (case when n % 50 = 0 then -1 else 1 end) from d;
insert into idempotency_keys (work_id, user_id, route, key, owner, created_at)
    select work, usr, 'r', 'k' || n, gen_random_uuid(), now() - (n % 50 = 0)::int * interval '2 days' from d;
insert into procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    select 'ingest', 'ingest_document', 'document:' || doc, 'ingest:' || doc, '{{}}' from d where n % 50 = 0;
update works set reconcile_at = now() + case when maintained_version = 0 then -1 else 1 end * interval '1 hour';
update index_generations set retired_at = now() - (number = 2)::int * interval '2 days' where state = 'retired';
update index_generations set state = 'building', retired_at = null where number = 8;
update index_generations set checked_at = now() - interval '2 days' from w where gen = id and i % 20 = 0;
insert into activity_entries (id, work_id, kind, facts)
    select gen_random_uuid(), work, 'KB_REEMBED_STARTED', '{{}}' from d;
"""
EXPLAINING = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
}


@dataclass(frozen=True)
class Place:
    """One Work among many."""

    organization: UUID
    work: UUID
    user: UUID
    knowledge_base: UUID
    documents: tuple[UUID, ...]


@dataclass(frozen=True)
class Read:
    """What one node of a plan read of a table: by which kind of node, and how many rows it looked at."""

    kind: str
    table: str
    index: str | None
    rows: int
    query: str


@dataclass
class Plans:
    """Collects what the server says of every statement, those inside functions too."""

    reads: list[Read] = field(default_factory=list)

    def note(self, diagnostic: Diagnostic) -> None:
        message = diagnostic.message_primary or ""
        _, separator, plan = message.partition("plan:\n")
        if separator:
            explained = json.loads(plan)
            self.reads += _reads(explained["Plan"], explained["Query Text"])


@dataclass
class Filled:
    """The filled database and its first Work, in the largest organization."""

    url: str
    place: Place
    big: frozenset[str]

    @asynccontextmanager
    async def explained(self) -> AsyncIterator[tuple[Database, ReadPool, Plans]]:
        """Connections of both kinds whose statements are explained."""
        plans = Plans()
        engine = make_engine(self.url, pool_size=1)

        @event.listens_for(engine.sync_engine, "connect")
        def listen(connection: Any, record: object) -> None:
            connection.driver_connection.add_notice_handler(plans.note)

        database = Database(engine)
        reads = ReadPool(self.url, database, max_size=1, wait_s=5, timeout_s=5, prepares=True)
        async with reads.transaction(Reach()) as connection:
            connection.add_notice_handler(plans.note)
        plans.reads.clear()
        try:
            yield database, reads, plans
        finally:
            await reads.close()
            await database.close()


def fill() -> Filled:
    """Fill a fresh database. Takes a few seconds."""
    url = platform_database()
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(FILL.encode())
        for number, key in enumerate(KEYS, start=1):
            mine = f"{number}-1".encode()
            owner.execute("update api_keys set key_hash = %s where key_hash = sha256(%s)", (hash_key(key), mine))
        owner.execute("vacuum analyze")
        row = owner.execute("select org, work, usr, kb from w where i = 1").fetchone()
        assert row is not None
        documents = owner.execute("select doc from d where i = 1 order by n").fetchall()
        big = owner.execute("select relname from pg_class where relkind = 'r' and reltuples >= %s", (BIG,)).fetchall()
        database = owner.info.dbname
        for name, value in EXPLAINING.items():
            owner.execute(f"alter database {database} set {name} = '{value}'".encode())
    organization, work, user, knowledge_base = row
    place = Place(organization, work, user, knowledge_base, tuple(d for (d,) in documents))
    return Filled(url, place, frozenset(name for (name,) in big))


def _reads(node: dict[str, Any], query: str) -> Iterator[Read]:
    if "Relation Name" in node:
        per_loop = node.get("Actual Rows", 0) + node.get("Rows Removed by Filter", 0)
        per_loop += node.get("Rows Removed by Index Recheck", 0)
        yield Read(
            node["Node Type"],
            node["Relation Name"],
            node.get("Index Name"),
            round(per_loop * max(node.get("Actual Loops", 1), 1)),
            " ".join(query.split()),
        )
    for inner in node.get("Plans", ()):
        yield from _reads(inner, query)
