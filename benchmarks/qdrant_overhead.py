"""What the contract costs: writing and asking through the Qdrant store against the vendor's client called directly.

Goal: at most 1.25 times. Local mode in memory, or the server at QDRANT_URL.
"""

import asyncio
import os
import statistics
import sys
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import numpy as np
from _support import CHUNKS_PER_DOCUMENT, DIMS, report
from qdrant_client import AsyncQdrantClient, QdrantClient, models

from app.vector_stores.contract import Space, VectorChunk
from app.vector_stores.qdrant import QdrantSettings, QdrantStore

DOCUMENTS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
QUESTIONS = 100
TOP_K = 10
URL = os.environ.get("QDRANT_URL")
SPACE = Space(1, "benchmark", DIMS)


async def timed(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return time.perf_counter() - began


class Direct:
    """The same data and the same filter, by somebody who has no contract: no checks, ids or order of ties."""

    def __init__(self) -> None:
        self.client: Any = AsyncQdrantClient(url=URL, check_compatibility=False) if URL else QdrantClient(":memory:")
        self.work = str(uuid4())

    async def call(self, method: str, **arguments: Any) -> Any:
        made = getattr(self.client, method)("direct", **arguments)
        return await made if URL else made

    async def open(self) -> None:
        await self.call(
            "create_collection", vectors_config=models.VectorParams(size=DIMS, distance=models.Distance.COSINE)
        )

    async def write(self, document: str, vectors: list["array[float]"]) -> None:
        points = [
            models.PointStruct(
                id=str(uuid4()),
                vector=vector.tolist(),
                payload={
                    "work_id": self.work,
                    "space": "1",
                    "knowledge_base_id": self.work,
                    "document_id": document,
                    "build": 1,
                    "chunk_index": index,
                },
            )
            for index, vector in enumerate(vectors)
        ]
        await self.call("upsert", points=points, wait=True)

    async def ask(self, vector: list[float]) -> None:
        mine = models.FieldCondition(key="work_id", match=models.MatchValue(value=self.work))
        space = models.FieldCondition(key="space", match=models.MatchValue(value="1"))
        await self.call("query_points", query=vector, limit=TOP_K, query_filter=models.Filter(must=[mine, space]))


async def main() -> None:
    random = np.random.default_rng(1)
    shape = (CHUNKS_PER_DOCUMENT, DIMS)
    documents = [[array("f", row) for row in random.normal(size=shape)] for _ in range(DOCUMENTS)]  # as embedded
    questions = random.normal(size=(QUESTIONS, DIMS)).tolist()
    store = QdrantStore(QdrantSettings(url=URL) if URL else QdrantSettings(path=":memory:"))
    direct, work, base = Direct(), uuid4(), uuid4()
    await direct.open()
    times: dict[str, list[float]] = {"write": [], "write directly": [], "ask": [], "ask directly": []}
    for number, vectors in enumerate(documents):
        chunks = [VectorChunk(base, index, vector) for index, vector in enumerate(vectors)]
        ours, theirs = uuid4(), str(uuid4())
        pair = [
            ("write", lambda c=chunks, d=ours: store.write_chunks(work, d, SPACE, 1, c)),
            ("write directly", lambda v=vectors, d=theirs: direct.write(d, v)),
        ]
        for name, act in pair[:: 1 if number % 2 else -1]:
            times[name].append(await timed(act))
    for number, vector in enumerate(questions):
        asks = [
            ("ask", lambda v=vector: store.query_chunks(work, SPACE, vector=v, top_k=TOP_K)),
            ("ask directly", lambda v=vector: direct.ask(v)),
        ]
        for name, act in asks[:: 1 if number % 2 else -1]:
            times[name].append(await timed(act))
    await store.close()
    middle = {name: 1000 * statistics.median(taken[2:]) for name, taken in times.items()}
    print(", ".join(f"{name} {ms:.1f} ms" for name, ms in middle.items()))
    write, ask = middle["write"] / middle["write directly"], middle["ask"] / middle["ask directly"]
    print(f"write {write:.2f} times, query {ask:.2f} times (goal 1.25), over {'a server' if URL else 'local mode'}")
    report("qdrant_overhead", {"write": round(write, 2), "query": round(ask, 2)})


if __name__ == "__main__":
    asyncio.run(main())
