"""The platform's tables, the role without ownership, row-level security, and the named functions that cross Works.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql as pg

from app.jobs.schema import apply_schema, drop_schema

revision = "0001"
down_revision = None
branch_labels = ("platform",)
depends_on = None

WORK_TABLES = {
    "knowledge_bases": "work_id",
    "kb_documents": "work_id",
    "kb_revisions": "work_id",
    "kb_spans": "work_id",
    "kb_terms": "work_id",
    "pending_uploads": "work_id",
    "blob_deletions": "work_id",
    "idempotency_keys": "work_id",
    "deletion_receipts": "work_id",
    "index_generations": "work_id",
    "work_knowledge_chunk_coordinates": "work_id",
    "index_writes": "work_id",
    "work_plugins": "work_id",
}
ORGANIZATION_TABLES = {
    "organizations": "id",
    "users": "organization_id",
    "organization_members": "organization_id",
    "api_keys": "organization_id",
    "organization_plugins": "organization_id",
}
WORKS = "(nullif(current_setting('stackroom.works', true), ''))::uuid[]"
ORGANIZATIONS = "(nullif(current_setting('stackroom.organizations', true), ''))::uuid[]"

# Membership alone is not enough from Postgres 16 on: who makes a role may administer it, but not take it.
ROLE = """
do $$
begin
    if not exists (select from pg_roles where rolname = 'stackroom_app') then
        begin
            create role stackroom_app nologin;
        exception when duplicate_object or unique_violation then null; -- another database's migration was faster
        end;
    end if;
    if not pg_has_role(current_user, 'stackroom_app',
                       case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end) then
        execute format('grant stackroom_app to %I', current_user);
    end if;
exception when insufficient_privilege then
    raise notice 'the role stackroom_app cannot be made or taken here: the second wall is down';
end
$$
"""

# The queue's tables belong to the queue: the service puts jobs in, and its workers log in as the owner.
GRANTS = """
do $$
declare
    callable text;
begin
    if not exists (select from pg_roles where rolname = 'stackroom_app') then
        return;
    end if;
    execute format('grant usage on schema %I to stackroom_app', current_schema());
    grant select, insert, update, delete on {tables} to stackroom_app;
    -- Without sight of queueing_lock, the error of a refused duplicate would not say which lock it was.
    grant insert, select (id, queueing_lock) on procrastinate_jobs to stackroom_app;
    grant insert on procrastinate_events to stackroom_app;
    grant usage on sequence procrastinate_jobs_id_seq, procrastinate_events_id_seq to stackroom_app;
    foreach callable in array array[{functions}] loop
        execute format('grant execute on function %s to stackroom_app', callable);
    end loop;
