"""Every error becomes one shape: the status of its family, its own code, and nothing that was not meant to be said."""

import importlib
import json
import pkgutil
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
from fastapi import FastAPI
from pydantic import BaseModel

import app
from app.db.engine import DatabaseUnavailable
from app.documents.errors import DocumentNotFound
from app.errors import AppError, FieldFault, Invalid, Misconfigured, TooLarge, Unauthenticated, Unavailable
from app.http import problems
from app.http.problems import STATUS, TITLES, answer, status_of
from app.http.request_context import RequestContextMiddleware

SECRET = "postgresql://user:hunter2@db/stackroom"


class Body(BaseModel):
    name: str
    number: int = 1


@pytest.fixture
def site() -> FastAPI:
    made = FastAPI()
    problems.install(made)
    made.add_middleware(RequestContextMiddleware)

    @made.post("/echo")
    async def echo(body: Body) -> Body:
        return body

    @made.get("/unknown")
    async def unknown() -> None:
        raise DocumentNotFound()

    @made.get("/crash")
    async def crash() -> None:
        raise RuntimeError(SECRET)

    @made.get("/internal")
    async def internal() -> None:
        raise AppError(SECRET)

    return made


@pytest.fixture
async def client(site: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(site, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as made:
        yield made


def errors() -> Iterator[type[AppError]]:
    """Every error of every room."""
    for module in pkgutil.walk_packages(app.__path__, "app."):
        if not module.name.endswith("__main__") and ".testing" not in module.name:
            importlib.import_module(module.name)
    waiting: list[type[AppError]] = [AppError]
    while waiting:
        kind = waiting.pop()
        yield kind
        waiting += kind.__subclasses__()


def body_of(error: AppError) -> dict[str, object]:
    made: dict[str, object] = json.loads(bytes(answer({}, error).body))
    return made


def test_every_error_has_a_family_a_code_and_a_sentence() -> None:
    found = [kind for kind in errors() if kind.__module__.startswith("app.")]

    assert len(found) > 40
    for kind in found:
        assert any(family in STATUS for family in kind.__mro__), kind
        assert kind.code == kind.code.lower().replace(" ", "_"), kind
        assert (kind.__doc__ or "").strip(), kind


def test_the_nearest_family_decides() -> None:
    assert status_of(DocumentNotFound()) == 404
    assert status_of(DatabaseUnavailable()) == 503
    assert status_of(AppError()) == 500


@pytest.mark.parametrize("family", STATUS)
def test_every_family_has_a_title(family: type[AppError]) -> None:
    assert TITLES[STATUS[family]]


def test_facts_never_stand_in_for_the_members_of_a_problem() -> None:
    body = body_of(TooLarge("too large", limit_bytes=5, status=200, detail="no", code="other", request_id="x"))

    assert (body["status"], body["detail"], body["code"], body["limit_bytes"]) == (413, "too large", "too_large", 5)


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (Unauthenticated(), "WWW-Authenticate", "Bearer"),
        (Unavailable(), "Retry-After", "5"),
        (Unavailable(retry_after_s=0.2), "Retry-After", "1"),
        (Misconfigured(), "Retry-After", "5"),
    ],
)
def test_headers_say_what_to_do(error: AppError, name: str, value: str) -> None:
    assert answer({}, error).headers[name] == value


def test_faults_keep_their_place() -> None:
    body = body_of(Invalid("no", faults=[FieldFault(("body", "filters", 0, "key"), "too long")]))

    assert body["errors"] == [{"loc": ["body", "filters", 0, "key"], "msg": "too long"}]


async def test_an_error_of_a_room_is_answered_as_a_problem(client: httpx.AsyncClient) -> None:
    found = await client.get("/unknown", headers={"X-Request-Id": "abc-1"})

    assert found.status_code == 404
    assert found.headers["content-type"] == "application/problem+json"
    assert found.headers["x-request-id"] == "abc-1"
    assert found.json() == {
        "type": "about:blank",
        "title": "Not found",
        "status": 404,
        "detail": DocumentNotFound().message,
        "code": "document_not_found",
        "request_id": "abc-1",
    }


@pytest.mark.parametrize("path", ["/crash", "/internal"])
async def test_the_text_of_an_unexpected_error_is_never_shown(client: httpx.AsyncClient, path: str) -> None:
    found = await client.get(path)

    assert found.status_code == 500
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["request_id"] == found.headers["x-request-id"]
    assert "hunter2" not in found.text


@pytest.mark.parametrize("given", ["", "a" * 65, "a b", "a/b", "ü"])
async def test_a_request_id_that_could_do_harm_is_replaced(client: httpx.AsyncClient, given: str) -> None:
    found = await client.get("/unknown", headers={b"X-Request-Id": given.encode("latin-1")})

    assert found.headers["x-request-id"] not in ("", given)


@pytest.mark.parametrize(
    ("content", "loc"),
    [
        ("{", ["body", 1]),
        ("[]", ["body"]),
        ('{"number": 1}', ["body", "name"]),
        ('{"name": "n", "number": "many"}', ["body", "number"]),
    ],
)
async def test_invalid_input_is_answered_with_its_place_and_without_the_input(
    client: httpx.AsyncClient, content: str, loc: list[object]
) -> None:
    found = await client.post("/echo", content=content, headers={"Content-Type": "application/json"})

    assert found.status_code == 422
    assert found.json()["code"] == "invalid"
    assert found.json()["errors"][0]["loc"] == loc
    assert "many" not in found.text


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("GET", "/echo", 405)])
async def test_unknown_paths_and_methods_are_problems_too(
    client: httpx.AsyncClient, method: str, path: str, status: int
) -> None:
    found = await client.request(method, path)

    assert found.status_code == status
    assert found.headers["content-type"] == "application/problem+json"
    assert found.json()["status"] == status
