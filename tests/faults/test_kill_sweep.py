"""kill -9 while an index is replaced: it goes on, searches stay complete, and nothing of the old index is left."""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.faults.serving import Serving, assert_consistent, serving
from tests.service import REPOSITORY, Tenant

pytestmark = [pytest.mark.faults, pytest.mark.timeout(420)]
DOCUMENTS = 40
TEXT = "number{n} " + "ships rivers harbours bridges lighthouses " * 200


@pytest.fixture
def stackroom() -> Iterator[Serving]:
    with serving(KB_GENERATION_GRACE_S="0") as made:
        made.up()
        yield made


class Questions(threading.Thread):
    """Asks without a pause; whatever is answered has to be whole and of one index."""

    def __init__(self, tenant: Tenant) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(base_url=tenant.client.base_url, headers=tenant.client.headers, timeout=20)
        self._work = tenant.work_id
        self.ended = threading.Event()
        self.answered: set[str] = set()
        self.wrong: list[Any] = []
        self.count = 0

    def run(self) -> None:
        body = {
            "query": "ships and harbours", "work_id": self._work, "mode": "vector", "limit": 100, "group_by": "document"
        }  # fmt: skip
        with self._client:
            while not self.ended.is_set():
                try:
                    answer = self._client.post("/search", json=body)
                except httpx.HTTPError:
                    time.sleep(0.1)
                    continue
                if answer.status_code != 200:  # just started, or being killed
                    time.sleep(0.1)
                    continue
                found = answer.json()
                self.count += 1
                self.answered.add(found["index"]["embedding_model"])
                if len(found["hits"]) != DOCUMENTS or found["degraded"]:
                    self.wrong.append((len(found["hits"]), found["degraded"], found["index"]))


def filled(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    documents = [tenant.text(kb, TEXT.format(n=n))["id"] for n in range(DOCUMENTS)]
    for document_id in documents:
        assert tenant.settle(document_id, 90)["status"] == "ready"


def states(tenant: Tenant) -> dict[int, str]:
    try:
        items = tenant.client.get(f"/works/{tenant.work_id}/generations").json()["items"]
    except (httpx.HTTPError, KeyError):
        return {}
    return {one["number"]: one["state"] for one in items}


def until(tenant: Tenant, wanted: dict[int, str], timeout_s: float = 150) -> None:
    deadline = time.monotonic() + timeout_s
    while states(tenant) != wanted:
        assert time.monotonic() < deadline, states(tenant)
        time.sleep(0.3)


def check(stackroom: Serving) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "app.cli", "check", "--json", "--data-dir", str(stackroom.data_dir)],
        env=stackroom.environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("what", ["everything", "workers"])
def test_a_sweep_that_is_killed_again_and_again_ends_with_one_complete_index(stackroom: Serving, what: str) -> None:
    tenant = stackroom.tenant()
    filled(tenant)
    assert stackroom.down() == 0
    stackroom.extra["KB_EMBEDDING_MODEL"] = "another-model"  # what is wanted changes while nobody is there
    stackroom.up()
    questions = Questions(tenant)
    questions.start()

    chance = random.Random(what)
    for _ in range(4):
        time.sleep(0.4 + chance.random())
        if what == "everything":
            stackroom.kill_everything()
            stackroom.up()
        else:
            for worker in stackroom.workers():
                worker.kill()
    until(tenant, {1: "removed", 2: "active"})
    time.sleep(1)
    questions.ended.set()
    questions.join(30)

    assert questions.wrong == []
    assert questions.count > 10
    assert questions.answered == {"test-model", "another-model"}
    assert_consistent(stackroom.dsn())
    clean = check(stackroom)  # beside the running service
    assert [one["chunks"] > 0 for one in clean["indexes"]] == [False, True]
    assert clean["open_receipts"] == []
    assert stackroom.down() == 0
    assert check(stackroom)["indexes"] == clean["indexes"]  # and without it
