"""Tables of the plugins: what an organization or a Work has chosen, and the sealed instances in use."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, LargeBinary, String, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, new_id


class OrganizationPlugin(Base):
    """An organization's say about a plugin: `enabled` False hides it, `pinned` chooses it.

    `trusted` = an operator set the endpoints and paths in the settings: they may lie in a private network.
    """

    __tablename__ = "organization_plugins"
    __table_args__ = (
        Index(
            "uq_organization_plugins_pinned",
            "organization_id",
            "category",
            unique=True,
            postgresql_where=text("pinned"),
        ),
    )

    organization_id: Mapped[UUID] = mapped_column(ForeignKey("organizations.id", ondelete="CASCADE"), primary_key=True)
    plugin_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    category: Mapped[str] = mapped_column(String(32))
    enabled: Mapped[bool] = mapped_column(default=True)
    pinned: Mapped[bool] = mapped_column(default=False)
    sealed_settings: Mapped[bytes | None] = mapped_column(LargeBinary)
    trusted: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    updated_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class WorkPlugin(Base):
    """A Work's say about a plugin."""

    __tablename__ = "work_plugins"
    __table_args__ = (
        Index("uq_work_plugins_pinned", "work_id", "category", unique=True, postgresql_where=text("pinned")),
    )

    work_id: Mapped[UUID] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"), primary_key=True)
    plugin_id: Mapped[str] = mapped_column(String(63), primary_key=True)
    category: Mapped[str] = mapped_column(String(32))
    enabled: Mapped[bool] = mapped_column(default=True)
    pinned: Mapped[bool] = mapped_column(default=False)
    sealed_settings: Mapped[bytes | None] = mapped_column(LargeBinary)
    trusted: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    updated_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class PluginInstance(Base):
    """A plugin with settings. `fingerprint` hashes the fields that say where it is; those never change in a row.

    `rung` = who chose the settings: `environment` (settings are read from the environment, nothing is sealed),
    `organization` or `work`. A rotated secret replaces `sealed_settings` in place.
    """

    __tablename__ = "plugin_instances"
    __table_args__ = (
        CheckConstraint(
            "(rung = 'environment' and organization_id is null and work_id is null)"
            " or (rung = 'organization' and organization_id is not null and work_id is null)"
            " or (rung = 'work' and work_id is not null)",
            name="rung",
        ),
        Index(
            "uq_plugin_instances_identity",
            "plugin_id",
            "rung",
            "organization_id",
            "work_id",
            "fingerprint",
            unique=True,
            postgresql_nulls_not_distinct=True,
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    plugin_id: Mapped[str] = mapped_column(String(63))
    category: Mapped[str] = mapped_column(String(32))
    rung: Mapped[str] = mapped_column(String(16))
    organization_id: Mapped[UUID | None] = mapped_column(ForeignKey("organizations.id", ondelete="CASCADE"))
    work_id: Mapped[UUID | None] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"))
    fingerprint: Mapped[str] = mapped_column(String(64))
    sealed_settings: Mapped[bytes | None] = mapped_column(LargeBinary)
    trusted: Mapped[bool] = mapped_column(default=False, server_default=text("false"))
    public_settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
