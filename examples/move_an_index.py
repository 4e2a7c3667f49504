"""Move a Work with real pages between stores and models, under a stream of questions, while its worker is killed.

    python examples/move_an_index.py FOLDER [--stores pgvector,lancedb,pgvector] [--qdrant-url URL] [--kills 2]

It starts `stackroom serve` in its own directory, uploads the folder's Markdown files, then asks for one store after the
other, with one change of the model on the way (a provider on loopback that answers at once, in two widths). At the
end it says whether every answer was complete, runs `stackroom check`, and looks whether any store but the last holds
anything.
Exit code 0 = all of it was as promised. Nothing outside this machine is called.
"""

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

REPOSITORY = Path(__file__).resolve().parents[1]
QUESTION = "how is logging configured"


def main() -> int:
    """The whole move."""
    asked = _arguments()
    pages = sorted(path for path in asked.folder.rglob("*.md"))
    if not pages:
        print(f"no Markdown files below {asked.folder}")
        return 2
    with tempfile.TemporaryDirectory(prefix="stackroom-move-") as directory:
        with Move(Path(directory), asked.qdrant_url) as move:
            return move.run(pages, asked.stores.split(","), asked.kills)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--stores", default="pgvector,lancedb,pgvector", help="in this order; the first is used at once"
    )
    parser.add_argument("--qdrant-url", help="a server on loopback, if `qdrant` is among the stores")
    parser.add_argument("--kills", type=int, default=2, help="how often the worker is killed")
    return parser.parse_args()