end
$$
"""

# Each answers ids only. They run as the tables' owner, past row-level security, and are the only ones that do. Their
# search path ends with the temporary schema, which is otherwise looked at first: a caller's table never stands in front.
FUNCTIONS = {
    "stackroom_find_api_key(wanted bytea)": """
        returns table (id uuid, organization_id uuid, user_id uuid, user_name varchar, work_id uuid, scopes varchar[],
                       expires_at timestamptz, revoked_at timestamptz, last_used_at timestamptz, role varchar,
                       default_work_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select k.id, k.organization_id, k.user_id, u.name, k.work_id, k.scopes, k.expires_at, k.revoked_at,
                   k.last_used_at, m.role,
                   (select w.id from works w
                     where w.organization_id = k.organization_id and w.deleting_at is null order by w.id limit 1)
              from api_keys k
              join users u on u.id = k.user_id
              join organization_members m on m.organization_id = k.organization_id and m.user_id = k.user_id
             where k.key_hash = wanted
        $$
    """,
    "stackroom_locate(kind text, wanted uuid)": """
        returns table (work_id uuid, organization_id uuid, deleting boolean)
        language plpgsql stable security definer set search_path = {schema}, pg_temp as $$
        declare found uuid;
        begin
            found := case kind
                when 'work' then wanted
                when 'knowledge_base' then (select k.work_id from knowledge_bases k where k.id = wanted)
                when 'document' then (select d.work_id from kb_documents d where d.id = wanted)
                when 'receipt' then (select r.work_id from deletion_receipts r
                                      where r.object_id = wanted order by r.id desc limit 1)
                when 'generation' then (select g.work_id from index_generations g where g.id = wanted)
            end;
            return query select w.id, w.organization_id, w.deleting_at is not null from works w where w.id = found;
        end
        $$
    """,
    "stackroom_works_with_owner(owner uuid)": """
        returns table (work_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select distinct k.work_id from knowledge_bases k join works w on w.id = k.work_id
             where k.owner_type = 'user' and k.owner_id = owner and k.deleting_at is null and w.deleting_at is null
        $$
    """,
    "stackroom_organization_of(wanted uuid)": """
        returns table (organization_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select w.organization_id from works w where w.id = wanted
        $$
    """,
    "stackroom_expired_writes(max_rows integer)": """
        returns table (work_id uuid, document_id uuid, generation_id uuid, build integer)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select i.work_id, i.document_id, i.generation_id, i.build from index_writes i
             where i.lease_until < now() order by i.lease_until limit max_rows
        $$
    """,
    "stackroom_pending_prunes(max_rows integer)": """
        returns table (work_id uuid, document_id uuid, generation_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select c.work_id, c.document_id, c.generation_id from work_knowledge_chunk_coordinates c
             where c.prune_pending order by c.last_embedded_at limit max_rows
        $$
    """,
    "stackroom_stale_uploads(older_than interval, max_rows integer)": """
        returns table (work_id uuid, id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select p.work_id, p.id from pending_uploads p
             where p.touched_at < now() - older_than order by p.touched_at limit max_rows
        $$
    """,
    "stackroom_due_blob_deletions(max_rows integer)": """
        returns table (work_id uuid, id uuid, storage_key varchar)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select b.work_id, b.id, b.storage_key from blob_deletions b
             where b.not_before <= now() order by b.not_before limit max_rows
        $$
    """,
    "stackroom_open_receipts(older_than interval, max_rows integer)": """
        returns table (work_id uuid, id uuid, kind varchar, object_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select r.work_id, r.id, r.kind, r.object_id from deletion_receipts r
             where r.closed_at is null and r.created_at < now() - older_than order by r.created_at limit max_rows
        $$
    """,
    "stackroom_stranded_documents(older_than interval, max_rows integer)": """
        returns table (work_id uuid, document_id uuid)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select d.work_id, d.id from kb_documents d
             where d.status in ('queued', 'processing') and d.updated_at < now() - older_than
               and not exists (select from procrastinate_jobs j
                                where j.queueing_lock = 'ingest:' || d.id and j.status = 'todo')
               and not exists (select from procrastinate_jobs j
                                where j.lock = 'document:' || d.id and j.status = 'doing')
             order by d.updated_at limit max_rows
        $$
    """,
    "stackroom_works_to_maintain(max_rows integer)": """
        returns table (work_id uuid, index_version bigint)
        language sql stable security definer set search_path = {schema}, pg_temp as $$
            select w.id, w.index_version from works w
             where w.index_version > w.maintained_version order by w.id limit max_rows
        $$
    """,
    "stackroom_forget_old_rows(idempotency interval, receipts interval)": """
        returns void
        language sql volatile security definer set search_path = {schema}, pg_temp as $$
            delete from idempotency_keys where created_at < now() - idempotency;
            delete from deletion_receipts where closed_at < now() - receipts;
        $$
    """,
}
# Instead of a foreign key, whose check would be made for each of a document's several hundred terms.
FORGET_TERMS = """
create function stackroom_forget_terms() returns trigger language plpgsql set search_path = {schema}, pg_temp as $$
begin
    delete from kb_terms t using gone where t.document_id = gone.id;
    return null;
end
$$
"""
FORGET_TERMS_TRIGGER = """
create trigger kb_documents_forget_terms after delete on kb_documents
    referencing old table as gone for each statement execute function stackroom_forget_terms()
"""


def upgrade() -> None:
    op.execute(ROLE)
    _create_tables()
    for table, column in WORK_TABLES.items():
        _protect(table, f"{column} = any ({WORKS})")
    for table, column in ORGANIZATION_TABLES.items():
        _protect(table, f"{column} = any ({ORGANIZATIONS})")
    _protect_works()
    _protect_plugin_instances()
    apply_schema(op.get_bind())
    schema = op.get_bind().exec_driver_sql("select quote_ident(current_schema())").scalar_one()
    for signature, body in FUNCTIONS.items():
        op.execute(f"create function {signature} {body.format(schema=schema)}")
        op.execute(f"revoke all on function {_identity(signature)} from public")
    op.execute(FORGET_TERMS.format(schema=schema))
    op.execute(FORGET_TERMS_TRIGGER)
    tables = ", ".join([*WORK_TABLES, *ORGANIZATION_TABLES, "works", "plugin_instances"])
    functions = ", ".join(f"'{_identity(signature)}'" for signature in FUNCTIONS)
    op.execute(GRANTS.format(tables=tables, functions=functions))


def downgrade() -> None:
    for signature in FUNCTIONS:
        op.execute(f"drop function {_identity(signature)}")
    drop_schema(op.get_bind())
    _drop_tables()
    op.execute("drop function stackroom_forget_terms()")


def _identity(signature: str) -> str:
    name, _, arguments = signature.rstrip(")").partition("(")
    return f"{name}({', '.join(a.strip().split(' ', 1)[1] for a in arguments.split(','))})"


def _protect(table: str, condition: str) -> None:
    op.execute(f"alter table {table} enable row level security")
    op.execute(f"create policy {table}_reach on {table} using ({condition}) with check ({condition})")


def _protect_works() -> None:
    """Whoever reaches a Work alone sees and changes its row; a new one also needs the organization it is put into."""
    organization = f"organization_id = any ({ORGANIZATIONS})"
    reached = f"{organization} or id = any ({WORKS})"
    op.execute("alter table works enable row level security")
    op.execute(f"create policy works_read on works for select using ({reached})")
    op.execute(f"create policy works_add on works for insert with check ({organization})")
    op.execute(f"create policy works_change on works for update using ({reached}) with check ({reached})")
    op.execute(f"create policy works_remove on works for delete using ({reached})")


def _protect_plugin_instances() -> None:
    """Instances chosen by the environment belong to nobody: every Work reads and names them, none changes them."""
    _protect(
        "plugin_instances",
        f"(rung = 'work' and work_id = any ({WORKS}))"
        f" or (rung = 'organization' and organization_id = any ({ORGANIZATIONS}))",
    )
    common = "rung = 'environment'"
    op.execute(f"create policy plugin_instances_read_common on plugin_instances for select using ({common})")
    op.execute(f"create policy plugin_instances_add_common on plugin_instances for insert with check ({common})")


def _create_tables() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("settings", pg.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_organizations")),
    )
    op.create_table(
        "organization_plugins",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("plugin_id", sa.String(length=63), nullable=False),
        sa.Column("category", sa.String(length=32), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("sealed_settings", sa.LargeBinary(), nullable=True),
        sa.Column("trusted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_organization_plugins_organization_id_organizations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("organization_id", "plugin_id", name=op.f("pk_organization_plugins")),
    )
    op.create_index(
        "uq_organization_plugins_pinned",
        "organization_plugins",
        ["organization_id", "category"],
        unique=True,
        postgresql_where=sa.text("pinned"),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("subject", sa.String(length=255), nullable=False),
        sa.Column("issuer", sa.String(length=255), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_users_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_users")),
        sa.UniqueConstraint(
            "organization_id",
            "issuer",
            "subject",
            name=op.f("uq_users_organization_id_issuer_subject"),
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_table(
        "works",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("settings", pg.JSONB(), nullable=False),
        sa.Column("index_version", sa.BigInteger(), nullable=False),
        sa.Column("maintained_version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("deleting_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_works_organization_id_organizations")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_works")),
    )
    op.create_index(
        "ix_works_to_maintain",
        "works",
        ["id"],
        unique=False,
        postgresql_where=sa.text("index_version > maintained_version"),
    )
    op.create_index(op.f("ix_works_organization_id_id"), "works", ["organization_id", "id"], unique=False)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("key_hash", sa.LargeBinary(length=32), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("scopes", pg.ARRAY(sa.String(length=16)), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["organization_id"], ["organizations.id"], name=op.f("fk_api_keys_organization_id_organizations")
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=op.f("fk_api_keys_user_id_users"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_api_keys_work_id_works"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("key_hash", name=op.f("uq_api_keys_key_hash")),
    )
    op.create_index(op.f("ix_api_keys_organization_id_id"), "api_keys", ["organization_id", "id"], unique=False)
    op.create_index(op.f("ix_api_keys_user_id"), "api_keys", ["user_id"], unique=False)
    op.create_table(
        "blob_deletions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("storage_key", sa.String(length=255), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_blob_deletions_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blob_deletions")),
    )
    op.create_index(op.f("ix_blob_deletions_not_before"), "blob_deletions", ["not_before"], unique=False)
    op.create_index(op.f("ix_blob_deletions_work_id"), "blob_deletions", ["work_id"], unique=False)
    op.create_table(
        "deletion_receipts",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("object_id", sa.Uuid(), nullable=False),
        sa.Column("knowledge_base_id", sa.Uuid(), nullable=True),
        sa.Column("owner_type", sa.String(length=8), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("requested_by", sa.Uuid(), nullable=True),
        sa.Column("stores", pg.JSONB(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind in ('document', 'knowledge_base', 'work')", name=op.f("ck_deletion_receipts_kind")),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_deletion_receipts_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deletion_receipts")),
    )
    op.create_index(
        "ix_deletion_receipts_closed_at",
        "deletion_receipts",
        ["closed_at"],
        unique=False,
        postgresql_where=sa.text("closed_at is not null"),
    )
    op.create_index(
        "ix_deletion_receipts_open",
        "deletion_receipts",
        ["created_at"],
        unique=False,
        postgresql_where=sa.text("closed_at is null"),
    )
    op.create_index(op.f("ix_deletion_receipts_object_id"), "deletion_receipts", ["object_id"], unique=False)
    op.create_index(
        op.f("ix_deletion_receipts_work_id_object_id"), "deletion_receipts", ["work_id", "object_id"], unique=False
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("route", sa.String(length=255), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("owner", sa.Uuid(), nullable=False),
        sa.Column("fingerprint", sa.LargeBinary(length=32), nullable=True),
        sa.Column("status_code", sa.Integer(), nullable=True),
        sa.Column("response", pg.JSONB(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("touched_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_idempotency_keys_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("work_id", "user_id", "route", "key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False)
    op.create_table(
        "knowledge_bases",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("owner_type", sa.String(length=8), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("attributes", pg.JSONB(), nullable=False),
        sa.Column("live_chunks", sa.BigInteger(), nullable=False),
        sa.Column("live_length", sa.BigInteger(), nullable=False),
        sa.Column("deleting_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("owner_type in ('user', 'team')", name=op.f("ck_knowledge_bases_owner_type")),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_knowledge_bases_work_id_works")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_knowledge_bases")),
    )
    op.create_index(
        op.f("ix_knowledge_bases_owner_type_owner_id"), "knowledge_bases", ["owner_type", "owner_id"], unique=False
    )
    op.create_index(
        op.f("ix_knowledge_bases_work_id_owner_id_id"), "knowledge_bases", ["work_id", "owner_id", "id"], unique=False
    )
    op.create_table(
        "organization_members",
        sa.Column("organization_id", sa.Uuid(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("role in ('owner', 'admin', 'member')", name=op.f("ck_organization_members_role")),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_organization_members_organization_id_organizations"),
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name=op.f("fk_organization_members_user_id_users"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name=op.f("pk_organization_members")),
    )
    op.create_index(op.f("ix_organization_members_user_id"), "organization_members", ["user_id"], unique=False)
    op.create_table(
        "pending_uploads",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("storage_key", sa.String(length=255), nullable=False),
        sa.Column("touched_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_pending_uploads_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pending_uploads")),
        sa.UniqueConstraint("storage_key", name=op.f("uq_pending_uploads_storage_key")),
    )
    op.create_index(op.f("ix_pending_uploads_touched_at"), "pending_uploads", ["touched_at"], unique=False)
    op.create_index(op.f("ix_pending_uploads_work_id"), "pending_uploads", ["work_id"], unique=False)
    op.create_table(
        "plugin_instances",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("plugin_id", sa.String(length=63), nullable=False),
        sa.Column("category", sa.String(length=32), nullable=False),
        sa.Column("rung", sa.String(length=16), nullable=False),
        sa.Column("organization_id", sa.Uuid(), nullable=True),
        sa.Column("work_id", sa.Uuid(), nullable=True),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("sealed_settings", sa.LargeBinary(), nullable=True),
        sa.Column("trusted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("public_settings", pg.JSONB(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "(rung = 'environment' and organization_id is null and work_id is null) or (rung = 'organization' and organization_id is not null and work_id is null) or (rung = 'work' and work_id is not null)",
            name=op.f("ck_plugin_instances_rung"),
        ),
        sa.ForeignKeyConstraint(
            ["organization_id"],
            ["organizations.id"],
            name=op.f("fk_plugin_instances_organization_id_organizations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_plugin_instances_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plugin_instances")),
    )
    op.create_index(
        "uq_plugin_instances_identity",
        "plugin_instances",
        ["plugin_id", "rung", "organization_id", "work_id", "fingerprint"],
        unique=True,
        postgresql_nulls_not_distinct=True,
    )
    op.create_table(
        "work_plugins",
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("plugin_id", sa.String(length=63), nullable=False),
        sa.Column("category", sa.String(length=32), nullable=False),
        sa.Column("enabled", sa.Boolean(), nullable=False),
        sa.Column("pinned", sa.Boolean(), nullable=False),
        sa.Column("sealed_settings", sa.LargeBinary(), nullable=True),
        sa.Column("trusted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_work_plugins_work_id_works"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("work_id", "plugin_id", name=op.f("pk_work_plugins")),
    )
    op.create_index(
        "uq_work_plugins_pinned",
        "work_plugins",
        ["work_id", "category"],
        unique=True,
        postgresql_where=sa.text("pinned"),
    )
    op.create_table(
        "index_generations",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("vector_store_id", sa.String(length=63), nullable=True),
        sa.Column("store_instance_id", sa.Uuid(), nullable=True),
        sa.Column("embedding_mode", sa.String(length=16), nullable=True),
        sa.Column("embedding_provider_id", sa.String(length=63), nullable=True),
        sa.Column("provider_instance_id", sa.Uuid(), nullable=True),
        sa.Column("embedding_model", sa.String(length=255), nullable=True),
        sa.Column("model_fingerprint", sa.String(length=64), nullable=True),
        sa.Column("dims", sa.Integer(), nullable=True),
        sa.Column("passed_over", pg.ARRAY(sa.String(length=63)), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("documents_done", sa.Integer(), nullable=False),
        sa.Column("documents_total", sa.Integer(), nullable=False),
        sa.Column("documents_refused", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state in ('building', 'active', 'retired', 'removing', 'removed', 'failed', 'cancelled')",
            name=op.f("ck_index_generations_state"),
        ),
        sa.ForeignKeyConstraint(
            ["provider_instance_id"],
            ["plugin_instances.id"],
            name=op.f("fk_index_generations_provider_instance_id_plugin_instances"),
        ),
        sa.ForeignKeyConstraint(
            ["store_instance_id"],
            ["plugin_instances.id"],
            name=op.f("fk_index_generations_store_instance_id_plugin_instances"),
        ),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_index_generations_work_id_works")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_index_generations")),
        sa.UniqueConstraint("work_id", "number", name=op.f("uq_index_generations_work_id_number")),
    )
    op.create_index(
        op.f("ix_index_generations_provider_instance_id"), "index_generations", ["provider_instance_id"], unique=False
    )
    op.create_index(
        op.f("ix_index_generations_store_instance_id"), "index_generations", ["store_instance_id"], unique=False
    )
    op.create_index(
        "uq_index_generations_active",
        "index_generations",
        ["work_id"],
        unique=True,
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "uq_index_generations_building",
        "index_generations",
        ["work_id"],
        unique=True,
        postgresql_where=sa.text("state = 'building'"),
    )
    op.create_table(
        "kb_documents",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("kb_id", sa.Uuid(), nullable=False),
        sa.Column("external_id", sa.String(length=1024), nullable=True),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("content_type", sa.String(length=255), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("attributes", pg.JSONB(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("live_revision", sa.Integer(), nullable=True),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("live_build", sa.Integer(), nullable=True),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.String(length=16), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error_code", sa.String(length=64), nullable=True),
        sa.Column("error_message", sa.Text(), nullable=True),
        sa.Column("error_retryable", sa.Boolean(), nullable=False),
        sa.Column("warnings", pg.JSONB(), nullable=False),
        sa.Column("chunks_done", sa.Integer(), nullable=False),
        sa.Column("chunks_total", sa.Integer(), nullable=False),
        sa.Column("chunk_count", sa.Integer(), nullable=False),
        sa.Column("token_count", sa.BigInteger(), nullable=False),
        sa.Column("lexical_length", sa.BigInteger(), nullable=False),
        sa.Column("language", sa.String(length=8), nullable=True),
        sa.Column("chunking_fingerprint", sa.String(length=64), nullable=True),
        sa.Column("analyzer_fingerprint", sa.String(length=64), nullable=True),
        sa.Column("created_by", sa.Uuid(), nullable=True),
        sa.Column("deleting_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "status in ('queued', 'processing', 'ready', 'failed', 'deleting')", name=op.f("ck_kb_documents_status")
        ),
        sa.ForeignKeyConstraint(["kb_id"], ["knowledge_bases.id"], name=op.f("fk_kb_documents_kb_id_knowledge_bases")),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_kb_documents_work_id_works")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_kb_documents")),
    )
    op.create_index("ix_kb_documents_kb_id_id", "kb_documents", ["kb_id", "id"], unique=False)
    op.create_index("ix_kb_documents_kb_id_name", "kb_documents", ["kb_id", "name"], unique=False)
    op.create_index("ix_kb_documents_kb_id_sha256", "kb_documents", ["kb_id", "sha256"], unique=False)
    op.create_index("ix_kb_documents_kb_id_status", "kb_documents", ["kb_id", "status"], unique=False)
    op.create_index(
        "ix_kb_documents_language",
        "kb_documents",
        ["work_id", "language"],
        unique=False,
        postgresql_where=sa.text("live_build is not null"),
    )
    op.create_index(
        "ix_kb_documents_waiting",
        "kb_documents",
        ["work_id"],
        unique=False,
        postgresql_where=sa.text("status in ('queued', 'processing')"),
    )
    op.create_index("ix_kb_documents_work_id_id", "kb_documents", ["work_id", "id"], unique=False)
    op.create_index(
        "uq_kb_documents_external_id",
        "kb_documents",
        ["kb_id", "external_id"],
        unique=True,
        postgresql_where=sa.text("external_id is not null and deleting_at is null"),
    )
    op.create_index(
        "uq_kb_documents_sha256",
        "kb_documents",
        ["kb_id", "sha256"],
        unique=True,
        postgresql_where=sa.text("external_id is null and deleting_at is null"),
    )
    op.create_table(
        "index_writes",
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Uuid(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("owner", sa.Uuid(), nullable=False),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["kb_documents.id"],
            name=op.f("fk_index_writes_document_id_kb_documents"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["generation_id"], ["index_generations.id"], name=op.f("fk_index_writes_generation_id_index_generations")
        ),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_index_writes_work_id_works")),
        sa.PrimaryKeyConstraint("document_id", "generation_id", "build", name=op.f("pk_index_writes")),
    )
    op.create_index(op.f("ix_index_writes_generation_id"), "index_writes", ["generation_id"], unique=False)
    op.create_index(op.f("ix_index_writes_lease_until"), "index_writes", ["lease_until"], unique=False)
    op.create_index(op.f("ix_index_writes_work_id"), "index_writes", ["work_id"], unique=False)
    op.create_table(
        "kb_revisions",
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("declared_type", sa.String(length=255), nullable=True),
        sa.Column("storage_key", sa.String(length=255), nullable=False),
        sa.Column("text_key", sa.String(length=255), nullable=True),
        sa.Column("characters", sa.BigInteger(), nullable=True),
        sa.Column("pages", sa.Integer(), nullable=True),
        sa.Column("language", sa.String(length=8), nullable=True),
        sa.Column("extractor_fingerprint", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["kb_documents.id"],
            name=op.f("fk_kb_revisions_document_id_kb_documents"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_kb_revisions_work_id_works")),
        sa.PrimaryKeyConstraint("document_id", "revision", name=op.f("pk_kb_revisions")),
        sa.UniqueConstraint("storage_key", name=op.f("uq_kb_revisions_storage_key")),
    )
    op.create_index(op.f("ix_kb_revisions_work_id"), "kb_revisions", ["work_id"], unique=False)
    op.create_table(
        "kb_spans",
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("chunk_index", sa.Integer(), nullable=False),
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("start", sa.BigInteger(), nullable=True),
        sa.Column("end", sa.BigInteger(), nullable=True),
        sa.Column("page", sa.Integer(), nullable=True),
        sa.Column("heading_path", pg.ARRAY(sa.Text()), nullable=False),
        sa.Column("token_count", sa.Integer(), nullable=False),
        sa.Column("context", sa.Text(), nullable=False),
        sa.Column("content_sha256", sa.LargeBinary(length=32), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"], ["kb_documents.id"], name=op.f("fk_kb_spans_document_id_kb_documents"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["work_id"], ["works.id"], name=op.f("fk_kb_spans_work_id_works")),
        sa.PrimaryKeyConstraint("document_id", "chunk_index", name=op.f("pk_kb_spans")),
    )
    op.create_index(op.f("ix_kb_spans_work_id"), "kb_spans", ["work_id"], unique=False)
    op.create_table(
        "kb_terms",
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("term", sa.Text(collation="C"), nullable=False),
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("kb_id", sa.Uuid(), nullable=False),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("work_id", "term", "document_id", name=op.f("pk_kb_terms")),
    )
    op.create_index("ix_kb_terms_document_id", "kb_terms", ["document_id"], unique=False)
    op.create_table(
        "work_knowledge_chunk_coordinates",
        sa.Column("work_id", sa.Uuid(), nullable=False),
        sa.Column("document_id", sa.Uuid(), nullable=False),
        sa.Column("generation_id", sa.Uuid(), nullable=False),
        sa.Column("vector_store_id", sa.String(length=63), nullable=True),
        sa.Column("instance_id", sa.Uuid(), nullable=True),
        sa.Column("build", sa.Integer(), nullable=False),
        sa.Column("chunk_count", sa.BigInteger(), nullable=False),
        sa.Column("embedding_model", sa.String(length=255), nullable=True),
        sa.Column("embedding_dims", sa.Integer(), nullable=True),
        sa.Column("last_embedded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("prune_pending", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["document_id"],
            ["kb_documents.id"],
            name=op.f("fk_work_knowledge_chunk_coordinates_document_id_kb_documents"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["generation_id"],
            ["index_generations.id"],
            name=op.f("fk_work_knowledge_chunk_coordinates_generation_id_index_generations"),
        ),
        sa.ForeignKeyConstraint(
            ["instance_id"],
            ["plugin_instances.id"],
            name=op.f("fk_work_knowledge_chunk_coordinates_instance_id_plugin_instances"),
        ),
        sa.ForeignKeyConstraint(
            ["work_id"], ["works.id"], name=op.f("fk_work_knowledge_chunk_coordinates_work_id_works")
        ),
        sa.PrimaryKeyConstraint(
            "work_id", "document_id", "generation_id", name=op.f("pk_work_knowledge_chunk_coordinates")
        ),
    )
    op.create_index(
        op.f("ix_work_knowledge_chunk_coordinates_document_id"),
        "work_knowledge_chunk_coordinates",
        ["document_id"],
        unique=False,
    )
    op.create_index(
        op.f("ix_work_knowledge_chunk_coordinates_generation_id"),
        "work_knowledge_chunk_coordinates",
        ["generation_id"],
        unique=False,
    )
    op.create_index(
        "ix_work_knowledge_chunk_coordinates_prune",
        "work_knowledge_chunk_coordinates",
        ["last_embedded_at"],
        unique=False,
        postgresql_where=sa.text("prune_pending"),
    )


def _drop_tables() -> None:
    op.drop_index(
        "ix_work_knowledge_chunk_coordinates_prune",
        table_name="work_knowledge_chunk_coordinates",
        postgresql_where=sa.text("prune_pending"),
    )
    op.drop_index(
        op.f("ix_work_knowledge_chunk_coordinates_generation_id"), table_name="work_knowledge_chunk_coordinates"
    )
    op.drop_index(
        op.f("ix_work_knowledge_chunk_coordinates_document_id"), table_name="work_knowledge_chunk_coordinates"
    )
    op.drop_table("work_knowledge_chunk_coordinates")
    op.drop_index("ix_kb_terms_document_id", table_name="kb_terms")
    op.drop_table("kb_terms")
    op.drop_index(op.f("ix_kb_spans_work_id"), table_name="kb_spans")
    op.drop_table("kb_spans")
    op.drop_index(op.f("ix_kb_revisions_work_id"), table_name="kb_revisions")
    op.drop_table("kb_revisions")
    op.drop_index(op.f("ix_index_writes_work_id"), table_name="index_writes")
    op.drop_index(op.f("ix_index_writes_lease_until"), table_name="index_writes")
    op.drop_index(op.f("ix_index_writes_generation_id"), table_name="index_writes")
    op.drop_table("index_writes")
    op.drop_index(
        "uq_kb_documents_sha256",
        table_name="kb_documents",
        postgresql_where=sa.text("external_id is null and deleting_at is null"),
    )
    op.drop_index(
        "uq_kb_documents_external_id",
        table_name="kb_documents",
        postgresql_where=sa.text("external_id is not null and deleting_at is null"),
    )
    op.drop_index("ix_kb_documents_work_id_id", table_name="kb_documents")
    op.drop_index(
        "ix_kb_documents_waiting",
        table_name="kb_documents",
        postgresql_where=sa.text("status in ('queued', 'processing')"),
    )
    op.drop_index(
        "ix_kb_documents_language", table_name="kb_documents", postgresql_where=sa.text("live_build is not null")
    )
    op.drop_index("ix_kb_documents_kb_id_status", table_name="kb_documents")
    op.drop_index("ix_kb_documents_kb_id_sha256", table_name="kb_documents")
    op.drop_index("ix_kb_documents_kb_id_name", table_name="kb_documents")
    op.drop_index("ix_kb_documents_kb_id_id", table_name="kb_documents")
    op.drop_table("kb_documents")
    op.drop_index(
        "uq_index_generations_building", table_name="index_generations", postgresql_where=sa.text("state = 'building'")
    )
    op.drop_index(
        "uq_index_generations_active", table_name="index_generations", postgresql_where=sa.text("state = 'active'")
    )
    op.drop_index(op.f("ix_index_generations_store_instance_id"), table_name="index_generations")
    op.drop_index(op.f("ix_index_generations_provider_instance_id"), table_name="index_generations")
    op.drop_table("index_generations")
    op.drop_index("uq_work_plugins_pinned", table_name="work_plugins", postgresql_where=sa.text("pinned"))
    op.drop_table("work_plugins")
    op.drop_index("uq_plugin_instances_identity", table_name="plugin_instances", postgresql_nulls_not_distinct=True)
    op.drop_table("plugin_instances")
    op.drop_index(op.f("ix_pending_uploads_work_id"), table_name="pending_uploads")
    op.drop_index(op.f("ix_pending_uploads_touched_at"), table_name="pending_uploads")
    op.drop_table("pending_uploads")
    op.drop_index(op.f("ix_organization_members_user_id"), table_name="organization_members")
    op.drop_table("organization_members")
    op.drop_index(op.f("ix_knowledge_bases_work_id_owner_id_id"), table_name="knowledge_bases")
    op.drop_index(op.f("ix_knowledge_bases_owner_type_owner_id"), table_name="knowledge_bases")
    op.drop_table("knowledge_bases")
    op.drop_index(op.f("ix_idempotency_keys_created_at"), table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
    op.drop_index(op.f("ix_deletion_receipts_object_id"), table_name="deletion_receipts")
    op.drop_index(op.f("ix_deletion_receipts_work_id_object_id"), table_name="deletion_receipts")
    op.drop_index(
        "ix_deletion_receipts_open", table_name="deletion_receipts", postgresql_where=sa.text("closed_at is null")
    )
    op.drop_index(
        "ix_deletion_receipts_closed_at",
        table_name="deletion_receipts",
        postgresql_where=sa.text("closed_at is not null"),
    )
    op.drop_table("deletion_receipts")
    op.drop_index(op.f("ix_blob_deletions_work_id"), table_name="blob_deletions")
    op.drop_index(op.f("ix_blob_deletions_not_before"), table_name="blob_deletions")
    op.drop_table("blob_deletions")
    op.drop_index(op.f("ix_api_keys_user_id"), table_name="api_keys")
    op.drop_index(op.f("ix_api_keys_organization_id_id"), table_name="api_keys")
    op.drop_table("api_keys")
    op.drop_index("ix_works_to_maintain", table_name="works")
    op.drop_index(op.f("ix_works_organization_id_id"), table_name="works")
    op.drop_table("works")
    op.drop_table("users")
    op.drop_index(
        "uq_organization_plugins_pinned", table_name="organization_plugins", postgresql_where=sa.text("pinned")
    )
    op.drop_table("organization_plugins")
    op.drop_table("organizations")
