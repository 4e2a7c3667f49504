"""The example of an outside plugin: installed where nothing else knows of it, seen, used by the service, and proved."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service import REPOSITORY, running_service

EXAMPLE = REPOSITORY / "examples" / "stackroom-sqlite"
GUIDE = REPOSITORY / "docs" / "writing-a-vector-store.md"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory into which the package is installed, without a network and without its dependencies."""
    place = tmp_path_factory.mktemp("outside")
    source = shutil.copytree(EXAMPLE, place / "source")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--target", str(place / "site"), str(source)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return place / "site"


def run(site: Path, *words: str, cwd: Path = REPOSITORY) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(REPOSITORY)])}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=environment, capture_output=True, text=True, timeout=110, check=False
    )


def test_it_is_found_by_its_entry_point_alone(site: Path) -> None:
    listing = "from app.plugins.registry import Registry; print([p.manifest.id for p in Registry.discover().plugins()])"

    assert "'sqlite'" in run(site, "-c", listing).stdout
    without = subprocess.run(
        [sys.executable, "-c", listing], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert "'sqlite'" not in without.stdout


def test_it_keeps_every_promise_of_the_contract(site: Path, tmp_path: Path) -> None:
    tests = shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)

    done = run(site, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests), cwd=tmp_path)

    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) > 60


def test_it_uses_the_public_contract_only() -> None:
    allowed = {"app.errors", "app.plugins.manifest", "app.vector_stores.base", "app.vector_stores.contract"}
    used: set[str] = set()
    for path in (EXAMPLE / "stackroom_sqlite").glob("*.py"):
        used |= set(re.findall(r"^\s*(?:from|import) (app[\w.]*)", path.read_text(), re.MULTILINE))

    assert used <= allowed


def test_the_service_writes_and_searches_with_it(site: Path, tmp_path: Path) -> None:
    settings = {
        "PYTHONPATH": os.pathsep.join([str(site), str(REPOSITORY)]),
        "KB_PLUGIN_SQLITE__PATH": str(tmp_path / "vectors.sqlite"),
        "KB_VECTOR_STORE_PROVIDER_ID": "sqlite",
    }
    with running_service(**settings) as service:
        tenant = service.tenant()
        shown = {one["id"]: one for one in tenant.client.get("/plugins").json()["items"]}
        assert shown["sqlite"]["available"] is True
        assert shown["sqlite"]["distribution"] == "registry"
        base = tenant.knowledge_base()
        first = tenant.ready(base, "Ships wait in the harbour.")
        tenant.ready(base, "Bread is sold from six.")

        answer = tenant.search("a harbour with ships", mode="vector")

        assert answer["index"]["vector_store_id"] == "sqlite"
        assert answer["degraded"] == []
        assert answer["hits"][0]["document_id"] == first["id"]
        assert len(answer["hits"]) == 2


def test_the_guide_shows_what_the_example_says() -> None:
    """Every piece of code in the guide stands in the example, line by line."""
    files = [*EXAMPLE.rglob("*.py"), EXAMPLE / "pyproject.toml"]
    texts = [_lines(path.read_text()) for path in files]
    pieces = re.findall(r"```(?:python|toml)\n(.*?)```", GUIDE.read_text(), re.DOTALL)

    assert len(pieces) >= 8
    for piece in pieces:
        assert any(_lines(piece) in text for text in texts), piece


def _lines(text: str) -> str:
    """The lines without indentation, and without the empty ones: a piece is shown out of its place."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())
