"""The same service under other settings: a full disk, a tiny pool, small limits. A second API beside the first."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from app.plugins.registry import Registry
from tests.service import Service, Tenant, free_port, running_service


@contextmanager
def another_api(service: Service, name: str, **settings: str) -> Iterator[str]:
    """The address of a second API process on the same database and files."""
    port = free_port()
    service.start(name, "api", "--port", str(port), **settings)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                if httpx.get(f"{url}/readyz", timeout=2).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, (service.data_dir / f"{name}.log").read_text()[-2000:]
            time.sleep(0.05)
        yield url
    finally:
        process = service.processes.pop(name)
        process.terminate()
        process.wait(20)


def at(url: str, tenant: Tenant) -> httpx.Client:
    """The tenant's client, talking to another address."""
    return httpx.Client(base_url=f"{url}/v1", headers=tenant.client.headers, timeout=20)


def test_uploads_are_refused_while_the_disk_is_nearly_full_and_searches_go_on(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "found on a full disk")
    with (
        another_api(service, "full", KB_MIN_FREE_DISK_BYTES=str(10**16)) as url,
        at(url, tenant) as client,
    ):
        refused = [
            client.post(f"/knowledge-bases/{kb}/documents", files={"file": ("a.txt", b"x")}),
            client.post(f"/knowledge-bases/{kb}/chunk", files={"file": ("a.txt", b"x")}),
            client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "n", "text": "t"}),
            client.put(f"/documents/{document['id']}/content", content=b"x"),
        ]
        for mode in ("hybrid", "vector", "lexical"):
            found = client.post("/search", json={"query": "full disk", "mode": mode, "knowledge_base_ids": [kb]})
            assert [hit["document_id"] for hit in found.json()["hits"]] == [document["id"]]
        assert client.get(f"/documents/{document['id']}/text").status_code == 200
        assert client.get(f"/documents/{document['id']}/content").status_code == 200
        assert client.patch(f"/documents/{document['id']}", json={"name": "renamed"}).status_code == 200
        assert client.delete(f"/documents/{document['id']}").status_code == 202
        assert httpx.get(f"{url}/readyz").status_code == 200

    for answer in refused:
        assert answer.status_code == 507
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "storage_full"


def half_upload(url: str, tenant: Tenant, kb: str) -> socket.socket:
    """A connection that has sent half of a file."""
    host, _, port = url.removeprefix("http://").partition(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(
        (
            f"POST /v1/knowledge-bases/{kb}/documents HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: {tenant.client.headers['authorization']}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000000\r\n\r\n"
            '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n' + "x" * 100_000
        ).encode()
    )
    return connection


def open_transactions(service: Service) -> int:
    """Transactions that somebody of ours has open right now."""
    with psycopg.connect(service.database_url, autocommit=True) as connection:
        row = connection.execute(
            "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and xact_start is not null and application_name like 'stackroom%'"
        ).fetchone()
    assert row is not None
    return int(row[0])


def lowest(service: Service, looks: int = 8) -> int:
    """The fewest open transactions of several looks: what is held stays, what passes by does not."""
    seen = []
    for _ in range(looks):
        time.sleep(0.05)
        seen.append(open_transactions(service))
    return min(seen)


def test_no_transaction_is_open_while_bytes_are_on_their_way(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(half_upload(service.url, tenant, kb))
        time.sleep(0.3)
        assert lowest(service) == 0


@pytest.mark.parametrize("mode", ["hybrid", "vector"])
def test_no_transaction_is_open_while_a_question_is_embedded(service: Service, tenant: Tenant, mode: str) -> None:
    kb = tenant.knowledge_base()
    tenant.ready(kb, "embedded without a transaction")
    service.provider(always="hold")
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(
                tenant.client.post,
                "/search",
                json={"query": f"held {uuid4().hex}", "knowledge_base_ids": [kb], "mode": mode},
            )
            service.until_held()
            held = lowest(service)
            service.provider(always=None)
            assert asked.result(20).status_code == 200
    finally:
        service.provider(always=None)
    assert held == 0


def test_no_transaction_is_open_while_a_document_is_embedded(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    service.provider(always="hold")
    try:
        document = tenant.text(kb, f"held in the worker {uuid4().hex}")
        service.until_held()
        held = lowest(service)
    finally:
        service.provider(always=None)
    assert held == 0
    assert tenant.settle(document["id"])["status"] == "ready"


def test_one_connection_is_enough_for_many_slow_uploads_and_searches(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "served by one connection")
    tiny = {"KB_DATABASE_POOL_SIZE": "1", "KB_DATABASE_MAX_OVERFLOW": "0", "KB_DATABASE_POOL_TIMEOUT_S": "8"}
    with another_api(service, "tiny", **tiny) as url, at(url, tenant) as client, ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(half_upload(url, tenant, kb))
        service.provider(always="hold")
        stack.callback(service.provider, always=None)
        pool = stack.enter_context(ThreadPoolExecutor(5))
        asked: list[Any] = [
            pool.submit(client.post, "/search", json={"query": f"held {n} {uuid4().hex}", "knowledge_base_ids": [kb]})
            for n in range(5)
        ]
        service.until_held()
        answers = [client.get(f"/documents/{document['id']}") for _ in range(5)]
        service.provider(always=None)
        found = [search.result(20) for search in asked]

    assert [answer.status_code for answer in answers] == [200] * 5
    assert [answer.status_code for answer in found] == [200] * 5


def test_an_exhausted_pool_is_503_with_retry_after_and_recovers(service: Service, tenant: Tenant) -> None:
    """The only connection waits for a row that somebody else has locked."""
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "locked for a while")
    tiny = {"KB_DATABASE_POOL_SIZE": "1", "KB_DATABASE_MAX_OVERFLOW": "0", "KB_DATABASE_POOL_TIMEOUT_S": "1"}
    with another_api(service, "locked", **tiny) as url, at(url, tenant) as client:
        with psycopg.connect(service.database_url) as other, ThreadPoolExecutor(1) as pool:
            other.execute("select 1 from kb_documents where id = %s::uuid for update", (document["id"],))
            waiting = pool.submit(client.patch, f"/documents/{document['id']}", json={"name": "after the lock"})
            time.sleep(0.5)
            refused = client.patch(f"/knowledge-bases/{kb}", json={"name": "no connection"})
            other.rollback()
            assert waiting.result(20).status_code == 200
        assert refused.status_code == 503, refused.text
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["content-type"] == "application/problem+json"
        assert client.patch(f"/knowledge-bases/{kb}", json={"name": "again"}).status_code == 200


def test_without_a_setting_no_origin_gets_headers(service: Service) -> None:
    with another_api(service, "plain", KB_CORS_ORIGINS="") as url:
        answer = httpx.get(f"{url}/healthz", headers={"Origin": "https://chat.example"})

    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("KB_CORS_ORIGINS", "*"),
        ("KB_VECTOR_STORE_PROVIDER_ID", "no-such-store"),
        ("KB_EMBEDDING_PROVIDER_ID", "no-such-provider"),
        ("KB_DISABLED_PLUGINS", ",".join(plugin.manifest.id for plugin in Registry.discover().plugins("vector-store"))),
        ("KB_CHUNK_SIZE_TOKENS", "1"),
        ("KB_CHUNK_OVERLAP_TOKENS", "512"),
        ("KB_SECRET_KEYS", "not-a-key"),
        ("KB_DATABASE_URL", "mysql://somewhere/else"),
    ],
)
def test_a_setting_that_cannot_work_refuses_the_start_with_a_sentence(
    service: Service, setting: str, value: str
) -> None:
    name = f"refused-{setting}-{abs(hash(value))}"
    service.start(name, "api", "--port", str(free_port()), **{setting: value})
    process = service.processes.pop(name)
    try:
        code = process.wait(40)
    finally:
        process.kill()
    said = (service.data_dir / f"{name}.log").read_text()

    assert code not in (0, None)
    assert "Traceback" not in said, said[-1500:]
    assert setting in said or value in said
    assert len(said.strip()) > 20
    assert "of-the-tests" not in said


