"""Tables of the index: generations, coordinates, and announced writes."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, new_id

STATES = ("building", "active", "retired", "removing", "removed", "failed", "cancelled")


class IndexGeneration(Base):
    """One complete index of a Work. Without a store or provider it is lexical: both instances are null.

    `passed_over` = the stores that were away when the choice was made, and so were not chosen. `forced` = built by
    command, although nothing else was wanted. `dual_writes` = new documents are written to it before they go live.
    `checked_at` = when its store was last compared with its coordinates, or that was begun.
    """

    __tablename__ = "index_generations"
    __table_args__ = (
        UniqueConstraint("work_id", "number"),
        CheckConstraint(
            "state in ('building', 'active', 'retired', 'removing', 'removed', 'failed', 'cancelled')", name="state"
        ),
        Index("uq_index_generations_active", "work_id", unique=True, postgresql_where=text("state = 'active'")),
        Index("uq_index_generations_building", "work_id", unique=True, postgresql_where=text("state = 'building'")),
        Index("ix_index_generations_checked", "checked_at", postgresql_where=text("state = 'active'")),
        Index("ix_index_generations_retired", "retired_at", postgresql_where=text("state = 'retired'")),
        Index(None, "store_instance_id"),
        Index(None, "provider_instance_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    vector_store_id: Mapped[str | None] = mapped_column(String(63))
    store_instance_id: Mapped[UUID | None] = mapped_column(ForeignKey("plugin_instances.id"))
    embedding_mode: Mapped[str | None] = mapped_column(String(16))
    embedding_provider_id: Mapped[str | None] = mapped_column(String(63))
    provider_instance_id: Mapped[UUID | None] = mapped_column(ForeignKey("plugin_instances.id"))
    embedding_model: Mapped[str | None] = mapped_column(String(255))
    model_fingerprint: Mapped[str | None] = mapped_column(String(64))
    dims: Mapped[int | None]
    passed_over: Mapped[list[str]] = mapped_column(ARRAY(String(63)), default=list, server_default=text("'{}'"))
    documents_done: Mapped[int] = mapped_column(default=0)
    documents_total: Mapped[int] = mapped_column(default=0)
    documents_refused: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None] = mapped_column(Text)
    forced: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    dual_writes: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
    activated_at: Mapped[datetime | None]
    retired_at: Mapped[datetime | None]
    removed_at: Mapped[datetime | None]
    checked_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class Coordinates(Base):
    """Where a document's chunks live: which build is live in which generation's store, and how many chunks."""

    __tablename__ = "work_knowledge_chunk_coordinates"
    __table_args__ = (
        Index(None, "document_id"),
        Index(
            "ix_work_knowledge_chunk_coordinates_prune",
            "last_embedded_at",
            postgresql_where=text("prune_pending"),
        ),
    )

    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"), primary_key=True)
    document_id: Mapped[UUID] = mapped_column(ForeignKey("kb_documents.id", ondelete="CASCADE"), primary_key=True)
    generation_id: Mapped[UUID] = mapped_column(ForeignKey("index_generations.id"), primary_key=True, index=True)
    vector_store_id: Mapped[str | None] = mapped_column(String(63))
    instance_id: Mapped[UUID | None] = mapped_column(ForeignKey("plugin_instances.id"))
    build: Mapped[int]
    chunk_count: Mapped[int] = mapped_column(BigInteger)
    embedding_model: Mapped[str | None] = mapped_column(String(255))
    embedding_dims: Mapped[int | None]
    last_embedded_at: Mapped[datetime]
    prune_pending: Mapped[bool] = mapped_column(default=False)


class IndexWrite(Base):
    """A write that was announced before its first call to a store; a lease says how long its owner is believed."""

    __tablename__ = "index_writes"
    __table_args__ = (Index(None, "lease_until"),)

    document_id: Mapped[UUID] = mapped_column(ForeignKey("kb_documents.id", ondelete="CASCADE"), primary_key=True)
    generation_id: Mapped[UUID] = mapped_column(ForeignKey("index_generations.id"), primary_key=True, index=True)
    build: Mapped[int] = mapped_column(primary_key=True)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"), index=True)
    owner: Mapped[UUID]
    lease_until: Mapped[datetime]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class IndexRefusal(Base):
    """A document's build that can't be brought into a generation: its provider or store refuses it for good.

    `accepted` = somebody has looked at it, and the index may be activated without it.
    """

    __tablename__ = "index_refusals"

    generation_id: Mapped[UUID] = mapped_column(ForeignKey("index_generations.id"), primary_key=True)
    document_id: Mapped[UUID] = mapped_column(
        ForeignKey("kb_documents.id", ondelete="CASCADE"), primary_key=True, index=True
    )
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"), index=True)
    build: Mapped[int]
    code: Mapped[str] = mapped_column(String(64))
    message: Mapped[str] = mapped_column(Text)
    accepted: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
