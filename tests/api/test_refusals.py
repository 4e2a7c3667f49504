"""What is refused, when, and in which words: keys, bodies, sizes, types. Nothing is kept of what was refused."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.service import Service, Tenant

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def visitor(service: Service) -> Tenant:
    """A tenant for tests that change nothing."""
    return service.tenant()


@contextmanager
def connected(service: Service) -> Iterator[socket.socket]:
    """A raw connection to the service."""
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


def status_line(connection: socket.socket) -> bytes:
    return connection.recv(4096).split(b"\r\n", 1)[0]


def head(method: str, path: str, **headers: str) -> bytes:
    lines = [f"{method} /v1{path} HTTP/1.1", "Host: x", *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def blobs_of(service: Service, tenant: Tenant) -> list[Path]:
    return [p for p in (service.data_dir / "blobs" / tenant.work_id).rglob("*") if p.is_file()]


def pending_of(service: Service, tenant: Tenant) -> int:
    """Uploads of the tenant that are on their way, and blobs still to be deleted."""
    with psycopg.connect(service.database_url, autocommit=True) as connection:
        row = connection.execute(
            "select (select count(*) from pending_uploads where work_id = %s::uuid)"
            " + (select count(*) from blob_deletions where work_id = %s::uuid)",
            (tenant.work_id, tenant.work_id),
        ).fetchone()
    assert row is not None
    return int(row[0])


def nothing_left(service: Service, tenant: Tenant, blobs: int = 0) -> bool:
    """Wait until only `blobs` files lie in storage and no outbox names the tenant."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if len(blobs_of(service, tenant)) == blobs and pending_of(service, tenant) == 0:
            return True
        time.sleep(0.1)
    return False


# --- keys


@pytest.mark.parametrize(
    "header",
    [
        None,
        "Bearer",
        "bearer wrong",
        "Basic dXNlcjpwYXNz",
        "Token abc",
        "Bearer a b c",
        "Bearer " + "x" * 5000,
        "Bearer \u00e9\u00e9",
        "Bearer null",
        "Bearer ' or '1'='1",
    ],
)
def test_every_header_that_carries_no_valid_key_gets_the_same_401(service: Service, header: str | None) -> None:
    headers = [] if header is None else [(b"Authorization", header.encode("latin-1"))]
    answer = httpx.get(f"{service.url}/v1/me", headers=headers)
    plain = httpx.get(f"{service.url}/v1/me")

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert {**answer.json(), "request_id": ""} == {**plain.json(), "request_id": ""}


def test_unknown_paths_do_not_say_that_they_are_unknown_without_a_key(service: Service) -> None:
    assert httpx.get(f"{service.url}/v1/nowhere").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "content_type"),
    [
        ("POST", "/knowledge-bases/{kb}/documents", "multipart/form-data; boundary=b"),
        ("POST", "/knowledge-bases/{kb}/documents/text", "application/json"),
        ("PUT", "/documents/{document}/content", "application/octet-stream"),
        ("POST", "/search", "application/json"),
    ],
)
def test_401_and_404_come_before_the_body(
    service: Service, tenant: Tenant, method: str, path: str, content_type: str
) -> None:
    """Half a body is sent: who waited for the rest would not answer."""
    stranger = service.tenant()
    kb = stranger.knowledge_base()
    document = stranger.ready(kb, f"half a body {method} {path}")
    place = path.format(kb=kb, document=document["id"])
    common = {"Content_Type": content_type, "Content_Length": "100000"}
    with connected(service) as connection:
        connection.sendall(head(method, place, **common) + b"half")
        assert status_line(connection) == b"HTTP/1.1 401 Unauthorized"
    if content_type == "application/json":
        return
    key = tenant.client.headers["authorization"]
    with connected(service) as connection:
        connection.sendall(head(method, place, Authorization=key, **common) + b"half")
        assert status_line(connection) == b"HTTP/1.1 404 Not Found"


def test_a_key_of_another_organization_can_be_neither_listed_nor_revoked(service: Service, tenant: Tenant) -> None:
    stranger = service.tenant()
    made = stranger.client.post("/api-keys", json={"name": "theirs", "scopes": ["read"]}).json()

    assert tenant.client.delete(f"/api-keys/{made['id']}").status_code == 404
    assert made["id"] not in str(tenant.client.get("/api-keys").json())
    assert service.client(made["key"]).get("/me").status_code == 200


