"""What the benchmarks share: a service of their own on loopback, a seeded loader, and figures."""

import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import numpy as np
import psycopg

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"
MODEL = Path(os.environ.get("KB_MODEL_DIR") or REPOSITORY / ".cache" / "model")
sys.path.insert(0, str(REPOSITORY))

from app.db.embedded import EmbeddedServer  # noqa: E402
from app.documents.lexical.analysis import ANALYZER_FINGERPRINT, analyze_document  # noqa: E402
from app.documents.lexical.postings import pack  # noqa: E402
from app.vector_stores.contract import Space, VectorChunk  # noqa: E402
from app.vector_stores.pgvector import PgvectorStore  # noqa: E402
from app.vector_stores.pgvector.settings import PgvectorSettings  # noqa: E402

DIMS = 384
CHUNKS_PER_DOCUMENT = 50
WORDS_PER_CHUNK = 120


@dataclass
class Running:
    """A running service."""

    url: str
    data_dir: Path
    process: "subprocess.Popen[bytes]"
    key: str
    started_s: float

    @property
    def dsn(self) -> str:
        return EmbeddedServer(self.data_dir).dsn

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=f"{self.url}/v1", headers={"Authorization": f"Bearer {self.key}"}, timeout=120)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(data_dir: Path, **environment: str) -> Running:
    """Start `stackroom serve` and wait until it is ready."""
    port = free_port()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KB_", "OPENAI_"))}
    began = time.monotonic()
    with (data_dir.parent / "serve.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--data-dir", str(data_dir), "--port", str(port)],
            env={**kept, "KB_MODEL_DIR": str(MODEL), "KB_LOG_LEVEL": "warning", **environment},
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            if httpx.get(f"{url}/readyz", timeout=2).status_code == 200:
                break
        except httpx.HTTPError:
            pass
        if process.poll() is not None or time.monotonic() - began > 180:
            raise SystemExit((data_dir.parent / "serve.log").read_text()[-2000:])
        time.sleep(0.02)
    key = (data_dir / "first-api-key").read_text().strip()
    return Running(url, data_dir, process, key, time.monotonic() - began)


def stop(running: Running) -> None:
    running.process.send_signal(signal.SIGTERM)
    running.process.wait(60)


@contextmanager
def service(**environment: str) -> Iterator[Running]:
    folder = Path(tempfile.mkdtemp(prefix="stackroom-bench-"))
    running = start(folder / "data", **environment)
    try:
        yield running
    finally:
        stop(running)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Loaded:
    """A Work filled by the loader."""

    work_id: UUID
    kb_id: UUID
    space: Space
    vectors: np.ndarray[Any, Any] = field(repr=False)
    documents: list[UUID] = field(repr=False)


