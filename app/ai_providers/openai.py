"""Any service that speaks OpenAI's embedding interface, at any base URL, through the `openai` package."""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, cast

from app.ai_providers.batching import batches, estimate_tokens, halve, weighted_mean, windows, without_blanks
from app.ai_providers.contract import (
    EmbeddingModel,
    ProviderMisconfigured,
    ProviderRefused,
    ProviderUnavailable,
    Role,
    Vector,
)
from app.ai_providers.openai_answers import TooLargeForProvider, read_vectors, refusal
from app.ai_providers.openai_settings import MODELS, OpenAiSettings
from app.ai_providers.retrying import RetryPolicy, with_retries
from app.plugins.endpoints import EndpointGuard, EndpointRefused, GuardedTransport
from app.plugins.manifest import AiProviderManifest, needs_extra

if TYPE_CHECKING:
    import httpx2

QUERY_ATTEMPTS, DOCUMENT_ATTEMPTS = 2, 6
SMALLEST_WINDOW_TOKENS = 8  # a service that finds even this too large is not refusing the size
LARGE_ANSWER_BYTES = 256 * 1024
HEADERS_OF_OURS = frozenset(
    {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"}
    | {"x-stainless-raw-response"}  # by which the SDK itself knows, when the answer comes, that we want it raw
)

Leaf = tuple[Vector, int]  # a window's vector and its weight


@dataclass(frozen=True)
class _Call:
    """What all requests of one `create_embedding` have in common."""

    model: str
    width: int | None
    asks_dimensions: bool
    role: Role
    prefix: str
    ends_at: float | None  # time.monotonic(); None: each batch has a budget of its own


class OpenAiProvider:
    """Embeddings from OpenAI, Azure, a proxy or a server of one's own. Building it does not connect."""

    manifest: ClassVar[AiProviderManifest] = AiProviderManifest(
        id="openai",
        name="OpenAI and compatible services",
        capabilities=("embedding",),
        system_plugin=True,
        settings_model=OpenAiSettings,
        location_fields=("base_url",),
        fact_fields=(
            "model",
            "dimensions",
            "other_dimensions",
            "query_prefix",
            "document_prefix",
            "query_input_type",
            "document_input_type",
        ),
        selectable_in_form=True,
        docs_url="https://platform.openai.com/docs/guides/embeddings",
        tested_against="double",
    )

    def __init__(self, settings: OpenAiSettings, *, guard: EndpointGuard | None = None) -> None:
        """Take the settings as they are: nothing is read from the environment.

        With a `guard` every connection goes to an address that it gave out.
        Raises: MissingExtra when the `openai` package is absent.
        """
        with needs_extra(self.manifest):
            import httpx2
            import openai
        self._sdk = openai
        self._settings = settings
        self._endpoint = settings.endpoint
        self._headers = settings.headers()
        for name in ("openai", "httpx2", "httpcore2"):  # they log whole URLs at INFO and texts at DEBUG
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = openai.AsyncOpenAI(
            api_key="set-in-headers",  # absent ones would be taken from the environment
            organization="",
            project="",
            base_url=self._endpoint.url,
            max_retries=0,
            default_query={**self._endpoint.query, **settings.query()},
            # A redirect could lead past the check of a tenant's endpoint, and would carry our headers there.
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False,
                event_hooks={"request": [self._set_headers]},
                transport=_guarded(guard, httpx2.AsyncHTTPTransport(trust_env=False)) if guard else None,
            ),
        )
        self._embeddings = self._client.embeddings  # its module is imported now, not in the first request
        self._document_slots = asyncio.Semaphore(settings.max_parallel_requests)
        self._refusals = 0
        self._learned_inputs: dict[str, int] = {}

    @classmethod
    def build_guarded(cls, settings: OpenAiSettings, guard: EndpointGuard) -> Self:
        """The provider of a tenant's endpoint."""
        return cls(settings, guard=guard)

    @classmethod
    def location(cls, settings: OpenAiSettings) -> Mapping[str, object]:
        """What makes it another place for the instance's fingerprint: the URL, however it is written."""
        return {"base_url": settings.endpoint.url}

    @property
    def default_model(self) -> str | None:
        """The settings' model, else OpenAI's small one at OpenAI's own address, else None."""
        return self._settings.default_model

    def embedding_models(self) -> Mapping[str, EmbeddingModel]:
        """OpenAI's models and, where its dimensions are known, the one that the settings name."""
        names = [*MODELS, *([self._settings.model] if self._settings.model else [])]
        return {name: model for name in names if (model := self.find_model(name))}

    def find_model(self, name: str) -> EmbeddingModel | None:
        """Facts of one model, overridden by the settings; an unlisted name needs `dimensions` there."""
        return self._settings.find_model(name)

    async def create_embedding(
        self, texts: Sequence[str], *, role: Role, model: str, dimensions: int | None = None
    ) -> list[Vector]:
        """One vector per text, in order: `dimensions` wide, finite, L2-normalised `array("f")`.

        Role `query`: 2 s (a setting) for everything, one retry at most. Role `document`: batches side by side, each
        tried several times.
        Raises: ProviderUnavailable, ProviderMisconfigured, ProviderRefused, BadEmbedding.
        """
        _refuse_unsendable(texts)
        facts = self.find_model(model)
        if facts is None:
            raise ProviderMisconfigured(f"model '{model}' is not known here: set its `dimensions` in the settings")
        call = self._call(facts, role, dimensions)
        limit = facts.max_input_tokens - estimate_tokens(call.prefix)
        cut = [windows(text, max(limit, SMALLEST_WINDOW_TOKENS)) for text in texts]
        pieces = [piece for pieces_of_text in cut for piece in pieces_of_text]
        leaves = iter(await self._embed_all(call, facts, pieces))
        return [_mean([leaf for _ in pieces_of_text for leaf in next(leaves)]) for pieces_of_text in cut]

    async def check(self, *, model: str | None = None) -> dict[str, object]:
        """Embed one word; report model, width, latency and URL, without secrets. Any width is accepted and told.

        Raises: ProviderMisconfigured when neither `model` nor the settings name one, and as `create_embedding`.
        """
        name = model or self.default_model
        if name is None:
            raise ProviderMisconfigured(f"the AI provider at {self._endpoint.shown} needs a `model` in its settings")
        facts = self.find_model(name)
        ends_at = time.monotonic() + self._settings.timeout_s
        call = replace(self._call(facts, "document", None), ends_at=ends_at) if facts else None
        started = time.monotonic()
        [vector] = await self._send(call or _Call(name, None, False, "document", "", ends_at), ["word"])
        return {
            "provider": self.manifest.id,
            "model": name,
            "dimensions": len(vector),
            "latency_ms": round((time.monotonic() - started) * 1000, 1),
            "url": self._endpoint.shown + "/embeddings",
        }

    async def close(self) -> None:
        """Let go of connections; may be called more than once."""
        await self._client.close()

    def _call(self, facts: EmbeddingModel, role: Role, dimensions: int | None) -> _Call:
        native = MODELS[facts.name].dimensions if facts.name in MODELS else facts.dimensions
        width = dimensions or facts.dimensions
        if width != facts.dimensions and not (facts.other_dimensions and 0 < width <= native):
            raise ProviderMisconfigured(f"model '{facts.name}' gives {facts.dimensions} dimensions, not {width}")
        return _Call(
            model=facts.name,
            width=width,
            asks_dimensions=width != native or (facts.other_dimensions and facts.name not in MODELS),
            role=role,
            prefix=facts.query_prefix if role == "query" else facts.document_prefix,
            ends_at=time.monotonic() + self._settings.query_timeout_s if role == "query" else None,
        )

    async def _embed_all(self, call: _Call, facts: EmbeddingModel, pieces: list[str]) -> list[list[Leaf]]:
        """The leaves of every piece, in order; documents use the provider's slots, queries never wait for one."""
        overhead = estimate_tokens(call.prefix)
        parts = batches(
            [estimate_tokens(piece) + overhead for piece in pieces],
            max_inputs=min(facts.max_batch_inputs, self._learned_inputs.get(call.model, facts.max_batch_inputs)),
            max_tokens=facts.max_batch_tokens,
        )
        groups = [[pieces[index] for index in part] for part in parts]
        if call.role == "query":
            found = [await self._embed(call, group) for group in groups]
        else:
            found = await self._side_by_side(call, groups)
        return [leaves for group in found for leaves in group]

    async def _side_by_side(self, call: _Call, groups: list[list[str]]) -> list[list[list[Leaf]]]:
        async def one(group: list[str]) -> list[list[Leaf]]:
            async with self._document_slots:
                return await self._embed(call, group)

        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(one(group)) for group in groups]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the others were cancelled for its sake, or failed like it
        return [task.result() for task in running]

    async def _embed(self, call: _Call, texts: list[str]) -> list[list[Leaf]]:
        """Embed a batch; one that is refused goes again in halves, at last a single text in halves of itself.

        Any refusal of several texts is halved, since services word a refusal of size as they like.
        """
        try:
            vectors = await self._send(call, texts)
        except ProviderRefused as refused:
            self._refusals += 1
            if len(texts) > 1:
                return await self._embed_halves(call, texts)
            too_large = isinstance(refused, TooLargeForProvider)
            if not too_large or estimate_tokens(texts[0]) <= SMALLEST_WINDOW_TOKENS or len(texts[0]) < 2:
                raise
            found = [await self._embed(call, [half]) for half in without_blanks(halve(texts[0]))]
            return [[leaf for [leaves] in found for leaf in leaves]]
        return [[(vector, estimate_tokens(text))] for vector, text in zip(vectors, texts, strict=True)]

    async def _embed_halves(self, call: _Call, texts: list[str]) -> list[list[Leaf]]:
        middle = (len(texts) + 1) // 2
        refusals = self._refusals
        found = await self._embed(call, texts[:middle]) + await self._embed(call, texts[middle:])
        if self._refusals == refusals:  # both halves passed at once: so many inputs were the fault, not one of them
            self._learned_inputs[call.model] = middle
        return found

    async def _send(self, call: _Call, texts: list[str]) -> list[Vector]:
        """One batch as one request, repeated after transient failures."""
        if call.role == "query":
            policy = RetryPolicy(QUERY_ATTEMPTS, self._settings.query_timeout_s, first_wait_s=0.1)
        else:
            policy = RetryPolicy(DOCUMENT_ATTEMPTS, 3 * self._settings.timeout_s)
        if call.ends_at is not None:
            policy = replace(policy, budget_s=max(call.ends_at - time.monotonic(), 0.001))
        return await with_retries(lambda left_s: self._request(call, texts, left_s), policy)

    async def _request(self, call: _Call, texts: list[str], left_s: float) -> list[Vector]:
        """One request, at most `left_s` seconds (documents: at most `timeout_s`)."""
        limit_s = left_s if call.role == "query" else min(left_s, self._settings.timeout_s)
        input_type = self._settings.input_type(call.role)
        sdk, shown = self._sdk, self._endpoint.shown
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._embeddings.with_raw_response.create(
                    input=[call.prefix + text for text in texts],
                    model=call.model,
                    dimensions=call.width if call.asks_dimensions and call.width else sdk.omit,
                    encoding_format="float",
                    extra_body={"input_type": input_type} if input_type else None,
                    timeout=limit_s,
                )
        # `from None`: the SDK's exceptions quote the answer's body, and a traceback would carry it into the logs.
        except (TimeoutError, sdk.APITimeoutError):
            raise ProviderUnavailable(f"the AI provider at {shown} did not answer within {limit_s:.1f} s") from None
        except EndpointRefused as refused:
            raise ProviderMisconfigured(f"the AI provider at {shown} is not used: {refused.message}") from None
        except sdk.APIStatusError as exc:
            raise refusal(exc.status_code, exc.response.headers, exc.body, url=shown) from None
        except sdk.APIError as exc:
            raise ProviderUnavailable(f"no answer from the AI provider at {shown} ({type(exc).__name__})") from None
        body = answer.http_response.content
        if len(body) < LARGE_ANSWER_BYTES:
            return list(read_vectors(body, inputs=len(texts), width=call.width))
        return list(await asyncio.to_thread(read_vectors, body, inputs=len(texts), width=call.width))

    async def _set_headers(self, request: "httpx2.Request") -> None:
        """Send our headers and no others: the SDK adds some from the environment, which are another endpoint's."""
        for name in list(request.headers):
            if name.lower() not in HEADERS_OF_OURS:
                del request.headers[name]
        request.headers.update(self._headers)


def _guarded(guard: EndpointGuard, inner: "httpx2.AsyncBaseTransport") -> "httpx2.AsyncBaseTransport":
    return cast("httpx2.AsyncBaseTransport", GuardedTransport(guard, inner))


def _refuse_unsendable(texts: Sequence[str]) -> None:
    for index, text in enumerate(texts):
        if not text:
            raise ProviderRefused(f"text {index} is empty: it has no embedding")
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            raise ProviderRefused(f"text {index} has a lone surrogate: it has no UTF-8 form")


def _mean(leaves: list[Leaf]) -> Vector:
    """A text's vector: that of its only window, or the length-weighted mean of several."""
    if len(leaves) == 1:
        return leaves[0][0]
    return weighted_mean([vector for vector, _ in leaves], [max(weight, 1) for _, weight in leaves])