def test_a_member_cannot_make_keys_for_others_nor_for_more_than_their_own(service: Service, tenant: Tenant) -> None:
    member = service.colleague(tenant.organization_id, tenant.work_id)

    for body in (
        {"name": "k", "scopes": ["read"], "user_id": tenant.user_id},
        {"name": "k", "scopes": ["admin"]},
        {"name": "k", "scopes": ["operator"]},
    ):
        assert member.client.post("/api-keys", json=body).status_code in (403, 404), body
    for body in ({"name": "k", "scopes": ["operator"]},):
        assert tenant.client.post("/api-keys", json=body).status_code == 403
    assert tenant.client.post("/organizations", json={"name": "x"}).status_code == 403
    assert member.client.post("/works", json={"name": "x"}).status_code == 403


def test_an_administrator_of_one_organization_reaches_no_other(service: Service, tenant: Tenant) -> None:
    stranger = service.tenant()
    for path, body in (
        (f"/organizations/{stranger.organization_id}/users", {"subject": "s", "name": "n"}),
        ("/works", {"name": "w", "organization_id": stranger.organization_id}),
        ("/api-keys", {"name": "k", "scopes": ["read"], "organization_id": stranger.organization_id}),
        ("/api-keys", {"name": "k", "scopes": ["read"], "user_id": stranger.user_id}),
        ("/api-keys", {"name": "k", "scopes": ["read"], "work_id": stranger.work_id}),
        ("/knowledge-bases", {"name": "k", "work_id": stranger.work_id}),
        ("/search", {"query": "q", "work_id": stranger.work_id}),
    ):
        answer = tenant.client.post(path, json=body)
        assert answer.status_code == 404, (path, body, answer.text)


def test_the_operator_manages_organizations_but_reads_no_documents_there(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "not for operators")

    assert service.operator.get(f"/documents/{document['id']}").status_code == 404
    assert service.operator.get(f"/knowledge-bases/{kb}").status_code == 404
    assert service.operator.post("/search", json={"query": "operators", "work_id": tenant.work_id}).status_code == 404
    assert tenant.work_id not in [w["id"] for w in service.operator.get("/me").json()["works"]]


def test_a_read_only_key_changes_nothing_on_any_route(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "read only words")["id"]
    reader = service.client(tenant.client.post("/api-keys", json={"name": "r", "scopes": ["read"]}).json()["key"])
    for method, path, body in (
        ("POST", "/knowledge-bases", {"json": {"name": "n"}}),
        ("PATCH", f"/knowledge-bases/{kb}", {"json": {"name": "n"}}),
        ("DELETE", f"/knowledge-bases/{kb}", {}),
        ("POST", f"/knowledge-bases/{kb}/documents", {"files": {"file": ("a", b"x")}}),
        ("POST", f"/knowledge-bases/{kb}/chunk", {"files": {"file": ("a", b"x")}}),
        ("POST", f"/knowledge-bases/{kb}/documents/text", {"json": {"name": "n", "text": "t"}}),
        ("PUT", f"/documents/{document}/content", {"content": b"x"}),
        ("PATCH", f"/documents/{document}", {"json": {"name": "n"}}),
        ("POST", f"/documents/{document}/retry", {}),
        ("POST", f"/documents/{document}/re-embed", {}),
        ("DELETE", f"/documents/{document}", {}),
        ("POST", "/api-keys", {"json": {"name": "n", "scopes": ["read"]}}),
    ):
        answer = reader.request(method, path, **body)
        assert answer.status_code == 403, (method, path, answer.text)
    assert reader.get(f"/documents/{document}").json() == tenant.client.get(f"/documents/{document}").json()
    assert reader.post("/search", json={"query": "words"}).status_code == 200


def test_a_key_bound_to_a_work_sees_and_searches_nothing_else(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "outside the bound work")
    other = tenant.client.post("/works", json={"name": "Other"}).json()["id"]
    wanted = {"name": "b", "scopes": ["read", "write"], "work_id": other}
    bound = service.client(tenant.client.post("/api-keys", json=wanted).json()["key"])

    assert bound.get("/me").json()["default_work_id"] == other
    assert [w["id"] for w in bound.get("/me").json()["works"]] == [other]
    assert [w["id"] for w in bound.get("/works").json()["items"]] == [other]
    assert bound.get("/knowledge-bases").json()["items"] == []
    assert bound.get(f"/documents/{document['id']}").status_code == 404
    assert bound.post("/search", json={"query": "outside"}).json()["hits"] == []
    for field, value in (("work_id", tenant.work_id), ("knowledge_base_ids", [kb]), ("document_ids", [document["id"]])):
        assert bound.post("/search", json={"query": "outside", field: value}).status_code == 404, field
    assert bound.post("/tools/kb_search", json={"query": "outside", "kb_ids": [kb]}).status_code == 404
    assert bound.post("/knowledge-bases", json={"name": "k", "work_id": tenant.work_id}).status_code == 404


