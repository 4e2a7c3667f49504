"""How answers of an OpenAI-compatible service are read: vectors of a success, the meaning of a refusal.

Nothing that the other side wrote ever stands in a message: it may hold the key, the texts or the URL's query.
"""

import base64
import binascii
import json
import re
from array import array
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import numpy as np

from app.ai_providers.batching import unit_vector
from app.ai_providers.contract import BadEmbedding, ProviderMisconfigured, ProviderRefused, ProviderUnavailable
from app.errors import AppError

SIZE_CODES = frozenset(
    {"context_length_exceeded", "string_above_max_length", "array_above_max_length", "max_tokens_per_request"}
)
SIZE_WORDS = re.compile(
    r"context.?(length|size)|too (long|large|many (inputs|tokens))|batch size|max\w* (\w+ )?(tokens|length|inputs)"
    r"|tokens per request|must have less than|input length|exceeds? ",
    re.IGNORECASE,
)
# Where the status means something else as a rule: llama.cpp refuses a size with 500, OpenAI a request above the
# tokens of a minute with 429 ("Request too large for …"), and waiting would help neither.
STRICT_SIZE_WORDS = re.compile(r"(input|request)[^.]{0,40} too large", re.IGNORECASE)
QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
SETTING_CODES = frozenset({"model_not_found", "invalid_model", "deploymentnotfound", "invalid_api_key"})
SETTING_PARAMS = frozenset({"model", "dimensions", "encoding_format", "input_type"})
TRANSIENT_STATUSES = frozenset({408, 409, 425, 429})


class TooLargeForProvider(ProviderRefused):
    """The AI provider refuses the size of this input; smaller pieces may pass."""

    code = "provider_input_too_large"


def read_vectors(body: bytes, *, inputs: int, width: int | None) -> "list[array[float]]":
    """The vectors of an embedding answer, ordered by its `index` fields: unit length, `array("f")`.

    Vectors may be lists of numbers or base64 of little-endian float32 (some servers send that whatever was asked).
    Raises: BadEmbedding unless there is exactly one vector for each input, of the right width, finite.
    """
    try:
        data = json.loads(body)["data"]
        found = [(item["index"], item["embedding"]) for item in data]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadEmbedding("the provider's answer is not an embedding list with `index` and `embedding`") from None
    if not all(type(index) is int for index, _ in found):
        raise BadEmbedding("the provider's answer has an `index` that is no integer")
    if sorted(index for index, _ in found) != list(range(inputs)):
        raise BadEmbedding(
            f"the provider's answer has {len(found)} vectors for {inputs} inputs, or repeats or skips an index"
        )
    found.sort(key=lambda item: item[0])
    return [unit_vector(_decoded(values, width), width=width) for _, values in found]


def _decoded(values: object, width: int | None) -> np.ndarray[tuple[int], np.dtype[np.float32]] | list[object]:
    """A base64 string as float32, a list as it is."""
    if isinstance(values, list):
        return values
    if not isinstance(values, str):
        raise BadEmbedding("the provider's answer has a vector that is neither a list nor base64")
    try:
        raw = base64.b64decode(values, validate=True)
    except (binascii.Error, ValueError):
        raise BadEmbedding("the provider's answer has a vector that is neither a list nor base64") from None
    if len(raw) % 4 or (width is not None and len(raw) != 4 * width):
        raise BadEmbedding(f"the provider's answer has a base64 vector of {len(raw)} bytes; expected {width} float32")
    return np.frombuffer(raw, dtype="<f4")


def refusal(status: int, headers: Mapping[str, str], body: object, *, url: str) -> AppError:
    """The error that a status of 300 or more means; `body` is the decoded error object or text, used to decide only.

    Sizes → TooLargeForProvider; 429 and 5xx → ProviderUnavailable with `retry_after_s`; key, quota, model, URL →
    ProviderMisconfigured; any other 4xx → ProviderRefused.
    """
    codes, param = _codes(body), _member(body, "param")
    said = f"the AI provider at {url} answered {status}"
    if codes & QUOTA_CODES or status == 402:
        return ProviderMisconfigured(f"{said}: the account's quota or budget is used up", status=status)
    if codes & SIZE_CODES or status == 413 or _names_a_size(status, _text(body)):
        return TooLargeForProvider(f"{said}: the input is too large for it", status=status)
    if status in (401, 403):
        return ProviderMisconfigured(f"{said}: it does not accept our key or the key's rights", status=status)
    if status == 404 or codes & SETTING_CODES or (status in (400, 422) and param in SETTING_PARAMS):
        return ProviderMisconfigured(f"{said}: check the base URL, the model's name and its dimensions", status=status)
    if status in TRANSIENT_STATUSES or status >= 500:
        return ProviderUnavailable(f"{said}; try again later", retry_after_s=retry_after_s(headers), status=status)
    if status < 400 or status == 405:
        return ProviderMisconfigured(f"{said}, which is no answer of an embedding service: check the base URL")
    return ProviderRefused(f"{said}: it does not accept this input", status=status)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that `retry-after-ms` or `Retry-After` (seconds or a date) asks us to wait; None when it says nothing."""
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d+)?", value):
            return float(value) / per_second
        if value and name == "retry-after":
            try:
                when = parsedate_to_datetime(value)
            except (ValueError, OverflowError):
                return None
            when = when if when.tzinfo else when.replace(tzinfo=UTC)
            return max((when - datetime.now(UTC)).total_seconds(), 0.0)
    return None


def _names_a_size(status: int, text: str) -> bool:
    words = {400: SIZE_WORDS, 422: SIZE_WORDS, 429: STRICT_SIZE_WORDS, 500: STRICT_SIZE_WORDS}.get(status)
    return words is not None and words.search(text) is not None


def _codes(body: object) -> frozenset[str]:
    return frozenset(value.lower() for key in ("code", "type", "error_type") if (value := _member(body, key)))


def _member(body: object, key: str) -> str:
    value = body.get(key) if isinstance(body, dict) else None
    return value if isinstance(value, str) else ""


def _text(body: object) -> str:
    """The part of an error that says what was wrong; bounded, since an error page may be long."""
    said = (_member(body, "message") or _member(body, "error")) if isinstance(body, dict) else str(body or "")
    return said[:2000]
