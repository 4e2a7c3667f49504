"""The openai provider against a real HTTP server on loopback."""

import asyncio
import json
import logging
import math
import traceback
from array import array
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, get_args

import pytest

from app.ai_providers.contract import (
    BadEmbedding,
    EmbeddingProvider,
    ProviderMisconfigured,
    ProviderRefused,
    ProviderUnavailable,
)
from app.ai_providers.openai import OpenAiProvider
from app.ai_providers.openai_settings import OpenAiSettings
from app.errors import AppError
from tests.unit.ai_providers.openai_server import SECRET_OF_THE_BODY, EmbeddingServer, Fault, embedding_of

WIDTH = 8
MODEL = "tiny"
KEY = "sk-test-4242424242"


class Build(Protocol):
    def __call__(self, **settings: object) -> AbstractAsyncContextManager[OpenAiProvider]: ...


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingServer]:
    async with EmbeddingServer(width=WIDTH) as running:
        yield running


@pytest.fixture
def build(server: EmbeddingServer) -> Build:
    @asynccontextmanager
    async def opened(**settings: object) -> AsyncIterator[OpenAiProvider]:
        defaults = {"base_url": server.url, "api_key": KEY, "model": MODEL, "dimensions": WIDTH, "timeout_s": 5}
        provider = OpenAiProvider(OpenAiSettings.model_validate(defaults | settings))
        try:
            yield provider
        finally:
            await provider.close()

    return opened


@pytest.fixture
async def provider(build: Build) -> AsyncIterator[OpenAiProvider]:
    async with build() as opened:
        yield opened


async def embed(provider: OpenAiProvider, *texts: str, **options: Any) -> list[Any]:
    return await provider.create_embedding(texts, **({"role": "document", "model": MODEL} | options))


def expected(text: str, width: int = WIDTH) -> list[float]:
    raw = embedding_of(text, width)
    length = math.sqrt(sum(value * value for value in raw))
    return [value / length for value in raw]


async def test_it_is_an_embedding_provider(provider: OpenAiProvider) -> None:
    assert isinstance(provider, EmbeddingProvider)


async def test_vectors_are_unit_float_arrays_in_the_order_of_the_texts(provider: OpenAiProvider) -> None:
    vectors = await embed(provider, "one", "two", "three")

    assert all(isinstance(vector, array) and vector.typecode == "f" for vector in vectors)
    assert [list(vector) for vector in vectors] == [
        pytest.approx(expected(text), abs=1e-6) for text in ("one", "two", "three")
    ]