def test_a_personal_knowledge_base_is_invisible_even_to_an_administrator(service: Service) -> None:
    owner = service.tenant()
    kb = owner.knowledge_base("Diary")
    document = owner.ready(kb, "dear diary, a secret")
    admin = service.colleague(owner.organization_id, owner.work_id, scopes=("read", "write", "admin"), role="admin")

    assert admin.client.get("/knowledge-bases").json()["items"] == []
    assert admin.client.get("/knowledge-bases", params={"work_id": owner.work_id}).json()["items"] == []
    for mode in ("hybrid", "vector", "lexical"):
        assert admin.search("diary secret", mode=mode)["hits"] == []
    assert admin.client.post("/tools/kb_search", json={"query": "diary secret"}).json()["results"] == []
    assert admin.client.delete(f"/documents/{document['id']}").status_code == 404
    theirs = {"name": "x", "owner": {"type": "user", "id": owner.user_id}}
    assert admin.client.post("/knowledge-bases", json=theirs).status_code in (403, 404)
    assert owner.client.get(f"/documents/{document['id']}").status_code == 200


def test_the_deletion_of_somebody_elses_document_stays_theirs(service: Service) -> None:
    owner = service.tenant()
    document = owner.ready(owner.knowledge_base(), "deleted in private")
    assert owner.client.delete(f"/documents/{document['id']}").status_code == 202
    colleague = service.colleague(owner.organization_id, owner.work_id, scopes=("read", "admin"), role="admin")

    assert owner.client.get(f"/documents/{document['id']}/deletion").status_code == 200
    assert colleague.client.get(f"/documents/{document['id']}/deletion").status_code == 404
    assert service.tenant().client.get(f"/documents/{document['id']}/deletion").status_code == 404


# --- sizes


def multipart(data: Iterator[bytes]) -> Iterator[bytes]:
    yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="big.txt"\r\n\r\n'
    yield from data
    yield b"\r\n--b--\r\n"


