"""Tables of what happened: receipts of deletions, and entries. Ids and numbers only, no content."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, new_id


class DeletionReceipt(Base):
    """What a deletion still has to remove, and from where.

    `owner_type`, `owner_id` say who may read it after the object's own row is gone. `stores` lists
    `{"vector_store_id", "instance_id", "remaining"}`; null until the job's first transaction.
    """

    __tablename__ = "deletion_receipts"
    __table_args__ = (
        CheckConstraint("kind in ('document', 'knowledge_base', 'work', 'generation')", name="kind"),
        Index(None, "work_id", "object_id"),
        Index(None, "object_id"),
        Index("ix_deletion_receipts_open", "created_at", postgresql_where=text("closed_at is null")),
        Index("ix_deletion_receipts_closed_at", "closed_at", postgresql_where=text("closed_at is not null")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(16))
    object_id: Mapped[UUID]
    knowledge_base_id: Mapped[UUID | None]
    owner_type: Mapped[str] = mapped_column(String(8))
    owner_id: Mapped[UUID]
    requested_by: Mapped[UUID | None]
    stores: Mapped[list[Any] | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
    closed_at: Mapped[datetime | None]


class ActivityEntry(Base):
    """Something that happened to a Work. `kind` in capitals, `facts` are ids, numbers and names of plugins."""

    __tablename__ = "activity_entries"
    __table_args__ = (Index(None, "work_id", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(64))
    facts: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
