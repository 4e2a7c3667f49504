"""Go-live: the one short transaction that makes a written build the one that searches may answer with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, LiteralString
from uuid import UUID

from psycopg import AsyncCursor
from psycopg.types.json import Jsonb
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Transaction
from app.documents import outbox
from app.documents.attempts import Attempt
from app.indexing.models import IndexGeneration
from app.knowledge_bases.repository import add_live
from app.tenancy.versions import raise_index_version

Outcome = Literal["live", "deleting", "superseded", "moved", "lost"]
# The driver's own cursor and few statements: this transaction ends every document, and holds its Work's counters.
_LOCKED: LiteralString = """
    select d.kb_id, d.deleting_at is not null as deleting, d.live_build, d.chunk_count, d.lexical_length,
           g.id as generation_id, g.vector_store_id, g.store_instance_id, g.embedding_model, g.dims
      from kb_documents d left join index_generations g on g.work_id = d.work_id and g.state = 'active'
     where d.id = %(document)b for update of d
"""
_INDEXES: LiteralString = """
    select * from index_generations
     where work_id = %(work)b and (state = 'active' or state = 'building' and dual_writes)
"""
_OLD_REVISIONS: LiteralString = """
    delete from kb_revisions where document_id = %(document)b and revision < %(revision)b
    returning storage_key, text_key
"""
_REPLACED_TEXT: LiteralString = """
    select text_key from kb_revisions
     where document_id = %(document)b and revision = %(revision)b and text_key is not null
"""
# Everything that a build brings, in one statement. What it finds taken over already is counted, and rolls all back.
_ADVANCE: LiteralString = """
    with announced as (
        delete from index_writes where document_id = %(document)b and generation_id = %(generation)b
           and build = %(build)b and owner = %(owner)b returning 1),
    noted as (
        delete from pending_uploads where id = %(pending)b returning 1),
    spans as (
        insert into kb_spans (document_id, work_id, build, chunk_index, start, "end", page, heading_path, token_count,
                              context, content_sha256, text)
        select %(document)b, %(work)b, %(build)b, s.chunk_index, s.start, s.stop, s.page,
               array(select jsonb_array_elements_text(s.heading_path::jsonb)), s.token_count, s.context, s.sha, s.body
          from unnest(%(indices)b::int[], %(starts)b::bigint[], %(ends)b::bigint[], %(page_numbers)b::int[],
                      %(paths)b::text[], %(token_counts)b::int[], %(contexts)b::text[], %(digests)b::bytea[],
                      %(texts)b::text[])
               as s(chunk_index, start, stop, page, heading_path, token_count, context, sha, body)),
    terms as (
        insert into kb_terms (work_id, term, document_id, kb_id, build, data)
        select %(work)b, t.term, %(document)b, %(kb)b, %(build)b, t.data
          from unnest(%(terms)b::text[], %(postings)b::bytea[]) as t(term, data)),
    stamped as (
        insert into work_knowledge_chunk_coordinates as c
               (work_id, document_id, generation_id, vector_store_id, instance_id, build, chunk_count,
                embedding_model, embedding_dims, last_embedded_at, prune_pending)
        values (%(work)b, %(document)b, %(generation)b, %(store)s, %(instance)b, %(build)b, %(chunks)b,
                %(model)s, %(dims)b, now(), %(prune)b)
        on conflict (work_id, document_id, generation_id) do update
           set vector_store_id = excluded.vector_store_id, instance_id = excluded.instance_id,
               build = excluded.build, chunk_count = excluded.chunk_count,
               embedding_model = excluded.embedding_model, embedding_dims = excluded.embedding_dims,
               last_embedded_at = excluded.last_embedded_at, prune_pending = excluded.prune_pending),
    extracted as (
        update kb_revisions
           set text_key = %(text_key)s, characters = %(characters)b, pages = %(pages)b, language = %(language)s,
               extractor_fingerprint = %(extractor)s
         where document_id = %(document)b and revision = %(revision)b),
    advanced as (
        update kb_documents
           set live_build = %(build)b, live_revision = %(revision)b, chunk_count = %(chunks)b,
               token_count = %(tokens)b, lexical_length = %(length)b, language = %(language)s,
               chunking_fingerprint = %(chunking)s, analyzer_fingerprint = %(analyzer)s, updated_at = now(),
               status = case when revision = %(revision)b then 'ready' else status end,
               stage = case when revision = %(revision)b then null else stage end,
               content_type = case when revision = %(revision)b then %(content_type)s else content_type end,
               warnings = case when revision = %(revision)b then %(warnings)b else warnings end,
               chunks_done = case when revision = %(revision)b then %(chunks)b else chunks_done end,
               chunks_total = case when revision = %(revision)b then %(chunks)b else chunks_total end,
               error_code = case when revision = %(revision)b then null else error_code end,
               error_message = case when revision = %(revision)b then null else error_message end,
               error_retryable = revision <> %(revision)b and error_retryable
         where id = %(document)b)
    select (select count(*) from announced), (select count(*) from noted)
