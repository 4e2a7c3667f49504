"""Tables of the documents: rows, revisions, spans, terms and the outboxes of their bytes."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, String, Text, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, new_id

STATUSES = ("queued", "processing", "ready", "failed", "deleting")
STAGES = ("extracting", "chunking", "embedding", "storing")
_NOT_DELETING = "deleting_at is null"


class Document(Base):
    """One uploaded file or text. `revision` is the newest bytes, `live_build` what a search may answer with."""

    __tablename__ = "kb_documents"
    __table_args__ = (
        CheckConstraint("status in ('queued', 'processing', 'ready', 'failed', 'deleting')", name="status"),
        Index(
            "uq_kb_documents_external_id",
            "kb_id",
            "external_id",
            unique=True,
            postgresql_where=text(f"external_id is not null and {_NOT_DELETING}"),
        ),
        Index(
            "uq_kb_documents_sha256",
            "kb_id",
            "sha256",
            unique=True,
            postgresql_where=text(f"external_id is null and {_NOT_DELETING}"),
        ),
        Index("ix_kb_documents_kb_id_id", "kb_id", "id"),
        Index("ix_kb_documents_kb_id_status", "kb_id", "status"),
        Index("ix_kb_documents_kb_id_sha256", "kb_id", "sha256"),
        Index("ix_kb_documents_kb_id_name", "kb_id", "name"),
        Index("ix_kb_documents_work_id_id", "work_id", "id"),
        Index("ix_kb_documents_language", "work_id", "language", postgresql_where=text("live_build is not null")),
        Index(
            "ix_kb_documents_waiting",
            "work_id",
            postgresql_where=text("status in ('queued', 'processing')"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"))
    kb_id: Mapped[UUID] = mapped_column(ForeignKey("knowledge_bases.id"))
    external_id: Mapped[str | None] = mapped_column(String(1024))
    name: Mapped[str] = mapped_column(String(255))
    content_type: Mapped[str] = mapped_column(String(255))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    attributes: Mapped[dict[str, Any]] = mapped_column(default=dict)
    revision: Mapped[int] = mapped_column(default=1)
    live_revision: Mapped[int | None]
    build: Mapped[int] = mapped_column(default=0)
    live_build: Mapped[int | None]
    status: Mapped[str] = mapped_column(String(16), default="queued")
    stage: Mapped[str | None] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(default=0)
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None] = mapped_column(Text)
    error_retryable: Mapped[bool] = mapped_column(default=False)
    warnings: Mapped[list[Any]] = mapped_column(default=list)
    chunks_done: Mapped[int] = mapped_column(default=0)
    chunks_total: Mapped[int] = mapped_column(default=0)
    chunk_count: Mapped[int] = mapped_column(default=0)
    token_count: Mapped[int] = mapped_column(BigInteger, default=0)
    lexical_length: Mapped[int] = mapped_column(BigInteger, default=0)
    language: Mapped[str | None] = mapped_column(String(8))
    chunking_fingerprint: Mapped[str | None] = mapped_column(String(64))
    analyzer_fingerprint: Mapped[str | None] = mapped_column(String(64))
    created_by: Mapped[UUID | None]
    deleting_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
    updated_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class Revision(Base):
    """The bytes of one accepted upload, and the extracted text of the build that is live for it."""

    __tablename__ = "kb_revisions"

    document_id: Mapped[UUID] = mapped_column(ForeignKey("kb_documents.id", ondelete="CASCADE"), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"), index=True)
    sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    name: Mapped[str] = mapped_column(String(255))
    declared_type: Mapped[str | None] = mapped_column(String(255))
    storage_key: Mapped[str] = mapped_column(String(255), unique=True)
    text_key: Mapped[str | None] = mapped_column(String(255))
    characters: Mapped[int | None] = mapped_column(BigInteger)
    pages: Mapped[int | None]
    language: Mapped[str | None] = mapped_column(String(8))
    extractor_fingerprint: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class Span(Base):
    """A chunk of the live build: its text and its place in the extracted text, in code points."""

    __tablename__ = "kb_spans"

    document_id: Mapped[UUID] = mapped_column(ForeignKey("kb_documents.id", ondelete="CASCADE"), primary_key=True)
    chunk_index: Mapped[int] = mapped_column(primary_key=True)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"), index=True)
    build: Mapped[int]
    start: Mapped[int | None] = mapped_column(BigInteger)
    end: Mapped[int | None] = mapped_column(BigInteger)
    page: Mapped[int | None]
    heading_path: Mapped[list[str]] = mapped_column(ARRAY(Text))
    token_count: Mapped[int]
    context: Mapped[str] = mapped_column(Text, default="")
    content_sha256: Mapped[bytes] = mapped_column(LargeBinary(32))
    text: Mapped[str] = mapped_column(Text)


class Term(Base):
    """Packed postings of one term in one document's live build (see `documents.lexical`).

    Without foreign keys: their checks, two for each of several hundred rows, cost more than the rows. Go-live writes
    them under the lock of the document's row, the first step of a deletion removes them, and a trigger takes those of
    a document whose row goes.
    """

    __tablename__ = "kb_terms"
    __table_args__ = (Index("ix_kb_terms_document_id", "document_id"),)

    work_id: Mapped[UUID] = mapped_column(primary_key=True)
    term: Mapped[str] = mapped_column(Text(collation="C"), primary_key=True)
    document_id: Mapped[UUID] = mapped_column(primary_key=True)
    kb_id: Mapped[UUID]
    build: Mapped[int]
    data: Mapped[bytes] = mapped_column(LargeBinary)


class PendingUpload(Base):
    """Bytes that are being written and belong to nothing yet. Touched while the writer lives."""

    __tablename__ = "pending_uploads"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"), index=True)
    storage_key: Mapped[str] = mapped_column(String(255), unique=True)
    touched_at: Mapped[datetime] = mapped_column(server_default=text("now()"), index=True)


class BlobDeletion(Base):
    """Bytes that are superfluous: the only door through which a blob is deleted."""

    __tablename__ = "blob_deletions"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"), index=True)
    storage_key: Mapped[str] = mapped_column(String(255))
    not_before: Mapped[datetime] = mapped_column(server_default=text("now()"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class IdempotencyKey(Base):
    """The first answer to a request with an Idempotency-Key. `response` is null while the first one runs."""

    __tablename__ = "idempotency_keys"

    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(primary_key=True)
    route: Mapped[str] = mapped_column(String(255), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    owner: Mapped[UUID] = mapped_column(default=new_id)
    fingerprint: Mapped[bytes | None] = mapped_column(LargeBinary(32))
    status_code: Mapped[int | None]
    response: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"), index=True)
    touched_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