def test_a_multipart_file_is_counted_while_it_streams(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    body = multipart(b"x" * 65_536 for _ in range(60))
    answer = tenant.client.post(
        f"/knowledge-bases/{kb}/documents", content=body, headers={"Content-Type": "multipart/form-data; boundary=b"}
    )

    assert answer.status_code == 413
    assert answer.json()["max_bytes"] == 2_000_000
    assert tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"] == []
    assert nothing_left(service, tenant)


def test_a_declared_length_over_the_limit_is_refused_before_it_is_sent(service: Service, tenant: Tenant) -> None:
    document = tenant.ready(tenant.knowledge_base(), "small before")
    key = tenant.client.headers["authorization"]
    with connected(service) as connection:
        connection.sendall(
            head("PUT", f"/documents/{document['id']}/content", Authorization=key, Content_Length="9000000000")
        )
        assert status_line(connection).startswith(b"HTTP/1.1 413")
    assert nothing_left(service, tenant, blobs=2)
    assert tenant.client.get(f"/documents/{document['id']}").json()["revision"] == 1


def test_a_file_of_exactly_the_limit_is_taken_and_one_byte_more_is_not(tenant: Tenant) -> None:
    document = tenant.ready(tenant.knowledge_base(), "limits")
    url = f"/documents/{document['id']}/content"

    assert tenant.client.put(url, content=iter([b"x" * 2_000_001])).status_code == 413
    assert tenant.client.put(url, content=b"x" * 2_000_001).status_code == 413
    assert tenant.client.put(url, content=b"\0" * 2_000_000).status_code == 202


def test_an_upload_that_is_cut_off_leaves_nothing(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    key = tenant.client.headers["authorization"]
    for method, path, kind, start in (
        (
            "POST",
            f"/knowledge-bases/{kb}/documents",
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n',
        ),
    ):
        with connected(service) as connection:
            sent = head(method, path, Authorization=key, Content_Type=kind, Content_Length="1000000")
            connection.sendall(sent + start + b"x" * 300_000)
            time.sleep(0.3)

    assert nothing_left(service, tenant)
    assert tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"] == []


def test_a_multipart_body_that_ends_early_is_422_and_leaves_nothing(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    for body in (
        b"",
        b"no boundary at all",
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nwords',
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nwords\r\n--b',
        b"--b\r\n\r\nno headers\r\n--b--\r\n",
    ):
        answer = tenant.client.post(
            f"/knowledge-bases/{kb}/documents",
            content=body,
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )
        assert answer.status_code == 422, body
    assert tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"] == []
    assert nothing_left(service, tenant)


def test_refused_fields_after_the_file_leave_nothing(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    for late in (
        b'--b\r\nContent-Disposition: form-data; name="attributes"\r\n\r\n[1]\r\n',
        b'--b\r\nContent-Disposition: form-data; name="color"\r\n\r\nred\r\n',
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="b.txt"\r\n\r\ntwo\r\n',
        b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\na\x00b\r\n',
        b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\n\xff\xfe\r\n',
        b'--b\r\nContent-Disposition: form-data; name="external_id"\r\n\r\na\x00b\r\n',
        b'--b\r\nContent-Disposition: form-data; name="attributes"\r\n\r\n{"a": "\\u0000"}\r\n',
        b'--b\r\nContent-Disposition: form-data; name="attributes"\r\n\r\n{"a": "\\ud800"}\r\n',
        b'--b\r\nContent-Disposition: form-data; name="attributes"\r\n\r\n{"a": NaN}\r\n',
    ):
        body = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nfirst\r\n' + late
        answer = tenant.client.post(
            f"/knowledge-bases/{kb}/documents",
            content=body + b"--b--\r\n",
            headers={"Content-Type": "multipart/form-data; boundary=b"},
        )
        assert answer.status_code == 422, (late, answer.text)
        assert answer.json()["errors"][0]["loc"][0] == "body"
    assert nothing_left(service, tenant)


@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "multipart/form-data", ""])
def test_an_upload_of_another_content_type_is_422(visitor: Tenant, content_type: str) -> None:
    kb = visitor.knowledge_base()
    headers = {"Content-Type": content_type}
    answer = visitor.client.post(f"/knowledge-bases/{kb}/documents", content=b"{}", headers=headers)

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"] == ["header", "content-type"]


# --- bodies and fields


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"{'query': 'a'}",
        b'{"query": NaN}',
        b'{"query": "a", "limit": Infinity}',
        b'{"query": "a", "min_score": NaN}',
        b'{"query": "a", "filter": {"type": "eq", "key": "a", "value": NaN}}',
        b'{"query": "a", "filter": {"type": "gt", "key": "a", "value": 1e999}}',
        b"\xff\xfe",
        b'{"query": "\xff"}',
        b'{"query": "a\\ud83d"}',
        b"[" * 100_000,
        b'{"query": ' + b"[" * 50_000,
        b'{"query": "a", "filter": ' + b'{"type": "and", "filters": [' * 3_000,
    ],
)
def test_a_body_that_is_no_json_object_of_the_right_kind_is_422(visitor: Tenant, body: bytes) -> None:
    answer = visitor.client.post("/search", content=body, headers=JSON)

    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["loc"][0] == "body"


def test_a_filter_that_is_deep_or_wide_is_422_not_a_crash(visitor: Tenant) -> None:
    deep: dict[str, Any] = {"type": "eq", "key": "a", "value": 1}
    for _ in range(50):
        deep = {"type": "and", "filters": [deep]}
    wide = {"type": "or", "filters": [{"type": "eq", "key": "a", "value": n} for n in range(10_000)]}
    for wanted in (deep, wide):
        answer = visitor.client.post("/search", json={"query": "a", "filter": wanted})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["loc"][:2] == ["body", "filter"]


