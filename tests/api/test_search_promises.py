"""Promises of the search: order, filling, restriction, honesty about what was left out."""

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.service import Service, Tenant

MODES = ("hybrid", "vector", "lexical")


@pytest.fixture(scope="module")
def many(service: Service) -> tuple[Tenant, str, list[str]]:
    """Thirty documents, twelve of them with the same text; in document order."""
    tenant = service.tenant()
    kb = tenant.knowledge_base("Many")
    made = []
    for n in range(30):
        text = "the tide comes in twice a day" if n < 12 else f"the tide table number {n} of harbour {n * 7}"
        attributes = {"n": n, "even": n % 2 == 0}
        made.append(tenant.text(kb, text, name=f"doc {n:02}", external_id=str(n), attributes=attributes)["id"])
    for document in made:
        assert tenant.settle(document)["status"] == "ready"
    return tenant, kb, made


def ids(answer: dict[str, Any]) -> list[str]:
    return [hit["document_id"] for hit in answer["hits"]]


@pytest.mark.parametrize("mode", MODES)
def test_equal_texts_are_ordered_alike_in_every_answer_and_at_every_limit(many: Any, mode: str) -> None:
    tenant, kb, _ = many
    whole = ids(tenant.search("tide twice a day", knowledge_base_ids=[kb], mode=mode, limit=30))

    assert len(whole) == len(set(whole)) == 30
    assert whole[:12] == sorted(whole[:12])
    for limit in (1, 5, 12, 29):
        for _ in range(2):
            assert (
                ids(tenant.search("tide twice a day", knowledge_base_ids=[kb], mode=mode, limit=limit))
                == (whole[:limit])
            )


@pytest.mark.parametrize("mode", MODES)
def test_scores_fall_and_ranks_count_from_one(many: Any, mode: str) -> None:
    tenant, kb, _ = many
    hits = tenant.search("tide table harbour", knowledge_base_ids=[kb], mode=mode, limit=30)["hits"]

    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    for leg in ("vector", "lexical"):
        ranks = [hit["ranks"][leg] for hit in hits if hit["ranks"].get(leg) is not None]
        assert len(ranks) == len(set(ranks))
        assert not ranks or min(ranks) == 1
    for hit in hits:
        if hit["normalized_score"] is not None:
            assert 0 <= hit["normalized_score"] <= 1
            assert 0 <= hit["confidence"] <= 1


@pytest.mark.parametrize("mode", MODES)
def test_a_filtered_search_is_filled_up_to_its_limit(many: Any, mode: str) -> None:
    tenant, kb, made = many
    wanted = {"type": "and", "filters": [
        {"type": "eq", "key": "even", "value": True}, {"type": "gte", "key": "n", "value": 10},
    ]}  # fmt: skip
    found = ids(tenant.search("the tide", knowledge_base_ids=[kb], filter=wanted, mode=mode, limit=10))

    assert sorted(found) == sorted(made[10::2])


@pytest.mark.parametrize("mode", MODES)
def test_document_ids_and_filter_narrow_together(many: Any, mode: str) -> None:
    tenant, _, made = many
    even = {"type": "eq", "key": "even", "value": True}
    chosen = [made[20], made[21], made[22]]

    assert sorted(ids(tenant.search("tide", document_ids=chosen, filter=even, mode=mode, limit=10))) == sorted(
        [made[20], made[22]]
    )
    assert ids(tenant.search("tide", document_ids=[], mode=mode)) == []
    assert ids(tenant.search("tide", document_ids=chosen, knowledge_base_ids=[], mode=mode)) == []


def test_a_document_outside_the_named_knowledge_bases_is_not_searched(many: Any) -> None:
    tenant, _kb, made = many
    other = tenant.knowledge_base("Other")

    assert ids(tenant.search("tide", knowledge_base_ids=[other], document_ids=[made[0]])) == []


def test_one_foreign_id_among_own_ones_refuses_the_whole_search(service: Service, many: Any) -> None:
    tenant, kb, made = many
    stranger = service.tenant()
    theirs = stranger.knowledge_base()
    document = stranger.ready(theirs, "tide of strangers")["id"]

    for field, value in (("knowledge_base_ids", [kb, theirs]), ("document_ids", [made[0], document])):
        answer = tenant.client.post("/search", json={"query": "tide", field: value})
        assert answer.status_code == 404
    assert tenant.client.post("/tools/kb_search", json={"query": "tide", "kb_ids": [kb, theirs]}).status_code == 404