class Loader:
    """Writes documents, spans, terms, coordinates and vectors directly: what go-live would have written.

    Vectors: topics on a sphere with noise; words: Zipf over 20,000, so that a few are very common. A hundred
    different documents of each size repeat.
    """

    def __init__(self, running: Running, seed: int = 7) -> None:
        self.running = running
        self.random = np.random.default_rng(seed)
        ranks = np.arange(1, 20_001)
        self.weights = (1 / ranks) / (1 / ranks).sum()
        self.words = np.array([f"w{n:05d}" for n in ranks])
        self.topics = self._unit(self.random.normal(size=(500, DIMS)) + 0.5)
        self.connection = psycopg.connect(running.dsn, autocommit=True)
        self.connection.execute("set synchronous_commit = off")
        self.templates: dict[int, list[tuple[list[str], list[tuple[str, bytes]], int]]] = {}
        self.model_of = self._first_document()

    @staticmethod
    def _unit(rows: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        made: np.ndarray[Any, Any] = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        return made

    def _first_document(self) -> dict[str, Any]:
        """One document the usual way: it makes the generation and the instances that the loader then copies."""
        with self.running.client() as client:
            kb = client.post("/knowledge-bases", json={"name": "first"}).json()
            made = client.post(
                f"/knowledge-bases/{kb['id']}/documents/text", json={"name": "first", "text": "first words"}
            )
            while not client.get(f"/documents/{made.json()['id']}").json()["terminal"]:
                time.sleep(0.05)
        row = self.connection.execute(
            "select g.*, w.organization_id, k.owner_id from index_generations g join works w on w.id = g.work_id"
            " join knowledge_bases k on k.work_id = w.id where g.state = 'active' limit 1"
        )
        found = row.fetchone()
        if found is None or row.description is None:
            raise SystemExit("no generation")
        return dict(zip([c.name for c in row.description], found, strict=True))

    def work(self, chunks: int, name: str = "loaded") -> Loaded:
        """A new Work with one knowledge base of that many chunks. Vectors are written by `write_vectors`."""
        first, work_id, kb_id = self.model_of, uuid4(), uuid4()
        execute = self.connection.execute
        execute(
            "insert into works (id, organization_id, name, settings, index_version) values (%s, %s, %s, '{}', 1)",
            (work_id, first["organization_id"], name),
        )
        execute(
            "insert into knowledge_bases (id, work_id, owner_type, owner_id, name, description, attributes, live_chunks,"
            " live_length) values (%s, %s, 'user', %s, %s, '', '{}', %s, %s)",
            (kb_id, work_id, first["owner_id"], name, chunks, chunks * WORDS_PER_CHUNK),
        )
        generation = uuid4()
        execute(
            "insert into index_generations (id, work_id, number, state, vector_store_id, store_instance_id, embedding_mode,"
            " embedding_provider_id, provider_instance_id, embedding_model, model_fingerprint, dims, documents_done,"
            " documents_total, documents_refused, activated_at)"
            " values (%s, %s, 1, 'active', %s, %s, %s, %s, %s, %s, %s, %s, 0, 0, 0, now())",
            (
                generation, work_id, first["vector_store_id"], first["store_instance_id"], first["embedding_mode"],
                first["embedding_provider_id"], first["provider_instance_id"], first["embedding_model"],
                first["model_fingerprint"], first["dims"],
            ),
        )  # fmt: skip
        topics = self.topics[self.random.choice(len(self.topics), max(2, min(60, chunks // 50)), replace=False)]
        per_document = min(CHUNKS_PER_DOCUMENT, chunks)
        vectors = []
        documents = []
        for _ in range(chunks // per_document):
            centre = topics[self.random.integers(len(topics))] + self.random.normal(size=DIMS) * 0.03
            vectors.append(self._unit(centre + self.random.normal(size=(per_document, DIMS)) * 0.03))
            documents.append(uuid4())
        self._rows(work_id, kb_id, generation, documents, per_document)
        space = Space(1, str(first["model_fingerprint"]), int(first["dims"]))
        return Loaded(work_id, kb_id, space, np.concatenate(vectors), documents)

    def _template(self, size: int, number: int) -> tuple[list[str], list[tuple[str, bytes]], int]:
        """Texts and packed postings of one of a hundred different documents of that size."""
        made = self.templates.setdefault(size, [])
        if len(made) <= number % 100:
            words = self.random.choice(self.words, (size, WORDS_PER_CHUNK), p=self.weights)
            texts = [" ".join(row) for row in words]
            terms = analyze_document(texts, None)
            made.append((texts, pack(terms), terms.total_length))
        return made[number % 100]

    def _rows(self, work_id: UUID, kb_id: UUID, generation: UUID, documents: Sequence[UUID], size: int) -> None:
        first = self.model_of
        with self.connection.transaction(), self.connection.cursor() as cursor:
            for number, document_id in enumerate(documents):
                texts, packed, length = self._template(size, number)
                cursor.execute(
                    "insert into kb_documents (id, work_id, kb_id, name, content_type, size_bytes, sha256, attributes,"
                    " revision, live_revision, build, live_build, status, attempts, error_retryable, warnings, chunks_done,"
                    " chunks_total, chunk_count, token_count, lexical_length, analyzer_fingerprint)"
                    " values (%s, %s, %s, 'd', 'text/plain', 1, %s, '{}', 1, 1, 1, 1, 'ready', 1, false, '[]', %s, %s, %s,"
                    " %s, %s, %s)",
                    (
                        document_id, work_id, kb_id, document_id.bytes * 2, size, size, size, size * 200,
                        length, ANALYZER_FINGERPRINT,
                    ),
                )  # fmt: skip
                cursor.execute(
                    "insert into work_knowledge_chunk_coordinates (work_id, document_id, generation_id, vector_store_id,"
                    " instance_id, build, chunk_count, embedding_model, embedding_dims, last_embedded_at, prune_pending)"
                    " values (%s, %s, %s, 'pgvector', %s, 1, %s, %s, %s, now(), false)",
                    (
                        work_id, document_id, generation, first["store_instance_id"], size, first["embedding_model"],
                        first["dims"],
                    ),
                )  # fmt: skip
                with cursor.copy(
                    'copy kb_spans (document_id, chunk_index, work_id, build, start, "end", heading_path, token_count,'
                    " context, content_sha256, text) from stdin"
                ) as copy:
                    for index, text in enumerate(texts):
                        copy.write_row(
                            (
                                document_id,
                                index,
                                work_id,
                                1,
                                index * 1000,
                                index * 1000 + len(text),
                                [],
                                200,
                                "",
                                b"0" * 32,
                                text,
                            )
                        )
                with cursor.copy("copy kb_terms (work_id, term, document_id, kb_id, build, data) from stdin") as copy:
                    for term, data in packed:
                        copy.write_row((work_id, term, document_id, kb_id, 1, data))

    async def write_vectors(self, works: "Sequence[Loaded]", *, maintain: bool) -> None:
        store = PgvectorStore(PgvectorSettings(write_timeout_s=600), own_dsn=self.running.dsn)
        for work in works:
            size = len(work.vectors) // len(work.documents)
            for number, document_id in enumerate(work.documents):
                rows = work.vectors[number * size : (number + 1) * size]
                chunks = [VectorChunk(work.kb_id, i, row) for i, row in enumerate(rows)]  # type: ignore[arg-type]
                await store.write_chunks(work.work_id, document_id, work.space, 1, chunks)
            if maintain:
                await store.maintain(work.work_id, work.space)
        await store.close()

    def finish(self) -> None:
        """Statistics, as after any bulk load."""
        self.connection.execute("analyze")


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p95 in milliseconds."""
    ordered = sorted(seconds)
    return ordered[len(ordered) // 2] * 1000, ordered[int(len(ordered) * 0.95)] * 1000


@dataclass
class Asked:
    """Times of one way of asking."""

    p50: float
    p95: float
    per_s: float
    stages: dict[str, float]
    hits: int


def ask(running: Running, bodies: Sequence[dict[str, Any]], *, clients: int) -> Asked:
    """Ask every question once, by that many clients at once."""
    pool = [running.client() for _ in range(clients)]

    def one(numbered: tuple[int, dict[str, Any]]) -> tuple[float, dict[str, Any]]:
        began = time.perf_counter()
        answer = pool[numbered[0] % clients].post("/search", json=numbered[1])
        took = time.perf_counter() - began
        answer.raise_for_status()
        return took, answer.json()

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as executor:
        answers = list(executor.map(one, enumerate(bodies)))
    took = time.perf_counter() - began
    for client in pool:
        client.close()
    names = {name for _, answer in answers for name in answer["timings"]}
    stages = {n: statistics.median(a["timings"].get(n, 0.0) for _, a in answers) for n in sorted(names)}
    p50, p95 = percentiles([t for t, _ in answers])
    return Asked(p50, p95, len(bodies) / took, stages, min(len(a["hits"]) for _, a in answers))


def table(title: str, rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}")
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  " + "  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)))


def report(name: str, figures: dict[str, Any]) -> None:
    """One line of JSON at the end, for machines."""
    print(json.dumps({"benchmark": name, **figures}))
