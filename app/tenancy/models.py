"""Tables of the tenants: organizations, users, Works and API keys."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, LargeBinary, String, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base, new_id


class Organization(Base):
    """The customer: owns users and Works."""

    __tablename__ = "organizations"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    name: Mapped[str] = mapped_column(String(255))
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class User(Base):
    """A person, as an external identity knows them: `subject` is unique per organization and issuer."""

    __tablename__ = "users"
    __table_args__ = (UniqueConstraint("organization_id", "issuer", "subject", postgresql_nulls_not_distinct=True),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organization_id: Mapped[UUID] = mapped_column(ForeignKey("organizations.id"))
    subject: Mapped[str] = mapped_column(String(255))
    issuer: Mapped[str | None] = mapped_column(String(255))
    name: Mapped[str] = mapped_column(String(255))
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class OrganizationMember(Base):
    """A user's role in an organization."""

    __tablename__ = "organization_members"
    __table_args__ = (CheckConstraint("role in ('owner', 'admin', 'member')", name="role"),)

    organization_id: Mapped[UUID] = mapped_column(ForeignKey("organizations.id"), primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True, index=True)
    role: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class Work(Base):
    """A tenant workspace: the unit of isolation. `index_version` rises with every change a search could see;
    `maintained_version` is the one its store was last maintained at.

    `reconcile_at` = when the index it has is next compared with the one it should have; null while it has none.
    `reconciled_under` = the environment under which that was done last, as a fingerprint.
    """

    __tablename__ = "works"
    __table_args__ = (
        Index(None, "organization_id", "id"),
        Index(None, "reconcile_at"),
        Index("ix_works_to_maintain", "id", postgresql_where=text("index_version > maintained_version")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organization_id: Mapped[UUID] = mapped_column(ForeignKey("organizations.id"))
    name: Mapped[str] = mapped_column(String(255))
    settings: Mapped[dict[str, Any]] = mapped_column(default=dict)
    index_version: Mapped[int] = mapped_column(BigInteger, default=0)
    maintained_version: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    reconcile_at: Mapped[datetime | None]
    reconciled_under: Mapped[str | None] = mapped_column(String(64))
    deleting_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))


class ApiKey(Base):
    """An API key: only its SHA-256 is kept. It acts for its user, inside one organization, maybe one Work."""

    __tablename__ = "api_keys"
    __table_args__ = (Index(None, "organization_id", "id"), Index(None, "user_id"))

    id: Mapped[UUID] = mapped_column(primary_key=True, default=new_id)
    organization_id: Mapped[UUID] = mapped_column(ForeignKey("organizations.id"))
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    work_id: Mapped[UUID | None] = mapped_column(ForeignKey("works.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(255))
    key_hash: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    prefix: Mapped[str] = mapped_column(String(16))
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String(16)))
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=text("now()"))
