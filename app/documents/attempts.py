"""An attempt at processing a document: it takes a build number, and reports only while no newer one has begun."""

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CursorResult, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.documents.models import Document, Revision

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


async def begin_attempt(
    session: AsyncSession, work_id: UUID, document_id: UUID, *, max_attempts: int
) -> Attempt | None:
    """Take a build number and the newest revision. None: nothing to do, or out of attempts (then failed)."""
    query = select(Document).where(Document.id == document_id, Document.work_id == work_id).with_for_update()
    document = (await session.scalars(query)).one_or_none()
    if document is None or document.deleting_at is not None:
        return None
    if document.status not in ("queued", "processing"):  # a job delivered once more: its work is done
        return None
    if document.attempts >= max_attempts:
        _set_failed(document, document.error_code or "gave_up", document.error_message or GAVE_UP)
        return None
    revision = await session.get_one(Revision, (document_id, document.revision))
    document.build += 1
    document.attempts += 1
    document.status, document.stage = "processing", "extracting"
    document.error_code = document.error_message = None
    document.error_retryable = False
    document.chunks_done = document.chunks_total = 0
    document.updated_at = datetime.now(UTC)
    await session.flush()
    return Attempt(
        work_id=work_id,
        document_id=document_id,
        kb_id=document.kb_id,
        build=document.build,
        number=document.attempts,
        revision=revision.revision,
        storage_key=revision.storage_key,
        size_bytes=revision.size_bytes,
        file_name=revision.name,
        declared_type=revision.declared_type,
        live_build=document.live_build,
    )


async def note(session: AsyncSession, attempt: Attempt, **values: Any) -> bool:
    """Write stage, progress or warnings. False: a newer attempt has begun, report nothing more."""
    return await _write(session, attempt, {**values, "updated_at": datetime.now(UTC)})


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


def _set_failed(document: Document, code: str, message: str) -> None:
    document.status, document.stage = "failed", None
    document.error_code, document.error_message, document.error_retryable = code, message, False
    document.updated_at = datetime.now(UTC)


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
