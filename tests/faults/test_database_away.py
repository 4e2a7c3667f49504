"""The database is away for half a minute: 503 with Retry-After, then everything goes on by itself."""

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import psutil
import psycopg
import pytest

from app.db.embedded import EmbeddedServer
from tests.faults.serving import Serving, assert_consistent, serving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(300)]
AWAY_S = 30


@dataclass
class OnOwnDatabase:
    """A running service and the database server that it knows by its URL only."""

    serving: Serving
    server: EmbeddedServer
    url: str

    def postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.server.directory / "postmaster.pid").read_text().splitlines()[0]))


@pytest.fixture
def own_database() -> Iterator[OnOwnDatabase]:
    with serving() as made:
        place = made.data_dir / "elsewhere"
        place.mkdir()
        server = EmbeddedServer(place)
        url = server.start()
        made.extra["KB_DATABASE_URL"] = url
        try:
            made.up()
            yield OnOwnDatabase(made, server, url)
        finally:
            if made.serve is not None and made.serve.poll() is None:
                made.kill_everything()
            server.stop()


def asked(stackroom: Serving, key: str, kb: str) -> list[httpx.Response]:
    """One request of each kind."""
    answers = []
    with httpx.Client(base_url=f"{stackroom.url}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=15) as client:
        answers += [
            client.get("/me"),
            client.get(f"/knowledge-bases/{kb}"),
            client.post("/search", json={"query": "anything", "knowledge_base_ids": [kb]}),
            client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "n", "text": "t"}),
            client.post(f"/knowledge-bases/{kb}/documents", files={"file": ("a.txt", b"x")}),
        ]
    return answers


@pytest.mark.parametrize("how", ["stopped", "killed", "frozen"])
def test_requests_are_503_with_retry_after_and_recover_by_themselves(own_database: OnOwnDatabase, how: str) -> None:
    stackroom = own_database.serving
    tenant = stackroom.tenant()
    kb = tenant.knowledge_base()
    key = tenant.client.headers["authorization"].removeprefix("Bearer ")
    ready = tenant.ready(kb, "there before and after")
    stackroom.provider(always="hold")
    running = tenant.text(kb, "in process when the database goes")
    stackroom.until_held()
    postmaster = own_database.postmaster()
    kin = [postmaster, *postmaster.children(recursive=True)]
    if how == "stopped":
        postmaster.send_signal(signal.SIGINT)
        postmaster.wait(30)
    elif how == "killed":
        for process in kin:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(kin, 20)
    else:
        for process in kin:
            with contextlib.suppress(psutil.Error):
                process.suspend()
    began = time.monotonic()
    stackroom.provider(always=None)
    try:
        if how != "frozen":  # a frozen database makes each of them wait for its time limit
            for answer in asked(stackroom, key, kb):
                assert answer.status_code == 503, answer.text
                assert int(answer.headers["retry-after"]) >= 1
                assert answer.headers["content-type"] == "application/problem+json"
                assert "psycopg" not in answer.text
                assert str(stackroom.data_dir) not in answer.text
            assert httpx.get(f"{stackroom.url}/readyz", timeout=20).status_code == 503
        assert httpx.get(f"{stackroom.url}/healthz", timeout=5).status_code == 200
        time.sleep(max(0.0, AWAY_S - (time.monotonic() - began)))
    finally:
        if how == "frozen":
            for process in kin:
                with contextlib.suppress(psutil.Error):
                    process.resume()
        else:
            own_database.server.start()

    stackroom.wait_until_ready(60)
    assert tenant.client.get(f"/documents/{ready['id']}").json() == ready
    assert tenant.settle(running["id"], 90)["status"] == "ready"
    fresh = tenant.settle(tenant.text(kb, "after the database came back")["id"], 60)
    assert fresh["status"] == "ready"
    hits = tenant.search("before and after", knowledge_base_ids=[kb], mode="lexical")["hits"]
    assert ready["id"] in [hit["document_id"] for hit in hits]
    assert_consistent(own_database.url)
    assert [p.pid for p in [*stackroom.api(), *stackroom.workers()] if not p.is_running()] == []


def test_connections_that_the_server_drops_cost_no_request_after_the_first(own_database: OnOwnDatabase) -> None:
    """As after a failover: every session is ended, the server answers at once."""
    tenant = own_database.serving.tenant()
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "after a failover")
    with psycopg.connect(own_database.url, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
    codes = [tenant.client.get(f"/documents/{document['id']}").status_code for _ in range(30)]

    assert set(codes) <= {200, 503}
    assert codes[-5:] == [200] * 5
    assert tenant.settle(tenant.text(kb, "written after a failover")["id"], 60)["status"] == "ready"


def test_a_port_that_swallows_connections_is_503_within_a_few_seconds() -> None:
    """A firewall that drops: the connection is neither made nor refused."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        fillers = []
        for _ in range(4):  # the queue of pending connections is full from here on
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(("127.0.0.1", port))
            fillers.append(filler)
        with serving() as stackroom:
            environment = {**stackroom.environment(), "KB_DATABASE_URL": f"postgresql://u@127.0.0.1:{port}/d"}
            stackroom.extra.update(environment)
            stackroom.start("api", "api", "--port", str(stackroom.port), **environment)
            deadline = time.monotonic() + 60
            while True:
                with contextlib.suppress(httpx.HTTPError):
                    if httpx.get(f"{stackroom.url}/healthz", timeout=2).status_code == 200:
                        break
                assert time.monotonic() < deadline, (stackroom.data_dir / "api.log").read_text()[-2000:]
                time.sleep(0.1)
            answers: list[httpx.Response] = []

            def ask() -> None:
                answers.append(
                    httpx.get(
                        f"{stackroom.url}/v1/me",
                        headers={"Authorization": "Bearer " + "k" * 40},
                        timeout=30,
                    )
                )

            threads = [threading.Thread(target=ask) for _ in range(5)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(40)
        for filler in fillers:
            filler.close()

    assert [answer.status_code for answer in answers] == [503] * 5
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
