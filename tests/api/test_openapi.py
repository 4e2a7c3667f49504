"""The committed API description reads well and generates well: names, presence, null, errors, bodies, streams."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.service import REPOSITORY

DESCRIPTION: dict[str, Any] = json.loads((REPOSITORY / "openapi.json").read_text())
SCHEMAS: dict[str, Any] = DESCRIPTION["components"]["schemas"]
OPERATIONS: dict[str, dict[str, Any]] = {o["operationId"]: o for p in DESCRIPTION["paths"].values() for o in p.values()}
UPLOADS = ("upload_document", "upload_document_alias", "upload_text", "replace_document_content")
# What null means there: a merge patch removes with it.
NULL_IN_A_REQUEST = {
    ("DocumentPatch", "attributes"),
    ("KnowledgeBasePatch", "attributes"),
    ("KnowledgeBasePatch", "description"),
    ("PluginPut", "settings"),
    *(
        ("SettingsPatch", name)
        for name in (
            "kb_vector_store_id",
            "kb_embedding_provider_id",
            "kb_embedding_mode",
            "kb_embedding_model",
            "kb_embedding_dimensions",
            "chunk_size_tokens",
            "chunk_overlap_tokens",
            "max_results",
        )
    ),
}


def named(start: Any) -> set[str]:
    """Names of the schemas that a part of the description leads to."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            name = str(part.get("$ref", "")).removeprefix("#/components/schemas/")
            if name in SCHEMAS and name not in found:
                found.add(name)
                waiting.append(SCHEMAS[name])
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)
    return found


def asked() -> set[str]:
    return named([operation.get("requestBody") for operation in OPERATIONS.values()])


def answered() -> set[str]:
    return named([operation["responses"] for operation in OPERATIONS.values()])


def fields(names: set[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    return (
        (name, key, schema) for name in sorted(names) for key, schema in SCHEMAS[name].get("properties", {}).items()
    )


def may_be_null(schema: dict[str, Any]) -> bool:
    return any(option.get("type") == "null" for option in schema.get("anyOf", []))


def test_the_command_prints_the_committed_description_whatever_the_environment_says() -> None:
    environment = {**os.environ, "KB_PUBLIC_URL": "https://elsewhere.example", "KB_MAX_RESULTS": "50"}

    said = subprocess.run(
        [sys.executable, "-m", "app.cli", "openapi"], env=environment, capture_output=True, check=True
    )

    assert said.stdout == (REPOSITORY / "openapi.json").read_bytes(), "run: make openapi"


def test_every_schema_is_used_and_named_as_a_thing() -> None:
    assert asked() | answered() | {"Problem", "ProblemFault"} == set(SCHEMAS)
    assert all(name.isidentifier() and name[0].isupper() and "_" not in name for name in SCHEMAS)
    assert "HTTPValidationError" not in SCHEMAS


def test_fixed_sets_of_words_have_a_name_of_their_own() -> None:
    assert {name for name, schema in SCHEMAS.items() if "enum" in schema} == {
        "DocumentStatus",
        "DocumentStage",
        "SearchMode",
        "OrganizationRole",
        "KeyScope",
        "EmbeddingMode",
    }


def test_every_field_of_an_answer_is_always_there() -> None:
    for name in answered() - {"Problem"}:
        assert set(SCHEMAS[name].get("required", [])) == set(SCHEMAS[name].get("properties", {})), name


def test_a_request_may_leave_fields_out_but_null_is_offered_only_where_it_means_something() -> None:
    assert {
        (name, key) for name, key, schema in fields(asked() - answered()) if may_be_null(schema)
    } == NULL_IN_A_REQUEST


def test_no_parameter_may_be_null_and_only_those_of_the_path_are_required() -> None:
    for name, operation in OPERATIONS.items():
        for parameter in operation.get("parameters", []):
            assert not may_be_null(parameter["schema"]), (name, parameter["name"])
            assert parameter["required"] == (parameter["in"] == "path"), (name, parameter["name"])


def test_times_are_described_as_times() -> None:
    times = [schema for _, key, schema in fields(set(SCHEMAS)) if key.endswith("_at")]

    assert len(times) > 10
    assert all("date-time" in json.dumps(schema) for schema in times)


def test_every_operation_has_a_described_tag_and_a_summary_that_is_a_sentence() -> None:
    described = {tag["name"] for tag in DESCRIPTION["tags"]}

    assert {tag for operation in OPERATIONS.values() for tag in operation["tags"]} == described
    for name, operation in OPERATIONS.items():
        summary = operation["summary"]
        assert summary == summary.strip(), name
        assert len(summary) < 100, name
        assert summary.lower().replace(" ", "_") != name or " " not in summary, f"{name} says nothing but its name"


def test_a_key_is_asked_for_everywhere_but_at_the_operators_doors_and_its_scope_is_said() -> None:
    assert DESCRIPTION["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for name, operation in OPERATIONS.items():
        if operation["tags"] == ["operation"]:
            assert operation["security"] == [], name
            continue
        scope = operation["security"][0]["bearer"][0]
        assert scope in SCHEMAS["KeyScope"]["enum"], name
        assert f"scope `{scope}`" in operation["description"], name


def problems_of(operation: dict[str, Any]) -> set[str]:
    return {status for status in operation["responses"] if status == "default" or status[0] in "45"}


def test_every_problem_is_a_problem_document() -> None:
    for name, operation in OPERATIONS.items():
        for status in problems_of(operation):
            if (name, status) == ("get_readiness", "503"):
                continue
            answer = DESCRIPTION["components"]["responses"][operation["responses"][status]["$ref"].rpartition("/")[2]]
            assert list(answer["content"]) == ["application/problem+json"], (name, status)
            assert named(answer) == {"Problem", "ProblemFault"}, (name, status)


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_the_problems_that_follow_from_key_parameters_and_body_are_named(name: str) -> None:
    operation = OPERATIONS[name]
    parameters = {parameter["in"] for parameter in operation.get("parameters", [])}
    expected = {"default"}
    expected |= {"401", "403", "503"} if operation["security"] else set()
    expected |= {"404"} if "path" in parameters else set()
    expected |= {"413", "422"} if "requestBody" in operation else set()
    expected |= {"422"} if parameters else set()
    expected |= {"409", "507"} if name in UPLOADS else set()

    assert expected <= problems_of(operation)


@pytest.mark.parametrize("name", UPLOADS)
def test_an_upload_tells_its_location_and_takes_an_idempotency_key(name: str) -> None:
    operation = OPERATIONS[name]

    assert all("Location" in operation["responses"][status]["headers"] for status in ("200", "202"))
    assert "idempotency-key" in {parameter["name"] for parameter in operation["parameters"]}


def test_the_upload_of_a_file_is_a_form_with_a_file() -> None:
    content = OPERATIONS["upload_document"]["requestBody"]["content"]

    assert content == {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/DocumentUpload"}}}
    assert SCHEMAS["DocumentUpload"]["required"] == ["file"]
    assert SCHEMAS["DocumentUpload"]["properties"]["file"]["format"] == "binary"


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("get_document_content", "application/octet-stream"),
        ("watch_document", "text/event-stream"),
        ("get_metrics", "text/plain"),
    ],
)
def test_an_answer_that_is_no_json_says_what_it_is(name: str, media_type: str) -> None:
    assert list(OPERATIONS[name]["responses"]["200"]["content"]) == [media_type]
