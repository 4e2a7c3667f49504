"""Bad input: what it gets, and nothing is lost."""

import json
import socket
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.service import Service, Tenant

UNKNOWN = str(uuid4())


def body_of(answer: httpx.Response) -> dict[str, Any]:
    """A problem document without its request id."""
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body.pop("request_id") == answer.headers["x-request-id"]
    return dict(body)


def test_no_wrong_expired_and_revoked_keys_get_the_same_401(service: Service, tenant: Tenant) -> None:
    made = tenant.client.post("/api-keys", json={"name": "k", "scopes": ["read"]}).json()
    revoked = service.client(made["key"])
    assert revoked.get("/me").status_code == 200
    assert tenant.client.delete(f"/api-keys/{made['id']}").status_code == 204

    answers = [service.client(k).get("/me") for k in (None, "wrong", "srk_" + "x" * 43)] + [revoked.get("/me")]

    assert {a.status_code for a in answers} == {401}
    assert len({json.dumps(body_of(a), sort_keys=True) for a in answers}) == 1
    assert answers[0].headers["www-authenticate"] == "Bearer"


def test_an_expired_key_is_refused(service: Service, tenant: Tenant) -> None:
    import time
    from datetime import UTC, datetime, timedelta

    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    key = tenant.client.post("/api-keys", json={"name": "k", "scopes": ["read"], "expires_at": soon}).json()["key"]
    assert service.client(key).get("/me").status_code == 200
    time.sleep(1.1)

    assert service.client(key).get("/me").status_code == 401


def test_401_comes_before_the_body_is_read(service: Service) -> None:
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(
            b"POST /v1/knowledge-bases HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b'Content-Length: 1000000\r\n\r\n{"half'
        )
        assert connection.recv(64).startswith(b"HTTP/1.1 401")


ROUTES = [
    ("GET", "/documents/{}"),
    ("PATCH", "/documents/{}"),
    ("DELETE", "/documents/{}"),
    ("GET", "/documents/{}/text"),
    ("GET", "/documents/{}/chunks"),
    ("GET", "/documents/{}/content"),
    ("PUT", "/documents/{}/content"),
    ("GET", "/documents/{}/deletion"),
    ("GET", "/documents/{}/events"),
    ("POST", "/documents/{}/retry"),
    ("POST", "/documents/{}/re-embed"),
]
BASE_ROUTES = [
    ("GET", "/knowledge-bases/{}"),
    ("PATCH", "/knowledge-bases/{}"),
    ("DELETE", "/knowledge-bases/{}"),
    ("GET", "/knowledge-bases/{}/documents"),
    ("POST", "/knowledge-bases/{}/documents"),
    ("POST", "/knowledge-bases/{}/chunk"),
    ("POST", "/knowledge-bases/{}/documents/text"),
]


def ask(tenant: Tenant, method: str, path: str) -> httpx.Response:
    if method == "POST" and path.endswith(("/documents", "/chunk")):
        return tenant.client.post(path, files={"file": ("a.txt", b"x")})
    if path.endswith("/text") and method == "POST":
        return tenant.client.post(path, json={"name": "n", "text": "t"})
    if method == "PATCH":
        return tenant.client.patch(path, json={"name": "n"})
    if method == "PUT":
        return tenant.client.put(path, content=b"x")
    return tenant.client.request(method, path)


