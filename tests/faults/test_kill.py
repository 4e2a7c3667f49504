"""kill -9 of a worker, of the API, of everything, in the middle of an import: the end is the same as without."""

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psutil
import pytest

from tests.faults.serving import Serving, assert_consistent, blobs, named_blobs, serving
from tests.service import Tenant

pytestmark = [pytest.mark.faults, pytest.mark.timeout(420)]
DOCUMENTS = 40


@pytest.fixture
def stackroom() -> Iterator[Serving]:
    with serving() as made:
        made.up()
        yield made


class Import(threading.Thread):
    """A sync client that goes on until every document is accepted, whatever happens to the service."""

    def __init__(self, tenant: Tenant, kb: str, *, revision: int = 1) -> None:
        super().__init__(daemon=True)
        self._client = httpx.Client(base_url=tenant.client.base_url, headers=tenant.client.headers, timeout=20)
        self._kb, self._revision = kb, revision
        self._end = time.monotonic() + 200
        self.made: dict[str, str] = {}
        self.refused: list[str] = []

    def run(self) -> None:
        with self._client:
            for n in range(DOCUMENTS):
                name = f"doc/{n}.md"
                while name not in self.made and time.monotonic() < self._end:
                    self._send(name, content(n, self._revision))

    def _send(self, name: str, text: str) -> None:
        body = {"name": name, "text": text, "external_id": name, "content_type": "text/markdown"}
        try:
            answer = self._client.post(f"/knowledge-bases/{self._kb}/documents/text", json=body)
        except httpx.HTTPError:
            time.sleep(0.2)
            return
        if answer.status_code in (200, 202):
            self.made[name] = answer.json()["id"]
        else:
            self.refused.append(answer.text)
            time.sleep(0.2)


def content(n: int, revision: int = 1) -> str:
    parts = [f"# Document {n} part {p}\n\n" + f"number{n} revision{revision} part{p} " * 120 for p in range(3)]
    return "\n\n".join(parts)


def all_ready(tenant: Tenant, kb: str, timeout_s: float = 150) -> list[dict[str, Any]]:
    deadline = time.monotonic() + timeout_s
    while True:
        items: list[dict[str, Any]] = []
        try:
            items = tenant.client.get(f"/knowledge-bases/{kb}/documents", params={"limit": 200}).json()["items"]
        except (httpx.HTTPError, KeyError):
            time.sleep(0.3)
        if len(items) == DOCUMENTS and all(d["terminal"] for d in items):
            return items
        assert time.monotonic() < deadline, [(d["status"], d["stage"], d["error"]) for d in items if not d["terminal"]]
        time.sleep(0.3)


def assert_complete(stackroom: Serving, tenant: Tenant, kb: str, made: dict[str, str], revision: int = 1) -> None:
    items = all_ready(tenant, kb)
    assert {d["status"] for d in items} == {"ready"}, [d["error"] for d in items]
    assert {d["external_id"]: d["id"] for d in items} == made
    assert {d["revision"] for d in items} == {revision}
    assert {d["live_revision"] for d in items} == {revision}
    for n in (0, DOCUMENTS // 2, DOCUMENTS - 1):
        for mode in ("vector", "lexical"):
            hit = tenant.search(f"number{n} revision{revision}", knowledge_base_ids=[kb], mode=mode)["hits"][0]
            assert hit["document_id"] == made[f"doc/{n}.md"], (n, mode)
        text = tenant.client.get(f"/documents/{made[f'doc/{n}.md']}/text").json()["text"]
        assert text.strip() == content(n, revision).strip()
    assert_consistent(stackroom.dsn())
    deadline = time.monotonic() + 20
    while blobs(stackroom.data_dir) != named_blobs(stackroom.dsn()) and time.monotonic() < deadline:
        time.sleep(0.3)
    assert blobs(stackroom.data_dir) == named_blobs(stackroom.dsn())


def test_workers_killed_again_and_again_change_nothing(stackroom: Serving) -> None:
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    client = Import(tenant, kb)
    client.start()
    chance = random.Random(1)
    for _ in range(4):
        time.sleep(0.5 + chance.random())
        for worker in stackroom.workers():
            worker.kill()
    client.join(120)

    assert len(client.made) == DOCUMENTS, client.refused
    assert_complete(stackroom, tenant, kb, client.made)


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_killed_in_the_middle_of_an_import_ends_as_without(stackroom: Serving, seed: int) -> None:
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    client = Import(tenant, kb)
    client.start()
    chance = random.Random(seed)
    for _ in range(3):
        time.sleep(0.4 + 2 * chance.random())
        stackroom.kill_everything()
        stackroom.up()
    client.join(150)

    assert len(client.made) == DOCUMENTS, client.refused
    assert_complete(stackroom, tenant, kb, client.made)


def test_everything_killed_while_documents_are_replaced_and_deleted(stackroom: Serving) -> None:
    tenant = stackroom.tenant()
    kb, doomed = tenant.knowledge_base(), tenant.knowledge_base()
    first = Import(tenant, kb)
    first.start()
    gone = [tenant.text(doomed, f"doomed words number {n}")["id"] for n in range(10)]
    first.join(120)
    all_ready(tenant, kb)
    second = Import(tenant, kb, revision=2)
    second.start()
    for document in gone[:5]:
        assert tenant.client.delete(f"/documents/{document}").status_code == 202
    assert tenant.client.delete(f"/knowledge-bases/{doomed}").status_code == 202
    time.sleep(0.3)
    stackroom.kill_everything()
    stackroom.up()
    time.sleep(0.5)
    stackroom.kill_everything()
    stackroom.up()
    second.join(150)

    deadline = time.monotonic() + 60
    while True:  # the older revision may be ready before the newer is taken up
        items = all_ready(tenant, kb)
        if {d["live_revision"] for d in items} == {2} or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    assert_complete(stackroom, tenant, kb, second.made, revision=2)
    for document in gone:
        assert tenant.client.get(f"/documents/{document}").status_code == 404
        assert tenant.client.get(f"/documents/{document}/deletion").json()["state"] == "closed"
    assert tenant.client.get(f"/knowledge-bases/{doomed}").status_code == 404
    assert tenant.search("doomed words", limit=50, mode="lexical")["hits"] == []


def test_a_worker_killed_while_it_waits_for_the_provider_loses_nothing(stackroom: Serving) -> None:
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    stackroom.provider(always="hold")
    document = tenant.text(kb, "held while its worker dies")
    stackroom.until_held()
    for worker in stackroom.workers():
        worker.kill()
    stackroom.provider(always=None)

    settled = tenant.settle(document["id"], 60)

    assert settled["status"] == "ready"
    assert_consistent(stackroom.dsn())


def test_a_job_that_kills_its_worker_each_time_ends_as_failed_and_others_go_on(stackroom: Serving) -> None:
    """Attempts are counted by us: a dead worker raises nothing."""
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    good = tenant.ready(kb, "a good neighbour")
    stackroom.provider(always="hold")
    poison = tenant.text(kb, "whoever touches this dies")
    killed, document = 0, poison
    deadline = time.monotonic() + 120
    while not document["terminal"] and time.monotonic() < deadline:
        if document["status"] == "processing" and document["attempt"] > killed:
            killed = document["attempt"]
            for worker in stackroom.workers():
                worker.kill()
        time.sleep(0.2)
        document = tenant.client.get(f"/documents/{poison['id']}").json()
    stackroom.provider(always=None)

    assert (document["status"], document["error"]["code"]) == ("failed", "gave_up")
    assert tenant.client.get(f"/documents/{good['id']}").json()["status"] == "ready"
    assert tenant.ready(kb, "the next one is read")["status"] == "ready"


def test_the_api_killed_during_an_upload_leaves_no_bytes(stackroom: Serving) -> None:
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "kept")
    before = blobs(stackroom.data_dir)

    def slowly() -> Iterator[bytes]:
        yield b"x" * 500_000
        for api in stackroom.api():
            api.kill()
        yield b"x" * 500_000

    with pytest.raises(httpx.HTTPError):
        tenant.client.put(f"/documents/{document['id']}/content", content=slowly())
    stackroom.wait_until_ready()

    assert tenant.client.get(f"/documents/{document['id']}").json()["revision"] == 1
    assert before <= blobs(stackroom.data_dir)
    assert tenant.client.put(f"/documents/{document['id']}/content", content=b"second try").status_code == 202
    assert tenant.until(document["id"], lambda d: d["live_revision"] == 2)["status"] == "ready"


