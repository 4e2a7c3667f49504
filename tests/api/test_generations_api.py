"""An index is replaced, from outside: by another model, another store, by command, and back."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.api.test_pins import Provider, change, put
from tests.postgres import fresh_database
from tests.service import Service, Tenant, running_service, url_of

TEXTS = ("The bakery sells rye bread from six.", "A river floods the meadows.", "Ships wait in the harbour.")


@pytest.fixture(scope="module")
def changing() -> Iterator[Service]:
    """A service that pins nothing itself."""
    with running_service(KB_EMBEDDING_PROVIDER_ID="", KB_EMBEDDING_DEFAULT_ID="openai") as started:
        yield started


@pytest.fixture
def tenant(changing: Service) -> Tenant:
    return changing.tenant()


@pytest.fixture
def other(changing: Service) -> Iterator[Provider]:
    """Another provider of embeddings, 32 wide."""
    started = Provider()
    yield started
    started.stop()


def filled(tenant: Tenant) -> list[str]:
    base = tenant.knowledge_base()
    documents = [tenant.text(base, text)["id"] for text in TEXTS]
    for document_id in documents:
        assert tenant.settle(document_id)["status"] == "ready"
    return documents


def use(tenant: Tenant, provider: Provider, **settings: Any) -> None:
    """An operator gives the Work a provider on loopback."""
    values = {"base_url": provider.url, "api_key": "sk-other", "model": "other", "dimensions": 32, **settings}
    answer = put(tenant, "openai", client=tenant.service.operator, pinned=True, settings=values)
    assert answer.status_code == 200, answer.text


def generations(tenant: Tenant) -> list[dict[str, Any]]:
    answer = tenant.client.get(f"/works/{tenant.work_id}/generations")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def until(tenant: Tenant, **states: str) -> dict[int, dict[str, Any]]:
    """Wait until generations have these states: `_2="active"`."""
    deadline = time.monotonic() + 60
    while True:
        found = {one["number"]: one for one in generations(tenant)}
        if all(found.get(int(number[1:]), {}).get("state") == state for number, state in states.items()):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def post(tenant: Tenant, generation: dict[str, Any], act: str, **body: Any) -> httpx.Response:
    return tenant.client.post(f"/works/{tenant.work_id}/generations/{generation['id']}/{act}", json=body)


def found_by_meaning(tenant: Tenant, query: str = "rye bread") -> dict[str, Any]:
    answer = tenant.search(query, mode="vector")
    assert answer["degraded"] == []
    assert len(answer["hits"]) == 3
    return answer


def test_another_provider_is_moved_to_by_itself_while_searches_stay_complete(tenant: Tenant, other: Provider) -> None:
    documents = filled(tenant)

    use(tenant, other)
    while {one["state"] for one in generations(tenant)} != {"active", "retired"}:
        assert {hit["document_id"] for hit in found_by_meaning(tenant)["hits"]} == set(documents)

    new, old = generations(tenant)
    assert (new["number"], new["state"], old["state"]) == (2, "active", "retired")
    assert (new["dims"], new["embedding_model"], new["documents_done"], new["documents_total"]) == (32, "other", 3, 3)
    answer = found_by_meaning(tenant)
    assert answer["index"]["generation_id"] == new["id"]
    assert answer["index"]["dims"] == 32
    assert {text for text in other.texts() if text in TEXTS} == set(TEXTS)


def test_the_first_index_counts_the_documents_that_it_holds(tenant: Tenant) -> None:
    filled(tenant)

    [first] = generations(tenant)
    alone = tenant.client.get(f"/works/{tenant.work_id}/generations/{first['id']}").json()

    assert (first["documents_done"], first["documents_total"]) == (3, 3)
    assert alone == first


def test_what_happened_is_listed_with_numbers_and_for_those_who_may_see_the_work(
    tenant: Tenant, other: Provider, changing: Service
) -> None:
    filled(tenant)
    use(tenant, other)
    until(tenant, _2="active")

    answer = tenant.client.get("/activity", params={"work_id": tenant.work_id})

    assert answer.status_code == 200
    completed, started = answer.json()["items"]
    assert (completed["kind"], started["kind"]) == ("KB_REEMBED_COMPLETED", "KB_REEMBED_STARTED")
    assert completed["facts"]["documents_done"] == 3
    assert not any(text in answer.text for text in TEXTS)
    page = tenant.client.get("/activity", params={"work_id": tenant.work_id, "limit": 1}).json()
    rest = tenant.client.get("/activity", params={"work_id": tenant.work_id, "cursor": page["next_cursor"]}).json()
    assert [one["id"] for one in page["items"] + rest["items"]] == [completed["id"], started["id"]]
    stranger = changing.tenant()
    assert stranger.client.get("/activity", params={"work_id": tenant.work_id}).status_code == 404
    assert stranger.client.get("/activity").json()["items"] == []


def test_another_store_gets_the_vectors_copied_and_back_again(tenant: Tenant, other: Provider) -> None:
    use(tenant, other)
    documents = filled(tenant)
    asked = len(other.texts())

    assert change(tenant, kb_vector_store_id="lancedb").status_code == 200
    found = until(tenant, _2="active")
    assert (found[1]["vector_store_id"], found[2]["vector_store_id"]) == ("pgvector", "lancedb")
    assert {hit["document_id"] for hit in found_by_meaning(tenant)["hits"]} == set(documents)
    assert not set(other.texts()[asked:]) & set(TEXTS)  # probes and the question, no document

    assert change(tenant, kb_vector_store_id=None).status_code == 200
    found = until(tenant, _1="active", _2="retired")  # revived
    assert {hit["document_id"] for hit in found_by_meaning(tenant)["hits"]} == set(documents)


def test_vectors_move_to_another_database_that_held_nothing_of_ours(tenant: Tenant) -> None:
    documents = filled(tenant)
    elsewhere = url_of(conninfo_to_dict(fresh_database()))

    refused = put(tenant, "pgvector", pinned=True, settings={"dsn": elsewhere})
    assert refused.status_code == 422  # only an operator sets it
    moved = put(tenant, "pgvector", client=tenant.service.operator, pinned=True, settings={"dsn": elsewhere})
    assert moved.status_code == 200, moved.text
    assert elsewhere not in moved.text
    until(tenant, _1="retired", _2="active")

    assert {hit["document_id"] for hit in found_by_meaning(tenant)["hits"]} == set(documents)
    with psycopg.connect(elsewhere) as there:
        assert there.execute("select count(*) from pgvector_chunks").fetchone() == (3,)
        assert there.execute("select to_regclass('works')").fetchone() == (None,)


def test_going_back_by_command_pins_what_the_generation_was_made_with(tenant: Tenant, other: Provider) -> None:
    documents = filled(tenant)
    assert change(tenant, kb_vector_store_id="lancedb").status_code == 200
    found = until(tenant, _2="active")

    answer = post(tenant, found[1], "rollback")

    assert answer.status_code == 202, answer.text
    until(tenant, _1="active", _2="retired")
    settings = tenant.client.get(f"/works/{tenant.work_id}/settings").json()
    assert settings["kb_vector_store_id"] == {"value": "pgvector", "rung": "work", "own": "pgvector"}
    assert settings["kb_embedding_model"]["own"] == found[1]["embedding_model"]
    assert {hit["document_id"] for hit in found_by_meaning(tenant)["hits"]} == set(documents)
    time.sleep(2.5)  # two rounds of upkeep: nothing moves it away again
    until(tenant, _1="active", _2="retired")


def test_going_back_to_what_settings_can_no_longer_choose_is_refused(tenant: Tenant, other: Provider) -> None:
    filled(tenant)
    use(tenant, other)
    found = until(tenant, _2="active")
    use(tenant, other, model="third")
    until(tenant, _3="active")

    answer = post(tenant, found[2], "rollback")

    assert answer.status_code == 409
    assert answer.json()["code"] == "not_reproducible"
    assert {one["number"]: one["state"] for one in generations(tenant)} == {1: "retired", 2: "retired", 3: "active"}


def test_building_by_command(tenant: Tenant) -> None:
    path = f"/works/{tenant.work_id}/generations"
    assert tenant.client.post(path, json={}).json()["code"] == "no_index_yet"
    filled(tenant)

    idle = tenant.client.post(path, json={})
    assert (idle.status_code, idle.json()["code"]) == (409, "up_to_date")
    forced = tenant.client.post(path, json={"force": True})
    assert forced.status_code == 202, forced.text
    assert httpx.URL(forced.headers["location"]).path.endswith(forced.json()["id"])
    until(tenant, _1="retired", _2="active")
    assert len(found_by_meaning(tenant)["hits"]) == 3


def test_a_second_wish_while_one_is_built_is_told_which_and_it_can_be_cancelled(
    tenant: Tenant, other: Provider
) -> None:
    filled(tenant)
    other.server.always = "server_error"
    use(tenant, other)
    found = until(tenant, _2="building")

    second = tenant.client.post(f"/works/{tenant.work_id}/generations", json={})
    assert second.status_code == 409
    assert (second.json()["code"], second.json()["generation_id"]) == ("generation_building", found[2]["id"])
    deadline = time.monotonic() + 20
    while not (waits := {one["number"]: one for one in generations(tenant)}[2]["error"]):
        assert time.monotonic() < deadline
    assert waits.startswith("Waits: ")
    early = post(tenant, found[2], "activate", allow_missing=True)
    assert early.status_code == 409
    assert (early.json()["code"], early.json()["remaining"]) == ("generation_incomplete", 3)
    assert len(tenant.search("rye bread")["hits"]) > 0

    put(tenant, "openai", client=tenant.service.operator, pinned=False)  # or it would be wanted again
    until(tenant, _1="active", _2="cancelled")
    again = post(tenant, found[2], "cancel")
    assert (again.status_code, again.json()["state"]) == (202, "cancelled")
    wrong = post(tenant, found[1], "cancel")
    assert (wrong.status_code, wrong.json()["code"], wrong.json()["state"]) == (409, "wrong_state", "active")


def test_refused_documents_are_listed_and_accepted(tenant: Tenant, other: Provider, changing: Service) -> None:
    documents = filled(tenant)
    other.server.misbehave("bad_request")
    use(tenant, other)
    deadline = time.monotonic() + 40
    while (found := {one["number"]: one for one in generations(tenant)}).get(2, {}).get("documents_done") != 2:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)

    deadline = time.monotonic() + 40
    while (answer := post(tenant, found[2], "activate")).json().get("remaining") != 0:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
    assert answer.status_code == 409
    [refused] = answer.json()["refused"]
    assert refused["code"] == "provider_refused"
    path = f"/works/{tenant.work_id}/generations/{found[2]['id']}/refused"
    listed = tenant.client.get(path).json()
    assert [one["document_id"] for one in listed["items"]] == [refused["document_id"]]
    assert listed["items"][0]["accepted"] is False

    assert post(tenant, found[2], "activate", allow_missing=True).status_code == 202
    active = until(tenant, _2="active")[2]
    assert (active["documents_done"], active["documents_refused"]) == (2, 1)
    document = tenant.client.get(f"/documents/{refused['document_id']}").json()
    assert document["status"] == "ready"
    assert [one["code"] for one in document["warnings"]] == ["not_embedded"]
    words = TEXTS[documents.index(refused["document_id"])]
    assert tenant.search(words, mode="lexical")["hits"][0]["document_id"] == refused["document_id"]


def test_progress_comes_as_events_until_it_is_done(tenant: Tenant, other: Provider) -> None:
    filled(tenant)
    use(tenant, other)
    found = until(tenant, _2="active")
    path = f"/works/{tenant.work_id}/generations/{found[2]['id']}/events"

    with tenant.client.stream("GET", path) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in stream.iter_lines() if line]

    assert lines[0] == "event: generation"
    last = json.loads(lines[-1].removeprefix("data: "))
    assert (last["id"], last["state"], last["documents_done"]) == (found[2]["id"], "active", 3)
    assert last["seconds_left"] is None


def test_strangers_and_readers(tenant: Tenant, changing: Service) -> None:
    filled(tenant)
    [generation] = generations(tenant)
    stranger = changing.tenant()
    reader = changing.colleague(tenant.organization_id, tenant.work_id)
    base = f"/works/{tenant.work_id}/generations"
    posts = [base, *(f"{base}/{generation['id']}/{act}" for act in ("activate", "cancel", "rollback"))]

    for path in (base, f"{base}/{generation['id']}", f"{base}/{generation['id']}/events"):
        assert stranger.client.get(path).status_code == 404, path
        assert reader.client.get(path).status_code == 200, path
    for path in posts:
        assert stranger.client.post(path, json={}).status_code == 404, path
        assert reader.client.post(path, json={}).status_code == 403, path
    unknown = f"{base}/{uuid4()}"
    assert tenant.client.get(unknown).status_code == 404
    for act in ("activate", "cancel", "rollback"):
        assert tenant.client.post(f"{unknown}/{act}", json={}).status_code == 404
        # A generation of another Work, asked for under one's own.
        theirs = f"/works/{stranger.work_id}/generations/{generation['id']}/{act}"
        assert stranger.client.post(theirs, json={}).status_code == 404
    for bad in ({"force": "perhaps"}, {"unknown": 1}):
        assert tenant.client.post(base, json=bad).status_code == 422
    assert tenant.client.get(f"{base}/x").status_code == 422


def test_a_cancelled_generation_leaves_nothing_in_its_store(tenant: Tenant, other: Provider) -> None:
    filled(tenant)
    other.server.misbehave(None, None, "server_error", "server_error", "server_error", "server_error")
    other.server.always = "server_error"
    use(tenant, other)
    until(tenant, _2="building")
    put(tenant, "openai", client=tenant.service.operator, pinned=False)
    found = until(tenant, _2="cancelled")

    deadline = time.monotonic() + 30
    with psycopg.connect(tenant.service.database_url, autocommit=True) as owner:
        while not owner.execute(
            "select closed_at from deletion_receipts where object_id = %s and closed_at is not null", (found[2]["id"],)
        ).fetchall():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        left = owner.execute(
            "select count(*) from work_knowledge_chunk_coordinates where generation_id = %s", (found[2]["id"],)
        ).fetchone()
    assert left == (0,)


def test_going_back_and_going_live_do_not_wait_for_each_other_in_a_circle(tenant: Tenant) -> None:
    """Go-live holds `W` and then wants the Work's row; so whoever wants both takes them in that order."""
    filled(tenant)
    assert tenant.client.post(f"/works/{tenant.work_id}/generations", json={"force": True}).status_code == 202
    found = until(tenant, _1="retired", _2="active")
    lock = "select pg_advisory_xact_lock_shared(hashtextextended('stackroom.work.' || %s, 0))"
    waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
    with psycopg.connect(tenant.service.database_url) as live, ThreadPoolExecutor(1) as aside:
        live.execute(lock, (tenant.work_id,))
        back = aside.submit(post, tenant, found[1], "rollback")
        deadline = time.monotonic() + 20
        with psycopg.connect(tenant.service.database_url, autocommit=True) as looking:
            while looking.execute(waiting).fetchone() == (0,):
                assert time.monotonic() < deadline
        live.execute("set local lock_timeout = '5s'")
        live.execute("update works set index_version = index_version + 1 where id = %s", (tenant.work_id,))
        live.commit()
        assert back.result(30).status_code == 202
    until(tenant, _1="active", _2="retired")
