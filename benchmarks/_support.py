"""What the benchmarks share: a service of their own on loopback, a seeded loader, and figures."""

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
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
TEMPLATES = 100
MANY_CHUNKS = 50_000  # from here on, indexes of terms are built after the load: sorting is faster than inserting

_TEMPLATES = """
create temporary table template_spans (size int, number int, chunk_index int, text text);
create temporary table template_terms (size int, number int, term text collate "C", data bytea);
create temporary table loading (size int, number int, work_id uuid, kb_id uuid, document_id uuid)
"""
_LOAD_SPANS = """
insert into kb_spans (document_id, chunk_index, work_id, build, start, "end", heading_path, token_count, context,
                      content_sha256, text)
select l.document_id, t.chunk_index, l.work_id, 1, t.chunk_index * 1000, t.chunk_index * 1000 + length(t.text), '{}', 200,
       '', decode(repeat('00', 32), 'hex'), t.text
  from loading l join template_spans t using (size, number) order by l.work_id, l.document_id, t.chunk_index
"""
_LOAD_TERMS = """
insert into kb_terms (work_id, term, document_id, kb_id, build, data)
select l.work_id, t.term, l.document_id, l.kb_id, 1, t.data
  from loading l join template_terms t using (size, number) order by l.work_id, l.document_id, t.term
"""
_DROP_TERM_INDEXES = """
drop index ix_kb_terms_document_id;
alter table kb_terms drop constraint pk_kb_terms
"""
_MAKE_TERM_INDEXES = """
set maintenance_work_mem = '1GB';
alter table kb_terms add constraint pk_kb_terms primary key (work_id, term, document_id);
create index ix_kb_terms_document_id on kb_terms (document_id);
reset maintenance_work_mem
"""


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
    generation_id: UUID = field(default_factory=uuid4)


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
        # Millions of rows of our own making: no foreign key is looked up for each.
        self.connection.execute("set session_replication_role = replica")
        self.connection.execute(_TEMPLATES)
        self.template_sizes: set[int] = set()
        self.lengths: dict[tuple[int, int], int] = {}
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
        return self.works(1, chunks, name)[0]

    def works(self, number: int, chunks: int, name: str) -> list[Loaded]:
        """Several Works of one size, all rows of a table at once."""
        size = min(CHUNKS_PER_DOCUMENT, chunks)
        self._templates(size)
        space = Space(1, str(self.model_of["model_fingerprint"]), int(self.model_of["dims"]))
        made = []
        for _ in range(number):
            documents = [uuid4() for _ in range(chunks // size)]
            made.append(Loaded(uuid4(), uuid4(), space, self._vectors(chunks, size), documents))
        with self.connection.transaction():
            self._places(made, chunks, size, name)
            self._documents(made, size)
        return made

    def _vectors(self, chunks: int, size: int) -> "np.ndarray[Any, Any]":
        topics = self.topics[self.random.choice(len(self.topics), max(2, min(60, chunks // 50)), replace=False)]
        made = []
        for _ in range(chunks // size):
            centre = topics[self.random.integers(len(topics))] + self.random.normal(size=DIMS) * 0.03
            made.append(self._unit(centre + self.random.normal(size=(size, DIMS)) * 0.03))
        return np.concatenate(made)

    def _templates(self, size: int) -> None:
        """Texts and packed postings of a hundred different documents of that size, kept in the server."""
        if size in self.template_sizes:
            return
        self.template_sizes.add(size)
        spans, postings = [], []
        for number in range(TEMPLATES):
            words = self.random.choice(self.words, (size, WORDS_PER_CHUNK), p=self.weights)
            texts = [" ".join(row) for row in words]
            terms = analyze_document(texts, None)
            self.lengths[size, number] = terms.total_length
            spans += [(size, number, index, text) for index, text in enumerate(texts)]
            postings += [(size, number, term, data) for term, data in pack(terms)]
        self._copy("template_spans (size, number, chunk_index, text)", spans)
        self._copy("template_terms (size, number, term, data)", postings)
        self.connection.execute("analyze template_spans, template_terms")

    def _copy(self, into: str, rows: "Sequence[Sequence[object]]") -> None:
        with self.connection.cursor() as cursor, cursor.copy(f"copy {into} from stdin") as copy:
            for row in rows:
                copy.write_row(row)

    def _places(self, works: Sequence[Loaded], chunks: int, size: int, name: str) -> None:
        first = self.model_of
        self._copy(
            "works (id, organization_id, name, settings, index_version)",
            [(w.work_id, first["organization_id"], name, "{}", 1) for w in works],
        )
        self._copy(
            "knowledge_bases (id, work_id, owner_type, owner_id, name, description, attributes, live_chunks,"
            " live_length)",
            [
                (w.kb_id, w.work_id, "user", first["owner_id"], name, "", "{}", chunks, self._length(w, size))
                for w in works
            ],
        )
        columns = (
            "vector_store_id", "store_instance_id", "embedding_mode", "embedding_provider_id", "provider_instance_id",
            "embedding_model", "model_fingerprint", "dims",
        )  # fmt: skip
        self._copy(
            f"index_generations (id, work_id, number, state, {', '.join(columns)}, documents_done, documents_total,"
            " documents_refused, activated_at)",
            [
                (w.generation_id, w.work_id, 1, "active", *(first[c] for c in columns), 0, 0, 0, "2026-01-01")
                for w in works
            ],
        )

    def _length(self, work: Loaded, size: int) -> int:
        return sum(self.lengths[size, number % TEMPLATES] for number in range(len(work.documents)))

    def _documents(self, works: Sequence[Loaded], size: int) -> None:
        """Documents by COPY; their spans and terms are copied from the templates inside the server."""
        first = self.model_of
        named = [(w, document_id, n % TEMPLATES) for w in works for n, document_id in enumerate(w.documents)]
        if len(works) > 1:  # small Works differ from one another
            named = [(w, document_id, n % TEMPLATES) for n, (w, document_id, _) in enumerate(named)]
        self._copy(
            "kb_documents (id, work_id, kb_id, name, content_type, size_bytes, sha256, attributes, revision,"
            " live_revision, build, live_build, status, attempts, error_retryable, warnings, chunks_done, chunks_total,"
            " chunk_count, token_count, lexical_length, analyzer_fingerprint)",
            [
                (
                    document_id, w.work_id, w.kb_id, "d", "text/plain", 1, document_id.bytes * 2, "{}", 1, 1, 1, 1,
                    "ready", 1, False, "[]", size, size, size, size * 200, self.lengths[size, number],
                    ANALYZER_FINGERPRINT,
                )
                for w, document_id, number in named
            ],
        )  # fmt: skip
        self._copy(
            "work_knowledge_chunk_coordinates (work_id, document_id, generation_id, vector_store_id, instance_id, build,"
            " chunk_count, embedding_model, embedding_dims, last_embedded_at, prune_pending)",
            [
                (
                    w.work_id, document_id, w.generation_id, "pgvector", first["store_instance_id"], 1, size,
                    first["embedding_model"], first["dims"], "2026-01-01", False,
                )
                for w, document_id, _ in named
            ],
        )  # fmt: skip
        self.connection.execute("truncate loading")
        self._copy(
            "loading (size, number, work_id, kb_id, document_id)",
            [(size, number, w.work_id, w.kb_id, document_id) for w, document_id, number in named],
        )
        self.connection.execute("analyze loading")
        self.connection.execute(_LOAD_SPANS)
        if len(named) * size < MANY_CHUNKS:
            self.connection.execute(_LOAD_TERMS)
            return
        self.connection.execute(_DROP_TERM_INDEXES)
        self.connection.execute(_LOAD_TERMS)
        self.connection.execute(_MAKE_TERM_INDEXES)

    async def write_vectors(self, works: "Sequence[Loaded]", *, maintain: bool) -> None:
        """Every document by the store's own `write_chunks`, a few at a time."""
        store = PgvectorStore(PgvectorSettings(write_timeout_s=600), own_dsn=self.running.dsn)
        waiting = ((w, number, document_id) for w in works for number, document_id in enumerate(w.documents))

        async def write() -> None:
            for work, number, document_id in waiting:
                size = len(work.vectors) // len(work.documents)
                rows = work.vectors[number * size : (number + 1) * size]
                chunks = [VectorChunk(work.kb_id, i, row) for i, row in enumerate(rows)]  # type: ignore[arg-type]
                await store.write_chunks(work.work_id, document_id, work.space, 1, chunks)

        await asyncio.gather(*(write() for _ in range(4)))
        if maintain:
            for work in works:
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
    """Ask every question once, by that many clients at once, each with a bare connection of its own."""
    pool = [http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=120) for _ in range(clients)]
    headers = {"Authorization": f"Bearer {running.key}", "Content-Type": "application/json"}

    def one(numbered: tuple[int, dict[str, Any]]) -> tuple[float, dict[str, Any]]:
        connection = pool[numbered[0] % clients]
        body = json.dumps(numbered[1])
        with busy[numbered[0] % clients]:
            began = time.perf_counter()
            connection.request("POST", "/v1/search", body=body, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
            took = time.perf_counter() - began
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {content.decode()[:300]}")
        return took, json.loads(content)

    busy = [threading.Lock() for _ in range(clients)]
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
