"""Go-live: the one short transaction that makes a written build the one that searches may answer with."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.documents import outbox
from app.documents.attempts import Attempt
from app.documents.models import Document, Revision, Span, Term
from app.indexing.models import Coordinates, IndexGeneration, IndexWrite
from app.indexing.writes import lock_work
from app.knowledge_bases.repository import add_live
from app.tenancy.versions import raise_index_version

Outcome = Literal["live", "deleting", "superseded", "moved", "lost"]


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


async def go_live(
    session: AsyncSession, attempt: Attempt, generation_id: UUID, owner: UUID, finished: Finished
) -> Outcome:
    """Make the build live, or say why not; only `live` has changed anything.

    `moved`: another generation is active now, write there and come back. `lost`: the announced write was taken over.
    """
    await lock_work(session, attempt.work_id)
    document, generation = await _locked(session, attempt)
    if document is None or document.deleting_at is not None:
        return "deleting"
    if document.live_build is not None and attempt.build <= document.live_build:
        return "superseded"
    if generation is None or generation.id != generation_id:
        return "moved"
    if not await _stamp(session, attempt, generation, owner, len(finished.spans)):
        return "lost"
    if not await outbox.adopt_pending(session, finished.text_pending_id):
        return "lost"
    await _replace_platform_rows(session, attempt, finished, is_first=document.live_build is None)
    before = (document.chunk_count, document.lexical_length) if document.live_build is not None else (0, 0)
    await _advance_revisions(session, document, attempt, finished)
    _advance_document(document, attempt, finished)
    await session.flush()
    await add_live(
        session,
        document.kb_id,
        chunks=len(finished.spans) - before[0],
        length=finished.lexical_length - before[1],
    )
    await raise_index_version(session, attempt.work_id)
    return "live"


async def _locked(session: AsyncSession, attempt: Attempt) -> tuple[Document | None, IndexGeneration | None]:
    """The document's row, locked, and the active generation: the lock W is held, so nothing flips meanwhile."""
    query = (
        select(Document, IndexGeneration)
        .outerjoin(IndexGeneration, (IndexGeneration.work_id == Document.work_id) & (IndexGeneration.state == "active"))
        .where(Document.id == attempt.document_id)
        .with_for_update(of=Document)
    )
    row = (await session.execute(query)).one_or_none()
    return (None, None) if row is None else (row[0], row[1])


async def find_active(session: AsyncSession, work_id: UUID) -> IndexGeneration | None:
    """The generation that answers searches now."""
    query = select(IndexGeneration).where(IndexGeneration.work_id == work_id, IndexGeneration.state == "active")
    return (await session.scalars(query)).one_or_none()


async def _stamp(
    session: AsyncSession, attempt: Attempt, generation: IndexGeneration, owner: UUID, chunk_count: int
) -> bool:
    """Coordinates in, announcement out. A lexical generation has no store and needs no announcement."""
    if generation.vector_store_id is not None:
        removed = await session.scalar(
            delete(IndexWrite)
            .where(
                IndexWrite.document_id == attempt.document_id,
                IndexWrite.generation_id == generation.id,
                IndexWrite.build == attempt.build,
                IndexWrite.owner == owner,
            )
            .returning(IndexWrite.build)
        )
        if removed is None:
            return False
    values: dict[str, Any] = {
        "vector_store_id": generation.vector_store_id,
        "instance_id": generation.store_instance_id,
        "build": attempt.build,
        "chunk_count": chunk_count,
        "embedding_model": generation.embedding_model,
        "embedding_dims": generation.dims,
        "last_embedded_at": datetime.now(UTC),
        "prune_pending": generation.vector_store_id is not None and attempt.build > 1,
    }
    keys = {"work_id": attempt.work_id, "document_id": attempt.document_id, "generation_id": generation.id}
    stamped = insert(Coordinates).values(**keys, **values)
    await session.execute(stamped.on_conflict_do_update(index_elements=list(keys), set_=values))
    return True


