"""What the Pinecone plugins say when the SDK is missing or Pinecone refuses, is slow, or answers nonsense."""

import asyncio
import importlib
import logging
import pkgutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from pydantic import ValidationError

from app.errors import AppError
from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreRefused, VectorStoreUnavailable
from app.vector_stores.pinecone import PineconeSettings, failures
from app.vector_stores.testing.base import a_space, chunks_of, direction
from tests.contract.vector_stores.pinecone_double import API_KEY, Fault, PineconeDouble
from tests.contract.vector_stores.pinecone_stores import pinecone

FAULTS: dict[Fault, type[AppError]] = {
    "rate_limited": VectorStoreUnavailable,
    "server_error": VectorStoreUnavailable,
    "gateway": VectorStoreUnavailable,
    "hang": VectorStoreUnavailable,
    "cut": VectorStoreUnavailable,
    "garbage": VectorStoreUnavailable,
    "forbidden": VectorStoreMisconfigured,
    "no_payment": VectorStoreMisconfigured,
    "bad": VectorStoreRefused,
}
WRONG_KEY = "wrong-key-77aa-secret"


@pytest.fixture(autouse=True)
def _full_retry_budget() -> None:
    """The SDK stops repeating where a host has failed often, for the whole process; each test begins anew."""
    http_client = importlib.import_module("pinecone._internal.http_client")
    http_client.get_budget_registry()._reset()


@pytest.fixture
def double() -> Iterator[PineconeDouble]:
    with PineconeDouble() as double:
        yield double


def exceptions_of_the_sdk() -> set[type[Exception]]:
    sdk = importlib.import_module("pinecone.errors.exceptions")
    for package in ("pinecone.errors", "pinecone.models", "pinecone.admin", "pinecone.async_client"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}."):
            importlib.import_module(module.name)
    known = {one for one in vars(sdk).values() if isinstance(one, type) and issubclass(one, Exception)}
    waiting = list(known)
    while waiting:
        waiting += (more := set(waiting.pop().__subclasses__()) - known)
        known |= more
    return {one for one in known if one.__module__.startswith("pinecone.")}


def test_every_exception_of_the_sdk_is_mapped_and_nothing_else() -> None:
    names = {one.__name__ for one in exceptions_of_the_sdk()}

    assert len(names) >= 18
    assert names == set(failures.FAMILIES)


def test_each_of_them_becomes_an_error_of_the_contract_with_words_of_ours() -> None:
    for one in exceptions_of_the_sdk():
        thrown = one.__new__(one, "quoting a secret")

        ours = failures.as_ours(thrown)

        assert isinstance(ours, VectorStoreUnavailable | VectorStoreMisconfigured | VectorStoreRefused), one
        assert one.__name__ in ours.message
        assert "secret" not in ours.message


@pytest.mark.parametrize("status", [400, 422, 408, 409, 423, 425])
def test_a_status_without_a_class_of_its_own_is_for_good_unless_it_says_later(status: int) -> None:
    from pinecone.errors import ApiError

    ours = failures.as_ours(ApiError("secret", status, error_code="not a code: secret"))

    assert isinstance(ours, VectorStoreRefused if status in (400, 422) else VectorStoreUnavailable)
    assert ours.message.endswith(f"(ApiError, HTTP {status})")


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_becomes_the_right_error_in_time_and_quotes_nothing(
    double: PineconeDouble, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    work, document, space = uuid4(), uuid4(), a_space()
    async with pinecone(double, call_timeout_s=1, request_timeout_s=0.4) as store:
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
        double.always = fault
        calls: list[Any] = [
            lambda: store.write_chunks(work, document, space, 2, chunks_of([direction(0)])),
            lambda: store.query_chunks(work, space, vector=direction(0), top_k=1),
            lambda: store.delete_by_document(work, document, space),
            lambda: store.count(work, space),
        ]
        for call in calls:
            started = time.monotonic()

            with pytest.raises(FAULTS[fault]) as raised:
                await call()

            assert time.monotonic() - started < 3
            shown = "".join(traceback.format_exception(raised.value)) + repr(raised.value.facts)
            assert API_KEY not in shown
            assert "headers were" not in shown
    assert API_KEY not in caplog.text


async def test_a_wrong_key_is_our_misconfiguration_and_stays_secret(
    double: PineconeDouble, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("PINECONE_DEBUG_CURL", "1")
    async with pinecone(double, api_key=WRONG_KEY) as store:
        with pytest.raises(VectorStoreMisconfigured, match="api_key") as raised:
            await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1)
        availability = await store.is_available()

    assert (availability.ok, availability.temporary) == (False, False)
    shown = "".join(traceback.format_exception(raised.value)) + str(availability) + repr(vars(store)) + caplog.text
    assert WRONG_KEY not in shown


@pytest.mark.parametrize("key", ["", " ", "two words", "line\nend", "ключ"])
def test_a_key_that_can_be_no_header_is_refused_without_being_quoted(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINECONE_API_KEY", "the-operators-own-key")

    with pytest.raises(ValidationError) as raised:
        PineconeSettings(api_key=key)

    assert not key.strip() or key not in str(raised.value)


def test_settings_do_not_show_the_key() -> None:
    settings = PineconeSettings(api_key=API_KEY)

    assert API_KEY not in repr(settings) + str(settings.model_dump()) + settings.model_dump_json()


async def test_one_refusal_for_haste_is_repeated_and_no_chunk_is_lost_or_doubled(double: PineconeDouble) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    async with pinecone(double) as store:
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
        double.misbehave("rate_limited", "gateway")

        await store.write_chunks(work, document, space, 2, chunks_of([direction(0)] * 3))

        assert await store.count(work, space) == 4


async def test_how_long_to_wait_is_passed_on(double: PineconeDouble) -> None:
    double.retry_after = "0.1"
    work, space = uuid4(), a_space()
    async with pinecone(double) as store:
        await store.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))
        double.always = "rate_limited"

        with pytest.raises(VectorStoreUnavailable, match="fewer requests") as raised:
            await store.query_chunks(work, space, vector=direction(0), top_k=1)

    assert raised.value.retry_after_s == 0.1


