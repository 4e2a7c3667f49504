"""The shapes that clients and measuring tools rely on: fields may be added, none of these may go or change its type."""

from typing import Any

import httpx
import pytest

from tests.service import Service, Tenant

Number = (int, float)
NoneType = type(None)
UTC_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"

KNOWLEDGE_BASE: dict[str, Any] = {
    "id": str,
    "work_id": str,
    "owner": {"type": str, "id": str},
    "name": str,
    "description": str,
    "attributes": dict,
    "document_counts": {"queued": int, "processing": int, "ready": int, "failed": int, "deleting": int},
    "created_at": str,
    "updated_at": str,
}
DOCUMENT: dict[str, Any] = {
    "id": str,
    "knowledge_base_id": str,
    "external_id": (str, NoneType),
    "name": str,
    "content_type": str,
    "size_bytes": int,
    "sha256": str,
    "revision": int,
    "live_revision": (int, NoneType),
    "status": str,
    "stage": (str, NoneType),
    "terminal": bool,
    "searchable": bool,
    "progress": {"chunks_done": int, "chunks_total": int},
    "chunk_count": int,
    "error": (dict, NoneType),
    "warnings": list,
    "attributes": dict,
    "created_at": str,
    "updated_at": str,
}
CHUNK: dict[str, Any] = {
    "chunk_index": int,
    "text": str,
    "start": int,
    "end": int,
    "page": (int, NoneType),
    "heading_path": list,
    "token_count": int,
}
LOCATION: dict[str, Any] = {
    "start": (int, NoneType),
    "end": (int, NoneType),
    "page": (int, NoneType),
    "heading_path": list,
}
HIT: dict[str, Any] = {
    "document_id": str,
    "document_name": str,
    "knowledge_base_id": str,
    "chunk_index": int,
    "text": str,
    "score": Number,
    "normalized_score": (int, float, NoneType),
    "confidence": (int, float, NoneType),
    "raw_score": (int, float, NoneType),
    "ranks": dict,
    "location": LOCATION,
    "attributes": dict,
}
SEARCH: dict[str, Any] = {
    "query": str,
    "mode": str,
    "hits": [HIT],
    "legs": list,
    "degraded": list,
    "index": {"generation_id": str, "vector_store_id": str, "embedding_model": str, "dims": int},
    "took_ms": Number,
}
TOOL: dict[str, Any] = {
    "results": [
        {
            "text": str,
            "document_id": str,
            "document_name": str,
            "knowledge_base_id": str,
            "location": LOCATION,
            "normalized_score": (int, float, NoneType),
        }
    ],
    "degraded": list,
}
PLUGIN: dict[str, Any] = {
    "id": str,
    "name": str,
    "version": str,
    "category": str,
    "distribution": str,
    "system_plugin": bool,
    "available": bool,
    "reason": (str, NoneType),
    "capabilities": dict,
    "settings_schema": dict,
    "extra": (str, NoneType),
    "tested_against": str,
}
GENERATION: dict[str, Any] = {
    "id": str,
    "number": int,
    "state": str,
    "vector_store_id": (str, NoneType),
    "embedding_mode": (str, NoneType),
    "embedding_provider_id": (str, NoneType),
    "embedding_model": (str, NoneType),
    "dims": (int, NoneType),
    "documents_done": int,
    "documents_total": int,
    "documents_refused": int,
    "error": (str, NoneType),
    "created_at": str,
    "activated_at": (str, NoneType),
}
PROBLEM: dict[str, Any] = {
    "type": str,
    "title": str,
    "status": int,
    "detail": str,
    "code": str,
    "request_id": str,
}


def assert_has(value: Any, shape: Any, path: str = "$") -> None:
    """The value has every field of the shape, with the right type; more fields are welcome."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), path
        assert set(shape) <= set(value), f"{path} lacks {set(shape) - set(value)}"
        for key, inner in shape.items():
            assert_has(value[key], inner, f"{path}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), path
        assert value, f"{path} is empty"
        for number, inner in enumerate(value):
            assert_has(inner, shape[0], f"{path}[{number}]")
    else:
        assert isinstance(value, shape), f"{path} is {value!r}"
        assert not (isinstance(value, bool) and shape in (int, Number)), f"{path} is {value!r}"


class Shelf:
    """A knowledge base with one ready document."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.kb = tenant.knowledge_base("Shapes", description="of answers", attributes={"a": 1})
        self.document = tenant.ready(self.kb, "# Cranes\n\nCranes fold well.\n", content_type="text/markdown")

    def get(self, path: str) -> Any:
        answer = self.tenant.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def shelf(service: Service) -> Shelf:
    return Shelf(service.tenant())