async def _replace_platform_rows(
    session: AsyncSession, attempt: Attempt, finished: Finished, *, is_first: bool
) -> None:
    """Spans and terms of the build instead of those of the live one; a document without a live one has none."""
    if not is_first:
        await session.execute(delete(Span).where(Span.document_id == attempt.document_id))
        await session.execute(delete(Term).where(Term.document_id == attempt.document_id))
    spans, terms = finished.spans, finished.terms
    async with driver_cursor(session) as cursor:
        await cursor.execute(
            'insert into kb_spans (document_id, work_id, build, chunk_index, start, "end", page, heading_path,'
            " token_count, context, content_sha256, text)"
            " select %b, %b, %b, s.chunk_index, s.start, s.stop, s.page,"
            "        array(select jsonb_array_elements_text(s.heading_path::jsonb)),"
            "        s.token_count, s.context, s.sha, s.body"
            " from unnest(%b::int[], %b::bigint[], %b::bigint[], %b::int[], %b::text[], %b::int[], %b::text[],"
            "             %b::bytea[], %b::text[])"
            "      as s(chunk_index, start, stop, page, heading_path, token_count, context, sha, body)",
            (
                attempt.document_id,
                attempt.work_id,
                attempt.build,
                [s.chunk_index for s in spans],
                [s.start for s in spans],
                [s.end for s in spans],
                [s.page for s in spans],
                [json.dumps(s.heading_path) for s in spans],
                [s.token_count for s in spans],
                [s.context for s in spans],
                [s.content_sha256 for s in spans],
                [s.text for s in spans],
            ),
        )
        await cursor.execute(
            "insert into kb_terms (work_id, term, document_id, kb_id, build, data)"
            " select %b, t.term, %b, %b, %b, t.data from unnest(%b::text[], %b::bytea[]) as t(term, data)",
            (
                attempt.work_id,
                attempt.document_id,
                attempt.kb_id,
                attempt.build,
                [t[0] for t in terms],
                [t[1] for t in terms],
            ),
        )


async def _advance_revisions(session: AsyncSession, document: Document, attempt: Attempt, finished: Finished) -> None:
    """The live revision gets its text; what is older than it goes, and so do the blobs of both."""
    keys: list[str] = []
    if attempt.revision > 1:
        old = await session.execute(
            delete(Revision)
            .where(Revision.document_id == document.id, Revision.revision < attempt.revision)
            .returning(Revision.storage_key, Revision.text_key)
        )
        keys += [key for row in old for key in row if key is not None]
    if attempt.build > 1:
        replaced = await session.scalar(
            select(Revision.text_key).where(
                Revision.document_id == document.id,
                Revision.revision == attempt.revision,
                Revision.text_key.is_not(None),
            )
        )
        keys += [] if replaced is None else [replaced]
    await session.execute(
        update(Revision)
        .where(Revision.document_id == document.id, Revision.revision == attempt.revision)
        .values(
            text_key=finished.text_key,
            characters=finished.characters,
            pages=finished.pages,
            language=finished.language,
            extractor_fingerprint=finished.extractor_fingerprint,
        )
        .execution_options(synchronize_session=False)
    )
    await outbox.drop_blobs(session, document.work_id, keys)


def _advance_document(document: Document, attempt: Attempt, finished: Finished) -> None:
    document.live_build = attempt.build
    document.live_revision = attempt.revision
    document.chunk_count = len(finished.spans)
    document.token_count = sum(s.token_count for s in finished.spans)
    document.lexical_length = finished.lexical_length
    document.language = finished.language
    document.chunking_fingerprint = finished.chunking_fingerprint
    document.analyzer_fingerprint = finished.analyzer_fingerprint
    document.updated_at = datetime.now(UTC)
    if attempt.revision == document.revision:
        document.status, document.stage = "ready", None
        document.content_type = finished.content_type
        document.warnings = finished.warnings
        document.chunks_done = document.chunks_total = len(finished.spans)
        document.error_code = document.error_message = None
        document.error_retryable = False
