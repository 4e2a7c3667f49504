"""Searches: modes, filters, scores, and the truth about what was left out."""

import time
from typing import Any

import pytest

from tests.service import Service, Tenant


@pytest.fixture(scope="module")
def library(service: Service) -> tuple[Tenant, str, dict[str, str]]:
    """Documents with attributes of every type: name → id."""
    tenant = service.tenant()
    kb = tenant.knowledge_base()
    attributes: dict[str, dict[str, Any]] = {
        "one": {"n": 1, "s": "a", "b": True, "l": ["x", "y"]},
        "float": {"n": 1.0, "s": "b", "l": ["y"]},
        "true": {"n": True},
        "text": {"n": "1", "quo'te\"$ .key": "v'); drop table works; --"},
        "bare": {},
    }
    ids = {name: tenant.text(kb, f"shelf {name}", name=name, attributes=a)["id"] for name, a in attributes.items()}
    for document_id in ids.values():
        assert tenant.settle(document_id)["status"] == "ready"
    return tenant, kb, ids


def found(library: tuple[Tenant, str, dict[str, str]], wanted: dict[str, Any]) -> set[str]:
    tenant, kb, ids = library
    names = {document_id: name for name, document_id in ids.items()}
    answer = tenant.search("shelf", knowledge_base_ids=[kb], filter=wanted, limit=50, mode="lexical")
    return {names[hit["document_id"]] for hit in answer["hits"]}


def compare(kind: str, key: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "key": key, "value": value}


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (compare("eq", "n", 1), {"one", "float"}),
        (compare("eq", "n", 1.0), {"one", "float"}),
        (compare("eq", "n", True), {"true"}),
        (compare("eq", "n", "1"), {"text"}),
        (compare("ne", "n", 1), {"true", "text", "bare"}),
        (compare("in", "n", [1, "1"]), {"one", "float", "text"}),
        (compare("in", "n", []), set()),
        (compare("nin", "n", [1, "1"]), {"true", "bare"}),
        (compare("nin", "n", []), {"one", "float", "true", "text", "bare"}),
        (compare("gt", "n", 0), {"one", "float"}),
        (compare("gte", "n", 1), {"one", "float"}),
        (compare("lt", "n", 1), set()),
        (compare("lte", "s", "a"), {"one"}),
        (compare("gt", "s", "a"), {"float"}),
        (compare("gt", "l", "a"), set()),
        (compare("eq", "l", "y"), {"one", "float"}),
        (compare("in", "l", ["x", "z"]), {"one"}),
        (compare("eq", "missing", "x"), set()),
        (compare("ne", "missing", "x"), {"one", "float", "true", "text", "bare"}),
        (compare("eq", "quo'te\"$ .key", "v'); drop table works; --"), {"text"}),
        (compare("gt", "quo'te\"$ .key", "a"), {"text"}),
        (compare("eq", "' or true --", "x"), set()),
        ({"type": "and", "filters": []}, {"one", "float", "true", "text", "bare"}),
        ({"type": "or", "filters": []}, set()),
        ({"type": "or", "filters": [compare("eq", "s", "a"), compare("eq", "b", True)]}, {"one"}),
        ({"type": "and", "filters": [compare("eq", "n", 1), compare("ne", "s", "a")]}, {"float"}),
    ],
)
def test_filters_are_two_valued(library: Any, wanted: dict[str, Any], names: set[str]) -> None:
    assert found(library, wanted) == names


@pytest.mark.parametrize(
    "wanted",
    [
        {"type": "like", "key": "a", "value": "b"},
        {"type": "eq", "key": "", "value": "b"},
        {"type": "eq", "key": "a", "value": {"b": 1}},
        {"type": "eq", "key": "a", "value": None},
        {"type": "gt", "key": "a", "value": True},
        {"type": "in", "key": "a", "value": "b"},
        {"type": "and"},
    ],
)
def test_a_filter_that_cannot_be_expressed_is_422(library: Any, wanted: dict[str, Any]) -> None:
    tenant, _, _ = library

    assert tenant.client.post("/search", json={"query": "a", "filter": wanted}).status_code == 422


@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical"])
def test_documents_and_filters_restrict_every_mode(library: Any, mode: str) -> None:
    tenant, kb, ids = library
    only = tenant.search("shelf", document_ids=[ids["one"], ids["bare"]], mode=mode, limit=50)
    filtered = tenant.search("shelf", knowledge_base_ids=[kb], filter=compare("eq", "s", "b"), mode=mode)
    nothing = tenant.search("shelf", knowledge_base_ids=[], mode=mode)

    assert {hit["document_id"] for hit in only["hits"]} == {ids["one"], ids["bare"]}
    assert {hit["document_id"] for hit in filtered["hits"]} == {ids["float"]}
    assert nothing["hits"] == []


def test_the_answer_says_which_index_and_legs_answered(library: Any) -> None:
    tenant, kb, _ = library
    answer = tenant.search("shelf one", knowledge_base_ids=[kb])

    assert answer["legs"] == ["vector", "lexical"]
    assert answer["index"]["vector_store_id"] == "pgvector"
    assert answer["index"]["embedding_model"] == "test-model"
    hit = answer["hits"][0]
    assert 0 <= hit["normalized_score"] <= 1
    assert 0 <= hit["confidence"] <= 1
    assert hit["ranks"]["vector"] == hit["ranks"]["lexical"] == 1


