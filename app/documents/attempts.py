"""An attempt at processing a document: it takes a build number, and reports only while no newer one has begun."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, LiteralString
from uuid import UUID

from sqlalchemy import CursorResult, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.db.engine import Transaction
from app.documents.models import Document

_BEGIN: LiteralString = """
    update kb_documents
       set build = build + 1, attempts = attempts + 1, status = 'processing', stage = 'extracting', error_code = null,
           error_message = null, error_retryable = false, chunks_done = 0, chunks_total = 0,
           updated_at = clock_timestamp()
     where id = %(document)b and work_id = %(work)b and deleting_at is null and status in ('queued', 'processing')
       and attempts < %(most)b
    returning kb_id, revision, build, live_build, attempts
"""
_BYTES: LiteralString = """
    select storage_key, size_bytes, name, declared_type from kb_revisions
     where document_id = %(document)b and revision = %(revision)b
"""
_NOTE: LiteralString = """
    update kb_documents
       set stage = coalesce(%(stage)s, stage), content_type = coalesce(%(content_type)s, content_type),
           chunks_done = coalesce(%(done)s::int, chunks_done), chunks_total = coalesce(%(total)s::int, chunks_total),
           updated_at = clock_timestamp()
     where id = %(document)b and build = %(build)b and status = 'processing' and deleting_at is null
"""
# A document that is done or being deleted has no attempts to run out of: its job was delivered once more.
_GIVE_UP: LiteralString = """
    update kb_documents
       set status = 'failed', stage = null, error_code = coalesce(error_code, 'gave_up'),
           error_message = coalesce(error_message, %(message)s), error_retryable = false,
           updated_at = clock_timestamp()
     where id = %(document)b and work_id = %(work)b and deleting_at is null and status in ('queued', 'processing')
       and attempts >= %(most)b
"""
GAVE_UP = (
    "Processing ended without a result several times (the worker died or was killed). Retry it, or look at the log."
)


@dataclass(frozen=True)
class Attempt:
    """One attempt: build numbers only grow, and a larger build never holds an older revision."""

    work_id: UUID
    document_id: UUID
    kb_id: UUID
    build: int
    number: int
    revision: int
    storage_key: str
    size_bytes: int
    file_name: str
    declared_type: str | None
    live_build: int | None
    started: float = field(default_factory=time.monotonic)

    @property
    def key(self) -> tuple[UUID, int]:
        """What tells this attempt from every other."""
        return self.document_id, self.build


async def begin_attempt(session: Transaction, work_id: UUID, document_id: UUID, *, max_attempts: int) -> Attempt | None:
    """Take a build number and the newest revision. None: nothing to do, or out of attempts (then failed)."""
    facts = {"document": document_id, "work": work_id, "most": max_attempts, "message": GAVE_UP}
    async with driver_cursor(session, names=True) as cursor:
        await cursor.execute(_BEGIN, facts)
        found = await cursor.fetchone()
        if found is None:
            await cursor.execute(_GIVE_UP, facts)
            return None
        await cursor.execute(_BYTES, {"document": document_id, "revision": found["revision"]})
        revision = await cursor.fetchone()
    if revision is None:
        raise RuntimeError("a document without its newest revision")
    return Attempt(
        work_id=work_id,
        document_id=document_id,
        kb_id=found["kb_id"],
        build=found["build"],
        number=found["attempts"],
        revision=found["revision"],
        storage_key=revision["storage_key"],
        size_bytes=revision["size_bytes"],
        file_name=revision["name"],
        declared_type=revision["declared_type"],
        live_build=found["live_build"],
    )


async def note(
    session: Transaction,
    attempt: Attempt,
    *,
    stage: str | None = None,
    content_type: str | None = None,
    chunks_done: int | None = None,
    chunks_total: int | None = None,
) -> bool:
    """Write what is given. False: a newer attempt has begun, report nothing more."""
    facts = {
        "document": attempt.document_id,
        "build": attempt.build,
        "stage": stage,
        "content_type": content_type,
        "done": chunks_done,
        "total": chunks_total,
    }
    async with driver_cursor(session) as cursor:
        return (await cursor.execute(_NOTE, facts)).rowcount == 1


async def fail(session: AsyncSession, attempt: Attempt, *, code: str, message: str) -> bool:
    """End the attempt: the document is `failed`, an older live build stays searchable."""
    return await _write(
        session,
        attempt,
        {
            "status": "failed",
            "stage": None,
            "error_code": code,
            "error_message": message,
            "error_retryable": False,
            "updated_at": datetime.now(UTC),
        },
    )


async def wait(session: AsyncSession, attempt: Attempt, *, code: str, message: str, counts: bool) -> bool:
    """Put the document back into the queue with the reason; `counts` False gives the attempt back."""
    return await _write(
        session,
        attempt,
        {
            "status": "queued",
            "stage": None,
            "error_code": code,
            "error_message": message,
            "error_retryable": True,
            "attempts": attempt.number if counts else attempt.number - 1,
            "updated_at": datetime.now(UTC),
        },
    )


async def hand_back(session: AsyncSession, attempt: Attempt) -> bool:
    """Undo the start of an attempt that was interrupted by a stop of the worker: it does not count."""
    values = {"status": "queued", "stage": None, "attempts": attempt.number - 1, "updated_at": datetime.now(UTC)}
    return await _write(session, attempt, values)


async def _write(session: AsyncSession, attempt: Attempt, values: dict[str, Any]) -> bool:
    result = await session.execute(
        update(Document)
        .where(
            Document.id == attempt.document_id,
            Document.build == attempt.build,
            Document.status == "processing",
            Document.deleting_at.is_(None),
        )
        .values(values)
        .execution_options(synchronize_session=False)
    )
    return isinstance(result, CursorResult) and result.rowcount == 1