def test_without_ids_only_own_knowledge_bases_of_the_default_work_are_searched(service: Service, many: Any) -> None:
    tenant, _, made = many
    stranger = service.tenant()
    stranger.ready(stranger.knowledge_base(), "the tide comes in twice a day")
    other_work = tenant.client.post("/works", json={"name": "Elsewhere"}).json()["id"]
    elsewhere = tenant.knowledge_base(work_id=other_work)
    hidden = tenant.ready(elsewhere, "the tide comes in twice a day")["id"]

    for mode in MODES:
        found = tenant.client.post("/search", json={"query": "tide twice a day", "mode": mode, "limit": 100}).json()
        assert set(ids(found)) == set(made), mode
    assert ids(tenant.search("tide", work_id=other_work)) == [hidden]


def test_every_mode_of_an_empty_work_answers_with_nothing(service: Service) -> None:
    tenant = service.tenant()
    for mode in ("hybrid", "lexical"):
        assert tenant.search("anything", mode=mode)["hits"] == []
    answer = tenant.client.post("/search", json={"query": "anything", "mode": "vector"})
    assert answer.status_code in (200, 503)
    assert answer.status_code == 503 or answer.json()["hits"] == []


def test_the_default_limit_is_five(many: Any) -> None:
    tenant, kb, _ = many
    assert len(tenant.search("tide", knowledge_base_ids=[kb])["hits"]) == 5
    assert len(tenant.client.post("/tools/kb_search", json={"query": "tide", "kb_ids": [kb]}).json()["results"]) == 5


def test_repeated_ids_count_once(many: Any) -> None:
    tenant, kb, made = many
    assert ids(tenant.search("tide", knowledge_base_ids=[kb, kb], document_ids=[made[3]] * 3)) == [made[3]]


@pytest.mark.parametrize("mode", MODES)
def test_grouping_keeps_the_best_chunk_of_each_document_in_order(tenant: Tenant, mode: str) -> None:
    kb = tenant.knowledge_base()
    for n in range(3):
        parts = "\n\n".join(f"# Part {p}\n\n" + f"lantern oil number {n} and {p} " * 60 for p in range(4))
        tenant.ready(kb, parts, content_type="text/markdown")

    chunks = tenant.search("lantern oil", knowledge_base_ids=[kb], limit=50, mode=mode)["hits"]
    grouped = tenant.search("lantern oil", knowledge_base_ids=[kb], limit=50, mode=mode, group_by="document")["hits"]

    first: dict[str, Any] = {}
    for hit in chunks:
        first.setdefault(hit["document_id"], hit["chunk_index"])
    assert len(chunks) > len(grouped) == 3
    assert [(h["document_id"], h["chunk_index"]) for h in grouped] == list(first.items())


def test_min_score_drops_unsure_and_word_only_hits_in_hybrid(many: Any) -> None:
    tenant, kb, _ = many
    plain = tenant.search("tide twice a day", knowledge_base_ids=[kb], limit=30)
    strict = tenant.search("tide twice a day", knowledge_base_ids=[kb], limit=30, min_score=0.6)
    everything = tenant.search("tide twice a day", knowledge_base_ids=[kb], limit=30, min_score=0)
    nothing = tenant.search("completely unrelated zebra", knowledge_base_ids=[kb], limit=30, min_score=1)

    assert strict["degraded"] == []
    assert 0 < len(strict["hits"]) < len(plain["hits"])
    assert all(hit["confidence"] >= 0.6 for hit in strict["hits"])
    assert len(everything["hits"]) == len(plain["hits"])
    assert nothing["hits"] == []