def test_a_knowledge_base_is_answered_alike_by_create_get_list_and_patch(shelf: Shelf) -> None:
    created = shelf.tenant.client.post("/knowledge-bases", json={"name": "K"})
    patched = shelf.tenant.client.patch(f"/knowledge-bases/{shelf.kb}", json={"description": "changed"})
    listed = shelf.get("/knowledge-bases")

    assert created.status_code == 201
    assert_has(created.json(), KNOWLEDGE_BASE)
    assert created.json()["owner"] == {"type": "user", "id": shelf.tenant.user_id}
    assert created.json()["work_id"] == shelf.tenant.work_id
    assert (created.json()["description"], created.json()["attributes"]) == ("", {})
    assert set(created.json()["document_counts"].values()) == {0}
    assert_has(patched.json(), KNOWLEDGE_BASE)
    assert_has(listed, {"items": [KNOWLEDGE_BASE], "next_cursor": (str, NoneType)})
    assert shelf.get(f"/knowledge-bases/{shelf.kb}") == patched.json()
    assert patched.json()["document_counts"]["ready"] == 1


def test_a_document_is_answered_alike_by_upload_get_and_list(shelf: Shelf) -> None:
    uploaded = shelf.tenant.upload(shelf.kb, "a.txt", b"shaped bytes", "text/plain")
    texted = shelf.tenant.client.post(
        f"/knowledge-bases/{shelf.kb}/documents/text", json={"name": "t", "text": "shaped text"}
    )
    document = shelf.get(f"/documents/{shelf.document['id']}")
    listed = shelf.get(f"/knowledge-bases/{shelf.kb}/documents")

    for answer in (uploaded, texted):
        assert answer.status_code == 202
        assert_has(answer.json(), DOCUMENT)
        assert answer.headers["location"] == f"/v1/documents/{answer.json()['id']}"
        assert answer.json()["status"] == "queued"
        assert (answer.json()["revision"], answer.json()["live_revision"]) == (1, None)
        assert (answer.json()["terminal"], answer.json()["searchable"]) == (False, False)
    assert uploaded.json()["size_bytes"] == len(b"shaped bytes")
    assert_has(document, DOCUMENT)
    assert_has(listed, {"items": [DOCUMENT], "next_cursor": (str, NoneType)})
    assert (document["status"], document["terminal"], document["searchable"]) == ("ready", True, True)
    assert document["progress"]["chunks_done"] == document["progress"]["chunks_total"] == document["chunk_count"] == 1
    assert document["error"] is None


def test_a_failed_document_says_why_in_three_fields(shelf: Shelf) -> None:
    document = shelf.tenant.settle(shelf.tenant.upload(shelf.kb, "empty.txt", b"").json()["id"])

    assert_has(document["error"], {"code": str, "message": str, "retryable": bool})
    assert (document["status"], document["terminal"], document["searchable"]) == ("failed", True, False)


def test_text_and_chunks_have_their_shapes(shelf: Shelf) -> None:
    document_id = shelf.document["id"]
    text = shelf.get(f"/documents/{document_id}/text")
    chunks = shelf.get(f"/documents/{document_id}/chunks")

    assert_has(text, {"document_id": str, "revision": int, "text": str})
    assert (text["document_id"], text["revision"]) == (document_id, 1)
    assert_has(chunks, {"items": [CHUNK], "next_cursor": NoneType})
    assert chunks["items"][0]["heading_path"] == ["Cranes"]


def test_a_deletion_answers_a_receipt_and_its_state(shelf: Shelf) -> None:
    elsewhere = shelf.tenant.knowledge_base("Gone soon")  # its hits are no part of what is searched below
    document = shelf.tenant.ready(elsewhere, "short-lived words")

    deleted = shelf.tenant.client.delete(f"/documents/{document['id']}")
    state = shelf.get(f"/documents/{document['id']}/deletion")

    assert deleted.status_code == 202
    assert_has(deleted.json(), {"receipt_id": str})
    assert_has(state, {"state": str, "stores": list})
    assert state["state"] in ("open", "closed")
    for store in state["stores"]:
        assert_has(store, {"vector_store_id": str, "remaining": int})


def test_a_search_has_its_shape_in_every_mode(shelf: Shelf) -> None:
    for mode, legs in (("hybrid", ["vector", "lexical"]), ("vector", ["vector"]), ("lexical", ["lexical"])):
        answer = shelf.tenant.search("cranes", knowledge_base_ids=[shelf.kb], mode=mode)
        assert_has(answer, SEARCH)
        assert (answer["query"], answer["mode"], answer["legs"], answer["degraded"]) == ("cranes", mode, legs, [])
        assert set(answer["hits"][0]["ranks"]) <= {"vector", "lexical"}
        for rank in answer["hits"][0]["ranks"].values():
            assert rank is None or rank >= 1


def test_a_lexical_hit_has_no_similarity(shelf: Shelf) -> None:
    hit = shelf.tenant.search("cranes", knowledge_base_ids=[shelf.kb], mode="lexical")["hits"][0]

    assert (hit["normalized_score"], hit["confidence"], hit["raw_score"]) == (None, None, None)
    assert hit["ranks"].get("vector") is None


