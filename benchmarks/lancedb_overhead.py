"""What the contract costs on top of LanceDB: our write and query against its client called directly, same data.

Goal: at most 1.25 times. Both sides take turns on tables of their own, so that whatever else runs here disturbs both.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import lancedb
import numpy as np
import pyarrow as pa
from _support import report

from app.vector_stores.contract import Space, Vector, VectorChunk, chunk_uuid
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore

DOCUMENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
CHUNKS, DIMS, TOP_K, QUESTIONS = 50, 384, 10, 200
SPACE = Space(1, "model", DIMS)
WORK, BASE = uuid4(), uuid4()
COLUMNS = ["knowledge_base_id", "document_id", "build", "chunk_index", "_distance"]


def documents() -> list[tuple[UUID, list[Vector]]]:
    random = np.random.default_rng(1)
    return [(uuid4(), [array("f", row) for row in random.normal(size=(CHUNKS, DIMS))]) for _ in range(DOCUMENTS)]


def rows(document: UUID, vectors: list[Vector], schema: pa.Schema) -> pa.Table:
    """What anyone writes who calls the client: the same columns, ids and unit vectors."""
    matrix = np.array(vectors, dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    columns = [
        pa.array([chunk_uuid(WORK, SPACE, document, 1, index).bytes for index in range(len(vectors))], pa.binary()),
        pa.array([BASE.bytes] * len(vectors), pa.binary(16)),
        pa.array([document.bytes] * len(vectors), pa.binary(16)),
        pa.array([1] * len(vectors), pa.int64()),
        pa.array(range(len(vectors)), pa.int64()),
        pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), DIMS),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


async def timed(call: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await call()
    return (time.perf_counter() - began) * 1000


async def measure(directory: Path) -> dict[str, list[float]]:
    store = LanceDbStore(LanceDbSettings(path=directory / "ours"))
    client = await lancedb.connect_async(directory / "theirs", read_consistency_interval=timedelta(0))
    key = {b"lance-schema:unenforced-primary-key": b"true"}
    schema = pa.schema(
        [
            pa.field("id", pa.binary(), nullable=False, metadata=key),
            *(pa.field(name, pa.binary(16), nullable=False) for name in COLUMNS[:2]),
            *(pa.field(name, pa.int64(), nullable=False) for name in COLUMNS[2:4]),
            pa.field("vector", pa.list_(pa.float32(), DIMS), nullable=False),
        ]
    )
    table = await client.create_table("t", schema=schema)
    took: dict[str, list[float]] = {name: [] for name in ("our write", "write", "our query", "query")}
    data = documents()
    for number, (document, vectors) in enumerate(data):

        async def ours(document: UUID = document, vectors: list[Vector] = vectors) -> None:
            chunks = [VectorChunk(BASE, index, vector) for index, vector in enumerate(vectors)]
            await store.write_chunks(WORK, document, SPACE, 1, chunks)

        async def theirs(document: UUID = document, vectors: list[Vector] = vectors) -> None:
            merge = table.merge_insert("id").when_not_matched_insert_all()
            await merge.execute(rows(document, vectors, schema))

        for name, call in (("our write", ours), ("write", theirs))[:: 1 if number % 2 else -1]:
            took[name].append(await timed(call))
    await store.maintain(WORK, SPACE)
    await table.optimize()
    for number in range(QUESTIONS):
        question = data[number % DOCUMENTS][1][number % CHUNKS]

        async def ask_us(question: Vector = question) -> None:
            assert len(await store.query_chunks(WORK, SPACE, vector=question, top_k=TOP_K)) == TOP_K

        async def ask_them(question: Vector = question) -> None:
            query = table.query().nearest_to(list(question)).distance_type("cosine").limit(TOP_K).select(COLUMNS)
            assert len(await query.to_list()) == TOP_K

        for name, call in (("our query", ask_us), ("query", ask_them))[:: 1 if number % 2 else -1]:
            took[name].append(await timed(call))
    await store.close()
    return {name: values[len(values) // 10 :] for name, values in took.items()}  # without the first, which warm up


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        took = asyncio.run(measure(Path(directory)))
    median = {name: statistics.median(values) for name, values in took.items()}
    ratios = {name: median[f"our {name}"] / median[name] for name in ("write", "query")}
    print(f"{DOCUMENTS} documents of {CHUNKS} chunks, {DIMS} dimensions; p50 (goal 1.25 times)")
    for name, ratio in ratios.items():
        print(
            f"{name}: client {median[name]:.1f} ms, through the contract {median[f'our {name}']:.1f} ms: {ratio:.2f} times"
        )
    report("lancedb_overhead", {name: round(ratio, 2) for name, ratio in ratios.items()})


if __name__ == "__main__":
    main()
