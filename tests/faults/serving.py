"""`stackroom serve` as a process that tests kill: it starts, is killed as a whole or in part, and starts again."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import psycopg

from tests.service import REPOSITORY, WIDTH, Service, free_port


@dataclass
class Serving(Service):
    """A service that `stackroom serve` runs, with its embedded database."""

    port: int = 0
    arguments: tuple[str, ...] = ()
    serve: "subprocess.Popen[bytes] | None" = None
    extra: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        environment = super().environment()
        del environment["KB_DATABASE_URL"]
        return {**environment, "KB_PENDING_UPLOAD_TTL_S": "5", **self.extra}

    def up(self) -> None:
        """Start, and wait until requests are served."""
        with (self.data_dir / "serve.log").open("ab") as log:
            self.serve = subprocess.Popen(
                [sys.executable, "-m", "app.cli", "serve", "--port", str(self.port), *self.arguments],
                env=self.environment(),
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                start_new_session=True,
            )
        deadline = time.monotonic() + 90
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/readyz", timeout=2).status_code == 200:
                    return
            assert self.serve.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def log(self) -> str:
        return (self.data_dir / "serve.log").read_text(errors="replace")[-4000:]

    def kin(self) -> list[psutil.Process]:
        """Every process that belongs to this service: by its ancestry, and the database by its directory."""
        found: list[psutil.Process] = []
        if self.serve is not None:
            with contextlib.suppress(psutil.Error):
                parent = psutil.Process(self.serve.pid)
                found += [parent, *parent.children(recursive=True)]
        return list({process.pid: process for process in (*found, *self.database())}.values())

    def database(self) -> list[psutil.Process]:
        place, found = self.data_dir.resolve() / "postgres", []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if Path(process.cwd()) == place and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        return self._with("worker")

    def api(self) -> list[psutil.Process]:
        return self._with("api")

    def _with(self, word: str) -> list[psutil.Process]:
        assert self.serve is not None
        found = []
        for child in psutil.Process(self.serve.pid).children():
            with contextlib.suppress(psutil.Error):
                if word in child.cmdline():
                    found.append(child)
        return found

    def kill_everything(self) -> None:
        """SIGKILL to every process at once, the database included; all are gone afterwards."""
        kin = self.kin()
        for process in kin:  # in one breath: nobody has time to react to the death of another
            with contextlib.suppress(psutil.Error):
                process.kill()
        assert self.serve is not None
        self.serve.wait(20)
        psutil.wait_procs(kin, 20)

    def down(self) -> int:
        """Stop in order; the exit code."""
        assert self.serve is not None
        self.serve.send_signal(signal.SIGINT)
        return self.serve.wait(60)

    def dsn(self) -> str:
        return f"postgresql://postgres@/stackroom?host={self.socket_dir()}"

    def socket_dir(self) -> Path:
        lines = (self.data_dir.resolve() / "postgres" / "postmaster.pid").read_text().splitlines()
        return Path(lines[4])


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[Serving]:
    """A directory and a provider; nothing is started yet, and nothing stays."""
    data_dir = Path(tempfile.mkdtemp(prefix="stackroom-faults-"))
    provider_port, port = free_port(), free_port()
    made = Serving(
        f"http://127.0.0.1:{port}",
        "postgresql://unused",
        data_dir,
        f"http://127.0.0.1:{provider_port}",
        port=port,
        arguments=("--data-dir", str(data_dir), *arguments),
        extra=environment,
    )
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
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.post(f"{made.provider_url}/misbehave", json={}, timeout=2)
                break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield made
    finally:
        if made.serve is not None and made.serve.poll() is None:
            made.kill_everything()
        for process in made.database():
            with contextlib.suppress(psutil.Error):
                process.kill()
        made.stop()
        provider.terminate()
        provider.wait(10)
        shutil.rmtree(data_dir, ignore_errors=True)


def assert_consistent(dsn: str) -> None:
    """The store's chunks equal the live builds, document by document; nothing is announced, pruned or waited for."""
    deadline = time.monotonic() + 60
    seen: dict[str, object] = {}
    while time.monotonic() < deadline:
        with psycopg.connect(dsn, autocommit=True) as connection:
            stored = connection.execute(
                "select document_id, build, count(*) from pgvector_chunks group by 1, 2 order by 1, 2"
            ).fetchall()
            live = connection.execute(
                "select id, live_build, chunk_count from kb_documents where live_build is not null order by 1, 2"
            ).fetchall()
            spans = connection.execute(
                "select document_id, build, count(*) from kb_spans group by 1, 2 order by 1, 2"
            ).fetchall()
            terms = connection.execute("select distinct document_id, build from kb_terms order by 1, 2").fetchall()
            left = connection.execute(
                "select (select count(*) from index_writes), (select count(*) from pending_uploads),"
                " (select count(*) from blob_deletions),"
                " (select count(*) from work_knowledge_chunk_coordinates where prune_pending),"
                " (select count(*) from deletion_receipts where closed_at is null),"
                " (select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
                "   and task_name in ('ingest_document', 'forget_document', 'forget_knowledge_base'))"
            ).fetchone()
        seen = {"stored": stored, "live": live, "spans": spans, "left": left}
        if stored == live == spans and terms == [row[:2] for row in live] and left == (0,) * 6:
            return
        time.sleep(0.3)
    raise AssertionError(seen)


def blobs(data_dir: Path) -> set[str]:
    place = data_dir / "blobs"
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def named_blobs(dsn: str) -> set[str]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute("select storage_key, text_key from kb_revisions").fetchall()
    return {key for row in rows for key in row if key is not None}
