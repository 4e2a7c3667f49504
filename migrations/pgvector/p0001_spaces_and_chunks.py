"""Spaces and chunks of the pgvector store, with row-level security.

Revision ID: p0001
Revises: nothing; this is a branch of its own
"""

import sqlalchemy as sa
from alembic import op
from pgvector.sqlalchemy import HALFVEC

from app.vector_stores.pgvector.extension import ensure_vector_extension

revision = "p0001"
down_revision = None
branch_labels = ("pgvector",)
depends_on = None

TABLES = ("pgvector_spaces", "pgvector_chunks")

# Where roles can't be made, the tables work all the same; readiness then says that the second wall is down.
MAKE_ROLE = """
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'stackroom_app') THEN
        CREATE ROLE stackroom_app NOLOGIN;
    END IF;
    GRANT stackroom_app TO CURRENT_USER;
EXCEPTION WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN
    RAISE NOTICE 'role stackroom_app: %', SQLERRM;
END $$
"""

GRANT = """
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'stackroom_app') THEN
        GRANT SELECT, INSERT, UPDATE, DELETE ON pgvector_spaces, pgvector_chunks TO stackroom_app;
        BEGIN
            EXECUTE format('GRANT USAGE ON SCHEMA %I TO stackroom_app', current_schema());
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'schema %: %', current_schema(), SQLERRM;
        END;
    END IF;
END $$
"""

# The sub-select is evaluated once per statement, not once per row.
OWN_WORKS = "work_id = ANY ((SELECT nullif(current_setting('stackroom.works', true), '')::uuid[])::uuid[])"


def upgrade() -> None:
    ensure_vector_extension(op.get_bind())
    op.create_table(
        "pgvector_spaces",
        sa.Column("space_no", sa.Integer(), sa.Identity(always=True), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("space_key", sa.Text(), nullable=False),
        sa.Column("dims", sa.Integer(), nullable=False),
        sa.Column("index_state", sa.Text(), nullable=False, server_default="none"),
        sa.Column("index_kind", sa.Text()),
        sa.Column("index_rows", sa.BigInteger()),
        sa.Column("index_bytes", sa.BigInteger()),
        sa.Column("row_count", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("space_no", name="pk_pgvector_spaces"),
        sa.UniqueConstraint("work_id", "space_key", name="uq_pgvector_spaces_work_id_space_key"),
        sa.CheckConstraint("dims BETWEEN 1 AND 4000", name=op.f("ck_pgvector_spaces_dims")),
        sa.CheckConstraint("index_state IN ('none', 'building', 'ready')", name=op.f("ck_pgvector_spaces_index_state")),
        sa.CheckConstraint("index_kind IN ('hnsw', 'ivfflat')", name=op.f("ck_pgvector_spaces_index_kind")),
    )
    op.create_table(
        "pgvector_chunks",
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("space_no", sa.Integer(), nullable=False),
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("chunk_index", sa.Integer(), nullable=False),
        sa.Column("knowledge_base_id", sa.Uuid(), nullable=False),
        sa.Column("embedding", HALFVEC(), nullable=False),
        sa.PrimaryKeyConstraint("space_no", "document_id", "build", "chunk_index", name="pk_pgvector_chunks"),
    )
    op.create_index(
        "ix_pgvector_chunks_space_no_knowledge_base_id", "pgvector_chunks", ["space_no", "knowledge_base_id"]
    )
    # PLAIN: the type's default moves anything over 2 KB out of the row, and an exact scan then takes 2.5 times as long.
    op.execute("ALTER TABLE pgvector_chunks ALTER COLUMN embedding SET STORAGE PLAIN")
    op.execute("ALTER TABLE pgvector_chunks ALTER COLUMN embedding SET STATISTICS 0")
    op.execute(
        "ALTER TABLE pgvector_chunks"
        " SET (autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)"
    )
    op.execute(MAKE_ROLE)
    for table in TABLES:
        op.execute(f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY")
        op.execute(f"CREATE POLICY {table}_own_works ON {table} USING ({OWN_WORKS}) WITH CHECK ({OWN_WORKS})")
    op.execute(GRANT)


def downgrade() -> None:
    # The extension and the role stay: others may use them.
    for table in reversed(TABLES):
        op.drop_table(table)