"""


@dataclass(frozen=True)
class SpanRow:
    """One chunk of the build, as it will be stored."""

    chunk_index: int
    start: int
    end: int
    page: int | None
    heading_path: tuple[str, ...]
    token_count: int
    context: str
    content_sha256: bytes
    text: str


@dataclass(frozen=True)
class Finished:
    """Everything of a build that the platform keeps. `terms` are (term, packed postings)."""

    spans: Sequence[SpanRow]
    terms: Sequence[tuple[str, bytes]]
    lexical_length: int
    text_key: str
    text_pending_id: UUID
    content_type: str
    characters: int
    pages: int | None
    language: str | None
    extractor_fingerprint: str
    chunking_fingerprint: str
    analyzer_fingerprint: str
    warnings: list[dict[str, str]]


class BuildLost(Exception):
    """The announced write or the text was taken over meanwhile: the transaction is to be rolled back."""


async def go_live(
    session: Transaction, attempt: Attempt, generation_id: UUID, owner: UUID, finished: Finished
) -> Outcome:
    """Make the build live, or say why not; only `live` has changed anything. `W` is held (`shared_lock`).

    `moved`: another generation is active now, write there and come back. Raises: BuildLost.
    """
    async with driver_cursor(session, names=True) as cursor:
        await cursor.execute(_LOCKED, {"document": attempt.document_id})
        document = await cursor.fetchone()
        if document is None or document["deleting"]:
            return "deleting"
        live_build: int | None = document["live_build"]
        if live_build is not None and attempt.build <= live_build:
            return "superseded"
        if document["generation_id"] != generation_id:
            return "moved"
        if live_build is not None:
            await cursor.execute("delete from kb_spans where document_id = %b", (attempt.document_id,))
            await cursor.execute("delete from kb_terms where document_id = %b", (attempt.document_id,))
        superfluous = await _superfluous(cursor, attempt)
    async with driver_cursor(session) as cursor:
        await cursor.execute(_ADVANCE, {**_values(attempt, document, finished), "owner": owner})
        announced, noted = await cursor.fetchone() or (0, 0)
    # A lexical generation has no store, and its writes are not announced.
    if noted != 1 or (announced != 1 and document["vector_store_id"] is not None):
        raise BuildLost
    await outbox.drop_blobs(session, attempt.work_id, superfluous)
    before = (0, 0) if live_build is None else (document["chunk_count"], document["lexical_length"])
    chunks, length = len(finished.spans) - before[0], finished.lexical_length - before[1]
    await add_live(session, document["kb_id"], chunks=chunks, length=length)
    await raise_index_version(session, attempt.work_id)
    return "live"


async def read_indexes(session: Transaction, work_id: UUID) -> tuple[IndexGeneration | None, IndexGeneration | None]:
    """The active generation, and one being built that takes new documents too; copies that no session knows."""
    async with driver_cursor(session, names=True) as cursor:
        await cursor.execute(_INDEXES, {"work": work_id})
        found = {row["state"]: IndexGeneration(**row) for row in await cursor.fetchall()}
    return found.get("active"), found.get("building")


async def find_active(session: AsyncSession, work_id: UUID) -> IndexGeneration | None:
    """The generation that answers searches now."""
    query = select(IndexGeneration).where(IndexGeneration.work_id == work_id, IndexGeneration.state == "active")
    return (await session.scalars(query)).one_or_none()


async def _superfluous(cursor: AsyncCursor[Any], attempt: Attempt) -> list[str]:
    """Keys of the blobs of older revisions, which go, and of the text that the live revision had before."""
    facts = {"document": attempt.document_id, "revision": attempt.revision}
    keys: list[str] = []
    if attempt.revision > 1:
        await cursor.execute(_OLD_REVISIONS, facts)
        keys += [key for row in await cursor.fetchall() for key in row.values() if key is not None]
    if attempt.build > 1:
        await cursor.execute(_REPLACED_TEXT, facts)
        keys += [row["text_key"] for row in await cursor.fetchall()]
    return keys


def _values(attempt: Attempt, document: Mapping[str, Any], finished: Finished) -> dict[str, Any]:
    spans, terms = finished.spans, finished.terms
    return {
        "kb": attempt.kb_id,
        "pending": finished.text_pending_id,
        "indices": [s.chunk_index for s in spans],
        "starts": [s.start for s in spans],
        "ends": [s.end for s in spans],
        "page_numbers": [s.page for s in spans],
        "paths": [json.dumps(s.heading_path) for s in spans],
        "token_counts": [s.token_count for s in spans],
        "contexts": [s.context for s in spans],
        "digests": [s.content_sha256 for s in spans],
        "texts": [s.text for s in spans],
        "terms": [t[0] for t in terms],
        "postings": [t[1] for t in terms],
        "work": attempt.work_id,
        "document": attempt.document_id,
        "build": attempt.build,
        "revision": attempt.revision,
        "generation": document["generation_id"],
        "store": document["vector_store_id"],
        "instance": document["store_instance_id"],
        "model": document["embedding_model"],
        "dims": document["dims"],
        "prune": document["vector_store_id"] is not None and attempt.build > 1,
        "chunks": len(finished.spans),
        "tokens": sum(s.token_count for s in finished.spans),
        "length": finished.lexical_length,
        "language": finished.language,
        "text_key": finished.text_key,
        "characters": finished.characters,
        "pages": finished.pages,
        "extractor": finished.extractor_fingerprint,
        "chunking": finished.chunking_fingerprint,
        "analyzer": finished.analyzer_fingerprint,
        "content_type": finished.content_type,
        "warnings": Jsonb(finished.warnings),
    }
