"""A document's life as a caller sees it: uploads again, revisions, keys of idempotency, patches, deletion, lists."""

import hashlib
import itertools
import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.service import Service, Tenant

MODES = ("hybrid", "vector", "lexical")
_words = itertools.count(1)


def word() -> str:
    """A word that stands in no other document."""
    return f"zyx{next(_words)}q{uuid4().hex[:6]}"


def closes(tenant: Tenant, document_id: str, timeout_s: float = 30) -> bool:
    """Wait until the deletion's receipt is closed with nothing remaining."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        answer = tenant.client.get(f"/documents/{document_id}/deletion")
        assert answer.status_code == 200, answer.text
        if answer.json()["state"] == "closed":
            return all(store["remaining"] == 0 for store in answer.json()["stores"])
        time.sleep(0.05)
    return False


def found(tenant: Tenant, query: str, kb: str, mode: str = "lexical") -> list[str]:
    return [hit["document_id"] for hit in tenant.search(query, knowledge_base_ids=[kb], mode=mode, limit=50)["hits"]]


def uploads_of(service: Service, tenant: Tenant) -> int:
    """Uploads of the tenant that are on their way."""
    with psycopg.connect(service.database_url, autocommit=True) as connection:
        row = connection.execute(
            "select count(*) from pending_uploads where work_id = %s::uuid", (tenant.work_id,)
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def held(service: Service) -> Iterator[Service]:
    """The service with a provider that does not answer, until the test says so or ends: documents stay in process."""
    service.provider(always="hold")
    yield service
    service.provider(always=None)


# --- the same again


def test_text_and_file_with_the_same_bytes_are_one_document(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    first = tenant.text(kb, "the same bytes in two ways")
    second = tenant.upload(kb, "x.txt", b"the same bytes in two ways", "text/plain")

    assert second.status_code == 200
    assert second.json()["id"] == first["id"]
    assert second.json()["sha256"] == hashlib.sha256(b"the same bytes in two ways").hexdigest()


def test_the_same_bytes_in_two_knowledge_bases_are_two_documents(tenant: Tenant) -> None:
    one, two = tenant.knowledge_base(), tenant.knowledge_base()

    assert tenant.text(one, "shared bytes")["id"] != tenant.text(two, "shared bytes")["id"]


def test_two_external_ids_may_hold_the_same_bytes(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    one = tenant.text(kb, "twin bytes", external_id="a")
    two = tenant.text(kb, "twin bytes", external_id="b")
    plain = tenant.text(kb, "twin bytes")

    assert len({one["id"], two["id"], plain["id"]}) == 3
    for document in (one, two, plain):
        assert tenant.settle(document["id"])["status"] == "ready"


def test_the_same_external_id_at_the_same_time_is_one_document(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda n: tenant.text(kb, f"raced text {n}", external_id="race"), range(6)))

    assert len({a["id"] for a in answers}) == 1
    assert sorted(a["revision"] for a in answers) == [1, 2, 3, 4, 5, 6]
    newest = max(answers, key=lambda a: int(a["revision"]))
    settled = tenant.until(newest["id"], lambda d: d["terminal"] and d["live_revision"] == 6)
    assert settled["sha256"] == newest["sha256"]
    text = tenant.client.get(f"/documents/{newest['id']}/text").json()
    assert hashlib.sha256(text["text"].encode()).hexdigest() == newest["sha256"]


def test_a_sync_client_finds_its_documents_by_key_hash_name_and_status(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    wanted = tenant.ready(kb, "findable by its key", name="Wanted", external_id="dir/a b&c.md")
    tenant.ready(kb, "another one", name="Other", external_id="dir/x.md")
    failed = tenant.settle(tenant.upload(kb, "none.txt", b"").json()["id"])

    def ids(**query: str) -> list[str]:
        answer = tenant.client.get(f"/knowledge-bases/{kb}/documents", params=query)
        assert answer.status_code == 200, answer.text
        return [d["id"] for d in answer.json()["items"]]

    assert ids(external_id="dir/a b&c.md") == [wanted["id"]]
    assert ids(sha256=wanted["sha256"]) == [wanted["id"]]
    assert ids(name="Wanted") == [wanted["id"]]
    assert ids(status="failed") == [failed["id"]]
    assert ids(status="ready", external_id="dir/x.md", sha256=wanted["sha256"]) == []
    assert ids(external_id="no such") == []


def test_an_older_revision_answers_until_the_newer_is_ready(held: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    held.provider(always=None)
    old, new = word(), word()
    document = tenant.ready(kb, f"about {old}", external_id="k")
    held.provider(always="hold")

    replaced = tenant.text(kb, f"about {new}", external_id="k")
    tenant.until(document["id"], lambda d: d["stage"] == "embedding")

    assert (replaced["revision"], replaced["live_revision"], replaced["searchable"]) == (2, 1, True)
    assert found(tenant, old, kb) == [document["id"]]
    assert found(tenant, new, kb) == []
    text = tenant.client.get(f"/documents/{document['id']}/text").json()
    assert (text["revision"], old in text["text"]) == (1, True)
    assert tenant.client.get(f"/documents/{document['id']}/content").text == f"about {new}"
    held.provider(always=None)
    tenant.until(document["id"], lambda d: d["live_revision"] == 2, 60)
    assert (found(tenant, old, kb), found(tenant, new, kb)) == ([], [document["id"]])


def test_an_older_revision_stays_searchable_when_the_newer_fails(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    old = word()
    document = tenant.ready(kb, f"about {old}", external_id="k")

    tenant.client.put(f"/documents/{document['id']}/content", content=b"  \n ")
    settled = tenant.until(document["id"], lambda d: d["terminal"] and d["revision"] == 2)

    assert (settled["status"], settled["error"]["code"]) == ("failed", "no_text")
    assert (settled["searchable"], settled["live_revision"]) == (True, 1)
    for mode in MODES:
        assert found(tenant, old, kb, mode) == [document["id"]]
    assert old in tenant.client.get(f"/documents/{document['id']}/text").json()["text"]
    mended = tenant.client.put(f"/documents/{document['id']}/content", content=b"mended words")
    assert mended.status_code == 202
    assert tenant.until(document["id"], lambda d: d["live_revision"] == 3)["status"] == "ready"


def test_replacing_by_the_bytes_it_has_changes_nothing(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "unchanged bytes")

    answer = tenant.client.put(f"/documents/{document['id']}/content", content=b"unchanged bytes")

    assert answer.status_code == 200
    assert tenant.client.get(f"/documents/{document['id']}").json() == document


def test_a_replaced_document_lets_its_old_bytes_be_uploaded_anew(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "bytes that move on")
    tenant.client.put(f"/documents/{document['id']}/content", content=b"other bytes now")
    tenant.until(document["id"], lambda d: d["live_revision"] == 2)

    again = tenant.upload(kb, "x.txt", b"bytes that move on", "text/plain")

    assert again.status_code == 202
    assert again.json()["id"] != document["id"]


def test_a_refused_replacement_keeps_the_document_as_it_was(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    tenant.ready(kb, "taken bytes")
    document = tenant.ready(kb, "own bytes")

    assert tenant.client.put(f"/documents/{document['id']}/content", content=b"taken bytes").status_code == 409
    assert tenant.client.get(f"/documents/{document['id']}").json() == document
    assert tenant.client.get(f"/documents/{document['id']}/content").content == b"own bytes"


# --- Idempotency-Key


def post_text(tenant: Tenant, kb: str, key: str, **fields: Any) -> Any:
    body = {"name": "n", "text": "t", **fields}
    return tenant.client.post(f"/knowledge-bases/{kb}/documents/text", json=body, headers={"Idempotency-Key": key})


def test_the_same_request_again_gets_the_first_answer_again_word_for_word(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    first = post_text(tenant, kb, "k1", text="asked twice")
    tenant.settle(first.json()["id"])
    again = post_text(tenant, kb, "k1", text="asked twice")

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]


@pytest.mark.parametrize(
    "change", [{"text": "other"}, {"name": "other"}, {"external_id": "other"}, {"attributes": {"a": 1}}]
)
def test_another_request_under_the_same_key_is_422(tenant: Tenant, change: dict[str, Any]) -> None:
    kb = tenant.knowledge_base()
    assert post_text(tenant, kb, "k1", text="first", name="n").status_code == 202

    other = post_text(tenant, kb, "k1", **{"text": "first", "name": "n", **change})

    assert other.status_code == 422
    assert other.json()["code"] == "idempotency_mismatch"
    assert len(tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"]) == 1


def test_a_key_belongs_to_its_caller_and_route(service: Service, tenant: Tenant) -> None:
    kb, other_kb = tenant.knowledge_base(), tenant.knowledge_base()
    stranger = service.tenant()
    first = post_text(tenant, kb, "shared-key", text="mine")

    assert post_text(stranger, stranger.knowledge_base(), "shared-key", text="theirs").status_code == 202
    assert post_text(tenant, other_kb, "shared-key", text="elsewhere").status_code == 202
    replaced = tenant.client.put(
        f"/documents/{first.json()['id']}/content", content=b"new", headers={"Idempotency-Key": "shared-key"}
    )
    assert replaced.status_code == 202


def test_the_key_works_for_files_and_replacements_too(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    headers = {"Idempotency-Key": "f1"}
    url = f"/knowledge-bases/{kb}/documents"
    sent = [tenant.client.post(url, files={"file": ("a.txt", b"file bytes")}, headers=headers) for _ in range(2)]
    other = tenant.client.post(url, files={"file": ("a.txt", b"other bytes")}, headers=headers)
    document = tenant.settle(sent[0].json()["id"])
    content = f"/documents/{document['id']}/content"
    put = [tenant.client.put(content, content=b"replaced", headers={"Idempotency-Key": "p1"}) for _ in range(2)]

    assert [a.status_code for a in (*sent, other)] == [202, 202, 422]
    assert sent[0].json() == sent[1].json()
    assert [a.status_code for a in put] == [202, 202]
    assert put[0].json() == put[1].json()
    assert put[0].json()["revision"] == 2


def test_a_key_whose_first_request_is_running_is_409_with_retry_after(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    host, _, port = service.url.removeprefix("http://").partition(":")
    head = (
        f"POST /v1/knowledge-bases/{kb}/documents HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: {tenant.client.headers['authorization']}\r\nIdempotency-Key: slow\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 5000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nwords'
    ).encode()
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head)
        deadline = time.monotonic() + 10
        while not uploads_of(service, tenant) and time.monotonic() < deadline:
            time.sleep(0.05)
        answer = tenant.client.post(
            f"/knowledge-bases/{kb}/documents",
            files={"file": ("a.txt", b"the same key meanwhile")},
            headers={"Idempotency-Key": "slow"},
        )
    assert answer.status_code == 409
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["code"] == "idempotency_running"

    deadline = time.monotonic() + 10
    while True:  # the first was cut off: the key is free again
        freed = tenant.client.post(
            f"/knowledge-bases/{kb}/documents",
            files={"file": ("a.txt", b"after the first was cut off")},
            headers={"Idempotency-Key": "slow"},
        )
        if freed.status_code != 409 or time.monotonic() > deadline:
            break
        time.sleep(0.1)
    assert freed.status_code == 202


def test_the_same_key_at_the_same_time_makes_one_document(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()

    with ThreadPoolExecutor(6) as pool:
        answers = list(
            pool.map(lambda _: post_text(tenant, kb, "raced", text="raced under one key", external_id="e"), range(6))
        )

    assert {a.status_code for a in answers} <= {202, 409}
    assert len({a.json()["id"] for a in answers if a.status_code == 202}) == 1
    listed = tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"]
    assert [d["revision"] for d in listed] == [1]


def test_a_refused_request_frees_its_key(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    url = f"/knowledge-bases/{kb}/documents"
    headers = {"Idempotency-Key": "free"}
    refused = tenant.client.post(url, files={"file": ("a.txt", b"x")}, data={"attributes": "[]"}, headers=headers)
    accepted = tenant.client.post(url, files={"file": ("a.txt", b"x")}, headers=headers)

    assert (refused.status_code, accepted.status_code) == (422, 202)


# --- patches


def test_a_merge_patch_changes_what_it_names_and_nothing_else(tenant: Tenant) -> None:
    kb = tenant.knowledge_base("Before", description="old", attributes={"keep": 1, "go": 2, "deep": {"a": 1, "b": 2}})
    before = tenant.client.get(f"/knowledge-bases/{kb}").json()

    patch = {"attributes": {"go": None, "new": [1], "deep": {"a": None}}}
    after = tenant.client.patch(
        f"/knowledge-bases/{kb}", content=json.dumps(patch), headers={"Content-Type": "application/merge-patch+json"}
    )

    assert after.status_code == 200, after.text
    assert after.json()["attributes"] == {"keep": 1, "deep": {"b": 2}, "new": [1]}
    assert {**after.json(), "attributes": {}, "updated_at": ""} == {**before, "attributes": {}, "updated_at": ""}
    assert after.json()["updated_at"] > before["updated_at"]
    assert tenant.client.patch(f"/knowledge-bases/{kb}", json={}).status_code == 200


def test_a_patched_attribute_and_name_are_searched_at_once(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "searched by attribute", attributes={"state": "draft"})
    draft = {"type": "eq", "key": "state", "value": "draft"}

    tenant.client.patch(f"/documents/{document['id']}", json={"name": "Renamed", "attributes": {"state": "final"}})

    assert tenant.search("searched", knowledge_base_ids=[kb], filter=draft)["hits"] == []
    hit = tenant.search("searched", knowledge_base_ids=[kb], filter={**draft, "value": "final"})["hits"][0]
    assert (hit["document_name"], hit["attributes"]) == ("Renamed", {"state": "final"})


def test_a_null_name_is_refused_or_changes_nothing(tenant: Tenant) -> None:
    document = tenant.ready(tenant.knowledge_base(), "named for good", name="Name")

    answer = tenant.client.patch(f"/documents/{document['id']}", json={"name": None})

    assert answer.status_code in (200, 422)
    assert tenant.client.get(f"/documents/{document['id']}").json()["name"] == "Name"


# --- trying again


def test_what_is_ready_cannot_be_retried_and_what_is_in_process_cannot_be_embedded_again(
    held: Service, tenant: Tenant
) -> None:
    kb = tenant.knowledge_base()
    working = tenant.text(kb, f"never done {word()}")
    tenant.until(working["id"], lambda d: d["stage"] == "embedding")

    assert tenant.client.post(f"/documents/{working['id']}/re-embed").status_code == 409
    assert tenant.client.post(f"/documents/{working['id']}/retry").status_code == 409
    held.provider(always=None)
    assert tenant.settle(working["id"], 90)["status"] == "ready"
    assert tenant.client.post(f"/documents/{working['id']}/retry").status_code == 409


def test_a_retry_answers_the_document_queued_without_its_error(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.settle(tenant.upload(kb, "blank.txt", b" ", "text/plain").json()["id"])

    answer = tenant.client.post(f"/documents/{document['id']}/retry")

    assert answer.status_code == 202
    assert (answer.json()["status"], answer.json()["error"], answer.json()["terminal"]) == ("queued", None, False)
    assert tenant.settle(document["id"])["error"]["code"] == "no_text"


def test_embedding_again_keeps_one_set_of_chunks(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "\n\n".join(f"# Part {n}\n\n" + "anchor chain " * 200 for n in range(3)))
    for _ in range(2):
        assert tenant.client.post(f"/documents/{document['id']}/re-embed").status_code == 202
        settled = tenant.settle(document["id"])
        assert (settled["status"], settled["chunk_count"]) == ("ready", document["chunk_count"])
    for mode in MODES:
        hits = tenant.search("anchor chain", knowledge_base_ids=[kb], mode=mode, limit=50)["hits"]
        assert sorted(hit["chunk_index"] for hit in hits) == list(range(document["chunk_count"])), mode


# --- deletion


def test_a_document_deleted_in_process_never_comes_back(held: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    gone = word()
    document = tenant.text(kb, f"about {gone}")
    tenant.until(document["id"], lambda d: d["stage"] == "embedding")

    assert tenant.client.delete(f"/documents/{document['id']}").status_code == 202

    assert tenant.client.get(f"/documents/{document['id']}").status_code == 404
    counts = tenant.client.get(f"/knowledge-bases/{kb}").json()["document_counts"]
    assert {name: n for name, n in counts.items() if n} in ({"deleting": 1}, {})
    held.provider(always=None)
    assert closes(tenant, document["id"], 60)
    time.sleep(1)
    for mode in MODES:
        assert found(tenant, gone, kb, mode) == []
    assert tenant.client.get(f"/documents/{document['id']}").status_code == 404
    assert set(tenant.client.get(f"/knowledge-bases/{kb}").json()["document_counts"].values()) == {0}


def test_a_deleted_document_is_404_on_every_route_at_once_and_ends_its_events(held: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.text(kb, f"watched until deleted {word()}", external_id="again")
    url = f"/documents/{document['id']}"
    with tenant.client.stream("GET", f"{url}/events") as events:
        lines = events.iter_lines()
        assert "document" in next(lines)
        with held.client(tenant.client.headers["authorization"].removeprefix("Bearer ")) as second:
            assert second.delete(url).status_code == 202
            for method, path, body in (
                ("GET", "", {}),
                ("GET", "/text", {}),
                ("GET", "/chunks", {}),
                ("GET", "/content", {}),
                ("GET", "/events", {}),
                ("PATCH", "", {"json": {"name": "n"}}),
                ("PUT", "/content", {"content": b"x"}),
                ("POST", "/retry", {}),
                ("POST", "/re-embed", {}),
                ("DELETE", "", {}),
            ):
                answer = second.request(method, url + path, **body)
                assert answer.status_code == 404, (method, path)
            assert second.post("/search", json={"query": "x", "document_ids": [document["id"]]}).status_code == 404
            listed = second.get(f"/knowledge-bases/{kb}/documents", params={"external_id": "again"}).json()
            assert listed["items"] == []
        assert any("deleted" in line for line in lines)
    fresh = tenant.text(kb, "a new one under the old key", external_id="again")
    assert fresh["id"] != document["id"]


def test_a_receipt_stays_readable_after_it_closed(tenant: Tenant) -> None:
    document = tenant.ready(tenant.knowledge_base(), f"kept on record {word()}")
    tenant.client.delete(f"/documents/{document['id']}")

    assert closes(tenant, document["id"])
    state = tenant.client.get(f"/documents/{document['id']}/deletion").json()
    assert state["state"] == "closed"
    assert [store["vector_store_id"] for store in state["stores"]] == ["pgvector"]


def test_the_deletion_of_a_document_that_is_not_deleted_is_404(tenant: Tenant) -> None:
    document = tenant.ready(tenant.knowledge_base(), f"alive {word()}")

    assert tenant.client.get(f"/documents/{document['id']}/deletion").status_code == 404


def test_nothing_of_a_deleted_document_stays_on_disk_or_in_a_table(service: Service, tenant: Tenant) -> None:
    document = tenant.ready(tenant.knowledge_base(), f"leave no trace {word()}")
    blobs = service.data_dir / "blobs" / tenant.work_id
    assert [p for p in blobs.rglob("*") if p.is_file()]
    tenant.client.delete(f"/documents/{document['id']}")
    assert closes(tenant, document["id"])

    deadline = time.monotonic() + 20
    while [p for p in blobs.rglob("*") if p.is_file()] and time.monotonic() < deadline:
        time.sleep(0.1)

    assert [p for p in blobs.rglob("*") if p.is_file()] == []
    with psycopg.connect(service.database_url, autocommit=True) as connection:
        for table in (
            "kb_documents",
            "kb_revisions",
            "kb_spans",
            "kb_terms",
            "work_knowledge_chunk_coordinates",
            "index_writes",
            "pgvector_chunks",
            "pending_uploads",
            "blob_deletions",
        ):
            row = connection.execute(
                f"select count(*) from {table} where work_id = %s::uuid".encode(), (tenant.work_id,)
            ).fetchone()
            assert row == (0,), table


def test_a_deleted_knowledge_base_refuses_uploads_and_vanishes_from_every_list(tenant: Tenant) -> None:
    kb, kept = tenant.knowledge_base("Doomed"), tenant.knowledge_base("Kept")
    gone = word()
    documents = [tenant.ready(kb, f"{gone} number {n}")["id"] for n in range(3)]
    stays = tenant.ready(kept, f"{gone} stays")["id"]

    answer = tenant.client.delete(f"/knowledge-bases/{kb}")

    assert answer.status_code == 202
    assert answer.json()["receipt_id"]
    assert tenant.client.delete(f"/knowledge-bases/{kb}").status_code == 404
    assert [k["id"] for k in tenant.client.get("/knowledge-bases").json()["items"]] == [kept]
    assert tenant.client.get(f"/knowledge-bases/{kb}/documents").status_code == 404
    assert tenant.client.patch(f"/knowledge-bases/{kb}", json={"name": "n"}).status_code == 404
    refused = tenant.client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "n", "text": "t"})
    assert refused.status_code == 404
    assert tenant.client.post("/search", json={"query": "x", "knowledge_base_ids": [kb]}).status_code == 404
    for mode in MODES:
        hits = tenant.search(gone, mode=mode, limit=50)["hits"]
        assert [hit["document_id"] for hit in hits] == [stays], mode
    for document in documents:
        assert tenant.client.get(f"/documents/{document}").status_code == 404
        for path in ("/text", "/chunks", "/content", "/events"):
            assert tenant.client.get(f"/documents/{document}{path}").status_code == 404
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        states = [tenant.client.get(f"/documents/{d}/deletion") for d in documents]
        if all(s.status_code == 200 and s.json()["state"] == "closed" for s in states):
            break
        time.sleep(0.1)
    assert [s.json()["state"] for s in states] == ["closed"] * 3


def test_a_knowledge_base_deleted_while_documents_are_in_process_takes_them_along(
    held: Service, tenant: Tenant
) -> None:
    kb = tenant.knowledge_base()
    document = tenant.text(kb, f"in process {word()}")
    waiting = tenant.text(kb, f"waiting {word()}")
    tenant.until(document["id"], lambda d: d["stage"] == "embedding")

    assert tenant.client.delete(f"/knowledge-bases/{kb}").status_code == 202
    held.provider(always=None)

    deadline = time.monotonic() + 60
    states: list[Any] = []
    while time.monotonic() < deadline:
        states = [tenant.client.get(f"/documents/{d['id']}/deletion") for d in (document, waiting)]
        if all(s.status_code == 200 and s.json()["state"] == "closed" for s in states):
            break
        time.sleep(0.1)
    assert [s.json().get("state") for s in states] == ["closed", "closed"]
    assert tenant.search("process")["hits"] == []


# --- lists


def test_documents_are_paged_without_loss_or_repeat_while_others_come_and_go(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    url = f"/knowledge-bases/{kb}/documents"
    first = [tenant.text(kb, f"page document {n} {word()}")["id"] for n in range(9)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        page = tenant.client.get(url, params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        assert len(page["items"]) <= 2
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        tenant.text(kb, f"one more {word()}")
        if len(seen) == 4:
            tenant.client.delete(f"/documents/{seen[0]}")
        if len(seen) > 40:
            break

    assert len(seen) == len(set(seen))
    assert [d for d in seen if d in first] == first


def test_chunks_are_paged_in_the_order_of_the_text(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    text = "\n\n".join(f"# Part {n}\n\n" + f"paragraph {n} of a long text. " * 80 for n in range(7))
    document = tenant.ready(kb, text, content_type="text/markdown")
    url = f"/documents/{document['id']}/chunks"
    seen: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = tenant.client.get(url, params={"limit": 3, **({"cursor": cursor} if cursor else {})}).json()
        seen += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    stored = tenant.client.get(f"/documents/{document['id']}/text").json()["text"]
    assert [c["chunk_index"] for c in seen] == list(range(document["chunk_count"]))
    assert all(stored[c["start"] : c["end"]] == c["text"] for c in seen)
    assert all(c["text"].strip() for c in seen)
    assert sum(c["token_count"] for c in seen) > 0
    assert all(c["token_count"] <= 512 for c in seen)


def test_a_page_that_is_exactly_full_ends_without_an_empty_one(tenant: Tenant) -> None:
    for n in range(4):
        tenant.knowledge_base(f"kb {n}")
    page = tenant.client.get("/knowledge-bases", params={"limit": 2}).json()
    last = tenant.client.get("/knowledge-bases", params={"limit": 2, "cursor": page["next_cursor"]}).json()

    assert (len(page["items"]), len(last["items"]), last["next_cursor"]) == (2, 2, None)


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "eyJrIjoxfQ", "%00", "\U0001f600", "W251bGxd", "a" * 2049])
def test_a_cursor_that_we_did_not_give_is_422(service: Service, tenant: Tenant, cursor: str) -> None:
    kb = tenant.knowledge_base()
    for path in ("/knowledge-bases", f"/knowledge-bases/{kb}/documents", "/works", "/api-keys"):
        answer = tenant.client.get(path, params={"cursor": cursor})
        assert answer.status_code == 422, (path, answer.text)
        assert answer.json()["errors"][0]["loc"][:2] == ["query", "cursor"]


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1.5", "", "99999999999999999999"])
def test_a_limit_outside_1_to_200_is_422_on_every_list(tenant: Tenant, limit: str) -> None:
    kb = tenant.knowledge_base()
    for path in ("/knowledge-bases", f"/knowledge-bases/{kb}/documents", "/works", "/api-keys"):
        answer = tenant.client.get(path, params={"limit": limit})
        assert answer.status_code == 422, path
        assert answer.json()["errors"][0]["loc"] == ["query", "limit"]


def test_unknown_query_parameters_are_422_on_every_list(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    for path in ("/knowledge-bases", f"/knowledge-bases/{kb}/documents", "/works", "/api-keys"):
        answer = tenant.client.get(path, params={"colour": "red"})
        assert answer.status_code == 422, path


def test_a_list_shows_documents_from_upload_on_with_their_state(held: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.text(kb, f"visible from upload on {word()}")

    item = tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"][0]
    counts = tenant.client.get(f"/knowledge-bases/{kb}").json()["document_counts"]

    assert (item["id"], item["sha256"]) == (document["id"], document["sha256"])
    assert item["status"] in ("queued", "processing")
    assert counts["queued"] + counts["processing"] == 1
    held.provider(always=None)
    tenant.settle(document["id"], 90)


def test_events_tell_each_stage_and_end_with_failure(tenant: Tenant) -> None:
    document = tenant.upload(tenant.knowledge_base(), "blank.txt", b"\n", "text/plain").json()

    with tenant.client.stream("GET", f"/documents/{document['id']}/events") as answer:
        events = [json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:")]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (events[-1]["status"], events[-1]["terminal"], events[-1]["error"]["code"]) == ("failed", True, "no_text")
    assert all(not event["terminal"] for event in events[:-1])
    with tenant.client.stream("GET", f"/documents/{document['id']}/events") as again:
        assert len([line for line in again.iter_lines() if line.startswith("data:")]) == 1


def test_the_alias_of_uploads_does_the_same(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    answer = tenant.client.post(f"/knowledge-bases/{kb}/chunk", files={"file": ("a.txt", b"by another door")})

    assert answer.status_code == 202
    assert tenant.settle(answer.json()["id"])["status"] == "ready"
    assert tenant.upload(kb, "a.txt", b"by another door").status_code == 200


def test_a_download_is_an_attachment_under_its_own_name_and_never_sniffed(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    file = {"file": ("page.html", b"<script>alert(1)</script><p>words</p>", "text/html")}
    made = tenant.client.post(f"/knowledge-bases/{kb}/documents", files=file, data={"name": 'ü"\r\nx: y'})
    if made.status_code == 422:  # line ends in a name may be refused
        made = tenant.client.post(f"/knowledge-bases/{kb}/documents", files=file, data={"name": 'ü"; x: y'})
    content = tenant.client.get(f"/documents/{made.json()['id']}/content")

    assert content.headers["content-disposition"].startswith("attachment")
    assert content.headers["x-content-type-options"] == "nosniff"
    assert "x" not in content.headers
    assert content.content == b"<script>alert(1)</script><p>words</p>"