def test_replacing_and_deleting_is_seen_by_the_next_search(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    made = [tenant.text(kb, f"granite quarry number {n}", external_id=str(n))["id"] for n in range(8)]
    for document in made:
        tenant.settle(document)
    tenant.text(kb, "replaced by something about butterflies", external_id="0")
    tenant.until(made[0], lambda d: d["live_revision"] == 2)
    tenant.client.delete(f"/documents/{made[1]}")

    for mode in MODES:
        answer = tenant.search("granite quarry", knowledge_base_ids=[kb], mode=mode, limit=6)
        found = [hit for hit in answer["hits"] if "granite" in hit["text"]]
        assert {hit["document_id"] for hit in found} == set(made[2:]), mode
        assert answer["degraded"] == []


@pytest.mark.parametrize(
    "query",
    [
        "tide & !twice | (day:*)",
        "tide:A* <2> 'day'",
        '"tide twice',
        "tide OR 1=1; drop table kb_documents; --",
        "tide\u2028twice\u200bday",
        "tide \\ % _ [a-z]* ^$",
        "{{7*7}} ${jndi:ldap://x} tide",
        "\U0001f30a tide \U0001f468\u200d\U0001f469\u200d\U0001f467",
        "t\u0301ide tide",
        "tide " * 1500,
        "\u202etide\u202c",
        "!!!",
        "?",
        "the of and",
        "\ufffd",
    ],
)
def test_what_a_person_types_is_data_in_every_mode(many: Any, query: str) -> None:
    tenant, kb, _ = many
    for mode in MODES:
        answer = tenant.client.post("/search", json={"query": query, "knowledge_base_ids": [kb], "mode": mode})
        assert answer.status_code == 200, answer.text
        assert answer.json()["query"] == query
        assert answer.json()["degraded"] == []
        if mode == "lexical" and "tide" in query and len(query) < 100 and "t\u0301" not in query:
            assert answer.json()["hits"], query


@pytest.mark.parametrize("query", ["!!!", "\u2014 \u2026 \u00bf", "\U0001f984\U0001f984"])
def test_a_query_without_words_matches_nothing_by_words_never_everything(many: Any, query: str) -> None:
    tenant, kb, _ = many
    assert tenant.search(query, knowledge_base_ids=[kb], mode="lexical")["hits"] == []
    assert tenant.search(query, knowledge_base_ids=[kb], mode="hybrid")["hits"]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("part number AB-12/345.x was replaced", "AB-12/345.x"),
        ("see release v2.10.3-rc1 for details", "v2.10.3-rc1"),
        ("written to /var/log/app/error.log today", "/var/log/app/error.log"),
        ("mail to jane.doe+kb@example.org please", "jane.doe+kb@example.org"),
        ("call getUserById() before save_all_rows()", "save_all_rows"),
        ("RuntimeError: E11000 duplicate key", "e11000"),
    ],
)
def test_an_exact_identifier_ranks_first(tenant: Tenant, text: str, query: str) -> None:
    kb = tenant.knowledge_base()
    for n in range(6):
        tenant.text(kb, f"release part log mail call number {n} error key for details {n * 3}")
    document = tenant.ready(kb, text)
    for d in tenant.client.get(f"/knowledge-bases/{kb}/documents").json()["items"]:
        tenant.settle(d["id"])

    for mode in ("lexical", "hybrid"):
        assert ids(tenant.search(query, knowledge_base_ids=[kb], mode=mode))[0] == document["id"], mode


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("東京都の図書館は月曜日に休みです。", ["図書館", "東京", "月曜日"]),
        ("北京的阅览室每天上午九点开门。", ["阅览室", "北京", "上午九点"]),
        ("ห้องสมุดแห่งชาติเปิดทำการทุกวัน", ["ห้องสมุด", "แห่งชาติ"]),
        ("ຫໍສະໝຸດແຫ່ງຊາດເປີດທຸກມື້", ["ຫໍສະໝຸດ"]),
        ("បណ្ណាល័យជាតិបើករាល់ថ្ងៃ", ["បណ្ណាល័យ"]),
        ("စာကြည့်တိုက်သည် နေ့တိုင်းဖွင့်သည်", ["စာကြည့်တိုက်"]),
        ("국립도서관은 매일 아홉 시에 엽니다", ["도서관", "국립"]),
        ("Библиотеки открываются в девять часов", ["библиотеки", "БИБЛИОТЕКИ"]),
        ("المكتبة الوطنية مفتوحة يوميا", ["المكتبة"]),
        ("ＦＵＬＬＷＩＤＴＨ　ｌｅｔｔｅｒｓ", ["fullwidth letters"]),
        ("Straße, Ångström, naïve ﬁle", ["strasse", "angstrom", "naive", "file"]),
    ],
)
def test_words_are_found_in_scripts_with_and_without_spaces(tenant: Tenant, text: str, queries: list[str]) -> None:
    kb = tenant.knowledge_base()
    other = tenant.text(kb, "nothing of the kind stands here")["id"]
    document = tenant.ready(kb, text)
    tenant.settle(other)

    for query in queries:
        found = ids(tenant.search(query, knowledge_base_ids=[kb], mode="lexical"))
        assert found == [document["id"]], query


