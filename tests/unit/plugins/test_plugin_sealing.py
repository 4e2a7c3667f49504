"""Sealed settings and fingerprints."""

import json
import logging
import traceback
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from app.ai_providers.openai import OpenAiProvider
from app.ai_providers.openai_settings import OpenAiSettings
from app.errors import Misconfigured
from app.plugins.errors import SealedSettingsUnreadable
from app.plugins.manifest import PluginManifest
from app.plugins.sealing import Sealer, fingerprint, without_secrets
from tests.unit.plugins.example_plugins import DsnSettings, DsnStore, LocatedStore, ServerSettings, ServerStore


class RichSettings(BaseModel):
    key: SecretStr
    headers: dict[str, SecretStr] = {}
    keys: tuple[SecretStr, ...] = ()
    path: Path | None = None
    work: UUID | None = None
    name: str = "default"


RICH = RichSettings(
    key=SecretStr("s3cret-ключ"),
    headers={"api-key": SecretStr("s3cret-2")},
    keys=(SecretStr("s3cret-3"),),
    path=Path("/data/x"),
    work=UUID(int=7),
)


@pytest.fixture
def keys() -> list[str]:
    return [Sealer.generate_key(), Sealer.generate_key()]


def test_what_is_sealed_opens_to_the_same_settings(keys: list[str]) -> None:
    sealer = Sealer(keys)

    assert sealer.open(sealer.seal(RICH), RichSettings) == RICH


@given(st.text(), st.text())
def test_any_secret_survives_sealing(key: str, name: str) -> None:
    sealer = Sealer(["A" * 43 + "="])
    settings = RichSettings(key=SecretStr(key), name=name)
    try:
        (key + name).encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text that a client can send

    assert sealer.open(sealer.seal(settings), RichSettings) == settings


def test_defaults_are_sealed_too_since_an_instance_never_changes(keys: list[str]) -> None:
    class Earlier(BaseModel):
        url: str = "http://old"

    class Later(BaseModel):
        url: str = "http://new"

    assert Sealer(keys).open(Sealer(keys).seal(Earlier()), Later).url == "http://old"


def test_no_secret_stands_in_the_sealed_value_or_the_log(keys: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    sealed = Sealer(keys).seal(RICH)

    assert b"s3cret" not in sealed
    assert caplog.text == ""


def test_the_first_key_encrypts(keys: list[str]) -> None:
    sealed = Sealer(keys).seal(RICH)

    assert Sealer(keys[:1]).open(sealed, RichSettings) == RICH
    with pytest.raises(SealedSettingsUnreadable):
        Sealer(keys[1:]).open(sealed, RichSettings)


def test_every_key_decrypts(keys: list[str]) -> None:
    sealed = Sealer(keys[1:]).seal(RICH)

    assert Sealer(keys).open(sealed, RichSettings) == RICH


def test_after_rotation_the_old_key_is_not_needed(keys: list[str]) -> None:
    new, old = keys
    sealed = Sealer([old]).seal(RICH)
    assert not Sealer(keys).is_current(sealed)

    rotated = Sealer(keys).rotate(sealed)

    assert Sealer(keys).is_current(rotated)
    assert Sealer([new]).open(rotated, RichSettings) == RICH


def test_rotation_of_what_no_key_opens_says_so(keys: list[str]) -> None:
    with pytest.raises(SealedSettingsUnreadable, match="KB_SECRET_KEYS"):
        Sealer(keys[:1]).rotate(Sealer(keys[1:]).seal(RICH))


@pytest.mark.parametrize("sealed", [b"", b"nonsense", b"gAAAAA"])
def test_a_changed_value_is_unreadable(keys: list[str], sealed: bytes) -> None:
    with pytest.raises(SealedSettingsUnreadable):
        Sealer(keys).open(sealed, RichSettings)


def test_settings_that_no_longer_fit_are_named_by_field_without_their_values(keys: list[str]) -> None:
    class Other(BaseModel):
        key: int

    with pytest.raises(SealedSettingsUnreadable, match="key") as caught:
        Sealer(keys).open(Sealer(keys).seal(RICH), Other)

    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("bad", [[], ["too short"], ["s3cret" * 20]])
def test_keys_that_are_none_are_refused_without_being_shown(bad: list[str]) -> None:
    with pytest.raises(Misconfigured) as caught:
        Sealer(bad)

    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


def where(**values: Any) -> str:
    return fingerprint(ServerStore.manifest, ServerSettings.model_validate(values), plugin=ServerStore)


def test_another_place_is_another_instance() -> None:
    assert where(url="http://one:6333") != where(url="http://two:6333")


def test_a_new_secret_or_another_field_is_the_same_instance() -> None:
    assert where(api_key="old") == where(api_key="new", timeout_s=9)


def test_a_default_that_is_written_out_is_the_same_instance() -> None:
    assert where() == where(url="http://localhost:6333/")


def test_two_plugins_at_one_address_are_two_places() -> None:
    other = PluginManifest(
        id="other", name="O", category="vector-store", settings_model=ServerSettings, location_fields=("url",)
    )

    assert fingerprint(other, ServerSettings()) != where()


def dsn_place(dsn: str, store: type = DsnStore) -> str:
    return fingerprint(store.manifest, DsnSettings(dsn=SecretStr(dsn)), plugin=store)  # type: ignore[attr-defined]


def test_the_password_of_a_dsn_is_no_place_but_user_host_and_database_are() -> None:
    base = dsn_place("postgresql://kb:old@db/one?host=/run")

    assert base == dsn_place("postgresql://kb:new@DB/one/?host=/run&password=x#f")
    for other in (
        "postgresql://me:old@db/one?host=/run",
        "postgresql://kb:old@db/two?host=/run",
        "postgresql://kb@db/one",
    ):
        assert base != dsn_place(other)


def test_a_secret_that_is_no_url_needs_the_class_to_say_where_it_is() -> None:
    with pytest.raises(Misconfigured, match="location"):
        dsn_place("host=db dbname=one password=old")


def test_the_class_may_say_where_it_is() -> None:
    assert dsn_place("host=db dbname=one password=old", LocatedStore) == dsn_place(
        "dbname=one host=db password=new", LocatedStore
    )


def test_ways_to_write_an_openai_address_are_one_instance() -> None:
    places = {
        fingerprint(OpenAiProvider.manifest, OpenAiSettings(base_url=url), plugin=OpenAiProvider)
        for url in ("http://llm/v1", "http://llm/v1/", "http://LLM/v1/embeddings")
    }

    assert len(places) == 1


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://user:pw@Host:8443/a/?b=1&api_key=x&sig=y#z", "https://user@host:8443/a?b=1"),
        ("http://h/?b=2&a=1", "http://h?a=1&b=2"),
        ("file:///data/x", "file:///data/x"),
    ],
)
def test_secrets_are_cut_out_of_urls(url: str, kept: str) -> None:
    assert without_secrets(url) == kept


def test_a_fingerprint_is_hex_and_stable() -> None:
    assert where() == where()
    assert len(bytes.fromhex(where())) == 16
    assert json.dumps(where())
