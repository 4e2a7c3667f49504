"""Use cases of documents that exist: read, list, change, retry, embed again, delete."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete as sql_delete
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.models import DeletionReceipt
from app.activity.receipts import find_receipt, open_receipt
from app.documents import repository
from app.documents.attributes import check_attributes
from app.documents.errors import DocumentNotFound, NoTextYet, NotReady, NotRetryable
from app.documents.models import Document, Revision, Span, Term
from app.documents.starting import begin_again
from app.errors import FieldFault, Invalid
from app.identity.caller import Caller, WorkScope
from app.identity.contract import Access
from app.jobs.queue import enqueue
from app.knowledge_bases import service as knowledge_bases
from app.knowledge_bases.repository import add_live
from app.knowledge_bases.service import merge_patch
from app.tenancy.versions import raise_index_version


async def enter(
    session: AsyncSession, caller: Caller, access: Access, document_id: UUID, *, lock: bool = False
) -> tuple[WorkScope, Document]:
    """Authorise one document. Raises: DocumentNotFound for a foreign, deleted or unknown one alike."""
    scope = await access.find_work_of(session, caller, "document", document_id)
    found = None if scope is None else await repository.find(session, scope, document_id, lock=lock)
    if scope is None or found is None:
        raise DocumentNotFound()
    return scope, found


async def list_page(
    session: AsyncSession,
    caller: Caller,
    access: Access,
    kb_id: UUID,
    wanted: repository.DocumentFilter,
    *,
    after: UUID | None,
    limit: int,
) -> Sequence[Document]:
    """Documents of one knowledge base, from upload on. Raises: KnowledgeBaseNotFound."""
    await knowledge_bases.enter(session, caller, access, kb_id)
    return await repository.list_documents(session, kb_id, wanted, after=after, limit=limit)


async def get_live_revision(session: AsyncSession, document: Document) -> Revision:
    """The revision whose text answers searches. Raises: NoTextYet."""
    revision = None
    if document.live_revision is not None:
        revision = await repository.get_revision(session, document.id, document.live_revision)
    if revision is None or revision.text_key is None:
        raise NoTextYet()
    return revision


async def get_newest_revision(session: AsyncSession, document: Document) -> Revision:
    """The revision with the newest original bytes. Raises: DocumentNotFound."""
    revision = await repository.get_revision(session, document.id, document.revision)
    if revision is None:
        raise DocumentNotFound()
    return revision


async def list_chunks(session: AsyncSession, document: Document, *, after: int, limit: int) -> Sequence[Span]:
    """Chunks of the live build."""
    return await repository.list_spans(session, document.id, after=after, limit=limit)


async def change(
    session: AsyncSession, caller: Caller, access: Access, document_id: UUID, changes: dict[str, Any]
) -> Document:
    """Apply a merge patch of name and attributes. Raises: DocumentNotFound, Invalid."""
    scope, found = await enter(session, caller, access, document_id, lock=True)
    scope.require_write()
    if changes.get("name") is not None:
        found.name = changes["name"]
    if "attributes" in changes:
        merged = merge_patch(found.attributes, changes["attributes"] or {})
        try:
            found.attributes = check_attributes(merged)
        except ValueError as exc:
            raise Invalid(str(exc), faults=[FieldFault(("body", "attributes"), str(exc))]) from exc
    found.updated_at = datetime.now(UTC)
    await session.flush()
    return found


async def retry(session: AsyncSession, caller: Caller, access: Access, document_id: UUID) -> Document:
    """Try a failed or waiting document again at once. Raises: NotRetryable, DocumentNotFound."""
    scope, found = await enter(session, caller, access, document_id, lock=True)
    scope.require_write()
    if found.status == "failed" or (found.status == "queued" and found.error_code is not None):
        await begin_again(session, found)
        await session.flush()
        return found
    raise NotRetryable(f"This document is '{found.status}'; only a failed or waiting one can be retried.")


async def re_embed(session: AsyncSession, caller: Caller, access: Access, document_id: UUID) -> Document:
    """Build a document anew from its newest bytes; it stays searchable meanwhile. Raises: NotReady."""
    scope, found = await enter(session, caller, access, document_id, lock=True)
    scope.require_write()
    if found.status not in ("ready", "failed"):
        raise NotReady(f"This document is '{found.status}'; wait until it is ready.")
    await begin_again(session, found)
    await session.flush()
    return found


async def delete(session: AsyncSession, caller: Caller, access: Access, document_id: UUID) -> UUID:
    """Mark it; spans and terms go at once, a job removes the rest. Answers the receipt."""
    scope, found = await enter(session, caller, access, document_id, lock=True)
    scope.require_write()
    _, knowledge_base = await knowledge_bases.enter(session, caller, access, found.kb_id)
    return await mark_deleting(
        session, found, owner=(knowledge_base.owner_type, knowledge_base.owner_id), requested_by=caller.user_id
    )


async def mark_deleting(
    session: AsyncSession, document: Document, *, owner: tuple[str, UUID], requested_by: UUID | None
) -> UUID:
    """The first step of a deletion, for a locked row: from its commit on nothing of the document is found."""
    chunks, length = (document.chunk_count, document.lexical_length) if document.live_build is not None else (0, 0)
    document.status = "deleting"
    document.stage = None
    document.deleting_at = document.updated_at = datetime.now(UTC)
    document.live_build = None
    document.chunk_count = document.token_count = document.lexical_length = 0
    await session.execute(sql_delete(Span).where(Span.document_id == document.id))
    await session.execute(sql_delete(Term).where(Term.document_id == document.id))
    receipt_id = await open_receipt(
        session,
        document.work_id,
        kind="document",
        object_id=document.id,
        knowledge_base_id=document.kb_id,
        owner=owner,
        requested_by=requested_by,
    )
    await enqueue(
        session,
        "forget_document",
        args={
            "work_id": str(document.work_id),
            "document_id": str(document.id),
            "receipt_id": str(receipt_id),
        },
        lock=f"forget:{document.id}",
        queueing_lock=f"forget:{document.id}",
        queue="forget",
    )
    await session.flush()
    await add_live(session, document.kb_id, chunks=-chunks, length=-length)
    await raise_index_version(session, document.work_id)
    return receipt_id


async def get_deletion(session: AsyncSession, caller: Caller, access: Access, document_id: UUID) -> DeletionReceipt:
    """The receipt of a deleted document, for those who could see it. Raises: DocumentNotFound."""
    scope = await access.find_work_of(session, caller, "receipt", document_id)
    receipt = None if scope is None else await find_receipt(session, scope.work_id, document_id)
    if receipt is None or receipt.kind != "document":
        raise DocumentNotFound()
    if receipt.owner_type != "user" or receipt.owner_id != caller.user_id:
        raise DocumentNotFound()
    return receipt
