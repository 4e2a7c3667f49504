"""The real service for tests: database, API and worker as processes, and a provider on loopback that answers at once.

The provider is a real HTTP server with OpenAI's interface (`tests.api.holding_provider`), no model behind it: texts
that share words are close to each other.
"""

import itertools
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
from psycopg.conninfo import conninfo_to_dict

from app.db.migrating import migrate
from tests.model import packaged_model
from tests.postgres import fresh_database

REPOSITORY = Path(__file__).parents[1]
BOOTSTRAP_KEY = "bootstrap-key-of-the-tests-0123456789abcdef"
WIDTH = 64
_numbers = itertools.count(1)


def platform_database() -> str:
    """The URL of a fresh, migrated database."""
    parts = conninfo_to_dict(fresh_database("platform", build=lambda dsn: _migrate(dsn)))
    return url_of(parts)


def url_of(parts: Mapping[str, Any]) -> str:
    return f"postgresql://{parts['user']}@/{parts['dbname']}?host={parts['host']}"


def _migrate(dsn: str) -> None:
    migrate(url_of(conninfo_to_dict(dsn)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Tenant:
    """An organization with one user and a key of that user."""

    service: "Service"
    organization_id: str
    user_id: str
    work_id: str
    client: httpx.Client

    def knowledge_base(self, name: str = "Base", **fields: Any) -> str:
        answer = self.client.post("/knowledge-bases", json={"name": name, "work_id": self.work_id, **fields})
        assert answer.status_code == 201, answer.text
        made: str = answer.json()["id"]
        return made

    def upload(
        self, kb: str, name: str, data: bytes, content_type: str = "application/octet-stream", **fields: str
    ) -> httpx.Response:
        files = {"file": (name, data, content_type)}
        return self.client.post(f"/knowledge-bases/{kb}/documents", files=files, data=fields)

    def text(self, kb: str, text: str, name: str | None = None, **fields: Any) -> dict[str, Any]:
        body = {"name": name or f"note {next(_numbers)}", "text": text, **fields}
        answer = self.client.post(f"/knowledge-bases/{kb}/documents/text", json=body)
        assert answer.status_code in (200, 202), answer.text
        made: dict[str, Any] = answer.json()
        return made

    def settle(self, document_id: str, timeout_s: float = 40) -> dict[str, Any]:
        """Wait until the document is terminal."""
        return self.until(document_id, lambda d: d["terminal"], timeout_s)

    def until(self, document_id: str, holds: Any, timeout_s: float = 40) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self.client.get(f"/documents/{document_id}").json()
            if holds(answer):
                return dict(answer)
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def ready(self, kb: str, text: str, **fields: Any) -> dict[str, Any]:
        """Upload a text and wait until it is ready."""
        settled = self.settle(self.text(kb, text, **fields)["id"])
        assert settled["status"] == "ready", settled
        return settled

    def search(self, query: str, **fields: Any) -> dict[str, Any]:
        answer = self.client.post("/search", json={"query": query, "work_id": self.work_id, **fields})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@dataclass
class Service:
    """Running processes and the ways to reach them."""

    url: str
    database_url: str
    data_dir: Path
    provider_url: str
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    _clients: list[httpx.Client] = field(default_factory=list)

    def client(self, key: str | None) -> httpx.Client:
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        client = httpx.Client(base_url=f"{self.url}/v1", headers=headers, timeout=30)
        self._clients.append(client)
        return client

    @property
    def operator(self) -> httpx.Client:
        return self.client(BOOTSTRAP_KEY)

    def tenant(self, *, scopes: tuple[str, ...] = ("read", "write", "admin")) -> Tenant:
        """A fresh organization with a user, a Work and a key."""
        operator = self.operator
        organization = _made(operator.post("/organizations", json={"name": f"Org {uuid4().hex[:8]}"}))["id"]
        work = _made(operator.post("/works", json={"name": "Work", "organization_id": organization}))["id"]
        return self.colleague(organization, work, scopes=scopes, role="admin")

    def colleague(
        self, organization_id: str, work_id: str, *, scopes: tuple[str, ...] = ("read", "write"), role: str = "member"
    ) -> Tenant:
        """Another user of an organization, with a key."""
        operator = self.operator
        body = {"subject": uuid4().hex, "name": "Somebody", "role": role}
        user = _made(operator.post(f"/organizations/{organization_id}/users", json=body))["id"]
        wanted = {"name": "key", "organization_id": organization_id, "user_id": user, "scopes": list(scopes)}
        key = _made(operator.post("/api-keys", json=wanted))["key"]
        return Tenant(self, organization_id, user, work_id, self.client(key))

    def provider(self, *once: str, always: str | None = None) -> None:
        """Make the embedding provider misbehave: for single requests, or until told otherwise."""
        answer = httpx.post(f"{self.provider_url}/misbehave", json={"once": list(once), "always": always}, timeout=10)
        assert answer.status_code < 300, answer.text

    def start(self, name: str, *arguments: str, **environment: str) -> None:
        with (self.data_dir / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", "app.cli", *arguments],
                env={**self.environment(), **environment},
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
            )

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("KB_", "OPENAI_"))}
        return {
            **kept,
            "KB_DATABASE_URL": self.database_url,
            "KB_DATA_DIR": str(self.data_dir),
            "KB_MODEL_DIR": str(packaged_model()),
            "KB_BOOTSTRAP_API_KEY": BOOTSTRAP_KEY,
            "KB_EMBEDDING_PROVIDER_ID": "openai",
            "KB_EMBEDDING_MODEL": "test-model",
            "KB_EMBEDDING_DIMENSIONS": str(WIDTH),
            "OPENAI_API_KEY": "sk-of-the-tests-only",
            "OPENAI_BASE_URL": f"{self.provider_url}/v1",
            "KB_PLUGIN_OPENAI__CALIBRATION": "0.0",
            "KB_JOB_HEARTBEAT_S": "0.5",
            "KB_JOB_STALLED_S": "2",
            "KB_JOB_RETRY_WAIT_S": "0.5",
            "KB_MAINTENANCE_INTERVAL_S": "1",
            "KB_INDEX_WRITE_LEASE_S": "5",
            "KB_STORE_CALL_TIMEOUT_S": "4",
            "KB_EXTRACTION_TIMEOUT_S": "20",
            "KB_MAX_UPLOAD_BYTES": "2000000",
            "KB_MIN_FREE_DISK_BYTES": "0",
            "KB_LOG_LEVEL": "info",
            "KB_CORS_ORIGINS": "https://chat.example",
        }

    def wait_until_ready(self, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError((self.data_dir / "api.log").read_text()[-3000:])
            time.sleep(0.05)

    def stop(self) -> None:
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for client in self._clients:
            client.close()


def _made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


@contextmanager
def running_service(*, workers: int = 1, **environment: str) -> Iterator[Service]:
    """Everything started, and stopped at the end."""
    data_dir = Path(tempfile.mkdtemp(prefix="stackroom-service-"))
    provider_port, port = free_port(), free_port()
    service = Service(f"http://127.0.0.1:{port}", platform_database(), data_dir, f"http://127.0.0.1:{provider_port}")
    provider = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.api.holding_provider",
            "--port",
            str(provider_port),
            "--width",
            str(WIDTH),
        ],
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
    )
    try:
        service.start("migrate", "migrate", **environment)
        assert service.processes.pop("migrate").wait(60) == 0, (data_dir / "migrate.log").read_text()
        service.start("api", "api", "--port", str(port), **environment)
        for number in range(workers):
            service.start(f"worker{number}", "worker", **environment)
        service.wait_until_ready()
        yield service
    finally:
        service.stop()
        provider.terminate()
        provider.wait(10)
        shutil.rmtree(data_dir, ignore_errors=True)
