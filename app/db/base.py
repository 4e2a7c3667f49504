"""The declarative base: constraint names by convention, aware times, text-free defaults."""

from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

import uuid_utils.compat as uuids
from sqlalchemy import DateTime, MetaData, Uuid
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase

NAMING_CONVENTION = {
    "pk": "pk_%(table_name)s",
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
}


class Base(DeclarativeBase):
    """Base of every table of the platform."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        datetime: DateTime(timezone=True),
        UUID: Uuid(as_uuid=True),
        dict[str, Any]: JSONB,
        list[Any]: JSONB,
    }


def new_id() -> UUID:
    """A new UUIDv7: unique, and ascending in time of making."""
    return uuids.uuid7()