@dataclass
class Questions(threading.Thread):
    """Asks without a pause; every answer has to be whole, and of one index."""

    client: httpx.Client
    wanted: int  # hits, at most 100
    asked: int = 0
    wrong: list[Any] = field(default_factory=list)
    spaces: set[tuple[str, int]] = field(default_factory=set)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Until it is told to end."""
        body = {"query": QUESTION, "limit": self.wanted, "mode": "vector"}
        while not self.ended.is_set():
            answer = self.client.post("/search", json=body)
            self.asked += 1
            found = answer.json()
            if answer.status_code != 200 or len(found["hits"]) < self.wanted or found["degraded"]:
                self.wrong.append((answer.status_code, len(found.get("hits", ())), found.get("degraded")))
            else:
                self.spaces.add((found["index"]["vector_store_id"], found["index"]["dims"]))


class Move:
    """A service of its own, a provider beside it, and what is done with them."""

    def __init__(self, directory: Path, qdrant_url: str | None) -> None:
        self._directory, self._qdrant_url = directory, qdrant_url
        self._port, self._narrow, self._wide = _free_port(), _free_port(), _free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "Move":
        for port, width in ((self._wide, 384), (self._narrow, 256)):
            provider = ["benchmarks/instant_provider.py", "--port", str(port), "--width", str(width)]
            self._processes.append(subprocess.Popen([sys.executable, *provider], cwd=REPOSITORY))
        serve = ["-m", "app.cli", "serve", "--port", str(self._port), "--data-dir", str(self._directory)]
        self._serve = subprocess.Popen([sys.executable, *serve], cwd=REPOSITORY, env=self._environment())
        self._processes.append(self._serve)
        deadline = time.monotonic() + 180
        while not self._is_ready():
            if time.monotonic() > deadline or self._serve.poll() is not None:
                raise SystemExit("the service did not start")
            time.sleep(0.2)
        key = (self._directory / "first-api-key").read_text().strip()
        self._client = self._with(key)
        self._key = key
        self._work = self._client.get("/me").json()["default_work_id"]
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGINT if process is self._serve else signal.SIGTERM)
                process.wait(60)

    def run(self, pages: list[Path], stores: list[str], kills: int) -> int:
        """Upload, move from store to store, look. The exit code."""
        self._use_store(stores[0])
        self._upload(pages)
        questions = Questions(self._with(self._key), min(100, len(pages)))
        questions.start()
        steps = [("store", store) for store in stores[1:]]
        steps.insert(len(steps) // 2, ("model", "instant-2"))
        number = 1
        for at, (kind, value) in enumerate(steps):
            number += 1
            began = time.monotonic()
            if kind == "store":
                self._use_store(value)
            else:
                self._use_model(value)
            if at < kills:
                time.sleep(0.5)
                self._kill_workers()
            number = self._until_active()
            print(f"index {number}: {kind} {value}, active after {time.monotonic() - began:.1f} s")
        time.sleep(3)
        questions.ended.set()
        questions.join(60)
        self._until_removed()
        print(
            f"{questions.asked} questions, {len(questions.wrong)} incomplete; indexes that answered: {questions.spaces}"
        )
        return self._judge(questions, stores[-1])

    def _judge(self, questions: Questions, last: str) -> int:
        command = [sys.executable, "-m", "app.cli", "check", "--json", "--data-dir", str(self._directory)]
        done = subprocess.run(
            command, cwd=REPOSITORY, env=self._environment(), capture_output=True, text=True, check=False
        )
        found = json.loads(done.stdout)["indexes"] if done.stdout else []
        holding = {one["vector_store_id"] for one in found if one["chunks"]}
        print(
            f"stackroom check: {'clean' if done.returncode == 0 else 'NOT CLEAN'}; stores that hold anything: {holding}"
        )
        if questions.wrong:
            print(f"incomplete: {questions.wrong[:5]}")
        return 0 if not questions.wrong and done.returncode == 0 and holding == {last} else 1

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KB_", "OPENAI_"))}
        settings = {
            "KB_EMBEDDING_DEFAULT_ID": "openai",
            "KB_EMBEDDING_MODEL": "instant",
            "KB_EMBEDDING_DIMENSIONS": "384",
            "OPENAI_API_KEY": "sk-example",
            "OPENAI_BASE_URL": f"http://127.0.0.1:{self._wide}/v1",
            "KB_GENERATION_GRACE_S": "0",
            "KB_MAINTENANCE_INTERVAL_S": "1",
            "KB_JOB_HEARTBEAT_S": "1",
            "KB_JOB_STALLED_S": "3",
            "KB_INDEX_WRITE_LEASE_S": "10",
            "KB_STORE_CALL_TIMEOUT_S": "9",
            "KB_LOG_LEVEL": "warning",
        }
        if self._qdrant_url:
            settings["KB_PLUGIN_QDRANT__URL"] = self._qdrant_url
        return {**kept, **settings}

    def _with(self, key: str) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=f"http://127.0.0.1:{self._port}/v1", headers=headers, timeout=60)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _upload(self, pages: list[Path]) -> None:
        base = self._client.post("/knowledge-bases", json={"name": "Pages"}).json()["id"]
        for page in pages:
            answer = self._client.post(
                f"/knowledge-bases/{base}/documents",
                files={"file": (page.name, page.read_bytes(), "text/markdown")},
                data={"external_id": str(page)},
            )
            answer.raise_for_status()
        while True:
            counts = self._client.get(f"/knowledge-bases/{base}").json()["document_counts"]
            if counts["ready"] == len(pages):
                break
            if counts["failed"]:
                raise SystemExit(f"documents failed: {counts}")
            time.sleep(0.2)
        print(f"index 1: {len(pages)} pages are ready")

    def _use_store(self, store: str) -> None:
        answer = self._client.patch(f"/works/{self._work}/settings", json={"kb_vector_store_id": store})
        answer.raise_for_status()

    def _use_model(self, model: str) -> None:
        url = f"http://127.0.0.1:{self._narrow}/v1"
        settings = {"base_url": url, "api_key": "sk-example", "model": model, "dimensions": 256}
        body = {"pinned": True, "settings": settings}
        self._client.put(f"/works/{self._work}/plugins/openai", json=body).raise_for_status()
        wish = {"kb_embedding_model": model, "kb_embedding_dimensions": 256}
        self._client.patch(f"/works/{self._work}/settings", json=wish).raise_for_status()

    def _kill_workers(self) -> None:
        for child in psutil.Process(self._serve.pid).children():
            if "worker" in child.cmdline():
                child.kill()
                print("the worker was killed")

    def _generations(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = self._client.get(f"/works/{self._work}/generations").json()["items"]
        return items

    def _until_active(self) -> int:
        """Wait until nothing is being built and nothing else is wanted; the number of the active index."""
        quiet = 0
        deadline = time.monotonic() + 300
        while quiet < 8:
            found = self._generations()
            if failed := [one for one in found if one["state"] == "failed"]:
                raise SystemExit(f"failed: {failed[0]['error']}")
            quiet = 0 if any(one["state"] == "building" for one in found) else quiet + 1
            if time.monotonic() > deadline:
                raise SystemExit(f"not active in time: {found[0]}")
            time.sleep(0.25)
        return next(one["number"] for one in found if one["state"] == "active")

    def _until_removed(self) -> None:
        deadline = time.monotonic() + 60
        while {one["state"] for one in self._generations()} - {"active", "removed", "cancelled"}:
            if time.monotonic() > deadline:
                return
            time.sleep(0.3)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
