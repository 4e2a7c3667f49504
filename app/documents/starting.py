"""Starting an attempt at a document: status, and the job, in the caller's transaction."""

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.documents import repository
from app.documents.models import Document
from app.jobs.queue import enqueue


async def begin_again(session: AsyncSession, document: Document) -> None:
    """Queue a fresh attempt: the count of attempts starts anew, an earlier error is forgotten.

    Priority falls with the number of documents of the same Work that wait already, so that a small tenant's
    upload does not wait behind a large one's.
    """
    document.status = "queued"
    document.stage = None
    document.attempts = 0
    document.error_code = document.error_message = None
    document.error_retryable = False
    document.updated_at = datetime.now(UTC)
    await session.flush()
    await _enqueue(session, document.work_id, document.id, is_first=False)


async def begin_first(session: AsyncSession, work_id: UUID, document_id: UUID) -> None:
    """Enqueue the first attempt at a document that the transaction has made."""
    await _enqueue(session, work_id, document_id, is_first=True)


async def _enqueue(session: AsyncSession, work_id: UUID, document_id: UUID, *, is_first: bool) -> None:
    waiting = await repository.count_waiting(session, work_id)
    await enqueue(
        session,
        "ingest_document",
        args={"work_id": str(work_id), "document_id": str(document_id)},
        lock=f"document:{document_id}",
        queueing_lock=f"ingest:{document_id}",
        queue="ingest",
        priority=-waiting,
        is_first=is_first,
    )