def test_a_key_whose_request_died_with_the_process_is_free_soon(stackroom: Serving) -> None:
    """A client that sends the same request again, with its key, gets through."""
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    form = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n' + b"words " * 50_000
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Idempotency-Key": "sent-again"}

    def dying() -> Iterator[bytes]:
        yield form
        time.sleep(1)
        stackroom.kill_everything()
        yield b"\r\n--b--\r\n"

    with pytest.raises(httpx.HTTPError):
        tenant.client.post(f"/knowledge-bases/{kb}/documents", content=dying(), headers=headers)
    stackroom.up()
    deadline = time.monotonic() + 90
    while True:
        answer = tenant.client.post(
            f"/knowledge-bases/{kb}/documents", content=form + b"\r\n--b--\r\n", headers=headers
        )
        if answer.status_code != 409 or time.monotonic() > deadline:
            break
        time.sleep(min(5, int(answer.headers["retry-after"])))

    assert answer.status_code == 202, answer.text
    assert tenant.settle(answer.json()["id"], 60)["status"] == "ready"


def test_ctrl_c_hands_running_jobs_back_and_leaves_no_process(stackroom: Serving) -> None:
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    stackroom.provider(always="hold")
    document = tenant.text(kb, "handed back")
    stackroom.until_held()
    kin = stackroom.kin()

    code = stackroom.down()

    _, alive = psutil.wait_procs(kin, 20)
    assert code == 0, stackroom.log()
    assert [p for p in alive if p.is_running()] == []
    assert stackroom.database() == []
    stackroom.provider(always=None)
    stackroom.up()
    settled = tenant.settle(document["id"], 60)
    assert (settled["status"], settled["attempt"]) == ("ready", 1)


def test_the_supervisor_killed_takes_its_children_along_and_the_database_is_adopted(stackroom: Serving) -> None:
    tenant = stackroom.tenant()
    document = tenant.ready(tenant.knowledge_base(), "survives its supervisor")
    assert stackroom.serve is not None
    children = [*stackroom.api(), *stackroom.workers()]
    stackroom.serve.kill()
    stackroom.serve.wait(20)

    _, alive = psutil.wait_procs(children, 30)
    assert alive == []
    stackroom.up()
    assert tenant.client.get(f"/documents/{document['id']}").json() == document
    assert stackroom.down() == 0
    assert stackroom.database() == []


def test_two_workers_share_an_import_and_one_may_die() -> None:
    with serving("--workers", "2") as stackroom:
        stackroom.up()
        tenant = stackroom.tenant()
        kb = tenant.knowledge_base()
        client = Import(tenant, kb)
        client.start()
        time.sleep(1)
        assert len(stackroom.workers()) == 2
        stackroom.workers()[0].kill()
        client.join(120)

        assert_complete(stackroom, tenant, kb, client.made)
