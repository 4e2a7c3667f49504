"""Starting an attempt at a document: status, and the job, in the caller's transaction."""

from datetime import UTC, datetime

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
    waiting = await repository.count_waiting(session, document.work_id)
    await enqueue(
        session,
        "ingest_document",
        args={"work_id": str(document.work_id), "document_id": str(document.id)},
        lock=f"document:{document.id}",
        queueing_lock=f"ingest:{document.id}",
        queue="ingest",
        priority=-waiting,
    )
