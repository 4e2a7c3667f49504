"""The real processes, killed at bad moments: the end is the same as without. Slow: `make test-faults`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from app.db.embedded import EmbeddedServer
from tests.model import packaged_model
from tests.service import BOOTSTRAP_KEY, REPOSITORY, free_port

pytestmark = [pytest.mark.faults, pytest.mark.timeout(400)]
DOCUMENTS = 60


class Served:
    """`stackroom serve` on a data directory, as a process that may be killed and started again."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KB_", "OPENAI_"))}
        quick = {
            "KB_JOB_HEARTBEAT_S": "1", "KB_JOB_STALLED_S": "3", "KB_INDEX_WRITE_LEASE_S": "4",
            "KB_STORE_CALL_TIMEOUT_S": "3", "KB_MAINTENANCE_INTERVAL_S": "1", "KB_JOB_MAX_ATTEMPTS": "20",
        }  # fmt: skip
        environment = {**kept, **quick, "KB_MODEL_DIR": str(packaged_model()), "KB_BOOTSTRAP_API_KEY": BOOTSTRAP_KEY}
        command = [sys.executable, "-m", "app.cli", "serve", "--data-dir", str(self.data_dir), "--port", str(self.port)]
        with (self.data_dir.parent / "serve.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, cwd=REPOSITORY, stdout=log, stderr=log)
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.1)
        raise AssertionError((self.data_dir.parent / "serve.log").read_text()[-3000:])

    def family(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(60)

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        headers = {"Authorization": f"Bearer {BOOTSTRAP_KEY}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{self.port}/v1", headers=headers, timeout=60) as client:
            yield client


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "data")
    made.start()
    yield made
    made.stop()
    EmbeddedServer(made.data_dir).stop()


def upload_all(client: httpx.Client, kb: str) -> None:
    for number in range(DOCUMENTS):
        text = f"# Document {number}\n\nnumber{number} " + "some words to embed " * 60
        body = {"name": f"d{number}", "text": text, "external_id": str(number), "content_type": "text/markdown"}
        client.post(f"/knowledge-bases/{kb}/documents/text", json=body).raise_for_status()


def all_ready(served: Served, kb: str, timeout_s: float = 240) -> dict[str, Any]:
    deadline = time.monotonic() + timeout_s
    while True:
        with served.client() as client:
            counts: dict[str, Any] = client.get(f"/knowledge-bases/{kb}").json()["document_counts"]
        if counts["ready"] == DOCUMENTS:
            return counts
        assert time.monotonic() < deadline, counts
        assert counts["failed"] == 0, counts
        time.sleep(0.5)


def store_equals_live_builds(served: Served) -> None:
    """After the reaper has been round, the store holds the live builds and nothing else."""
    query = """
        select count(*) from (select document_id, build, count(*) as n from pgvector_chunks group by 1, 2) s
        full join kb_documents d on d.id = s.document_id and d.live_build = s.build and d.chunk_count = s.n
        where s.document_id is null or d.id is null
    """
    deadline = time.monotonic() + 30
    while True:
        with psycopg.connect(EmbeddedServer(served.data_dir).dsn) as connection:
            differing = connection.execute(query).fetchone()
            announced = connection.execute("select count(*) from index_writes").fetchone()
        if differing == (0,) and announced == (0,):
            return
        assert time.monotonic() < deadline, (differing, announced)
        time.sleep(0.5)


def every_document_is_found(served: Served, kb: str) -> None:
    with served.client() as client:
        for number in (0, 7, DOCUMENTS - 1):
            body = {"query": f"number{number}", "knowledge_base_ids": [kb], "mode": "lexical"}
            names = [hit["document_name"] for hit in client.post("/search", json=body).json()["hits"]]
            assert names[0] == f"d{number}"


def test_killing_everything_in_the_middle_loses_nothing(served: Served) -> None:
    with served.client() as client:
        kb = client.post("/knowledge-bases", json={"name": "kb"}).json()["id"]
        upload_all(client, kb)
    assert served.process is not None
    for process in [*served.family(), psutil.Process(served.process.pid)]:
        process.send_signal(signal.SIGKILL)
    served.process.wait(10)

    served.start()

    all_ready(served, kb)
    store_equals_live_builds(served)
    every_document_is_found(served, kb)


def test_killing_only_the_parent_takes_its_children_along_and_the_next_start_goes_on(served: Served) -> None:
    with served.client() as client:
        kb = client.post("/knowledge-bases", json={"name": "kb"}).json()["id"]
        upload_all(client, kb)
    assert served.process is not None
    children = [p for p in served.family() if "app.cli" in p.cmdline()]
    served.process.kill()
    served.process.wait(10)
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []

    served.start()

    all_ready(served, kb)
    store_equals_live_builds(served)


def test_killing_the_worker_again_and_again_only_takes_longer(served: Served) -> None:
    with served.client() as client:
        kb = client.post("/knowledge-bases", json={"name": "kb"}).json()["id"]
        upload_all(client, kb)
    for _ in range(3):
        time.sleep(2)
        for process in served.family():
            if "worker" in process.cmdline():
                process.kill()

    all_ready(served, kb)
    store_equals_live_builds(served)
    every_document_is_found(served, kb)


def test_a_stop_leaves_no_process(served: Served) -> None:
    family = served.family()

    served.stop()

    _, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []


def test_a_database_that_goes_away_is_503_and_recovers_by_itself(tmp_path: Path) -> None:
    server = EmbeddedServer(tmp_path / "away")
    dsn = server.start()
    data_dir = tmp_path / "data"
    served = Served(data_dir)
    data_dir.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("KB_", "OPENAI_"))}
    environment = {
        **kept, "KB_DATABASE_URL": dsn, "KB_DATA_DIR": str(data_dir), "KB_MODEL_DIR": str(packaged_model()),
        "KB_BOOTSTRAP_API_KEY": BOOTSTRAP_KEY, "KB_JOB_HEARTBEAT_S": "1", "KB_JOB_STALLED_S": "3",
    }  # fmt: skip
    program = [sys.executable, "-m", "app.cli"]
    subprocess.run([*program, "migrate"], env=environment, cwd=REPOSITORY, check=True, capture_output=True)
    processes = [
        subprocess.Popen([*program, *arguments], env=environment, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
        for arguments in (["api", "--port", str(served.port)], ["worker"])
    ]
    try:
        url = f"http://127.0.0.1:{served.port}"
        wait_for(url, 200)
        server.stop()
        with served.client() as client:
            refused = client.get("/me")
        assert refused.status_code == 503
        assert refused.headers["retry-after"]
        assert httpx.get(f"{url}/readyz", timeout=10).status_code == 503
        assert httpx.get(f"{url}/healthz", timeout=10).status_code == 200
        time.sleep(5)
        server.start()
        wait_for(url, 200)
        with served.client() as client:
            kb = client.post("/knowledge-bases", json={"name": "kb"}).json()["id"]
            made = client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "n", "text": "back again"})
            deadline = time.monotonic() + 60
            while not client.get(f"/documents/{made.json()['id']}").json()["searchable"]:
                assert time.monotonic() < deadline
                time.sleep(0.2)
    finally:
        for process in processes:
            process.terminate()
            process.wait(30)
        server.stop()


def wait_for(url: str, status: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == status:
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.2)