@pytest.fixture(scope="module")
def library() -> Iterator[tuple[Tenant, str, dict[str, str]]]:
    """Documents in a service with the packaged model: no provider outside."""
    texts = {
        "baker": "The bakery on the corner sells rye bread and rolls from six in the morning.",
        "arzt": "Die Sprechstunde der Ärztin beginnt montags um acht, Rezepte gibt es an der Anmeldung.",
        "river": "After the heavy rain the river rose and flooded the lower meadows.",
        "図書": "図書館の本は二週間借りることができます。",
    }
    with running_service(
        KB_EMBEDDING_PROVIDER_ID="local",
        KB_EMBEDDING_MODEL="multilingual-e5-small",
        KB_EMBEDDING_DIMENSIONS="384",
    ) as packaged:
        tenant = packaged.tenant()
        kb = tenant.knowledge_base()
        made = {name: tenant.text(kb, text, name=name)["id"] for name, text in texts.items()}
        for document in made.values():
            assert tenant.settle(document, 90)["status"] == "ready"
        yield tenant, kb, made


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("where can I buy something for breakfast", "baker"),
        ("when does the doctor see patients", "arzt"),
        ("Hochwasser nach Unwetter", "river"),
        ("how long may I keep a borrowed book", "図書"),
    ],
)
def test_the_packaged_model_finds_meaning_across_words_and_languages(library: Any, query: str, name: str) -> None:
    tenant, kb, made = library
    for mode in ("vector", "hybrid"):
        hit = tenant.search(query, knowledge_base_ids=[kb], mode=mode)["hits"][0]
        assert hit["document_id"] == made[name], mode
        assert hit["confidence"] is not None


def test_the_packaged_models_confidence_tells_related_from_unrelated(library: Any) -> None:
    tenant, kb, made = library
    hits = tenant.search("rye bread and rolls", knowledge_base_ids=[kb], mode="vector", limit=4)["hits"]
    sure = {hit["document_id"]: hit["confidence"] for hit in hits}

    assert sure[made["baker"]] > 0.3
    assert sure[made["baker"]] > 2 * sure[made["river"]]
    strict = tenant.search("rye bread and rolls", knowledge_base_ids=[kb], mode="vector", min_score=0.3)
    assert [hit["document_id"] for hit in strict["hits"]] == [made["baker"]]


def test_the_answer_names_the_packaged_model(library: Any) -> None:
    tenant, kb, _ = library
    index = tenant.search("bread", knowledge_base_ids=[kb])["index"]

    assert (index["embedding_model"], index["dims"]) == ("multilingual-e5-small", 384)
    assert index["vector_store_id"] == "pgvector"
