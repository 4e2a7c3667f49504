"""What the catalogue says of the schema: its tables, their walls, and one row for each table made from it alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

LIBRARY = "procrastinate_"
NOT_OURS = ("alembic_version",)
VALUES: Mapping[tuple[str, str], object] = {
    ("kb_documents", "status"): "ready",
    ("deletion_receipts", "kind"): "document",
    ("index_generations", "state"): "active",
    ("plugin_instances", "rung"): "work",
    ("organization_members", "role"): "member",
    ("pgvector_chunks", "embedding"): "[1,2]",
}
# References that a trigger follows, where the checks of a foreign key would cost too much.
WITHOUT_KEY: Mapping[tuple[str, str], tuple[str, str]] = {("kb_terms", "document_id"): ("kb_documents", "id")}
BY_NAME: Mapping[str, object] = {"owner_type": "user"}
BY_TYPE: Mapping[str, object] = {
    "int4": 1,
    "int8": 1,
    "bool": False,
    "jsonb": Jsonb({}),
    "_text": [],
    "_varchar": [],
    "timestamptz": "2026-01-01T00:00:00Z",
}
Side = Literal["work", "organization"]


@dataclass(frozen=True)
class Table:
    """A table; `column` says whose a row is: a Work's or an organization's."""

    name: str
    secured: bool
    policies: int
    column: str | None
    side: Side


@dataclass(frozen=True)
class Tenant:
    """A Work in an organization, and one row of theirs in every table: table → column → value."""

    work: UUID
    organization: UUID
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    def owns(self, table: Table) -> UUID:
        """The value of the table's column that marks this tenant's rows."""
        return self.work if table.side == "work" else self.organization


class Catalogue:
    """Reads as the tables' owner, past every wall."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    @cached_property
    def tables(self) -> list[Table]:
        """Every table of the schema that is not a library's."""
        rows = self._connection.execute(
            "select c.relname, c.relrowsecurity, count(distinct p.oid),"
            " array_agg(distinct a.attname::text) filter (where a.attname is not null)"
            " from pg_class c left join pg_policy p on p.polrelid = c.oid"
            " left join pg_attribute a on a.attrelid = c.oid and a.attname in ('work_id', 'organization_id')"
            " where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') group by 1, 2 order by 1"
        ).fetchall()
        return [
            Table(name, secured, policies, *_belonging(name, set(columns or ())))
            for name, secured, policies, columns in rows
            if not name.startswith(LIBRARY) and name not in NOT_OURS
        ]

    def open_tables(self) -> list[str]:
        """Tables in which a row would be shown to everybody, or belongs to nobody."""
        return [t.name for t in self.tables if not (t.secured and t.policies and t.column)]

    def add_tenant(self) -> Tenant:
        """A new organization and Work with one row in every table, in the order that foreign keys ask for."""
        tenant = Tenant(uuid4(), uuid4())
        waiting = [table.name for table in self.tables]
        while waiting:
            ready = [name for name in waiting if self._needs(name).isdisjoint(set(waiting) - {name})]
            assert ready, f"foreign keys in a circle among {waiting}"
            for name in ready:
                tenant.rows[name] = self._insert(name, tenant)
                waiting.remove(name)
        return tenant

    @cached_property
    def _references(self) -> dict[tuple[str, str], tuple[str, str]]:
        rows = self._connection.execute(
            "select c.conrelid::regclass::text, a.attname, c.confrelid::regclass::text, f.attname"
            " from pg_constraint c cross join lateral unnest(c.conkey, c.confkey) as k(mine, theirs)"
            " join pg_attribute a on a.attrelid = c.conrelid and a.attnum = k.mine"
            " join pg_attribute f on f.attrelid = c.confrelid and f.attnum = k.theirs"
            " where c.contype = 'f' and c.connamespace = 'public'::regnamespace"
        ).fetchall()
        return {**WITHOUT_KEY, **{(table, column): (other, key) for table, column, other, key in rows}}

    def _needs(self, name: str) -> set[str]:
        return {other for (table, _), (other, _) in self._references.items() if table == name}

    def _insert(self, name: str, tenant: Tenant) -> dict[str, Any]:
        columns = self._connection.execute(
            "select column_name, udt_name from information_schema.columns"
            " where table_schema = 'public' and table_name = %s and is_identity = 'NO'"
            " and (is_nullable = 'NO' and column_default is null or column_name in ('work_id', 'organization_id'))",
            (name,),
        ).fetchall()
        values = {column: self._value(name, column, kind, tenant) for column, kind in columns}
        placeholders = ", ".join(f"%({column})s" for column in values)
        quoted = ", ".join(f'"{column}"' for column in values)
        statement = f"insert into {name} ({quoted}) values ({placeholders}) returning *"
        with self._connection.cursor(row_factory=dict_row) as cursor:
            made = cursor.execute(statement.encode(), values).fetchone()
        assert made is not None
        return made

    def _value(self, name: str, column: str, kind: str, tenant: Tenant) -> object:
        if (name, column) in VALUES:
            return VALUES[name, column]
        if column in BY_NAME:
            return BY_NAME[column]
        if (name, column) == ("organizations", "id"):
            return tenant.organization
        if (name, column) == ("works", "id") or column == "work_id":
            return tenant.work
        reference = self._references.get((name, column))
        if reference is not None:
            return tenant.rows[reference[0]][reference[1]]
        if kind == "uuid":
            return uuid4()
        if kind in ("text", "varchar"):
            return uuid4().hex[:16] if column != "language" else "en"
        if kind == "bytea":
            return uuid4().bytes + uuid4().bytes
        assert kind in BY_TYPE, f"{name}.{column}: no value known for the type {kind}; add one to BY_TYPE or VALUES"
        return BY_TYPE[kind]


def _belonging(name: str, columns: set[str]) -> tuple[str | None, Side]:
    if name == "organizations":
        return "id", "organization"
    if name == "works":
        return "id", "work"
    if "organization_id" in columns and name != "plugin_instances":
        return "organization_id", "organization"
    return ("work_id" if "work_id" in columns else None), "work"