def test_a_text_over_the_json_limit_is_413(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    body = json.dumps({"name": "n", "text": "x" * (33 * 1024 * 1024)}).encode()

    declared = tenant.client.post(f"/knowledge-bases/{kb}/documents/text", content=body, headers=JSON)
    streamed = tenant.client.post(
        f"/knowledge-bases/{kb}/documents/text",
        content=(body[n : n + 1_000_000] for n in range(0, len(body), 1_000_000)),
        headers=JSON,
    )

    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert declared.headers["content-type"] == "application/problem+json"


def test_a_text_over_the_upload_limit_is_413_too(service: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    answer = tenant.client.post(f"/knowledge-bases/{kb}/documents/text", json={"name": "n", "text": "x" * 2_100_000})

    assert answer.status_code == 413
    assert answer.json()["max_bytes"] == 2_000_000
    assert nothing_left(service, tenant)


@pytest.mark.parametrize(
    ("path", "body", "location"),
    [
        ("/search", {"query": "a", "limit": "many"}, ["body", "limit"]),
        ("/search", {"query": "a", "limit": 1.5}, ["body", "limit"]),
        ("/search", {"query": "a", "limit": -1}, ["body", "limit"]),
        ("/search", {"query": "a", "limit": 10**30}, ["body", "limit"]),
        ("/search", {"query": " \t\n"}, ["body", "query"]),
        ("/search", {}, ["body", "query"]),
        ("/search", {"query": ["a"]}, ["body", "query"]),
        ("/search", {"query": "a", "min_score": -0.1}, ["body", "min_score"]),
        ("/search", {"query": "a", "group_by": "page"}, ["body", "group_by"]),
        ("/search", {"query": "a", "document_ids": ["x"]}, ["body", "document_ids", 0]),
        ("/search", {"query": "a", "work_id": 7}, ["body", "work_id"]),
        ("/tools/kb_search", {"query": "a", "limit": 0}, ["body", "limit"]),
        ("/tools/kb_search", {"query": "a", "limit": 101}, ["body", "limit"]),
        ("/tools/kb_search", {"query": "a\x00"}, ["body", "query"]),
        ("/tools/kb_search", {"query": "a", "kb_ids": ["1"]}, ["body", "kb_ids", 0]),
        ("/tools/kb_search", {"query": "a", "mode": "vector"}, ["body", "mode"]),
        ("/knowledge-bases", {"name": "n", "description": "\x00"}, ["body", "description"]),
        ("/knowledge-bases", {"name": "n", "owner": {"type": "robot", "id": "1"}}, ["body", "owner", "type"]),
        ("/knowledge-bases", {"name": "n", "attributes": []}, ["body", "attributes"]),
        ("/knowledge-bases", {"name": "n", "attributes": {"\x00": 1}}, ["body", "attributes"]),
        ("/api-keys", {"name": "n", "scopes": []}, ["body", "scopes"]),
        ("/api-keys", {"name": "n", "scopes": ["root"]}, ["body", "scopes", 0]),
        ("/api-keys", {"name": "n", "scopes": ["read"], "expires_at": "soon"}, ["body", "expires_at"]),
        ("/api-keys", {"name": "n", "scopes": ["read"], "expires_at": "2999-01-01T00:00:00"}, ["body", "expires_at"]),
        ("/api-keys", {"name": "x" * 256, "scopes": ["read"]}, ["body", "name"]),
        ("/works", {"name": "\x00"}, ["body", "name"]),
        ("/works", {"name": ""}, ["body", "name"]),
        ("/works", {"name": "w", "organization_id": "acme"}, ["body", "organization_id"]),
    ],
)
def test_faults_are_located(visitor: Tenant, path: str, body: dict[str, Any], location: list[Any]) -> None:
    answer = visitor.client.post(path, json=body)

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["loc"][: len(location)] == location


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({"name": "", "text": "t"}, ["body", "name"]),
        ({"name": "x" * 256, "text": "t"}, ["body", "name"]),
        ({"name": "a\x00", "text": "t"}, ["body", "name"]),
        ({"name": "n", "text": "a\x00b"}, ["body", "text"]),
        ({"name": "n"}, ["body", "text"]),
        ({"name": "n", "text": "t", "external_id": ""}, ["body", "external_id"]),
        ({"name": "n", "text": "t", "external_id": "a\x00"}, ["body", "external_id"]),
        ({"name": "n", "text": "t", "content_type": "image/png"}, ["body", "content_type"]),
        ({"name": "n", "text": "t", "attributes": {"a": {"b": 1}}}, ["body", "attributes"]),
        ({"name": "n", "text": "t", "attributes": {"a": None}}, ["body", "attributes"]),
        ({"name": "n", "text": "t", "attributes": {"a": [1]}}, ["body", "attributes"]),
        ({"name": "n", "text": "t", "attributes": {"": 1}}, ["body", "attributes"]),
        ({"name": "n", "text": "t", "attributes": {"a": "\x00"}}, ["body", "attributes"]),
        ({"name": "n", "text": "t", "attributes": {"a": "x" * 100_000}}, ["body", "attributes"]),
        ({"name": "n", "text": "t", "color": "red"}, ["body", "color"]),
    ],
)
def test_faults_of_a_text_upload_are_located(visitor: Tenant, body: dict[str, Any], location: list[Any]) -> None:
    kb = visitor.knowledge_base()
    answer = visitor.client.post(f"/knowledge-bases/{kb}/documents/text", json=body)

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["loc"][: len(location)] == location


