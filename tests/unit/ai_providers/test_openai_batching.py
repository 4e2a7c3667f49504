"""Batches, windows, means and retries."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ai_providers.batching import batches, estimate_tokens, halve, unit_vector, weighted_mean, windows
from app.ai_providers.contract import BadEmbedding, ProviderRefused, ProviderUnavailable
from app.ai_providers.retrying import RetryPolicy, with_retries

texts = st.text(max_size=400)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 10), st.integers(1, 100))
def test_batches_cover_all_inputs_in_order_within_their_bounds(costs: list[int], inputs: int, tokens: int) -> None:
    found = batches(costs, max_inputs=inputs, max_tokens=tokens)

    assert [index for part in found for index in part] == list(range(len(costs)))
    for part in found:
        assert 1 <= len(part) <= inputs
        assert len(part) == 1 or sum(costs[index] for index in part) <= tokens


@given(texts, st.integers(1, 40))
def test_windows_fit_and_lose_nothing_but_white_space(text: str, limit: int) -> None:
    found = windows(text, limit)

    assert all(len(window) == 1 or estimate_tokens(window) <= limit for window in found)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert len(found) == 1 or text.isspace() or not any(window.isspace() for window in found)


@given(st.text(min_size=2, max_size=400))
def test_halves_are_the_text_and_neither_is_empty(text: str) -> None:
    left, right = halve(text)

    assert left + right == text
    assert left
    assert right


def test_a_window_ends_behind_white_space_where_some_is_near() -> None:
    assert halve("one two three four five six") == ("one two three ", "four five six")


@given(texts, texts)
def test_the_token_estimate_never_falls_when_a_text_grows(text: str, more: str) -> None:
    assert estimate_tokens(text) <= estimate_tokens(text + more)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=20).filter(any))
def test_unit_vectors_have_length_one(values: list[float]) -> None:
    row = unit_vector(values, width=len(values))

    assert math.isclose(sum(value * value for value in row), 1, rel_tol=1e-5)


def test_a_longer_window_counts_more() -> None:
    mean = weighted_mean([[1.0, 0.0], [0.0, 1.0]], [3, 1])

    assert list(mean) == pytest.approx([3 / math.sqrt(10), 1 / math.sqrt(10)])


def test_windows_that_cancel_each_other_out_have_no_mean() -> None:
    with pytest.raises(BadEmbedding):
        weighted_mean([[1.0, 0.0], [-1.0, 0.0]], [1, 1])


class Attempts:
    """A call that fails with the given errors first, and the waits between its attempts."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.count = 0
        self.waits: list[float] = []

    async def __call__(self, left_s: float) -> str:
        self.count += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


async def test_a_time_that_the_provider_named_is_waited_for() -> None:
    attempts = Attempts(ProviderUnavailable(retry_after_s=5))

    await with_retries(attempts, RetryPolicy(attempts=3, budget_s=60), sleep=attempts.sleep)

    [wait] = attempts.waits
    assert 5 <= wait <= 5.5


async def test_waits_double_with_jitter() -> None:
    attempts = Attempts(*[ProviderUnavailable()] * 4)

    await with_retries(
        attempts, RetryPolicy(attempts=5, budget_s=600, first_wait_s=1, max_wait_s=4), sleep=attempts.sleep
    )

    assert [low <= wait <= 2 * low for low, wait in zip([0.5, 1, 2, 2], attempts.waits, strict=True)] == [True] * 4


async def test_the_last_error_is_raised_when_the_attempts_are_used_up() -> None:
    attempts = Attempts(ProviderUnavailable("first"), ProviderUnavailable("second"), ProviderUnavailable("third"))

    with pytest.raises(ProviderUnavailable, match="second"):
        await with_retries(attempts, RetryPolicy(attempts=2, budget_s=60), sleep=attempts.sleep)


async def test_a_wait_beyond_the_budget_is_not_begun() -> None:
    attempts = Attempts(ProviderUnavailable(retry_after_s=61))

    with pytest.raises(ProviderUnavailable):
        await with_retries(attempts, RetryPolicy(attempts=9, budget_s=60), sleep=attempts.sleep)
    assert attempts.waits == []


async def test_a_permanent_error_is_raised_at_once() -> None:
    attempts = Attempts(ProviderRefused())

    with pytest.raises(ProviderRefused):
        await with_retries(attempts, RetryPolicy(attempts=9, budget_s=60), sleep=attempts.sleep)
    assert attempts.count == 1
