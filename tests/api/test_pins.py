"""Who chooses store, provider and model: settings and plugins of Works and organizations, and what explains them."""

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest

from tests.api.double_plugins import installed
from tests.service import Service, Tenant, running_service
from tests.unit.ai_providers.openai_server import EmbeddingServer

PUBLIC = "https://93.184.215.14/v1"  # an address, so that no name is looked up; nothing here ever connects to it
SECRET = "sk-a-secret-of-the-tenant-4711"


@pytest.fixture(scope="module")
def pinning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that pins nothing itself, with plugins of an outside package."""
    path: Path = tmp_path_factory.mktemp("doubles")
    with running_service(
        PYTHONPATH=installed(path / "site"),
        KB_EMBEDDING_PROVIDER_ID="",
        KB_EMBEDDING_DEFAULT_ID="openai",
        KB_PLUGIN_EMBEDDING_DOUBLE__PATH=str(path / "chunks.sqlite"),
        KB_DISABLED_PLUGINS="off-double",
    ) as started:
        yield started


@pytest.fixture
def tenant(pinning: Service) -> Tenant:
    return pinning.tenant()


class Provider:
    """A provider of a tenant's own, in a thread."""

    def __init__(self) -> None:
        self.server = EmbeddingServer(width=32)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self.server.start())
        self.url = self.server.url

    def _run(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    def texts(self) -> list[str]:
        return [text for request in list(self.server.requests) for text in request.inputs]

    def keys(self) -> set[str]:
        return {request.headers.get("authorization", "") for request in list(self.server.requests)}

    def stop(self) -> None:
        self._run(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@pytest.fixture
def own_provider() -> Iterator[Provider]:
    started = Provider()
    yield started
    started.stop()


def settings_of(tenant: Tenant) -> dict[str, dict[str, Any]]:
    answer = tenant.client.get(f"/works/{tenant.work_id}/settings")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def change(tenant: Tenant, **patch: Any) -> httpx.Response:
    return tenant.client.patch(f"/works/{tenant.work_id}/settings", json=patch)


def change_above(tenant: Tenant, **patch: Any) -> httpx.Response:
    return tenant.client.patch(f"/organizations/{tenant.organization_id}/settings", json=patch)


def put(tenant: Tenant, plugin_id: str, *, client: httpx.Client | None = None, **body: Any) -> httpx.Response:
    return (client or tenant.client).put(f"/works/{tenant.work_id}/plugins/{plugin_id}", json=body)


def put_above(tenant: Tenant, plugin_id: str, **body: Any) -> httpx.Response:
    return tenant.client.put(f"/organizations/{tenant.organization_id}/plugins/{plugin_id}", json=body)


def resolution(tenant: Tenant) -> dict[str, Any]:
    answer = tenant.client.get(f"/works/{tenant.work_id}/resolution")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def faults(answer: httpx.Response) -> dict[str, str]:
    return {".".join(str(part) for part in fault["loc"]): fault["msg"] for fault in answer.json()["errors"]}


# --- the Work itself


def test_a_work_is_read_and_renamed(tenant: Tenant) -> None:
    renamed = tenant.client.patch(f"/works/{tenant.work_id}", json={"name": "Another name"})

    assert renamed.status_code == 200
    assert tenant.client.get(f"/works/{tenant.work_id}").json()["name"] == "Another name"
    assert tenant.client.patch(f"/works/{tenant.work_id}", json={"name": " "}).status_code == 422


# --- settings and the rung they come from


def test_each_setting_tells_its_value_and_the_rung_it_came_from(tenant: Tenant) -> None:
    before = settings_of(tenant)
    change_above(tenant, chunk_size_tokens=256, max_results=7)
    middle = settings_of(tenant)
    change(tenant, chunk_size_tokens=128)
    after = settings_of(tenant)

    assert before["chunk_size_tokens"] == {"value": 512, "rung": "environment_default", "own": None}
    assert before["kb_embedding_model"] == {"value": "test-model", "rung": "environment_default", "own": None}
    assert before["kb_embedding_provider_id"] == {"value": "openai", "rung": "environment_default", "own": None}
    assert before["kb_vector_store_id"]["value"] == "pgvector"
    assert middle["chunk_size_tokens"] == {"value": 256, "rung": "organization", "own": None}
    assert middle["max_results"] == {"value": 7, "rung": "organization", "own": None}
    assert after["chunk_size_tokens"] == {"value": 128, "rung": "work", "own": 128}


def test_null_removes_a_setting(tenant: Tenant) -> None:
    change(tenant, max_results=3, kb_embedding_provider_id="local")
    set_here = settings_of(tenant)
    removed = change(tenant, max_results=None, kb_embedding_provider_id=None)

    assert set_here["kb_embedding_provider_id"] == {"value": "local", "rung": "work", "own": "local"}
    assert set_here["kb_embedding_model"]["value"] == "multilingual-e5-small"
    assert removed.status_code == 200
    assert removed.json()["max_results"] == {"value": 5, "rung": "environment_default", "own": None}
    assert removed.json()["kb_embedding_provider_id"]["own"] is None


def test_the_organizations_number_of_results_is_that_of_a_search(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    for number in range(3):
        tenant.ready(kb, f"the same subject {number}")
    change_above(tenant, max_results=2)
    two = tenant.search("the same subject")["hits"]
    change(tenant, max_results=1)

    assert len(two) == 2
    assert len(tenant.search("the same subject")["hits"]) == 1


def test_a_works_chunk_size_cuts_its_documents(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    text = " ".join(f"sentence number {n} says this and that." for n in range(60))
    whole = tenant.ready(kb, text)["chunk_count"]
    change(tenant, chunk_size_tokens=64)

    assert tenant.ready(kb, text + " More.")["chunk_count"] > whole


@pytest.mark.parametrize(
    ("patch", "loc"),
    [
        ({"chunk_size_tokens": 8}, "body.chunk_size_tokens"),
        ({"chunk_size_tokens": 64, "chunk_overlap_tokens": 32}, "body.chunk_overlap_tokens"),
        ({"max_results": 0}, "body.max_results"),
        ({"max_results": "5"}, "body.max_results"),
        ({"kb_embedding_mode": "both"}, "body.kb_embedding_mode"),
        ({"kb_embedding_mode": "plugin"}, "body.kb_embedding_mode"),
        ({"kb_embedding_dimensions": 0}, "body.kb_embedding_dimensions"),
        ({"kb_embedding_dimensions": 63}, "body.kb_embedding_dimensions"),
        ({"kb_vector_store_id": "no-such-store"}, "body.kb_vector_store_id"),
        ({"kb_vector_store_id": "openai"}, "body.kb_vector_store_id"),
        ({"kb_vector_store_id": "server-double"}, "body.kb_vector_store_id"),
        ({"kb_embedding_provider_id": "pgvector"}, "body.kb_embedding_provider_id"),
        ({"kb_embedding_provider_id": "local", "kb_embedding_model": "test-model"}, "body.kb_embedding_model"),
        ({"kb_embedding_model": "a-model-of-somebody-else"}, "body.kb_embedding_model"),
        ({"kb_embedding_model": ""}, "body.kb_embedding_model"),
        ({"unknown": 1}, "body.unknown"),
    ],
)
def test_a_setting_that_does_not_fit_is_422_with_its_place_and_changes_nothing(
    tenant: Tenant, patch: dict[str, Any], loc: str
) -> None:
    before = settings_of(tenant)
    answer = change(tenant, **patch)

    assert answer.status_code == 422, answer.text
    assert loc in faults(answer), answer.text
    assert settings_of(tenant) == before


# --- pins


def test_the_two_doors_lead_to_the_same_pin(tenant: Tenant) -> None:
    change(tenant, kb_vector_store_id="embedding-double")
    by_setting = tenant.client.get(f"/works/{tenant.work_id}/plugins/embedding-double").json()
    put(tenant, "pgvector", pinned=True)
    entries = {e["plugin_id"]: e for e in tenant.client.get(f"/works/{tenant.work_id}/plugins").json()["items"]}

    assert by_setting["pinned"] is True
    assert settings_of(tenant)["kb_vector_store_id"]["own"] == "pgvector"
    assert [e for e in entries if entries[e]["pinned"]] == ["pgvector"]


def test_resolution_says_which_rung_decided_what_was_looked_at_and_why_not(tenant: Tenant) -> None:
    put_above(tenant, "local", pinned=True)
    organization = resolution(tenant)
    change(tenant, kb_embedding_provider_id="openai", kb_embedding_dimensions=64)
    work = resolution(tenant)

    assert organization["embedding_provider"]["rung"] == "organization_pin"
    assert organization["embedding_model"] == "multilingual-e5-small"
    model = [look for look in organization["levels"] if look["setting"] == "model"]
    assert [(look["level"], look["outcome"]) for look in model] == [
        ("work", "not_set"),
        ("organization", "not_set"),
        ("environment_default", "skipped"),
        ("provider_default", "chosen"),
    ]
    assert work["embedding_provider"]["plugin_id"] == "openai"
    assert work["embedding_provider"]["rung"] == "work_pin"
    looked = [(rung["rung"], rung["outcome"]) for rung in work["embedding_provider"]["rungs"]]
    assert looked == [("operator_pin", "not_set"), ("work_pin", "chosen")]
    store = {rung["candidate"]: rung["reason"] for rung in work["vector_store"]["rungs"]}
    assert "pgvector" in store
    assert work["dims"] == 64


def test_a_pinned_store_whose_package_is_missing_is_409_naming_the_extra(tenant: Tenant) -> None:
    for answer in (change(tenant, kb_vector_store_id="sdk-double"), put(tenant, "sdk-double", pinned=True)):
        assert answer.status_code == 409, answer.text
        assert answer.json()["code"] == "missing_extra"
        assert "stackroom[sdk-double]" in answer.json()["detail"]
    assert settings_of(tenant)["kb_vector_store_id"]["own"] is None


def test_a_plugin_that_cannot_be_imported_is_listed_with_the_reason_and_everything_else_works(tenant: Tenant) -> None:
    listed = {item["id"]: item for item in tenant.client.get("/plugins").json()["items"]}
    pinned = change(tenant, kb_vector_store_id="broken-double")

    assert "another version" in listed["broken-double"]["reason"]
    assert listed["broken-double"]["available"] is False
    assert listed["pgvector"]["available"] is True
    assert pinned.status_code == 409
    assert "another version" in pinned.json()["detail"]


def test_an_unknown_plugin_is_422_in_a_pin_and_404_elsewhere(tenant: Tenant) -> None:
    answer = put(tenant, "no-such-plugin", pinned=True)

    assert answer.status_code == 422
    assert answer.json()["code"] == "unknown_plugin"
    assert "path.plugin_id" in faults(answer)
    assert tenant.client.get(f"/works/{tenant.work_id}/plugins/no-such-plugin").status_code == 404
    assert tenant.client.post("/plugins/no-such-plugin/check", json={}).status_code == 404


def test_more_dimensions_than_a_store_holds_are_refused_when_they_are_set(tenant: Tenant) -> None:
    stored = put(tenant, "server-double", settings={"url": PUBLIC})
    by_pin = put(tenant, "server-double", pinned=True)
    by_setting = change(tenant, kb_vector_store_id="server-double")

    assert stored.status_code == 200, stored.text
    assert by_pin.status_code == 422
    assert by_pin.json()["errors"][0]["loc"] == ["body", "pinned"]
    assert "48 dimensions" in by_pin.json()["detail"]
    assert by_setting.status_code == 422
    assert "body.kb_vector_store_id" in faults(by_setting)


# --- disabling


def test_what_the_operator_disabled_no_tenant_enables(tenant: Tenant) -> None:
    for answer in (put(tenant, "off-double", enabled=True), put_above(tenant, "off-double", pinned=True)):
        assert answer.status_code == 409
        assert "KB_DISABLED_PLUGINS" in answer.json()["detail"]
    entry = tenant.client.get(f"/works/{tenant.work_id}/plugins/off-double").json()
    assert entry["disabled_by"] == "operator"


def test_what_the_organization_disabled_no_work_enables(tenant: Tenant) -> None:
    assert put_above(tenant, "openai", enabled=False).status_code == 200
    answer = put(tenant, "openai", pinned=True)

    assert answer.status_code == 409
    assert answer.json()["code"] == "plugin_disabled"
    assert settings_of(tenant)["kb_embedding_provider_id"]["value"] == "local"


def test_a_pinned_plugin_is_not_disabled_under_its_pin(tenant: Tenant) -> None:
    put(tenant, "local", pinned=True)

    assert put_above(tenant, "local", enabled=False).json()["code"] == "plugin_pinned"
    assert put(tenant, "openai", enabled=False, pinned=True).status_code == 422
    put(tenant, "local", pinned=False)
    put_above(tenant, "local", pinned=True)
    assert put(tenant, "local", enabled=False).json()["code"] == "plugin_pinned"


def test_the_last_store_that_could_be_chosen_is_not_disabled(tenant: Tenant) -> None:
    first = put(tenant, "embedding-double", enabled=False)
    last = put(tenant, "pgvector", enabled=False)

    assert first.status_code == 200
    assert last.status_code == 409
    assert last.json()["code"] == "last_vector_store"


# --- settings of plugins


def test_settings_that_do_not_fit_are_422_with_their_place_and_never_quoted(tenant: Tenant) -> None:
    answer = put(tenant, "openai", settings={"api_key": SECRET + "\n", "timeout_s": -1, "nothing": SECRET})

    assert answer.status_code == 422
    assert {"body.settings.timeout_s", "body.settings.nothing"} <= set(faults(answer))
    assert SECRET not in answer.text


def test_secrets_are_write_only_sealed_and_kept_when_they_are_not_sent_again(pinning: Service, tenant: Tenant) -> None:
    first = put(tenant, "openai", settings={"base_url": PUBLIC, "api_key": SECRET, "model": "m", "dimensions": 8})
    again = put(tenant, "openai", settings={"base_url": PUBLIC, "model": "m", "dimensions": 16})
    removed = put(tenant, "openai", settings={"base_url": PUBLIC, "api_key": None})

    assert first.status_code == 200, first.text
    assert first.json()["secrets_set"] == ["api_key"]
    assert again.json()["secrets_set"] == ["api_key"]
    assert again.json()["settings"]["dimensions"] == 16
    assert removed.json()["secrets_set"] == []
    listed = tenant.client.get(f"/works/{tenant.work_id}/plugins").text
    assert all(SECRET not in text for text in (first.text, again.text, listed))
    with psycopg.connect(pinning.database_url) as connection:
        rows = connection.execute("select sealed_settings from work_plugins where sealed_settings is not null")
        assert all(SECRET.encode() not in bytes(row[0]) for row in rows)
    assert all(SECRET not in log.read_text() for log in pinning.data_dir.glob("*.log"))


def test_settings_that_no_key_opens_any_more_are_listed_as_none_and_can_be_replaced(
    pinning: Service, tenant: Tenant
) -> None:
    put(tenant, "openai", settings={"base_url": PUBLIC, "api_key": SECRET})
    with psycopg.connect(pinning.database_url) as connection:
        lost = "update work_plugins set sealed_settings = 'lost' where work_id = %s::uuid"
        connection.execute(lost, (tenant.work_id,))
    entry = tenant.client.get(f"/works/{tenant.work_id}/plugins/openai").json()
    replaced = put(tenant, "openai", settings={"base_url": PUBLIC, "api_key": SECRET})

    assert (entry["settings"], entry["secrets_set"]) == (None, [])
    assert replaced.status_code == 200
    assert replaced.json()["secrets_set"] == ["api_key"]


def test_a_stored_secret_is_never_sent_to_another_place(tenant: Tenant) -> None:
    put(tenant, "openai", settings={"base_url": PUBLIC, "api_key": SECRET})
    moved = put(tenant, "openai", settings={"base_url": "https://93.184.215.15/v1"})

    assert moved.status_code == 422
    assert "body.settings.api_key" in faults(moved)


@pytest.mark.parametrize(
    ("plugin_id", "settings", "field"),
    [
        ("local", {"model_dir": "/etc"}, "model_dir"),
        ("local", {"threads": 200}, "threads"),
        ("pgvector", {"dsn": "postgresql://db.internal/x"}, "dsn"),
        ("embedding-double", {"path": "/etc/passwd"}, "path"),
    ],
)
def test_paths_and_what_costs_the_machine_are_for_operators_only(
    pinning: Service, tenant: Tenant, plugin_id: str, settings: dict[str, Any], field: str
) -> None:
    for answer in (
        put(tenant, plugin_id, settings=settings),
        put_above(tenant, plugin_id, settings=settings),
        tenant.client.post(f"/plugins/{plugin_id}/check", json={"settings": settings}),
    ):
        assert answer.status_code == 422, answer.text
        assert "operator" in faults(answer)[f"body.settings.{field}"]
    if plugin_id == "embedding-double":
        assert put(tenant, plugin_id, client=pinning.operator, settings=settings).status_code == 200


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/v1",
        "http://localhost/v1",
        "http://localhost./v1",
        "http://10.1.2.3/v1",
        "http://192.168.0.1/v1",
        "http://169.254.169.254/latest",
        "http://168.63.129.16/v1",
        "http://100.64.0.1/v1",
        "http://0.0.0.0/v1",
        "http://0/v1",
        "http://2130706433/v1",
        "http://0x7f000001/v1",
        "http://0177.0.0.1/v1",
        "http://127.1/v1",
        "http://[::1]/v1",
        "http://[::]/v1",
        "http://[::ffff:127.0.0.1]/v1",
        "http://[::ffff:a9fe:a9fe]/v1",
        "http://[64:ff9b::10.0.0.1]/v1",
        "http://[2002:7f00:1::]/v1",
        "http://[fd00:ec2::254]/v1",
        "http://[fe80::1]/v1",
        "http://①②⑦.⓪.⓪.①/v1",
        "http://no-such-host.invalid/v1",
    ],
)
def test_an_endpoint_in_a_private_network_is_422_when_a_tenant_sets_or_tries_it(tenant: Tenant, url: str) -> None:
    for answer in (
        put(tenant, "openai", settings={"base_url": url}),
        put_above(tenant, "openai", settings={"base_url": url}),
        tenant.client.post("/plugins/openai/check", json={"settings": {"base_url": url, "model": "m"}}),
    ):
        assert answer.status_code == 422, (url, answer.text)
        assert "body.settings.base_url" in faults(answer)


def test_the_endpoint_of_a_plugin_that_cannot_check_where_it_connects_is_for_operators(
    pinning: Service, tenant: Tenant
) -> None:
    settings = {"url": "https://93.184.215.14:6333"}
    refused = put(tenant, "unchecked-double", settings=settings)
    operator = put(tenant, "unchecked-double", client=pinning.operator, settings=settings)
    pinned = put(tenant, "unchecked-double", pinned=True)

    assert refused.status_code == 422
    assert "body.settings.url" in faults(refused)
    assert operator.status_code == 200, operator.text
    assert pinned.status_code == 200, pinned.text


def test_trying_settings_stores_nothing(tenant: Tenant) -> None:
    ours = tenant.client.post("/plugins/pgvector/check", json={})
    away = tenant.client.post("/plugins/server-double/check", json={"settings": {"url": PUBLIC, "timeout_s": 0.2}})

    assert ours.json()["available"] is True
    assert away.status_code == 200, away.text
    assert away.json()["available"] is False
    entries = tenant.client.get(f"/works/{tenant.work_id}/plugins").json()["items"]
    assert all(entry["settings"] is None for entry in entries)


# --- used for real


def test_a_rotated_secret_is_used_at_once_and_a_changed_endpoint_is_another_instance(
    pinning: Service, tenant: Tenant, own_provider: Provider
) -> None:
    """An operator allows the tenant a provider in the private network; the tenant rotates its key alone."""
    settings = {"base_url": own_provider.url, "api_key": "sk-first", "model": "own-model", "dimensions": 32}
    made = put(tenant, "openai", client=pinning.operator, pinned=True, settings=settings)
    assert made.status_code == 200, made.text
    kb = tenant.knowledge_base()
    tenant.ready(kb, "written with the first key")
    rotated = put(tenant, "openai", pinned=True, settings={**settings, "api_key": "sk-second"})
    assert rotated.status_code == 200, rotated.text
    own_provider.server.api_key = "sk-second"
    deadline = time.monotonic() + 15
    while tenant.search(f"asked with the second key {uuid4().hex}")["degraded"]:
        assert time.monotonic() < deadline
        time.sleep(0.5)

    generations = tenant.client.get(f"/works/{tenant.work_id}/generations").json()["items"]
    assert [g["embedding_model"] for g in generations] == ["own-model"]
    assert {"Bearer sk-first", "Bearer sk-second"} <= own_provider.keys()
    assert tenant.ready(kb, "written with the second key")["status"] == "ready"
    moved = put(tenant, "openai", pinned=True, settings={**settings, "base_url": "http://127.0.0.1:1/v1"})
    assert moved.status_code == 422  # what the operator allowed was that one endpoint


def test_settings_that_an_index_uses_are_not_removed(pinning: Service, tenant: Tenant, own_provider: Provider) -> None:
    settings = {"base_url": own_provider.url, "model": "own-model", "dimensions": 32}
    put(tenant, "openai", client=pinning.operator, pinned=True, settings=settings)
    tenant.ready(tenant.knowledge_base(), "held by an index")
    in_use = tenant.client.delete(f"/works/{tenant.work_id}/plugins/openai")
    free = put(tenant, "pgvector", pinned=True)

    assert in_use.status_code == 409
    assert in_use.json()["code"] == "plugin_in_use"
    assert in_use.json()["generations"] == [1]
    assert free.status_code == 200
    assert tenant.client.delete(f"/works/{tenant.work_id}/plugins/pgvector").status_code == 204
    assert settings_of(tenant)["kb_vector_store_id"]["own"] is None


def test_a_works_pin_without_settings_takes_those_of_its_organization(
    pinning: Service, tenant: Tenant, own_provider: Provider
) -> None:
    settings = {"base_url": own_provider.url, "model": "shared-model", "dimensions": 32}
    url = f"/organizations/{tenant.organization_id}/plugins/openai"
    assert pinning.operator.put(url, json={"settings": settings}).status_code == 200
    change(tenant, kb_embedding_provider_id="openai")
    tenant.ready(tenant.knowledge_base(), "embedded at the organization's endpoint")

    assert "embedded at the organization's endpoint" in " ".join(own_provider.texts())
    assert tenant.client.delete(url).status_code == 409


def test_in_mode_plugin_no_provider_is_ever_called(pinning: Service, tenant: Tenant, own_provider: Provider) -> None:
    """Even with a provider pinned, which is told nothing: neither of a chunk nor of a question."""
    settings = {"base_url": own_provider.url, "model": "own-model", "dimensions": 32}
    put(tenant, "openai", client=pinning.operator, pinned=True, settings=settings)
    assert change(tenant, kb_vector_store_id="embedding-double").status_code == 200
    kb = tenant.knowledge_base()
    pinning.provider(always="server_error")
    try:
        document = tenant.ready(kb, "the store embeds this by itself")
        answers = [tenant.search("embeds this by itself", mode=mode) for mode in ("vector", "hybrid")]
        explained = resolution(tenant)
    finally:
        pinning.provider(always=None)

    assert own_provider.server.requests == []
    for answer in answers:
        assert answer["hits"][0]["document_id"] == document["id"]
        assert answer["degraded"] == []
        assert answer["index"]["vector_store_id"] == "embedding-double"
    generation = tenant.client.get(f"/works/{tenant.work_id}/generations").json()["items"][0]
    assert (generation["embedding_mode"], generation["embedding_provider_id"]) == ("plugin", None)
    assert (explained["embedding_mode"], explained["embedding_provider"]) == ("plugin", None)


# --- rights


def doors(tenant: Tenant) -> list[tuple[str, str, Any]]:
    work, organization = f"/works/{tenant.work_id}", f"/organizations/{tenant.organization_id}"
    return [
        ("PATCH", work, {"name": "x"}),
        *[
            door
            for place in (work, organization)
            for door in (
                ("GET", f"{place}/settings", None),
                ("PATCH", f"{place}/settings", {"max_results": 3}),
                ("GET", f"{place}/plugins", None),
                ("GET", f"{place}/plugins/pgvector", None),
                ("PUT", f"{place}/plugins/pgvector", {"pinned": True}),
                ("DELETE", f"{place}/plugins/pgvector", None),
            )
        ],
    ]


def test_another_organizations_work_is_404_at_every_door(pinning: Service, tenant: Tenant) -> None:
    stranger = pinning.tenant()

    for method, path, body in [("GET", f"/works/{tenant.work_id}", None), *doors(tenant)]:
        answer = stranger.client.request(method, path, json=body)
        assert answer.status_code == 404, (method, path, answer.text)


@pytest.mark.parametrize(("scopes", "role"), [(("read", "write"), "admin"), (("read", "write", "admin"), "member")])
def test_only_administrators_of_the_organization_change_or_read_it(
    pinning: Service, tenant: Tenant, scopes: tuple[str, ...], role: str
) -> None:
    colleague = pinning.colleague(tenant.organization_id, tenant.work_id, scopes=scopes, role=role)

    for method, path, body in doors(tenant):
        answer = colleague.client.request(method, path, json=body)
        assert answer.status_code == 403, (method, path, answer.text)
    assert colleague.client.get(f"/works/{tenant.work_id}").status_code == 200


def test_an_operator_manages_the_works_of_every_organization(pinning: Service, tenant: Tenant) -> None:
    operator = pinning.operator

    assert operator.get(f"/works/{tenant.work_id}").status_code == 200
    assert operator.patch(f"/works/{tenant.work_id}/settings", json={"max_results": 9}).status_code == 200
    assert settings_of(tenant)["max_results"]["value"] == 9


def test_two_pins_at_the_same_moment_leave_one(tenant: Tenant) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda n: put(tenant, ("pgvector", "memory")[n % 2], pinned=True), range(8)))

    assert {answer.status_code for answer in answers} <= {200, 409}
    entries = tenant.client.get(f"/works/{tenant.work_id}/plugins").json()["items"]
    assert len([entry for entry in entries if entry["pinned"]]) == 1