@pytest.mark.parametrize(
    ("patch", "location"),
    [
        ({"name": ""}, ["body", "name"]),
        ({"name": "x" * 256}, ["body", "name"]),
        ({"name": "\x00"}, ["body", "name"]),
        ({"status": "ready"}, ["body", "status"]),
        ({"attributes": {"a": {"b": 1}}}, ["body", "attributes"]),
        ({"attributes": {"a": "\x00"}}, ["body", "attributes"]),
        ({"attributes": "x"}, ["body", "attributes"]),
    ],
)
def test_faults_of_a_document_patch_are_located_and_change_nothing(
    tenant: Tenant, patch: dict[str, Any], location: list[Any]
) -> None:
    document = tenant.ready(tenant.knowledge_base(), "unpatchable", attributes={"k": "v"})
    answer = tenant.client.patch(f"/documents/{document['id']}", json=patch)

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["loc"][: len(location)] == location
    assert tenant.client.get(f"/documents/{document['id']}").json() == document


def test_names_of_255_characters_of_any_script_are_taken(tenant: Tenant) -> None:
    for name in ("x" * 255, "\U0001f600" * 255, "図" * 255, "a/b\\..", "' or 1=1 --", "<b>&amp;"):
        made = tenant.client.post("/knowledge-bases", json={"name": name})
        assert made.status_code == 201, name
        assert tenant.client.get(f"/knowledge-bases/{made.json()['id']}").json()["name"] == name


@pytest.mark.parametrize("name", ["../../etc/passwd", "..\\..\\boot.ini", "/etc/passwd", "a/../b.txt", "C:\\x\\y.txt"])
def test_separators_in_a_file_name_are_never_a_path(service: Service, tenant: Tenant, name: str) -> None:
    kb = tenant.knowledge_base()
    answer = tenant.upload(kb, name, f"named {name}".encode(), "text/plain")

    if answer.status_code == 202:
        assert not set("/\\") & set(answer.json()["name"])
        assert tenant.settle(answer.json()["id"])["status"] == "ready"
        for blob in blobs_of(service, tenant):
            assert "passwd" not in str(blob)
            assert "boot.ini" not in str(blob)
    else:
        assert answer.status_code == 422


@pytest.mark.parametrize("key", ["", "x" * 256, "a b", "\u00e9", "a\tb"])
def test_an_idempotency_key_of_another_form_is_422(visitor: Tenant, key: str) -> None:
    kb = visitor.knowledge_base()
    answer = visitor.client.post(
        f"/knowledge-bases/{kb}/documents/text",
        json={"name": "n", "text": "t"},
        headers=[(b"Idempotency-Key", key.encode("latin-1"))],
    )

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["loc"][0] == "header"


def test_slashes_at_the_end_are_404_everywhere_and_never_redirected(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, "slashed")["id"]
    for path in ("/me/", "/knowledge-bases/", f"/knowledge-bases/{kb}/", f"/documents/{document}/", "//me"):
        answer = tenant.client.get(path, follow_redirects=False)
        assert answer.status_code == 404, path
        assert answer.headers["content-type"] == "application/problem+json"
    assert tenant.client.post("/search/", json={"query": "a"}).status_code == 404


# --- origins


def test_a_preflight_of_a_known_origin_is_answered_without_a_key(service: Service) -> None:
    asked = {
        "Origin": "https://chat.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, idempotency-key",
    }
    answer = httpx.options(f"{service.url}/v1/search", headers=asked)
    stranger = httpx.options(f"{service.url}/v1/search", headers={**asked, "Origin": "https://evil.example"})

    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert "access-control-allow-origin" not in stranger.headers


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/me", 200),
        ("GET", "/nowhere", 404),
        ("PUT", "/me", 405),
        ("POST", "/search", 422),
        ("PUT", "/documents/00000000-0000-7000-8000-000000000000/content", 404),
    ],
)
def test_every_answer_carries_cors_headers(visitor: Tenant, method: str, path: str, status: int) -> None:
    answer = visitor.client.request(method, path, headers={"Origin": "https://chat.example"})

    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"
    assert "origin" in answer.headers["vary"].lower()
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
