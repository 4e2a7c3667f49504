"""Settings: what is accepted, what is refused with the variable's name, and what a secret shows of itself."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.settings import Settings


def read(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KB_CORS_ORIGINS", "*"),
        ("KB_CORS_ORIGINS", "https://a.example,*"),
        ("KB_BOOTSTRAP_API_KEY", "short"),
        ("KB_BOOTSTRAP_API_KEY", "x" * 31),
        ("KB_JOB_STALLED_S", "10"),
        ("KB_JOB_HEARTBEAT_S", "0"),
        ("KB_STORE_CALL_TIMEOUT_S", "60"),
        ("KB_EMBEDDING_MODE", "sometimes"),
        ("KB_FUSION", "magic"),
        ("KB_MAX_RESULTS", "0"),
        ("KB_MAX_RESULTS", "101"),
        ("KB_MAX_JSON_BYTES", "many"),
        ("KB_WORKER_CONCURRENCY", "0"),
        ("KB_DATABASE_POOL_SIZE", "-1"),
        ("KB_LOG_LEVEL", "loud"),
        ("KB_EMBEDDING_DIMENSIONS", "0"),
    ],
)
def test_a_value_out_of_bounds_is_refused_and_not_repeated(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        read(monkeypatch, **{name: value})

    assert refused.value.error_count() == 1
    assert "input_value" not in str(refused.value)


def test_nothing_needs_to_be_set() -> None:
    settings = Settings()

    assert settings.database_url is None
    assert settings.data_dir == Path("data")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ()),
        (" ", ()),
        ("https://a.example", ("https://a.example",)),
        ("https://a.example, https://b.example,", ("https://a.example", "https://b.example")),
        ('["https://a.example", "https://b.example"]', ("https://a.example", "https://b.example")),
    ],
)
def test_lists_are_names_with_commas_or_json(
    monkeypatch: pytest.MonkeyPatch, text: str, wanted: tuple[str, ...]
) -> None:
    assert read(monkeypatch, KB_CORS_ORIGINS=text).cors_origins == wanted


@pytest.mark.parametrize("text", ["[", '["a"', "[1]", '[["a"]]'])
def test_a_list_that_is_no_list_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read(monkeypatch, KB_CORS_ORIGINS=text)

    assert refused.value.errors()[0]["loc"][0] == "cors_origins"


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("KB_DATABASE_URL", "database_url"),
        ("KB_DATABASE_DIRECT_URL", "database_direct_url"),
        ("KB_BOOTSTRAP_API_KEY", "bootstrap_api_key"),
        ("KB_SECRET_KEYS", "secret_keys"),
        ("OPENAI_API_KEY", "openai_api_key"),
    ],
)
def test_a_secret_is_not_shown(monkeypatch: pytest.MonkeyPatch, name: str, field: str) -> None:
    secret = "postgresql://user:hunter2hunter2hunter2hunter2@host/db"
    settings = read(monkeypatch, **{name: secret})

    assert getattr(settings, field)
    assert "hunter2" not in repr(settings) + str(settings) + str(settings.model_dump())


def test_settings_do_not_change() -> None:
    settings: Any = Settings()

    with pytest.raises(ValidationError, match="frozen"):
        settings.max_results = 3