def test_a_hits_place_cuts_its_text_out_of_the_whole(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    text = (
        "\ufeff# \U0001f600 Überschrift\r\n\r\n" + "Erster Absatz mit e\u0301 und \U0001f468\u200d\U0001f469. " * 60
        + "\r\r\n\n## 日本語\n\n" + "図書館は九時に開きます。" * 80 + "\n\n| a | b |\n|---|---|\n" + "| x | y |\n" * 200
    )  # fmt: skip
    document = tenant.settle(tenant.upload(kb, "mixed.md", text.encode(), "text/markdown").json()["id"])
    assert document["status"] == "ready"
    stored = tenant.client.get(f"/documents/{document['id']}/text").json()["text"]

    for query, mode in (("図書館", "lexical"), ("Absatz", "hybrid"), ("x y", "vector")):
        hits = tenant.search(query, knowledge_base_ids=[kb], mode=mode, limit=100)["hits"]
        assert hits
        for hit in hits:
            assert stored[hit["location"]["start"] : hit["location"]["end"]] == hit["text"]


# --- filters beyond the truth table


@pytest.fixture(scope="module")
def attributed(service: Service) -> tuple[Tenant, str, dict[str, str]]:
    tenant = service.tenant()
    kb = tenant.knowledge_base()
    rows: dict[str, dict[str, Any]] = {
        "int": {"v": 10},
        "big": {"v": 9_007_199_254_740_993},
        "neg": {"v": -0.5},
        "zero": {"v": 0},
        "false": {"v": False},
        "ten": {"v": "10"},
        "empty": {"v": ""},
        "list": {"v": ["10", "a"]},
        "emptylist": {"v": []},
        "none": {},
        "odd": {"a.b": "x", "$": "y", "v": "z\\'\"", "ключ": "да", "@": 1},
    }
    made = {name: tenant.text(kb, f"row {name}", name=name, attributes=a)["id"] for name, a in rows.items()}
    for document in made.values():
        assert tenant.settle(document)["status"] == "ready"
    return tenant, kb, made


ALL = {"int", "big", "neg", "zero", "false", "ten", "empty", "list", "emptylist", "none", "odd"}


@pytest.mark.parametrize(
    ("kind", "key", "value", "names"),
    [
        ("eq", "v", 0, {"zero"}),
        ("eq", "v", -0.0, {"zero"}),
        ("eq", "v", False, {"false"}),
        ("eq", "v", "", {"empty"}),
        ("eq", "v", "10", {"ten", "list"}),
        ("eq", "v", 10.0, {"int"}),
        ("eq", "v", 9_007_199_254_740_993, {"big"}),
        ("eq", "v", 9_007_199_254_740_992, set()),
        ("ne", "v", 10, ALL - {"int"}),
        ("ne", "v", "10", ALL - {"ten", "list"}),
        ("ne", "nokey", 1, ALL),
        ("gt", "v", -1, {"int", "big", "neg", "zero"}),
        ("gte", "v", 0, {"int", "big", "zero"}),
        ("lt", "v", 0, {"neg"}),
        ("lte", "v", 10, {"int", "neg", "zero"}),
        ("lt", "v", "2", {"ten", "empty"}),
        ("gte", "v", "", {"ten", "empty", "odd"}),
        ("in", "v", [10, "", False], {"int", "empty", "false"}),
        ("in", "v", ["a"], {"list"}),
        ("nin", "v", ["a", "10"], ALL - {"list", "ten"}),
        ("nin", "nokey", [1], ALL),
        ("eq", "a.b", "x", {"odd"}),
        ("eq", "a", "x", set()),
        ("eq", "$", "y", {"odd"}),
        ("eq", "$.v", "y", set()),
        ("eq", "v", "z\\'\"", {"odd"}),
        ("eq", "ключ", "да", {"odd"}),
        ("gt", "@", 0, {"odd"}),
        ("eq", "v') or true --", "x", set()),
        ("gt", "v ? (@ > 0) || true", 0, set()),
        ("ne", "v') or true --", "x", ALL),
    ],
)
def test_filters_compare_like_with_like(attributed: Any, kind: str, key: str, value: Any, names: set[str]) -> None:
    tenant, kb, made = attributed
    by_id = {document: name for name, document in made.items()}
    wanted = {"type": kind, "key": key, "value": value}
    for mode in ("lexical", "vector"):
        answer = tenant.search("row", knowledge_base_ids=[kb], filter=wanted, mode=mode, limit=50)
        assert {by_id[d] for d in ids(answer)} == names, mode


def test_a_nested_filter_reads_as_it_is_written(attributed: Any) -> None:
    tenant, kb, made = attributed
    number = {"type": "and", "filters": [
        {"type": "gte", "key": "v", "value": 0}, {"type": "lte", "key": "v", "value": 10},
    ]}  # fmt: skip
    text = {"type": "eq", "key": "v", "value": "10"}
    both = tenant.search("row", knowledge_base_ids=[kb], filter={"type": "or", "filters": [number, text]}, limit=50)

    assert set(ids(both)) == {made[name] for name in ("int", "zero", "ten", "list")}


# --- parts that are away


@pytest.fixture
def broken(service: Service) -> Iterator[Service]:
    yield service
    service.provider(always=None)


FAULTS = ["server_error", "hold", "hang", "unauthorized", "quota", "rate_limited", "cut", "not_json", "redirect",
          "missing_vector", "nan", "wrong_width", "zeros", "bad_request", "no_such_model"]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_of_the_provider_degrades_a_hybrid_search_to_words(broken: Service, many: Any, fault: str) -> None:
    tenant, kb, _ = many
    broken.provider(always=fault)
    query = f"tide {uuid4().hex}"

    started = time.monotonic()
    answer = tenant.search(query, knowledge_base_ids=[kb], min_score=0.9)
    vector = tenant.client.post("/search", json={"query": query, "knowledge_base_ids": [kb], "mode": "vector"})
    tool = tenant.client.post("/tools/kb_search", json={"query": query, "kb_ids": [kb]})
    took = time.monotonic() - started

    codes = [d["code"] for d in answer["degraded"]]
    assert answer["legs"] == ["lexical"]
    assert len(answer["hits"]) == 5
    assert all(h["normalized_score"] is None and h["confidence"] is None for h in answer["hits"])
    assert "min_score_not_applied" in codes
    assert len(codes) == 2
    assert vector.status_code == 503
    assert int(vector.headers["retry-after"]) >= 1
    assert vector.headers["content-type"] == "application/problem+json"
    assert tool.status_code == 200
    assert tool.json()["degraded"]
    assert tool.json()["results"]
    for answered in (str(answer), vector.text, tool.text):
        assert "body-secret" not in answered
        assert "sk-of-the-tests" not in answered
    assert took < 12


def test_a_question_asked_before_is_answered_by_its_vector_while_the_provider_is_away(
    broken: Service, many: Any
) -> None:
    """Either way is honest: the cached vector, or words and a word about it."""
    tenant, kb, _ = many
    tenant.search("tide asked before", knowledge_base_ids=[kb])
    broken.provider(always="server_error")

    answer = tenant.search("tide asked before", knowledge_base_ids=[kb])

    assert answer["hits"]
    assert (answer["legs"] == ["vector", "lexical"]) == (answer["degraded"] == [])


def test_a_document_refused_by_the_provider_fails_alone(broken: Service, tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    broken.provider(always="bad_request")
    document = tenant.settle(tenant.text(kb, f"refused {uuid4().hex}")["id"], 60)
    broken.provider(always=None)

    assert document["status"] == "failed"
    assert document["error"]["code"].startswith(("provider", "bad"))
    assert "body-secret" not in str(document)
    assert tenant.ready(kb, "the next one is fine")["status"] == "ready"


@pytest.mark.parametrize("fault", ["nan", "wrong_width", "missing_vector", "zeros"])
def test_a_document_with_a_bad_embedding_is_never_ready(broken: Service, tenant: Tenant, fault: str) -> None:
    kb = tenant.knowledge_base()
    broken.provider(always=fault)
    made = tenant.text(kb, f"bad embedding {uuid4().hex}")
    seen = tenant.until(made["id"], lambda d: d["error"] is not None or d["terminal"], 60)
    broken.provider(always=None)

    assert seen["status"] in ("failed", "queued")
    assert seen["searchable"] is False
    assert "body-secret" not in str(seen)
    if seen["status"] == "failed":
        tenant.client.post(f"/documents/{made['id']}/retry")
    assert tenant.settle(made["id"], 90)["status"] == "ready"


def test_the_log_holds_neither_keys_nor_texts(service: Service, many: Any) -> None:
    tenant, kb, _ = many
    tenant.search("xylophone-secret-question", knowledge_base_ids=[kb])
    logs = "".join(p.read_text(errors="replace") for p in service.data_dir.glob("*.log"))

    key = tenant.client.headers["authorization"].removeprefix("Bearer ")
    for secret in (key, "sk-of-the-tests", "xylophone-secret-question", "twice a day", "body-secret", "bootstrap-key"):
        assert secret not in logs, secret


def test_words_asked_before_a_change_are_looked_up_anew_after_it(service: Service) -> None:
    tenant = service.tenant()
    kb = tenant.knowledge_base("Changing")

    def found() -> set[str]:
        return set(ids(tenant.search("heron", knowledge_base_ids=[kb], mode="lexical", limit=10)))

    first = tenant.ready(kb, "a heron stands", external_id="a")["id"]
    assert found() == found() == {first}
    second = tenant.ready(kb, "another heron waits", external_id="b")["id"]
    assert found() == found() == {first, second}
    tenant.ready(kb, "a crane stands", external_id="a")
    assert found() == found() == {second}
    assert tenant.client.delete(f"/documents/{second}").status_code == 202
    assert found() == set()
