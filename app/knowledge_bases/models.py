"""The table of knowledge bases."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String, Text, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, new_id


class KnowledgeBase(Base):
    """A knowledge base of one Work. `live_*` are sums over live builds, kept by go-live and delete."""

    __tablename__ = "knowledge_bases"
    __table_args__ = (
        CheckConstraint("owner_type in ('user', 'team')", name="owner_type"),
        Index(None, "owner_type", "owner_id"),
        Index(None, "work_id", "owner_id", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id"))
    owner_type: Mapped[str] = mapped_column(String(8))
    owner_id: Mapped[UUID]
    name: Mapped[str] = mapped_column(String(255))
    description: Mapped[str] = mapped_column(Text, default="")
    attributes: Mapped[dict[str, Any]] = mapped_column(default=dict)
    live_chunks: Mapped[int] = mapped_column(BigInteger, default=0)
    live_length: Mapped[int] = mapped_column(BigInteger, default=0)
    deleting_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
    updated_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
