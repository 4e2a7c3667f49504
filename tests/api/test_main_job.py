"""A document goes in, a search finds it: the whole way, from outside."""

from tests.service import Tenant

KEYS = {
    "id", "knowledge_base_id", "external_id", "name", "content_type", "size_bytes", "sha256", "revision",
    "live_revision", "status", "stage", "terminal", "searchable", "progress", "chunk_count", "error", "warnings",
    "attributes", "created_at", "updated_at",
}  # fmt: skip


def test_an_uploaded_file_is_found_by_meaning_and_by_word(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    body = b"# Whales\n\nThe blue whale sings below twenty hertz.\n\n# Bread\n\nSourdough rises slowly.\n"

    answer = tenant.upload(kb, "facts.md", body, attributes='{"topic": "animals"}')

    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/documents/{answer.json()['id']}"
    assert set(answer.json()) >= KEYS
    document = tenant.settle(answer.json()["id"])
    assert (document["status"], document["searchable"], document["live_revision"]) == ("ready", True, 1)
    assert document["content_type"] == "text/markdown"
    for mode in ("hybrid", "vector", "lexical"):
        found = tenant.search("blue whale", knowledge_base_ids=[kb], mode=mode)
        hit = found["hits"][0]
        assert hit["document_id"] == document["id"]
        assert "blue whale" in hit["text"]
        assert hit["attributes"] == {"topic": "animals"}
        assert found["degraded"] == []


def test_the_place_of_a_hit_is_exact(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    text = "# Ünïcode 😀\r\n\r\nGrüße aus Köln.\r\n\r\n## 日本語\r\n\r\n図書館は九時に開きます。\n" * 3
    document = tenant.ready(kb, text, content_type="text/markdown")

    stored = tenant.client.get(f"/documents/{document['id']}/text").json()["text"]
    chunks = tenant.client.get(f"/documents/{document['id']}/chunks").json()["items"]
    hits = tenant.search("図書館", knowledge_base_ids=[kb], mode="lexical")["hits"]

    assert chunks
    assert hits
    for chunk in chunks:
        assert stored[chunk["start"] : chunk["end"]] == chunk["text"]
    for hit in hits:
        assert stored[hit["location"]["start"] : hit["location"]["end"]] == hit["text"]


def test_the_original_bytes_come_back(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    body = "naïve\r\ncafé\n".encode("cp1252")
    document = tenant.settle(tenant.upload(kb, "old.txt", body, "text/plain").json()["id"])

    content = tenant.client.get(f"/documents/{document['id']}/content")

    assert content.content == body
    assert content.headers["content-disposition"].startswith("attachment")


def test_the_same_bytes_twice_are_one_document(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    first = tenant.upload(kb, "a.txt", b"the same words in two uploads")
    second = tenant.upload(kb, "b.txt", b"the same words in two uploads")

    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]


def test_the_same_bytes_at_the_same_time_are_one_document(tenant: Tenant) -> None:
    from concurrent.futures import ThreadPoolExecutor

    kb = tenant.knowledge_base()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: tenant.upload(kb, f"{n}.txt", b"raced bytes, all alike"), range(8)))

    assert sorted(a.status_code for a in answers) == [200] * 7 + [202]
    assert len({a.json()["id"] for a in answers}) == 1
    listed = tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"]
    assert len(listed) == 1


def test_an_external_id_makes_revisions_of_one_document(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    first = tenant.settle(tenant.text(kb, "apples are red", external_id="fruit")["id"])
    second = tenant.text(kb, "bananas are yellow", external_id="fruit")

    assert second["id"] == first["id"]
    assert second["revision"] == 2
    settled = tenant.until(first["id"], lambda d: d["live_revision"] == 2)
    assert settled["status"] == "ready"
    assert tenant.search("apples", knowledge_base_ids=[kb], mode="lexical")["hits"] == []
    assert tenant.search("bananas", knowledge_base_ids=[kb], mode="lexical")["hits"]
    again = tenant.text(kb, "bananas are yellow", external_id="fruit")
    assert again["revision"] == 2


def test_replacing_content_by_another_documents_bytes_is_refused_with_its_id(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    one = tenant.ready(kb, "number one")
    two = tenant.ready(kb, "number two")

    answer = tenant.client.put(f"/documents/{two['id']}/content", content=b"number one")

    assert answer.status_code == 409
    assert answer.json()["document_id"] == one["id"]
    assert tenant.client.put(f"/documents/{two['id']}/content", content=b"number three").status_code == 202


def test_an_idempotency_key_gets_the_first_answer_again(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    send = {"name": "n", "text": "sent once", "external_id": "x"}
    headers = {"Idempotency-Key": "abc-1"}
    first = tenant.client.post(f"/knowledge-bases/{kb}/documents/text", json=send, headers=headers)
    again = tenant.client.post(f"/knowledge-bases/{kb}/documents/text", json=send, headers=headers)
    other = tenant.client.post(
        f"/knowledge-bases/{kb}/documents/text", json={**send, "text": "something else"}, headers=headers
    )

    assert (first.status_code, again.status_code, other.status_code) == (202, 202, 422)
    assert again.json() == first.json()
    assert other.json()["code"] == "idempotency_mismatch"
    documents = tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"]
    assert [d["revision"] for d in documents] == [1]


def test_a_deleted_document_is_not_found_in_any_way_and_its_receipt_closes(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "ephemeral zebra")

    deleted = tenant.client.delete(f"/documents/{document['id']}")

    assert deleted.status_code == 202
    assert deleted.json()["receipt_id"]
    for path in ("", "/text", "/chunks", "/content"):
        assert tenant.client.get(f"/documents/{document['id']}{path}").status_code == 404
    assert tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"] == []
    for mode in ("hybrid", "vector", "lexical"):
        assert tenant.search("zebra", knowledge_base_ids=[kb], mode=mode)["hits"] == []
    assert _closes(tenant, document["id"])
    assert tenant.client.get(f"/knowledge-bases/{kb}").json()["document_counts"]["deleting"] == 0
    assert tenant.text(kb, "ephemeral zebra")["id"] != document["id"]


def test_a_deleted_knowledge_base_takes_its_documents_along(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "sunken treasure")

    assert tenant.client.delete(f"/knowledge-bases/{kb}").status_code == 202

    assert tenant.client.get(f"/knowledge-bases/{kb}").status_code == 404
    assert tenant.client.get(f"/documents/{document['id']}").status_code == 404
    assert tenant.search("treasure")["hits"] == []
    assert _closes(tenant, document["id"])


def test_a_document_is_embedded_again_and_stays_searchable(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "perennial lavender")

    assert tenant.client.post(f"/documents/{document['id']}/re-embed").status_code == 202

    assert tenant.search("lavender", knowledge_base_ids=[kb])["hits"]
    assert tenant.settle(document["id"])["status"] == "ready"


def test_attributes_and_name_change_by_merge_patch(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "patched text", attributes={"a": 1, "b": ["x"]})

    changed = tenant.client.patch(
        f"/documents/{document['id']}", json={"name": "new", "attributes": {"a": None, "c": True}}
    )

    assert changed.status_code == 200
    assert changed.json()["attributes"] == {"b": ["x"], "c": True}
    assert changed.json()["name"] == "new"


def test_events_end_when_the_document_is_terminal(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.text(kb, "watched pot")

    with tenant.client.stream("GET", f"/documents/{document['id']}/events") as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data:")]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert '"status":"ready"' in lines[-1]


def test_the_tool_finds_with_its_own_field_names(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    tenant.ready(kb, "tool users open nuts")

    answer = tenant.client.post("/tools/kb_search", json={"query": "nuts", "kb_ids": [kb], "limit": 1})

    assert answer.status_code == 200
    assert set(answer.json()) == {"results", "degraded"}
    assert set(answer.json()["results"][0]) == {
        "text", "document_id", "document_name", "knowledge_base_id", "location", "normalized_score",
    }  # fmt: skip


def _closes(tenant: Tenant, document_id: str) -> bool:
    import time

    for _ in range(200):
        answer = tenant.client.get(f"/documents/{document_id}/deletion")
        if answer.status_code == 200 and answer.json()["state"] == "closed":
            return all(store["remaining"] == 0 for store in answer.json()["stores"])
        time.sleep(0.1)
    return False
