"""The API description and the guard: what clients are generated from, and that no route is without a rule."""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.http import health
from app.identity.dependencies import all_routes, routes_without_rule
from app.main import create_app
from tests.service import Service, Tenant

METHODS = {"get", "put", "post", "patch", "delete"}


@pytest.fixture(scope="module")
def description(service: Service) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{service.url}/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def application() -> Iterator[FastAPI]:
    """The application, not started; the handlers of the log, which it sets, are put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield create_app()
    root.handlers[:], root.level = handlers, level


def operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, item in description["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def test_it_is_openapi_3_1_with_an_own_id_for_each_operation(description: dict[str, Any]) -> None:
    assert description["openapi"].startswith("3.1")
    ids = Counter(operation["operationId"] for _, _, operation in operations(description))

    assert [name for name, times in ids.items() if times > 1] == []
    assert all(name.isidentifier() and "_v1_" not in name for name in ids)


def test_paths_begin_with_v1_and_name_their_ids(description: dict[str, Any]) -> None:
    for path in description["paths"]:
        assert path.startswith("/v1/") or path in ("/healthz", "/readyz", "/metrics"), path
        assert "{id}" not in path


def test_no_parameter_may_be_null_and_every_answer_field_is_present(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        for parameter in operation.get("parameters", []):
            kinds = [part.get("type") for part in parameter["schema"].get("anyOf", [])]
            assert "null" not in kinds, (method, path, parameter["name"])
    for name in ("DocumentAnswer", "KnowledgeBaseAnswer", "SearchAnswer", "SearchHit", "DocumentList"):
        schema = description["components"]["schemas"][name]
        assert set(schema["required"]) == set(schema["properties"]), name


def test_every_operation_describes_its_problems(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        default = operation["responses"].get("default", {})
        named = description["components"]["responses"][default["$ref"].rpartition("/")[2]]
        schema = str(named["content"])
        assert "Problem" in schema, (method, path)
        assert "application/problem+json" in schema, (method, path)


def test_every_route_declares_a_rule(application: FastAPI) -> None:
    assert routes_without_rule(application, health.PUBLIC_PATHS) == []
    assert len(all_routes(application)) > 25


def test_a_route_without_a_rule_is_caught() -> None:
    careless = FastAPI()

    async def forgotten() -> None: ...

    careless.add_api_route("/v1/forgotten", forgotten)

    assert routes_without_rule(careless, health.PUBLIC_PATHS) == ["['GET'] /v1/forgotten"]


def test_every_route_refuses_a_request_without_a_key_and_with_a_wrong_one(
    service: Service, application: FastAPI
) -> None:
    unknown = "00000000-0000-7000-8000-000000000000"
    asked = 0
    for route in all_routes(application):
        if route.path in health.PUBLIC_PATHS:
            continue
        path = "/".join(unknown if part.startswith("{") else part for part in route.path.split("/"))
        for method in route.methods or ():
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic d3Jvbmc6"}):
                answer = httpx.request(method, service.url + path, headers=headers)
                assert answer.status_code == 401, (method, path)
                assert answer.json()["code"] == "unauthenticated"
                asked += 1
    assert asked > 75


def test_every_route_with_an_id_answers_404_for_an_unknown_one(tenant: Tenant, application: FastAPI) -> None:
    """With a body that fits, so that nothing but the id is wrong."""
    bodies: dict[str, dict[str, Any]] = {
        "create_user": {"json": {"subject": "s", "name": "n"}},
        "change_knowledge_base": {"json": {"name": "n"}},
        "change_document": {"json": {"name": "n"}},
        "upload_text": {"json": {"name": "n", "text": "t"}},
        "upload_document": {"files": {"file": ("a.txt", b"x")}},
        "upload_document_alias": {"files": {"file": ("a.txt", b"x")}},
        "replace_document_content": {"content": b"x"},
        "change_work": {"json": {"name": "n"}},
        "change_work_settings": {"json": {"max_results": 5}},
        "change_organization_settings": {"json": {"max_results": 5}},
        "set_work_plugin": {"json": {"enabled": True}},
        "set_organization_plugin": {"json": {"enabled": True}},
        "check_plugin": {"json": {"settings": {}}},
    }
    asked = 0
    for route in all_routes(application):
        if "{" not in route.path:
            continue
        unknown = "00000000-0000-7000-8000-000000000000"
        path = "/".join(unknown if part.startswith("{") else part for part in route.path.split("/"))
        for method in route.methods or ():
            url = path.removeprefix("/v1")
            answer = tenant.client.request(method, url, **bodies.get(str(route.operation_id), {}))
            assert answer.status_code == 404, (method, path, answer.text)
            asked += 1
            if route.path.count("{") == route.path.count("{plugin_id}"):
                continue  # the id of a plugin is a name: any other one is unknown
            malformed = tenant.client.request(
                method, url.replace(unknown, "not-an-id"), **bodies.get(str(route.operation_id), {})
            )
            assert malformed.status_code == 422, (method, path, malformed.text)
            assert malformed.json()["errors"][0]["loc"][0] == "path"
    assert asked > 30


def test_the_tools_schema_can_be_asked_for(tenant: Tenant) -> None:
    answer = tenant.client.get("/tools")

    assert answer.status_code == 200
    assert "kb_search" in str(answer.json())
    assert "kb_ids" in str(answer.json())
