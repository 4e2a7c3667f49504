"""Settings of the openai provider and the model facts that follow from them."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.ai_providers.openai_settings import OPENAI_URL, OpenAiSettings, parse_endpoint


def settings(**values: Any) -> OpenAiSettings:
    return OpenAiSettings.model_validate(values)


@pytest.mark.parametrize(
    ("name", "dimensions", "other"),
    [
        ("text-embedding-3-small", 1536, True),
        ("text-embedding-3-large", 3072, True),
        ("text-embedding-ada-002", 1536, False),
    ],
)
def test_openais_models_are_known(name: str, dimensions: int, other: bool) -> None:
    model = settings().find_model(name)

    assert model is not None
    assert (model.dimensions, model.other_dimensions, model.max_input_tokens) == (dimensions, other, 8191)
    assert (model.max_batch_inputs, model.max_batch_tokens, model.calibration) == (2048, 250_000, None)


def test_an_unlisted_model_is_offered_when_the_settings_give_its_dimensions() -> None:
    model = settings(model="bge-m3", dimensions=1024, max_input_tokens=512, calibration=0.4).find_model("bge-m3")

    assert model is not None
    assert (model.dimensions, model.max_input_tokens, model.calibration) == (1024, 512, 0.4)


def test_an_unlisted_model_without_dimensions_is_not_offered() -> None:
    assert settings(model="bge-m3").find_model("bge-m3") is None


def test_dimensions_without_a_model_describe_any_name() -> None:
    assert settings(dimensions=384).find_model("whatever") is not None


def test_facts_of_one_model_do_not_describe_another() -> None:
    given = settings(model="bge-m3", dimensions=1024, query_prefix="q: ")

    assert given.find_model("other") is None
    listed = given.find_model("text-embedding-3-small")
    assert listed is not None
    assert (listed.dimensions, listed.query_prefix) == (1536, "")


def test_a_listed_model_can_be_set_to_fewer_dimensions() -> None:
    model = settings(model="text-embedding-3-large", dimensions=256).find_model("text-embedding-3-large")

    assert model is not None
    assert model.dimensions == 256


def test_dimensions_without_a_model_leave_alone_what_cannot_have_them() -> None:
    model = settings(dimensions=256).find_model("text-embedding-ada-002")

    assert model is not None
    assert model.dimensions == 1536


@pytest.mark.parametrize(
    "values",
    [
        {"model": "text-embedding-ada-002", "dimensions": 256},
        {"model": "text-embedding-3-small", "dimensions": 3072},
        {"max_batch_inputs": 0},
        {"timeout_s": float("inf")},
        {"base_url": "ftp://example.com"},
        {"base_url": "https://"},
        {"base_url": "https://user:secret@example.com/v1"},
        {"base_url": "https://example.com:port/v1"},
        {"api_key": "sk-two\nlines"},
        {"extra_headers": {"bad header": "x"}},
        {"extra_headers": {"good": "x\r\nInjected: y"}},
        {"unknown": 1},
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**values)


def test_a_refused_key_is_not_quoted() -> None:
    with pytest.raises(ValidationError) as caught:
        settings(api_key="sk-secret\nsecond line")

    assert "sk-secret" not in str(caught.value)


def test_white_space_around_a_key_is_dropped_and_an_empty_key_is_none() -> None:
    assert settings(api_key=" sk-1\n").headers() == {"Authorization": "Bearer sk-1"}
    assert settings(api_key="").headers() == {}


def test_only_openais_own_address_has_a_default_model() -> None:
    assert settings().default_model == "text-embedding-3-small"
    assert settings(base_url="http://localhost:8080/v1").default_model is None
    assert settings(base_url="http://localhost:8080/v1", model="m").default_model == "m"


@pytest.mark.parametrize("written", [OPENAI_URL, OPENAI_URL + "/", "https://API.openai.com/v1/embeddings"])
def test_ways_to_write_one_address_are_one_place(written: str) -> None:
    assert parse_endpoint(written).url == OPENAI_URL


def test_an_input_type_belongs_to_the_models_identity() -> None:
    plain = settings(model="m", dimensions=8).find_model("m")
    typed = settings(model="m", dimensions=8, document_input_type="passage").find_model("m")

    assert plain is not None
    assert typed is not None
    assert plain.fingerprint("openai", 8) != typed.fingerprint("openai", 8)
