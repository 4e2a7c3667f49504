"""Data and looks behind the scenes that the pgvector tests share."""

from typing import Any
from uuid import UUID, uuid4

import numpy as np

from app.vector_stores.contract import Space, VectorStore
from app.vector_stores.pgvector import schema
from app.vector_stores.testing.base import chunks_of
from tests.postgres import as_owner, fresh_database

DIMS = 32
SPACE = Space(1, "model", DIMS)


def pgvector_database() -> str:
    """A clone of a database that the plugin's migrations have built."""
    return fresh_database("pgvector", build=schema.upgrade)


def clustered(count: int, *, seed: int = 1) -> Any:
    """(count, DIMS) float64: vectors around forty centres, as texts of a few topics are."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(40, DIMS))
    return centres[random.integers(0, 40, size=count)] + 0.5 * random.normal(size=(count, DIMS))


async def fill(store: VectorStore, work: UUID, vectors: Any, *, per_document: int = 100) -> list[UUID]:
    """Write the vectors as documents of build 1; chunk indexes run through the whole."""
    documents = []
    for first in range(0, len(vectors), per_document):
        documents.append(uuid4())
        part = chunks_of(vectors[first : first + per_document].tolist(), first=first)
        await store.write_chunks(work, documents[-1], SPACE, 1, part)
    return documents


def look(dsn: str, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows as the superuser sees them."""
    with as_owner(dsn) as connection:
        return connection.execute(sql.encode(), values).fetchall()


def do(dsn: str, sql: str) -> None:
    """A statement as the superuser."""
    with as_owner(dsn) as connection:
        connection.execute(sql.encode())


def ann_indexes(dsn: str) -> list[str]:
    """Names of the indexes that upkeep has made."""
    return [
        name
        for (name,) in look(dsn, "SELECT relname FROM pg_class WHERE relname LIKE 'pgvector\\_ann\\_%%' ORDER BY 1")
    ]
