"""What the answers of a service mean."""

import base64
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import numpy as np
import pytest

from app.ai_providers.contract import BadEmbedding, ProviderMisconfigured, ProviderRefused, ProviderUnavailable
from app.ai_providers.openai_answers import TooLargeForProvider, read_vectors, refusal, retry_after_s
from app.errors import AppError

URL = "http://example.test/v1"


def answer(*vectors: object) -> bytes:
    return json.dumps({"data": [{"index": i, "embedding": v} for i, v in enumerate(vectors)]}).encode()


@pytest.mark.parametrize(
    ("status", "body", "family"),
    [
        (400, {"message": "This model's maximum context length is 8192 tokens"}, TooLargeForProvider),
        (400, {"code": "context_length_exceeded", "message": ""}, TooLargeForProvider),
        (400, {"code": "max_tokens_per_request"}, TooLargeForProvider),
        (400, {"message": "the input length exceeds the context length"}, TooLargeForProvider),
        (413, "", TooLargeForProvider),
        (413, "batch size 64 > maximum allowed batch size 32", TooLargeForProvider),
        (422, {"error": "`inputs` must have less than 512 tokens. Given: 700"}, TooLargeForProvider),
        (500, {"message": "input is too large to process. increase the physical batch size"}, TooLargeForProvider),
        (429, {"message": "Request too large for text-embedding-3-small: Limit 40000"}, TooLargeForProvider),
        (400, {"message": "invalid input"}, ProviderRefused),
        (422, {"detail": []}, ProviderRefused),
        (400, {"param": "dimensions", "message": "not supported"}, ProviderMisconfigured),
        (401, {}, ProviderMisconfigured),
        (402, {}, ProviderMisconfigured),
        (403, {}, ProviderMisconfigured),
        (404, {}, ProviderMisconfigured),
        (405, {}, ProviderMisconfigured),
        (302, "", ProviderMisconfigured),
        (429, {"code": "insufficient_quota"}, ProviderMisconfigured),
        (429, {"type": "insufficient_quota"}, ProviderMisconfigured),
        (429, {"message": "Rate limit reached, too many tokens"}, ProviderUnavailable),
        (408, {}, ProviderUnavailable),
        (500, None, ProviderUnavailable),
        (500, {"message": "context canceled: maximum tokens"}, ProviderUnavailable),
        (503, "<html>", ProviderUnavailable),
        (529, {}, ProviderUnavailable),
    ],
)
def test_each_refusal_has_its_family(status: int, body: object, family: type[AppError]) -> None:
    assert type(refusal(status, {}, body, url=URL)) is family


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_s(headers) == seconds


def test_a_date_in_retry_after_is_the_time_until_then() -> None:
    when = datetime.now(UTC) + timedelta(seconds=60)

    seconds = retry_after_s({"retry-after": format_datetime(when, usegmt=True)})

    assert seconds is not None
    assert 0 < seconds <= 60


def test_base64_of_another_width_is_refused() -> None:
    doubles = base64.b64encode(np.asarray([1.0, 2.0], dtype="<f8").tobytes()).decode()

    with pytest.raises(BadEmbedding):
        read_vectors(answer(doubles), inputs=1, width=2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'{"data": null}',
        b'{"data": [1]}',
        b'{"data": [{"embedding": [1.0, 2.0]}]}',
        b'{"data": [{"index": "0", "embedding": [1.0, 2.0]}]}',
        b'{"data": [{"index": true, "embedding": [1.0, 2.0]}]}',
        b'{"data": [{"index": 0, "embedding": {}}]}',
        b'{"data": [{"index": 0, "embedding": "?"}]}',
        b'{"data": [{"index": 0, "embedding": [[1.0, 2.0]]}]}',
        b'{"data": [{"index": 0, "embedding": [1e999, 2.0]}]}',
        b'{"data": [{"index": 0, "embedding": [1, "x"]}]}',
        b'{"data": [{"index": 0, "embedding": []}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_an_answer_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(BadEmbedding):
        read_vectors(body, inputs=1, width=2)


def test_very_small_and_very_large_values_keep_their_direction() -> None:
    vectors = read_vectors(answer([3e-200, 4e-200], [3e200, 4e200]), inputs=2, width=2)

    assert [list(vector) for vector in vectors] == [pytest.approx([0.6, 0.8])] * 2