async def test_a_long_wait_asked_for_ends_with_our_time_limit(double: PineconeDouble) -> None:
    double.retry_after = "30"
    work, space = uuid4(), a_space()
    async with pinecone(double, call_timeout_s=1) as store:
        await store.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))
        double.always = "rate_limited"

        async with asyncio.timeout(3):
            with pytest.raises(VectorStoreUnavailable, match="within 1 s"):
                await store.query_chunks(work, space, vector=direction(0), top_k=1)


@pytest.mark.parametrize("fault", ["hang", "server_error", "cut", "rate_limited"])
async def test_a_project_that_does_not_answer_is_away_for_a_while(double: PineconeDouble, fault: Fault) -> None:
    double.project_fault = fault
    async with pinecone(double) as store:
        started = time.monotonic()

        availability = await store.is_available()

    assert (availability.ok, availability.temporary) == (False, True)
    assert time.monotonic() - started < 3


async def test_a_closed_store_says_so(double: PineconeDouble) -> None:
    async with pinecone(double) as store:
        await store.close()

        with pytest.raises(VectorStoreUnavailable, match="closed"):
            await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1)
        assert not (await store.is_available()).ok


WITHOUT_THE_SDK = """
import sys
sys.modules["pinecone"] = None
from app.plugins.manifest import MissingExtra
from app.plugins.registry import Registry
registry = Registry([("a", "app.vector_stores.pinecone:PineconeStore"),
                     ("b", "app.vector_stores.pinecone:PineconeIntegratedStore")])
assert not registry.broken, registry.broken
for plugin in registry.plugins():
    settings = registry.parse_settings(plugin.manifest.id, {"api_key": "some-key"})
    try:
        registry.build(plugin.manifest.id, settings)
    except MissingExtra as error:
        print(plugin.manifest.id, "|", error.message)
"""
WITH_THE_SDK = """
import sys
from app.plugins.registry import Registry
registry = Registry.discover()
for name in ("pinecone", "pinecone-integrated"):
    manifest = registry.get(name).manifest
    registry.parse_settings(name, {"api_key": "some-key"})
    print(name, manifest.extra, manifest.tested_against, manifest.store.embeds_on_write)
print([name for name in sys.modules if name.partition(".")[0] in ("pinecone", "msgspec", "orjson")])
"""


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def test_without_the_sdk_the_plugins_are_listed_and_name_their_extra() -> None:
    said = run(WITHOUT_THE_SDK).splitlines()

    assert [line.split(" | ")[0] for line in said] == ["pinecone", "pinecone-integrated"]
    assert all("pip install 'stackroom[pinecone]'" in line for line in said)


def test_listing_them_imports_no_sdk() -> None:
    assert run(WITH_THE_SDK).splitlines() == [
        "pinecone pinecone double False",
        "pinecone-integrated pinecone double True",
        "[]",
    ]
