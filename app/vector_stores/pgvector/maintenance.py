"""Index builds: a large space gets an index of its own, after its rows are there; a shrunken one loses it.

On a direct connection in autocommit, as the owner of the tables, one change at a time in a database.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, LiteralString
from uuid import UUID

import psycopg
from psycopg import errors

from app.vector_stores.contract import Space, VectorStoreUnavailable
from app.vector_stores.pgvector import statements
from app.vector_stores.pgvector.catalogue import SpaceRow, find_space
from app.vector_stores.pgvector.connections import Connection, Connections
from app.vector_stores.pgvector.index_lock import index_lock
from app.vector_stores.pgvector.searching import ivfflat_lists
from app.vector_stores.pgvector.settings import PgvectorSettings

COUNT_ROWS: LiteralString = "SELECT count(*) FROM pgvector_chunks WHERE space_no = %(space_no)s"
ANALYZE: LiteralString = "ANALYZE pgvector_chunks (work_id, space_no, document_id, knowledge_base_id, build)"
WAIT_FOR_OTHERS_S = 900.0
MOST_DEAD_SHARE = 0.30
OUTGROWN = 4  # an ivfflat index whose space has grown this much has the wrong lists
ANALYZE_CHANGE_ROWS = 1_000
ANALYZE_CHANGE_SHARE = 0.10


@dataclass(frozen=True)
class IndexOnDisk:
    """What Postgres has: `valid` is false for what a failed build left behind."""

    valid: bool
    size_bytes: int


@dataclass(frozen=True)
class Finding:
    """A space as it is: its place in the catalogue, its number of rows, its index if it has one."""

    row: SpaceRow
    rows: int
    index: IndexOnDisk | None


Step = Literal["build", "drop", "rebuild"]


class Maintenance:
    """Promotion, demotion, rebuilding, statistics."""

    def __init__(self, connections: Connections, settings: PgvectorSettings) -> None:
        self._connections, self._settings = connections, settings

    async def maintain(self, work_id: UUID, space: Space) -> None:
        """Bring the space's index to what its size asks for.

        Raises: VectorStoreUnavailable, also when other builds take too long; VectorStoreMisconfigured;
        VectorStoreRefused. The space is then searched exactly, and the next call begins anew.
        """
        async with self._connections.direct() as connection:
            await connection.execute("SET statement_timeout = 0")
            before = await _look(connection, work_id, space)
            is_loaded = before is not None and _has_changed_much(before)
            if before is not None:
                await _note_rows(connection, before)
            if is_loaded or await self._due(connection, before, space) or await _orphans(connection):
                async with index_lock(connection, wait_s=WAIT_FOR_OTHERS_S) as locked:
                    if not locked:
                        raise VectorStoreUnavailable("other indexes of pgvector are being built")
                    await self._work_off(connection, work_id, space, analyze=is_loaded)

    async def _work_off(self, connection: Connection, work_id: UUID, space: Space, *, analyze: bool) -> None:
        for space_no in await _orphans(connection):
            await _drop(connection, space_no)
        if analyze:  # plans depend on it
            await connection.execute(ANALYZE)
        found = await _look(connection, work_id, space)
        step = await self._due(connection, found, space)
        if found is None or step is None:
            return
        if step == "rebuild":
            await self._rebuild(connection, found.row.space_no, space.dims, found.rows)
            return
        await _drop(connection, found.row.space_no)
        if step == "build":
            await self._build(connection, found.row.space_no, space.dims, found.rows)

    async def _due(self, connection: Connection, found: Finding | None, space: Space) -> Step | None:
        if found is None:
            return None
        row, rows, index = found.row, found.rows, found.index
        limit = self._settings.exact_limit_rows(space.dims)
        if index is not None and index.valid and row.has_index and self._fits(row, rows):
            if rows < limit // 2:
                return "drop"
            return "rebuild" if _dead_share(row, index, rows) >= MOST_DEAD_SHARE else None
        if rows > limit and (row.index_state != "none" or await self._may_promote(connection)):
            return "build"  # anew, where it is half built, of the other kind, or outgrown
        return None if index is None and row.index_state == "none" else "drop"

    def _fits(self, row: SpaceRow, rows: int) -> bool:
        if row.index_kind != self._settings.index:
            return False
        return row.index_kind == "hnsw" or rows <= OUTGROWN * (row.index_rows or 0)

    async def _may_promote(self, connection: Connection) -> bool:
        promoted = await _number(connection, "SELECT count(*) FROM pgvector_spaces WHERE index_state <> 'none'")
        return promoted < self._settings.max_promoted

    async def _build(self, connection: Connection, space_no: int, dims: int, rows: int) -> None:
        name = statements.ann_index(space_no)
        await connection.execute(
            "UPDATE pgvector_spaces SET index_state = 'building' WHERE space_no = %(space_no)s", {"space_no": space_no}
        )
        try:
            await self._with_workers(
                connection,
                f"CREATE INDEX CONCURRENTLY {name} ON pgvector_chunks USING {self._method(dims, rows)}"
                f" WHERE space_no = {space_no}",
                dims,
                rows,
                leftover=name,
            )
        except psycopg.Error:
            if not connection.closed:
                await _drop(connection, space_no)
            raise
        await self._note_index(connection, space_no, rows)

    async def _rebuild(self, connection: Connection, space_no: int, dims: int, rows: int) -> None:
        name = statements.ann_index(space_no)
        await self._with_workers(connection, f"REINDEX INDEX CONCURRENTLY {name}", dims, rows, leftover=f"{name}_ccnew")
        await self._note_index(connection, space_no, rows)

    async def _with_workers(self, connection: Connection, sql: str, dims: int, rows: int, *, leftover: str) -> None:
        """Run a build; once more without parallel workers when it fails, since they need shared memory of their own."""
        needed_mb = rows * (2 * dims + 500) * 12 // 10 // 2**20
        memory_mb = max(64, min(self._settings.maintenance_memory_mb, needed_mb))
        await connection.execute(f"SET maintenance_work_mem = '{memory_mb}MB'")
        for workers in (2, 0):
            await connection.execute(f"SET max_parallel_maintenance_workers = {workers}")
            try:
                await connection.execute(sql)
                return
            except (errors.OperationalError, errors.InternalError_):
                if workers == 0 or connection.closed:
                    raise
                await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {leftover}")

    def _method(self, dims: int, rows: int) -> str:
        column = f"(embedding::halfvec({dims})) halfvec_cosine_ops"
        if self._settings.index == "ivfflat":
            return f"ivfflat ({column}) WITH (lists = {ivfflat_lists(rows)})"
        return f"hnsw ({column}) WITH (m = {self._settings.m}, ef_construction = {self._settings.ef_construction})"

    async def _note_index(self, connection: Connection, space_no: int, rows: int) -> None:
        index = await _index_on_disk(connection, statements.ann_index(space_no))
        if index is None or not index.valid:
            await _drop(connection, space_no)
            return
        noted = await connection.execute(
            "UPDATE pgvector_spaces SET index_state = 'ready', index_kind = %s, index_rows = %s, index_bytes = %s"
            " WHERE space_no = %s",
            (self._settings.index, rows, index.size_bytes, space_no),
        )
        if noted.rowcount == 0:  # the space was dropped meanwhile
            await _drop(connection, space_no)


async def _look(connection: Connection, work_id: UUID, space: Space) -> Finding | None:
    row = await find_space(connection, work_id, space)
    if row is None:
        return None
    rows = await _number(connection, COUNT_ROWS, {"space_no": row.space_no})
    return Finding(row, rows, await _index_on_disk(connection, statements.ann_index(row.space_no)))


async def _number(connection: Connection, sql: LiteralString, values: Mapping[str, object] | None = None) -> int:
    found = await (await connection.execute(sql, values)).fetchone()
    return int(found[0]) if found else 0


def _has_changed_much(found: Finding) -> bool:
    known = found.row.row_count
    return abs(found.rows - known) >= max(ANALYZE_CHANGE_ROWS, ANALYZE_CHANGE_SHARE * known)


async def _note_rows(connection: Connection, found: Finding) -> None:
    await connection.execute(
        "UPDATE pgvector_spaces SET row_count = %(rows)s WHERE space_no = %(space_no)s AND row_count <> %(rows)s",
        {"rows": found.rows, "space_no": found.row.space_no},
    )


async def _index_on_disk(connection: Connection, name: str) -> IndexOnDisk | None:
    cursor = await connection.execute(
        "SELECT indisvalid AND indisready, pg_relation_size(indexrelid) FROM pg_index"
        " WHERE indrelid = 'pgvector_chunks'::regclass AND indexrelid = to_regclass(%(name)s)",
        {"name": name},
    )
    found = await cursor.fetchone()
    return None if found is None else IndexOnDisk(valid=bool(found[0]), size_bytes=int(found[1]))


def _dead_share(row: SpaceRow, index: IndexOnDisk, rows: int) -> float:
    """Which share of the index is rows that are gone: it grows with every insert, and never shrinks by itself.

    Judged by its size, since Postgres counts dead rows per table and not per index.
    """
    if not row.index_rows or not row.index_bytes:
        return 0.0
    places = index.size_bytes * row.index_rows / row.index_bytes
    return max(0.0, 1.0 - rows / places)


async def _drop(connection: Connection, space_no: int) -> None:
    """Take the index out of the readers' sight, then off the disk, with whatever a failed rebuild left."""
    await connection.execute(
        "UPDATE pgvector_spaces SET index_state = 'none', index_kind = NULL, index_rows = NULL, index_bytes = NULL"
        " WHERE space_no = %(space_no)s AND index_state <> 'none'",
        {"space_no": space_no},
    )
    name = statements.ann_index(space_no)
    await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
    await _drop_leftovers(connection, name)


async def _drop_leftovers(connection: Connection, name: str) -> None:
    for leftover in (f"{name}_ccnew", f"{name}_ccold"):
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {leftover}")


async def _orphans(connection: Connection) -> list[int]:
    """The numbers of spaces that are gone and whose index is not: their removal could not wait for a build."""
    cursor = await connection.execute(
        "SELECT split_part(relname, '_', 3)::int FROM pg_class JOIN pg_index ON indexrelid = pg_class.oid"
        " WHERE indrelid = 'pgvector_chunks'::regclass AND relname ~ %(pattern)s"
        " AND NOT EXISTS (SELECT FROM pgvector_spaces WHERE space_no = split_part(relname, '_', 3)::int)",
        {"pattern": f"^{statements.ANN_INDEX_PREFIX}[0-9]+$"},
    )
    return [int(space_no) for (space_no,) in await cursor.fetchall()]