async def test_no_texts_need_no_request(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    assert await embed(provider) == []
    assert server.requests == []


async def test_the_request_names_the_float_format_and_carries_the_key(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    await embed(provider, "one")

    [request] = server.requests
    assert request.body == {"input": ["one"], "model": MODEL, "encoding_format": "float"}
    assert request.headers["authorization"] == f"Bearer {KEY}"


async def test_an_answer_in_another_order_is_put_in_order(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    server.misbehave("wrong_order")

    vectors = await embed(provider, "one", "two")

    assert list(vectors[0]) == pytest.approx(expected("one"), abs=1e-6)


async def test_an_answer_in_base64_is_decoded(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    server.misbehave("base64")

    [vector] = await embed(provider, "one")

    assert list(vector) == pytest.approx(expected("one"), abs=1e-6)


@pytest.mark.parametrize(
    "fault",
    ["missing_vector", "extra_vector", "repeated_index", "wrong_width", "nan", "zeros", "null", "not_json"],
)
async def test_an_answer_that_is_not_one_good_vector_for_each_text_fails_the_batch(
    provider: OpenAiProvider, server: EmbeddingServer, fault: Fault
) -> None:
    server.misbehave(fault)

    with pytest.raises(BadEmbedding):
        await embed(provider, "one", "two")
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", ["rate_limited", "server_error", "cut", "cut_midway"])
async def test_a_transient_failure_is_tried_again(
    provider: OpenAiProvider, server: EmbeddingServer, fault: Fault
) -> None:
    server.retry_after = "0"
    server.misbehave(fault)

    [vector] = await embed(provider, "one")

    assert list(vector) == pytest.approx(expected("one"), abs=1e-6)
    assert len(server.requests) == 2


@pytest.mark.parametrize("fault", ["unauthorized", "quota", "no_such_model", "redirect"])
async def test_what_an_operator_must_mend_is_permanent_and_asked_once(
    provider: OpenAiProvider, server: EmbeddingServer, fault: Fault
) -> None:
    server.always = fault

    with pytest.raises(ProviderMisconfigured):
        await embed(provider, "one", "two")
    assert len(server.requests) == 1


async def test_an_input_refused_for_good_is_permanent(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    server.always = "bad_request"

    with pytest.raises(ProviderRefused):
        await embed(provider, "one")
    assert len(server.requests) == 1


async def test_after_429_only_the_refused_batch_is_sent_again(build: Build, server: EmbeddingServer) -> None:
    server.retry_after = "0"
    server.misbehave(None, "rate_limited")

    async with build(max_batch_inputs=1, max_parallel_requests=1) as provider:
        await embed(provider, "one", "two", "three")

    assert [request.inputs for request in server.requests] == [["one"], ["two"], ["two"], ["three"]]


async def test_attempts_end(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    server.always, server.retry_after = "rate_limited", "0"

    with pytest.raises(ProviderUnavailable):
        await embed(provider, "one")
    assert len(server.requests) == 6


async def test_a_retry_after_beyond_the_budget_is_handed_on_instead_of_waited_for(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    server.always, server.retry_after = "rate_limited", "3600"

    with pytest.raises(ProviderUnavailable) as caught:
        await embed(provider, "one")

    assert caught.value.retry_after_s == 3600
    assert len(server.requests) == 1


async def test_a_query_is_tried_twice_at_most(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    server.always, server.retry_after = "server_error", "0"

    with pytest.raises(ProviderUnavailable):
        await embed(provider, "one", role="query")
    assert len(server.requests) == 2


async def test_a_server_that_hangs_ends_a_query_within_its_budget(build: Build, server: EmbeddingServer) -> None:
    server.always = "hang"

    async with build(query_timeout_s=0.2) as provider:
        with pytest.raises(ProviderUnavailable):
            await asyncio.wait_for(embed(provider, "one", role="query"), timeout=30)


async def test_a_server_that_hangs_ends_a_batch_of_documents(build: Build, server: EmbeddingServer) -> None:
    server.always = "hang"

    async with build(timeout_s=0.1) as provider:
        with pytest.raises(ProviderUnavailable):
            await asyncio.wait_for(embed(provider, "one", "two"), timeout=30)


async def test_a_server_that_is_not_there_is_unavailable(build: Build) -> None:
    async with build(base_url="http://127.0.0.1:1/v1", timeout_s=1) as provider:
        with pytest.raises(ProviderUnavailable):
            await embed(provider, "one", role="query")


async def test_a_query_does_not_wait_behind_documents(build: Build, server: EmbeddingServer) -> None:
    server.misbehave("hang")
    async with build(max_parallel_requests=1) as provider:
        documents = asyncio.create_task(embed(provider, "slow"))
        while not server.requests:
            await asyncio.sleep(0.01)

        [vector] = await embed(provider, "fast", role="query")

        assert len(vector) == WIDTH
        documents.cancel()
        await asyncio.gather(documents, return_exceptions=True)


async def test_batches_are_bounded_by_inputs(build: Build, server: EmbeddingServer) -> None:
    async with build(max_batch_inputs=3) as provider:
        vectors = await embed(provider, *(f"text {n}" for n in range(8)))

    assert sorted(len(request.inputs) for request in server.requests) == [2, 3, 3]
    assert list(vectors[7]) == pytest.approx(expected("text 7"), abs=1e-6)


async def test_batches_are_bounded_by_summed_tokens(build: Build, server: EmbeddingServer) -> None:
    async with build(max_batch_tokens=100) as provider:
        await embed(provider, *(["word " * 16] * 6))  # 80 characters, guessed as 40 tokens

    assert [len(request.inputs) for request in server.requests] == [2, 2, 2]


async def test_a_refusal_of_size_halves_the_batch(provider: OpenAiProvider, server: EmbeddingServer) -> None:
    server.max_inputs = 3

    vectors = await embed(provider, *(f"text {n}" for n in range(8)))

    assert [list(vector) for vector in vectors] == [pytest.approx(expected(f"text {n}"), abs=1e-6) for n in range(8)]
    assert sorted(len(request.inputs) for request in server.requests if request.fault is None) == [2, 2, 2, 2]


async def test_a_batch_size_that_was_refused_is_not_tried_again(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    server.max_inputs = 4
    await embed(provider, *(f"text {n}" for n in range(8)))
    server.requests.clear()

    await embed(provider, *(f"other {n}" for n in range(8)))

    assert [request.fault for request in server.requests] == [None, None]


async def test_one_text_that_is_refused_does_not_make_later_batches_smaller(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    server.max_chars_per_input = 100
    await embed(provider, "short", "word " * 40, "short too", "and this")
    server.requests.clear()

    await embed(provider, *(f"text {n}" for n in range(8)))

    assert [len(request.inputs) for request in server.requests] == [8]


async def test_a_text_over_the_model_limit_is_the_weighted_mean_of_its_windows(
    build: Build, server: EmbeddingServer
) -> None:
    text = "alpha beta gamma delta " * 8

    async with build(max_input_tokens=50) as provider:
        vectors = await embed(provider, "short", text)

    sent = [piece for request in server.requests for piece in request.inputs]
    assert sent[0] == "short"
    assert "".join(sent[1:]) == text
    mean = [sum(len(p) * expected(p)[i] for p in sent[1:]) for i in range(WIDTH)]
    length = math.sqrt(sum(value * value for value in mean))
    assert list(vectors[1]) == pytest.approx([value / length for value in mean], abs=1e-2)


async def test_a_single_text_that_the_server_finds_too_long_is_windowed(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    server.max_chars_per_input = 60
    text = "alpha beta gamma delta " * 8

    [vector] = await embed(provider, text)

    accepted = [piece for request in server.requests if request.fault is None for piece in request.inputs]
    assert "".join(accepted) == text
    assert math.isclose(sum(value * value for value in vector), 1, rel_tol=1e-5)


async def test_a_server_that_refuses_every_size_ends_as_a_refusal(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    server.always = "too_large"

    with pytest.raises(ProviderRefused):
        await embed(provider, "alpha beta gamma delta " * 20, "two", "three")
    assert len(server.requests) < 12


async def test_each_role_has_its_prefix_in_every_window(build: Build, server: EmbeddingServer) -> None:
    async with build(query_prefix="query: ", document_prefix="passage: ", max_input_tokens=40) as provider:
        await embed(provider, "what is it", role="query")
        await embed(provider, "a long passage of text " * 6)

    sent = [piece for request in server.requests for piece in request.inputs]
    assert sent[0] == "query: what is it"
    assert len(sent) > 2
    assert all(piece.startswith("passage: ") for piece in sent[1:])


async def test_each_role_has_its_input_type(build: Build, server: EmbeddingServer) -> None:
    async with build(query_input_type="query", document_input_type="document") as provider:
        await embed(provider, "one", role="query")
        await embed(provider, "one")

    assert [request.body["input_type"] for request in server.requests] == ["query", "document"]


async def test_fewer_dimensions_are_asked_for_where_the_model_can(build: Build, server: EmbeddingServer) -> None:
    async with build(model=None, dimensions=None) as provider:
        [vector] = await embed(provider, "one", model="text-embedding-3-small", dimensions=16)

    assert len(vector) == 16
    assert server.requests[0].body["dimensions"] == 16


async def test_a_models_own_width_is_not_asked_for(build: Build, server: EmbeddingServer) -> None:
    server.width = 1536
    async with build(model=None, dimensions=None) as provider:
        await embed(provider, "one", model="text-embedding-ada-002")

    assert "dimensions" not in server.requests[0].body


async def test_dimensions_that_the_model_cannot_give_are_refused_before_any_request(
    provider: OpenAiProvider, server: EmbeddingServer
) -> None:
    with pytest.raises(ProviderMisconfigured):
        await embed(provider, "one", dimensions=4)
    assert server.requests == []


@pytest.mark.parametrize("text", ["", "half a \ud800 pair"])
async def test_a_text_that_cannot_be_sent_is_refused_before_any_request(
    provider: OpenAiProvider, server: EmbeddingServer, text: str
) -> None:
    with pytest.raises(ProviderRefused):
        await embed(provider, "good", text)
    assert server.requests == []


@pytest.mark.parametrize("ending", ["", "/", "/embeddings", "/embeddings/", "?api-version=2"])
async def test_a_base_url_is_joined_without_doubling(build: Build, server: EmbeddingServer, ending: str) -> None:
    async with build(base_url=server.url + ending) as provider:
        await embed(provider, "one")

    assert server.requests[0].path == "/v1/embeddings"


async def test_a_base_url_is_taken_literally(build: Build, server: EmbeddingServer) -> None:
    async with build(base_url=server.url.removesuffix("/v1") + "/openai/deployments/x") as provider:
        await embed(provider, "one")

    assert server.requests[0].path == "/openai/deployments/x/embeddings"


async def test_extra_headers_and_query_parameters_are_sent(build: Build, server: EmbeddingServer) -> None:
    async with build(
        base_url=server.url + "?tenant=7",
        api_key=None,
        extra_headers={"api-key": "azure-key"},
        extra_query={"api-version": "2024-10-21"},
    ) as provider:
        await embed(provider, "one")

    [request] = server.requests
    assert request.query == {"tenant": "7", "api-version": "2024-10-21"}
    assert request.headers["api-key"] == "azure-key"
    assert "authorization" not in request.headers


async def test_nothing_of_the_environment_is_sent(
    build: Build, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "from-the-environment")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Secret: from-the-environment\nAuthorization: from-the-environment")

    async with build(api_key=None) as provider:
        await embed(provider, "one")

    assert "from-the-environment" not in json.dumps(server.requests[0].headers)
    assert not {"authorization", "openai-organization"} & server.requests[0].headers.keys()


@pytest.mark.parametrize("fault", [f for f in get_args(Fault) if f not in ("wrong_order", "repeated_index", "base64")])
async def test_no_key_no_query_no_answer_stands_in_an_error(
    build: Build, server: EmbeddingServer, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    server.always, server.retry_after = fault, "0"
    caplog.set_level(logging.DEBUG)

    async with build(base_url=server.url + "?code=query-secret", query_timeout_s=0.5) as provider:
        with pytest.raises(AppError) as caught:
            await embed(provider, "private-text", role="query")

    seen = "".join(traceback.format_exception(caught.value)) + caplog.text + json.dumps(caught.value.facts)
    for secret in (KEY, "query-secret", SECRET_OF_THE_BODY, "private-text"):
        assert secret not in seen.replace('"private-text"', "")  # the test's own source line in the traceback


async def test_check_reports_model_width_latency_and_address_without_secrets(
    build: Build, server: EmbeddingServer
) -> None:
    async with build(base_url=server.url + "?code=query-secret") as provider:
        report = await provider.check()

    assert report.pop("latency_ms") > 0  # type: ignore[operator]
    assert report == {"provider": "openai", "model": MODEL, "dimensions": WIDTH, "url": server.url + "/embeddings"}


async def test_check_tells_the_width_of_a_model_nobody_described(build: Build) -> None:
    async with build(model="unheard-of", dimensions=None) as provider:
        assert provider.find_model("unheard-of") is None
        assert (await provider.check())["dimensions"] == WIDTH


async def test_check_needs_a_model_at_an_address_other_than_openais(build: Build) -> None:
    async with build(model=None, dimensions=None) as provider:
        with pytest.raises(ProviderMisconfigured):
            await provider.check()


async def test_closing_twice_is_harmless(build: Build) -> None:
    async with build() as provider:
        await provider.close()
