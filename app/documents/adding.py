"""The rows of a new document in one statement: every upload passes here, so nothing goes through the object mapper."""

from typing import LiteralString
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_cursor
from app.documents.errors import UploadLost
from app.documents.models import Document

# The note of the bytes goes only if the document is made: a twin's upload still needs it.
_ADD: LiteralString = """
    with made as (
        insert into kb_documents
               (id, work_id, kb_id, external_id, name, content_type, size_bytes, sha256, attributes, revision, build,
                status, attempts, error_retryable, warnings, chunks_done, chunks_total, chunk_count, token_count,
                lexical_length, created_by, created_at, updated_at)
        values (%(id)b, %(work)b, %(kb)b, %(external_id)s, %(name)s, %(content_type)s, %(size_bytes)b, %(sha256)b,
                %(attributes)b, 1, 0, 'queued', 0, false, '[]', 0, 0, 0, 0, 0, %(created_by)b, %(now)b, %(now)b)
        on conflict do nothing
        returning id),
    first as (
        insert into kb_revisions
               (document_id, revision, work_id, sha256, size_bytes, name, declared_type, storage_key)
        select made.id, 1, %(work)b, %(sha256)b, %(size_bytes)b, %(file_name)s, %(declared_type)s, %(key)s from made),
    adopted as (
        delete from pending_uploads where id = %(pending)b and exists (select from made) returning id)
    select exists (select from made), exists (select from adopted)
"""


async def add_document(
    session: AsyncSession,
    document: Document,
    *,
    file_name: str,
    declared_type: str | None,
    storage_key: str,
    pending_id: UUID,
) -> bool:
    """Write a new document with its first revision and take its bytes over. False: the place is taken by a twin.

    `document` is no part of the session, before or after. Raises: UploadLost when the cleaner has taken the bytes.
    """
    values = {
        "id": document.id,
        "work": document.work_id,
        "kb": document.kb_id,
        "external_id": document.external_id,
        "name": document.name,
        "content_type": document.content_type,
        "size_bytes": document.size_bytes,
        "sha256": document.sha256,
        "attributes": Jsonb(document.attributes),
        "created_by": document.created_by,
        "now": document.created_at,
        "file_name": file_name,
        "declared_type": declared_type,
        "key": storage_key,
        "pending": pending_id,
    }
    async with driver_cursor(session) as cursor:
        await cursor.execute(_ADD, values)
        made, adopted = await cursor.fetchone() or (False, False)
    if made and not adopted:
        raise UploadLost(retry_after_s=1)
    return bool(made)