def test_the_same_question_gets_the_same_order(library: Any) -> None:
    tenant, kb, _ = library
    orders = [
        [(h["document_id"], h["score"]) for h in tenant.search("shelf", knowledge_base_ids=[kb], limit=50)["hits"]]
        for _ in range(3)
    ]

    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize(
    "query", ["shelf & | ! ( ) :* '", '"shelf one', "-shelf", "shelf AND", "'; drop table works;", "\\", "%", "<->"]
)
def test_what_a_person_types_is_never_query_syntax(library: Any, query: str) -> None:
    tenant, kb, _ = library

    assert tenant.client.post("/search", json={"query": query, "knowledge_base_ids": [kb]}).status_code == 200


def test_min_score_compares_with_confidence_and_says_when_it_cannot(library: Any) -> None:
    tenant, kb, _ = library
    vector = tenant.search("shelf one", knowledge_base_ids=[kb], min_score=0.9, mode="vector")
    lexical = tenant.search("shelf one", knowledge_base_ids=[kb], min_score=0.9, mode="lexical")

    assert all(hit["confidence"] >= 0.9 for hit in vector["hits"])
    assert [d["code"] for d in lexical["degraded"]] == ["min_score_not_applied"]
    assert lexical["hits"]


def test_grouping_by_document_shows_each_once(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    long_text = "\n\n".join(f"# Part {n}\n\n" + "harbour light " * 150 for n in range(4))
    tenant.ready(kb, long_text, content_type="text/markdown")
    tenant.ready(kb, "a harbour of its own")

    chunks = tenant.search("harbour", knowledge_base_ids=[kb], limit=10)["hits"]
    documents = tenant.search("harbour", knowledge_base_ids=[kb], limit=10, group_by="document")["hits"]

    assert len(chunks) > len(documents) == 2


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("図書館は九時に開きます。", "図書館"),
        ("阅览室九点开门。", "阅览室"),
        ("ห้องสมุดเปิดเก้าโมง", "ห้องสมุด"),
        ("도서관은 아홉 시에 엽니다", "도서관"),
        ("Die Bücherei öffnet um neun", "buecherei öffnet"),
        ("error ERR-4711 in /etc/app.conf", "ERR-4711"),
        ("Will and Don work in IT", "Will"),
    ],
)
def test_words_of_any_script_are_found(tenant: Tenant, text: str, query: str) -> None:
    kb = tenant.knowledge_base()
    document = tenant.ready(kb, text)

    hits = tenant.search(query, knowledge_base_ids=[kb], mode="lexical")["hits"]

    assert [hit["document_id"] for hit in hits] == [document["id"]]


def test_a_search_over_two_works_is_refused(tenant: Tenant) -> None:
    other = tenant.client.post("/works", json={"name": "Other"}).json()["id"]
    here, there = tenant.knowledge_base(), tenant.knowledge_base(work_id=other)

    both = tenant.client.post("/search", json={"query": "a", "knowledge_base_ids": [here, there]})
    disagreeing = tenant.client.post("/search", json={"query": "a", "work_id": other, "knowledge_base_ids": [here]})

    assert (both.status_code, disagreeing.status_code) == (422, 422)
    assert both.json()["code"] == "two_works"


class TestWhenTheProviderMisbehaves:
    """Each test leaves the provider as it was."""

    @pytest.fixture(autouse=True)
    def _mended(self, service: Service) -> Any:
        yield
        service.provider(always=None)

    @pytest.mark.parametrize("fault", ["server_error", "hang", "unauthorized", "quota", "wrong_width", "nan"])
    def test_a_search_answers_by_words_and_says_so(self, service: Service, tenant: Tenant, fault: str) -> None:
        kb = tenant.knowledge_base()
        tenant.ready(kb, f"lighthouse keeper {fault}")
        service.provider(always=fault)

        started = time.monotonic()
        answer = tenant.search(f"lighthouse {fault} {time.time()}", knowledge_base_ids=[kb])

        assert time.monotonic() - started < 10
        assert answer["legs"] == ["lexical"]
        assert answer["hits"]
        assert answer["hits"][0]["normalized_score"] is None
        assert answer["degraded"][0]["code"]
        assert "sk-of-the-tests" not in str(answer)
        refused = tenant.client.post(
            "/search", json={"query": f"x {time.time()}", "knowledge_base_ids": [kb], "mode": "vector"}
        )
        assert refused.status_code == 503
        assert refused.headers["retry-after"]

    def test_a_document_waits_with_the_reason_and_goes_on_by_itself(self, service: Service, tenant: Tenant) -> None:
        kb = tenant.knowledge_base()
        service.provider(always="server_error")
        document = tenant.text(kb, "patient heron")

        waiting = tenant.until(document["id"], lambda d: d["error"] is not None, 60)
        assert waiting["status"] == "queued"
        assert waiting["error"]["code"] == "provider_unavailable"
        assert waiting["error"]["retryable"] is True
        service.provider(always=None)

        assert tenant.settle(document["id"], 90)["status"] == "ready"

    @pytest.mark.parametrize(
        ("fault", "code"), [("unauthorized", "provider_misconfigured"), ("quota", "provider_misconfigured")]
    )
    def test_a_document_that_cannot_be_embedded_fails_with_the_providers_code(
        self, service: Service, tenant: Tenant, fault: str, code: str
    ) -> None:
        kb = tenant.knowledge_base()
        service.provider(always=fault)

        document = tenant.settle(tenant.text(kb, f"costly words {fault}")["id"])

        assert (document["status"], document["error"]["code"]) == ("failed", code)
        service.provider(always=None)
        assert tenant.client.post(f"/documents/{document['id']}/retry").status_code == 202
        assert tenant.settle(document["id"])["status"] == "ready"
