"""`stackroom search` against a double of the service (see service_double.py)."""

import json
from typing import Any

from conftest import Run
from service_double import ServiceDouble


def a_hit(**changes: Any) -> dict[str, Any]:
    return {
        "document_name": "manual.pdf", "text": "Turn the [red] handle\nto the left.", "score": 0.8125,
        "location": {"start": 0, "end": 10, "page": 7, "heading_path": ["Valves", "Closing"]},
    } | changes  # fmt: skip


def test_a_hit_is_shown_with_document_heading_page_score_and_text(service: ServiceDouble, run: Run) -> None:
    service.answer = {"hits": [a_hit()], "degraded": []}

    result = run("search", "close the valve")

    assert "1. manual.pdf › Valves › Closing, page 7  score 0.812" in result.stdout
    assert "Turn the [red] handle to the left." in result.stdout


def test_the_options_reach_the_service(service: ServiceDouble, run: Run) -> None:
    base = service.add_base("Docs")

    run("search", "valve", "--mode", "lexical", "--limit", "9", "--knowledge-base", "Docs")

    assert service.searches == [{"query": "valve", "mode": "lexical", "limit": 9, "knowledge_base_ids": [base["id"]]}]


def test_without_a_knowledge_base_all_are_searched(service: ServiceDouble, run: Run) -> None:
    run("search", "valve")

    assert service.searches == [{"query": "valve", "mode": "hybrid", "limit": 5}]


def test_json_is_the_answer_as_it_is(service: ServiceDouble, run: Run) -> None:
    service.answer = {"hits": [a_hit(text="Größe")], "degraded": []}

    assert json.loads(run("search", "x", "--json").stdout) == service.answer


def test_what_is_less_than_a_full_search_is_said(service: ServiceDouble, run: Run) -> None:
    service.answer = {"hits": [], "degraded": [{"code": "provider_unavailable", "message": "No vectors."}]}

    result = run("search", "x")

    assert "No vectors. (provider_unavailable)" in result.stderr
    assert "Nothing found." in result.stdout


def test_a_document_cannot_steer_the_terminal(service: ServiceDouble, run: Run) -> None:
    service.answer = {"hits": [a_hit(text="\x1b[2Jgone", document_name="a\x1b]0;title\x07")], "degraded": []}

    assert "\x1b" not in run("search", "x").stdout


def test_a_hit_without_page_and_heading_is_shown(service: ServiceDouble, run: Run) -> None:
    service.answer = {"hits": [a_hit(location={"page": None, "heading_path": []})], "degraded": []}

    assert "1. manual.pdf  score" in run("search", "x").stdout


def test_an_unknown_knowledge_base_is_named(service: ServiceDouble, run: Run) -> None:
    result = run("search", "x", "-k", "Nope")

    assert result.exit_code == 2
    assert "no knowledge base named 'Nope'" in result.stderr


def test_a_refusal_is_a_sentence_with_its_code(service: ServiceDouble, run: Run) -> None:
    service.refusals = [(422, "invalid", {})]

    result = run("search", "x")

    assert result.exit_code == 2
    assert "The service refuses: Refused with invalid. (invalid)" in result.stderr


def test_a_query_that_is_no_text_is_refused(service: ServiceDouble, run: Run) -> None:
    result = run("search", "\udcff")

    assert result.exit_code == 2
    assert service.searches == []