def test_a_foreign_id_is_answered_like_an_unknown_one(service: Service, tenant: Tenant) -> None:
    stranger = service.tenant()
    kb = stranger.knowledge_base()
    document = stranger.ready(kb, "somebody else's secret")["id"]
    colleague = service.colleague(
        stranger.organization_id, stranger.work_id, scopes=("read", "write", "admin"), role="admin"
    )

    for asking in (tenant, colleague):
        for routes, foreign in ((ROUTES, document), (BASE_ROUTES, kb)):
            for method, path in routes:
                seen, unseen = ask(asking, method, path.format(foreign)), ask(asking, method, path.format(UNKNOWN))
                assert (seen.status_code, unseen.status_code) == (404, 404), (method, path)
                assert body_of(seen) == body_of(unseen), (method, path)
        for field, foreign in (("knowledge_base_ids", kb), ("document_ids", document)):
            seen = asking.client.post("/search", json={"query": "secret", field: [foreign]})
            unseen = asking.client.post("/search", json={"query": "secret", field: [UNKNOWN]})
            assert (seen.status_code, unseen.status_code) == (404, 404)
            assert body_of(seen) == body_of(unseen)
    for path in ("/works/{}/resolution", "/works/{}/generations"):
        seen, unseen = tenant.client.get(path.format(stranger.work_id)), tenant.client.get(path.format(UNKNOWN))
        assert (seen.status_code, unseen.status_code) == (404, 404)
        assert body_of(seen) == body_of(unseen)
    assert stranger.client.get(f"/documents/{document}").json()["status"] == "ready"


@pytest.mark.parametrize(
    ("path", "body", "location"),
    [
        ("/knowledge-bases", {"name": ""}, ["body", "name"]),
        ("/knowledge-bases", {"name": "   "}, ["body", "name"]),
        ("/knowledge-bases", {"name": "x" * 256}, ["body", "name"]),
        ("/knowledge-bases", {"name": "a\x00b"}, ["body", "name"]),
        ("/knowledge-bases", {"name": "a", "color": "red"}, ["body", "color"]),
        ("/knowledge-bases", {"name": "a", "attributes": {"k": ["\x00"]}}, ["body", "attributes"]),
        ("/knowledge-bases", {"name": "a", "work_id": "not-an-id"}, ["body", "work_id"]),
        ("/search", {"query": "a", "limit": 0}, ["body", "limit"]),
        ("/search", {"query": "a", "limit": 101}, ["body", "limit"]),
        ("/search", {"query": "a", "mode": "psychic"}, ["body", "mode"]),
        ("/search", {"query": ""}, ["body", "query"]),
        ("/search", {"query": "a\x00"}, ["body", "query"]),
        ("/search", {"query": "a", "knowledge_base_ids": ["1"]}, ["body", "knowledge_base_ids", 0]),
        ("/search", {"query": "a", "min_score": 2}, ["body", "min_score"]),
        ("/search", {"query": "a", "unknown": 1}, ["body", "unknown"]),
    ],
)
def test_invalid_fields_are_named(tenant: Tenant, path: str, body: dict[str, Any], location: list[Any]) -> None:
    answer = tenant.client.post(path, json=body)

    assert answer.status_code == 422
    assert body_of(answer)["errors"][0]["loc"][: len(location)] == location


