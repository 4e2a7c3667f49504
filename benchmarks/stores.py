"""The vector stores side by side, through the contract: chunks written a second, query p50, recall@10, with an id filter.

20,000 vectors of width 384 around forty centres, as texts of a few topics are, in documents of 50 chunks; then upkeep, then
200 questions, and 200 that are restricted to 20 documents. What has no server here runs as its library's local mode or not
at all: Qdrant's local mode, written in Python, gets 3,000 vectors, and Pinecone is left out, a double would measure itself.
`--vectors N` for another number.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID, uuid4

import numpy as np
from _support import DIMS, report, table

from app.db.embedded import EmbeddedServer
from app.vector_stores.contract import Space, VectorChunk, VectorStore
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.memory import MemoryStore
from app.vector_stores.pgvector import PgvectorStore, schema
from app.vector_stores.pgvector.settings import PgvectorSettings
from app.vector_stores.qdrant import QdrantSettings, QdrantStore

PER_DOCUMENT, QUESTIONS, FILTERED, TOP_K = 50, 200, 20, 10
Build = Callable[[Path], VectorStore]


def pgvector(directory: Path) -> VectorStore:
    server = EmbeddedServer(directory)
    dsn = server.start()
    schema.upgrade(dsn)
    SERVERS.append(server)
    return PgvectorStore(PgvectorSettings(), own_dsn=dsn)


SERVERS: list[EmbeddedServer] = []
LOCAL_QDRANT = "qdrant, local mode, 3,000"
STORES: dict[str, Build] = {
    "memory": lambda _: MemoryStore(),
    "pgvector": pgvector,
    "lancedb, directory": lambda directory: LanceDbStore(LanceDbSettings(path=directory / "tables")),
    LOCAL_QDRANT: lambda directory: QdrantStore(QdrantSettings(path=str(directory / "qdrant"))),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=20_000)
    number = parser.parse_args().vectors
    vectors, questions = _data(number)
    rows: list[tuple[object, ...]] = [
        ("store", "chunks/s", "query p50 ms", "recall@10", "filtered p50 ms", "recall@10")
    ]
    figures = {}
    for name, build in STORES.items():
        most = min(number, 3_000) if name == LOCAL_QDRANT else number
        measured = asyncio.run(measure(build, vectors[:most], questions))
        rows.append((name, *measured))
        figures[name] = measured
    table(f"{number:,} vectors, width {DIMS}", rows)
    report("stores", figures)


def _data(number: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    centres = random.normal(size=(40, DIMS))
    made = centres[random.integers(0, 40, size=number + QUESTIONS)] + 0.6 * random.normal(
        size=(number + QUESTIONS, DIMS)
    )
    made /= np.linalg.norm(made, axis=1, keepdims=True)
    return made[:number].astype(np.float32), made[number:].astype(np.float32)


async def measure(build: Build, vectors: np.ndarray, questions: np.ndarray) -> tuple[object, ...]:
    async with _built(build) as store:
        work, space = uuid4(), Space(1, "model", DIMS)
        documents = [uuid4() for _ in range(0, len(vectors), PER_DOCUMENT)]
        rows = vectors.tolist()
        began = time.perf_counter()
        base = uuid4()
        for at, document in enumerate(documents):
            part = rows[at * PER_DOCUMENT : (at + 1) * PER_DOCUMENT]
            chunks = [VectorChunk(base, index, vector) for index, vector in enumerate(part)]
            await store.write_chunks(work, document, space, 1, chunks)
        per_s = len(vectors) / (time.perf_counter() - began)
        await store.maintain(work, space)
        places = [(document, index) for document in documents for index in range(PER_DOCUMENT)][: len(vectors)]
        few = documents[:: max(1, len(documents) // FILTERED)][:FILTERED]
        allowed = np.array([document in set(few) for document, _ in places])
        plain = await _ask(store, work, space, questions, vectors, places, None, None)
        narrow = await _ask(store, work, space, questions, vectors, places, few, allowed)
        return (round(per_s), *plain, *narrow)


async def _ask(
    store: VectorStore,
    work: UUID,
    space: Space,
    questions: np.ndarray,
    vectors: np.ndarray,
    places: list[tuple[UUID, int]],
    documents: list[UUID] | None,
    allowed: np.ndarray | None,
) -> tuple[float, float]:
    times, shares = [], []
    eligible = len(vectors) if allowed is None else int(allowed.sum())
    for at, question in enumerate(questions):
        began = time.perf_counter()
        hits = await store.query_chunks(
            work, space, vector=question.tolist(), top_k=TOP_K, document_ids=documents, eligible=eligible
        )
        if at >= 5:  # what the first questions load is no part of the others
            times.append((time.perf_counter() - began) * 1000)
        scores = vectors @ question
        if allowed is not None:
            scores = np.where(allowed, scores, -2)
        exact = {places[row] for row in np.argsort(-scores)[:TOP_K]}
        shares.append(len(exact & {(hit.chunk.document_id, hit.chunk.chunk_index) for hit in hits}) / TOP_K)
    return round(statistics.median(times), 1), round(statistics.mean(shares), 3)


@asynccontextmanager
async def _built(build: Build) -> AsyncIterator[VectorStore]:
    with tempfile.TemporaryDirectory(prefix="stackroom-stores-") as directory:
        store = build(Path(directory))
        try:
            yield store
        finally:
            await store.close()
            while SERVERS:
                SERVERS.pop().stop()


if __name__ == "__main__":
    main()
