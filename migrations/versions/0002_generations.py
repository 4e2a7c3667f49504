"""Index generations that replace one another: refused documents, what happened, and Works to be looked at again.

Revision ID: 0002
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = ("index_refusals", "activity_entries")
WORKS = "(nullif(current_setting('stackroom.works', true), ''))::uuid[]"
KINDS = "kind in ('document', 'knowledge_base', 'work'{more})"
GRANTS = """
do $$
begin
    if not exists (select from pg_roles where rolname = 'stackroom_app') then
        return;
    end if;
    grant select, insert, update, delete on {tables} to stackroom_app;
    {functions}
end
$$
"""
FUNCTIONS = {
    "stackroom_works_to_reconcile(max_rows integer)": """
        returns table (work_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select w.id from works w
             where w.reconcile_at <= now() and w.deleting_at is null order by w.reconcile_at limit max_rows
        $$
    """,
    "stackroom_environment_is(wanted text)": """
        returns bigint
        language sql volatile security definer set search_path = {schema}, pg_temp as $$
            with marked as (
                update works set reconcile_at = now()
                 where reconcile_at is not null and reconciled_under is distinct from wanted returning 1)
            select count(*) from marked
        $$
    """,
    "stackroom_idle_sweeps(max_rows integer)": """
        returns table (work_id uuid, generation_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select g.work_id, g.id from index_generations g
             where g.state = 'building'
               and not exists (select from procrastinate_jobs j
                                where j.queueing_lock = 'sweep:' || g.id and j.status = 'todo')
               and not exists (select from procrastinate_jobs j
                                where j.lock = 'sweep:' || g.work_id and j.status = 'doing')
             order by g.id limit max_rows
        $$
    """,
    "stackroom_generations_to_remove(grace interval, max_rows integer)": """
        returns table (work_id uuid, generation_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select g.work_id, g.id from index_generations g
             where g.state = 'retired' and g.retired_at < now() - grace order by g.retired_at limit max_rows
        $$
    """,
    "stackroom_list_generations(after uuid, max_rows integer)": """
        returns table (work_id uuid, generation_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select g.work_id, g.id from index_generations g where g.id > after order by g.id limit max_rows
        $$
    """,
    "stackroom_claim_check(older_than interval, max_rows integer)": """
        returns table (work_id uuid, generation_id uuid)
        language sql volatile security definer set search_path = {schema}, pg_temp as $$
            update index_generations g set checked_at = now()
             where g.id in (select c.id from index_generations c
                             where c.state = 'active' and c.checked_at < now() - older_than
                             order by c.checked_at limit max_rows for update skip locked)
            returning g.work_id, g.id
        $$
    """,
}


def upgrade() -> None:
    op.add_column("works", sa.Column("reconcile_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("works", sa.Column("reconciled_under", sa.String(length=64), nullable=True))
    op.create_index(op.f("ix_works_reconcile_at"), "works", ["reconcile_at"], unique=False)
    op.execute(
        "update works w set reconcile_at = now() where exists (select from index_generations g where g.work_id = w.id)"
    )
    op.add_column(
        "index_generations", sa.Column("forced", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column(
        "index_generations", sa.Column("dual_writes", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column(
        "index_generations",
        sa.Column("checked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    )
    op.create_index(
        "ix_index_generations_checked",
        "index_generations",
        ["checked_at"],
        unique=False,
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "ix_index_generations_retired",
        "index_generations",
        ["retired_at"],
        unique=False,
        postgresql_where=sa.text("state = 'retired'"),
    )
    op.create_table(
        "index_refusals",
        sa.Column("generation_id", sa.Uuid(), nullable=False),
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("code", sa.String(length=64), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("accepted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["kb_documents.id"],
            name=op.f("fk_index_refusals_document_id_kb_documents"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["generation_id"],
            ["index_generations.id"],
            name=op.f("fk_index_refusals_generation_id_index_generations"),
        ),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_index_refusals_work_id_works")),
        sa.PrimaryKeyConstraint("generation_id", "document_id", name=op.f("pk_index_refusals")),
    )
    op.create_index(op.f("ix_index_refusals_document_id"), "index_refusals", ["document_id"], unique=False)
    op.create_index(op.f("ix_index_refusals_work_id"), "index_refusals", ["work_id"], unique=False)
    op.create_table(
        "activity_entries",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("facts", pg.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_activity_entries_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_activity_entries")),
    )
    op.create_index(op.f("ix_activity_entries_work_id_id"), "activity_entries", ["work_id", "id"], unique=False)
    op.drop_constraint(op.f("ck_deletion_receipts_kind"), "deletion_receipts", type_="check")
    op.create_check_constraint(
        op.f("ck_deletion_receipts_kind"), "deletion_receipts", KINDS.format(more=", 'generation'")
    )
    for table in TABLES:
        reached = f"work_id = any ({WORKS})"
        op.execute(f"alter table {table} enable row level security")
        op.execute(f"create policy {table}_reach on {table} using ({reached}) with check ({reached})")
    schema = op.get_bind().exec_driver_sql("select quote_ident(current_schema())").scalar_one()
    for signature, body in FUNCTIONS.items():
        op.execute(f"create function {signature} {body.format(schema=schema)}")
        op.execute(f"revoke all on function {_identity(signature)} from public")
    grants = " ".join(f"grant execute on function {_identity(one)} to stackroom_app;" for one in FUNCTIONS)
    op.execute(GRANTS.format(tables=", ".join(TABLES), functions=grants))


def downgrade() -> None:
    for signature in FUNCTIONS:
        op.execute(f"drop function {_identity(signature)}")
    op.execute("delete from deletion_receipts where kind = 'generation'")
    op.drop_constraint(op.f("ck_deletion_receipts_kind"), "deletion_receipts", type_="check")
    op.create_check_constraint(op.f("ck_deletion_receipts_kind"), "deletion_receipts", KINDS.format(more=""))
    op.drop_table("activity_entries")
    op.drop_table("index_refusals")
    op.drop_index("ix_index_generations_retired", table_name="index_generations")
    op.drop_index("ix_index_generations_checked", table_name="index_generations")
    op.drop_column("index_generations", "checked_at")
    op.drop_column("index_generations", "dual_writes")
    op.drop_column("index_generations", "forced")
    op.drop_index(op.f("ix_works_reconcile_at"), table_name="works")
    op.drop_column("works", "reconciled_under")
    op.drop_column("works", "reconcile_at")


def _identity(signature: str) -> str:
    name, _, arguments = signature.rstrip(")").partition("(")
    return f"{name}({', '.join(a.strip().split(' ', 1)[1] for a in arguments.split(','))})"