def test_a_lone_surrogate_is_refused_wherever_text_is_taken(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    raw = {"headers": {"Content-Type": "application/json"}}
    for path, body in (
        ("/knowledge-bases", rb'{"name": "a\ud800"}'),
        ("/search", rb'{"query": "a\ud800"}'),
        (f"/knowledge-bases/{kb}/documents/text", rb'{"name": "n", "text": "a\udfff"}'),
        (f"/knowledge-bases/{kb}/documents/text", rb'{"name": "n", "text": "a", "attributes": {"\ud800": 1}}'),
    ):
        answer = tenant.client.post(path, content=body, **raw)
        assert answer.status_code == 422, path
        assert body_of(answer)["errors"]


def test_a_malformed_id_or_unknown_query_parameter_is_422(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    for path in (
        "/documents/not-an-id",
        "/knowledge-bases/1",
        f"/knowledge-bases/{kb}/documents?limit=0",
        f"/knowledge-bases/{kb}/documents?limit=201",
        f"/knowledge-bases/{kb}/documents?cursor=%20nonsense",
        f"/knowledge-bases/{kb}/documents?stautus=ready",
        f"/knowledge-bases/{kb}/documents?name=a%00",
    ):
        answer = tenant.client.get(path)
        assert answer.status_code == 422, path
        assert body_of(answer)["errors"][0]["loc"]


def test_multipart_faults_are_422_with_the_field(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    url = f"/knowledge-bases/{kb}/documents"
    file = {"file": ("a.txt", b"x")}
    cases = [
        (tenant.client.post(url, files={"upload": ("a.txt", b"x")}), "upload"),
        (tenant.client.post(url, data={"name": "only"}, files={"other": b""}), "other"),
        (tenant.client.post(url, files=file, data={"name": "x" * 256}), "name"),
        (tenant.client.post(url, files=file, data={"attributes": "{"}), "attributes"),
        (tenant.client.post(url, files=file, data={"attributes": '{"a": {"b": 1}}'}), "attributes"),
        (tenant.client.post(url, files=file, data={"external_id": ""}), "external_id"),
        (tenant.client.post(url, files={"file": ("..", b"x")}), "file"),
    ]
    for answer, field in cases:
        assert answer.status_code == 422, answer.text
        assert body_of(answer)["errors"][0]["loc"] == ["body", field]
    assert tenant.client.get(url).json()["items"] == []


def test_a_file_over_the_limit_is_413_and_leaves_nothing(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    blobs = service.data_dir / "blobs" / tenant.work_id

    def endless() -> Any:
        for _ in range(60):
            yield b"x" * 65536

    declared = tenant.upload(kb, "big.txt", b"x" * 4_000_000)
    replaced = tenant.ready(kb, "small")
    streamed = tenant.client.put(f"/documents/{replaced['id']}/content", content=endless())

    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert body_of(declared)["max_bytes"] == 2_000_000
    assert _eventually(lambda: len([p for p in blobs.rglob("*") if p.is_file()]) == 2)  # the small one and its text


@pytest.mark.parametrize("data", [b"", b"   \n\t \r\n", "\u00a0\u3000\ufeff".encode()])
def test_a_file_without_text_ends_as_no_text(tenant: Tenant, data: bytes) -> None:
    kb = tenant.knowledge_base()
    answer = tenant.upload(kb, "blank.txt", data, "text/plain")

    assert answer.status_code == 202
    document = tenant.settle(answer.json()["id"])
    assert (document["status"], document["error"]["code"], document["chunk_count"]) == ("failed", "no_text", 0)


def test_a_failed_document_is_tried_again_when_asked_and_when_uploaded_again(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.settle(tenant.upload(kb, "x.bin", bytes(range(256)) * 8).json()["id"])
    assert document["error"]["code"] == "unsupported"

    assert tenant.client.post(f"/documents/{document['id']}/retry").status_code == 202
    assert tenant.settle(document["id"])["status"] == "failed"
    assert tenant.upload(kb, "x.bin", bytes(range(256)) * 8).status_code == 202


def test_nul_bytes_are_taken_out_of_text_and_nothing_else(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.settle(tenant.upload(kb, "nul.txt", b"before\x00after", "text/plain").json()["id"])

    if document["status"] == "ready":
        assert tenant.client.get(f"/documents/{document['id']}/text").json()["text"] == "beforeafter"
    else:
        assert document["error"]["code"] in ("bad_encoding", "unsupported")


def test_unknown_paths_methods_and_slashes_are_problems(service: Service, tenant: Tenant) -> None:
    assert body_of(tenant.client.get("/nowhere"))["status"] == 404
    assert body_of(tenant.client.put("/me"))["status"] == 405
    slashed = tenant.client.get("/knowledge-bases/")
    assert slashed.status_code == 404
    assert body_of(slashed)["code"] == "not_found"


def test_answers_to_a_known_origin_carry_cors_headers_also_when_refused(service: Service) -> None:
    origin = {"Origin": "https://chat.example"}

    refused = httpx.get(f"{service.url}/v1/me", headers=origin)
    stranger = httpx.get(f"{service.url}/v1/me", headers={"Origin": "https://evil.example"})

    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://chat.example"
    assert "access-control-allow-origin" not in stranger.headers


def test_a_read_only_key_may_not_write_and_a_bound_key_stays_in_its_work(service: Service, tenant: Tenant) -> None:
    reader = service.client(tenant.client.post("/api-keys", json={"name": "r", "scopes": ["read"]}).json()["key"])
    other = tenant.client.post("/works", json={"name": "Other"}).json()["id"]
    wanted = {"name": "b", "scopes": ["read", "write"], "work_id": other}
    bound = service.client(tenant.client.post("/api-keys", json=wanted).json()["key"])
    kb = tenant.knowledge_base()

    assert reader.post("/knowledge-bases", json={"name": "x"}).status_code == 403
    assert reader.get(f"/knowledge-bases/{kb}").status_code == 200
    assert bound.get(f"/knowledge-bases/{kb}").status_code == 404
    assert bound.post("/knowledge-bases", json={"name": "x"}).json()["work_id"] == other
    assert bound.post("/api-keys", json={"name": "y", "scopes": ["read"]}).status_code == 403
    assert reader.post("/api-keys", json={"name": "y", "scopes": ["write"]}).status_code == 403


def test_lists_are_paged_without_loss_or_repeat(tenant: Tenant) -> None:
    made = [tenant.knowledge_base(f"kb {n}") for n in range(7)]
    seen: list[str] = []
    cursor = None
    while True:
        page = tenant.client.get(
            "/knowledge-bases", params={"limit": 3, **({"cursor": cursor} if cursor else {})}
        ).json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == made


def test_a_team_as_owner_is_404_until_there_are_teams(tenant: Tenant) -> None:
    body = {"name": "x", "owner": {"type": "team", "id": UNKNOWN}}

    assert tenant.client.post("/knowledge-bases", json=body).status_code == 404


def test_times_are_utc_with_z(tenant: Tenant) -> None:
    kb = tenant.client.get(f"/knowledge-bases/{tenant.knowledge_base()}").json()

    assert kb["created_at"].endswith("Z")
    assert kb["updated_at"].endswith("Z")


def _eventually(holds: Any, timeout_s: float = 15) -> bool:
    import time

    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.1)
    return bool(holds())


def test_a_json_body_over_the_limit_is_413_with_the_limit(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    body = json.dumps({"name": "n", "text": "x" * (33 * 1024 * 1024)}).encode()

    def streamed() -> Any:
        for at in range(0, len(body), 1 << 20):
            yield body[at : at + (1 << 20)]

    headers = {"Content-Type": "application/json"}
    for content in (body, streamed()):
        answer = tenant.client.post(f"/knowledge-bases/{kb}/documents/text", content=content, headers=headers)
        assert answer.status_code == 413
        assert body_of(answer)["limit_bytes"] == 32 * 1024 * 1024


@pytest.mark.parametrize("raw", [b"{", b'{"query": "\xff"}', b"[" * 50_000, b""])
def test_a_body_that_is_no_json_is_422_with_its_place(tenant: Tenant, raw: bytes) -> None:
    answer = tenant.client.post("/search", content=raw, headers={"Content-Type": "application/json"})

    assert answer.status_code == 422
    assert body_of(answer)["errors"][0]["loc"][0] == "body"


@pytest.mark.parametrize("path", ["/works", "/api-keys", "/knowledge-bases"])
def test_an_unknown_query_parameter_is_422_on_every_list(tenant: Tenant, path: str) -> None:
    assert tenant.client.get(f"{path}?colour=red").status_code == 422


def test_a_program_is_unsupported_whatever_its_name(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.settle(tenant.upload(kb, "program.exe", b"MZ" + bytes(range(256)) * 40).json()["id"])

    assert document["error"]["code"] == "unsupported"
