"""The plugin's tables, for Alembic to compare with; its statements are SQL of its own.

Kept apart from every other table of the service: own metadata, own migration branch.
"""

from pgvector.sqlalchemy import HALFVEC
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
)

from app.vector_stores.pgvector.statements import ANN_INDEX_PREFIX

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    }
)

spaces = Table(
    "pgvector_spaces",
    metadata,
    Column("space_no", Integer, Identity(always=True), nullable=False),
    Column("work_id", Uuid, nullable=False),
    Column("space_key", Text, nullable=False),
    Column("dims", Integer, nullable=False),
    Column("index_state", Text, nullable=False, server_default="none"),
    Column("index_kind", Text),
    Column("index_rows", BigInteger),
    Column("index_bytes", BigInteger),
    Column("row_count", BigInteger, nullable=False, server_default="0"),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
    PrimaryKeyConstraint("space_no"),
    UniqueConstraint("work_id", "space_key"),
    CheckConstraint("dims BETWEEN 1 AND 4000", name="dims"),
    CheckConstraint("index_state IN ('none', 'building', 'ready')", name="index_state"),
    CheckConstraint("index_kind IN ('hnsw', 'ivfflat')", name="index_kind"),
)

chunks = Table(
    "pgvector_chunks",
    metadata,
    Column("work_id", Uuid, nullable=False),
    Column("space_no", Integer, nullable=False),
    Column("document_id", Uuid, nullable=False),
    Column("build", Integer, nullable=False),
    Column("chunk_index", Integer, nullable=False),
    Column("knowledge_base_id", Uuid, nullable=False),
    Column("embedding", HALFVEC(), nullable=False),
    PrimaryKeyConstraint("space_no", "document_id", "build", "chunk_index"),
    Index(None, "space_no", "knowledge_base_id"),
)


def is_ann_index(name: str | None) -> bool:
    """Whether this index is one that `maintain` makes at run time: no migration knows it, none may drop it."""
    return name is not None and name.startswith(ANN_INDEX_PREFIX)