def test_the_tool_has_its_shape(shelf: Shelf) -> None:
    answer = shelf.tenant.client.post("/tools/kb_search", json={"query": "cranes", "kb_ids": [shelf.kb]})

    assert answer.status_code == 200
    assert_has(answer.json(), TOOL)


def test_plugins_resolution_and_generations_have_their_shapes(shelf: Shelf) -> None:
    plugins = shelf.get("/plugins")
    generations = shelf.get(f"/works/{shelf.tenant.work_id}/generations")
    resolution = shelf.get(f"/works/{shelf.tenant.work_id}/resolution")

    assert_has(plugins, {"items": [PLUGIN]})
    by_id = {plugin["id"]: plugin for plugin in plugins["items"]}
    assert set(by_id) >= {"pgvector", "memory", "local", "openai"}
    assert set(by_id["pgvector"]["capabilities"]) >= {
        "supports_metadata_filter",
        "supports_hybrid_search",
        "supports_namespaces",
        "supports_delete",
        "native_dimensions",
        "embeds_on_write",
        "namespace_per_work",
    }
    assert by_id["pgvector"]["category"] == "vector-store"
    assert by_id["openai"]["category"] == "ai-provider"
    assert_has(generations, {"items": [GENERATION]})
    assert [g["state"] for g in generations["items"]] == ["active"]
    assert resolution["vector_store"]["plugin_id"] == "pgvector"
    assert "sk-of-the-tests" not in str([plugins, generations, resolution])


def test_me_says_who_asks(shelf: Shelf) -> None:
    me = shelf.get("/me")

    assert_has(
        me,
        {
            "user": {"id": str, "name": str},
            "organization": {"id": str, "name": str, "role": str},
            "works": [{"id": str, "name": str}],
            "default_work_id": str,
            "scopes": list,
        },
    )
    assert (me["user"]["id"], me["default_work_id"]) == (shelf.tenant.user_id, shelf.tenant.work_id)


def test_organizations_users_works_and_keys_are_made_with_201(service: Service) -> None:
    operator = service.operator
    organization = operator.post("/organizations", json={"name": "Shapes"})
    organization_id = organization.json()["id"]
    user = operator.post(
        f"/organizations/{organization_id}/users", json={"subject": "s-1", "name": "S", "role": "member"}
    )
    work = operator.post("/works", json={"organization_id": organization_id, "name": "W"})
    key = operator.post(
        "/api-keys",
        json={
            "name": "k",
            "organization_id": organization_id,
            "user_id": user.json()["id"],
            "work_id": work.json()["id"],
            "scopes": ["read"],
            "expires_at": "2999-01-01T00:00:00Z",
        },
    )

    for answer in (organization, user, work, key):
        assert answer.status_code == 201, answer.text
        assert_has(answer.json(), {"id": str})
    assert_has(key.json(), {"id": str, "key": str, "prefix": str})
    assert key.json()["key"].startswith(key.json()["prefix"])
    listed = service.client(key.json()["key"]).get("/api-keys").json()["items"]
    assert all("key" not in item for item in listed)
    assert key.json()["key"] not in str(listed)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("PUT", "/me", 405),
        ("POST", "/search", 422),
        ("GET", "/documents/00000000-0000-7000-8000-000000000000", 404),
    ],
)
def test_every_error_is_a_problem_with_a_request_id(shelf: Shelf, method: str, path: str, status: int) -> None:
    answer = shelf.tenant.client.request(method, path, headers={"X-Request-Id": "asked-for-1"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert_has(answer.json(), PROBLEM)
    assert answer.json()["status"] == status
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "asked-for-1"


def test_a_method_that_is_not_known_names_those_that_are(shelf: Shelf) -> None:
    answer = shelf.tenant.client.put("/me")

    assert answer.status_code == 405
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("given", ["with space", "x" * 200, "né", 'quo"te'])
def test_a_request_id_that_could_do_harm_is_replaced(service: Service, given: str) -> None:
    answer = httpx.get(f"{service.url}/healthz", headers=[(b"X-Request-Id", given.encode())])

    assert answer.headers["x-request-id"] != given
    assert len(answer.headers["x-request-id"]) >= 8


def test_every_time_is_utc_with_z(shelf: Shelf) -> None:
    import re

    def times(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [v for k, v in value.items() if k.endswith("_at") and isinstance(v, str)]
            return own + [t for v in value.values() for t in times(v)]
        return [t for v in value for t in times(v)] if isinstance(value, list) else []

    seen = times(
        [
            shelf.get(f"/knowledge-bases/{shelf.kb}"),
            shelf.get(f"/documents/{shelf.document['id']}"),
            shelf.get(f"/works/{shelf.tenant.work_id}/generations"),
            shelf.get("/works"),
            shelf.get("/api-keys"),
        ]
    )

    assert len(seen) >= 6
    assert all(re.match(UTC_TIME, t) for t in seen), seen


def test_the_root_paths_need_no_key(service: Service) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"):
        assert httpx.get(service.url + path).status_code == 200, path
    assert service.client(None).get("/me").status_code == 401
