"""When a call to a provider is tried again: transient failures only, within a budget of attempts and seconds."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt, stop_before_delay

from app.ai_providers.contract import ProviderUnavailable

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class RetryPolicy:
    """At most `attempts` tries inside `budget_s` seconds, waits included.

    Waits double from `first_wait_s` up to `max_wait_s`, each with jitter down to half of it. Where the provider named
    a time (`retry_after_s`), that time and a little jitter is waited; if it lies beyond the budget, we give up at once.
    """

    attempts: int
    budget_s: float
    first_wait_s: float = 0.5
    max_wait_s: float = 20.0

    def wait_s(self, state: RetryCallState) -> float:
        """Seconds before the next attempt."""
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after_s if isinstance(error, ProviderUnavailable) else None
        if asked is not None:
            return asked + random.uniform(0, min(self.first_wait_s, 0.1 * asked))  # noqa: S311 (jitter, no secret)
        longest = min(self.max_wait_s, self.first_wait_s * 2 ** (state.attempt_number - 1))
        return random.uniform(longest / 2, longest)  # noqa: S311 (jitter, no secret)


async def with_retries(
    attempt: Callable[[float], Awaitable[T]], policy: RetryPolicy, *, sleep: Sleep = asyncio.sleep
) -> T:
    """Run `attempt`, again after each `ProviderUnavailable` as the policy allows; it gets the seconds that are left.

    Raises: the last `ProviderUnavailable`; any other error at once.
    """
    ends_at = time.monotonic() + policy.budget_s
    async for turn in AsyncRetrying(
        retry=retry_if_exception_type(ProviderUnavailable),
        stop=stop_after_attempt(policy.attempts) | stop_before_delay(policy.budget_s),
        wait=policy.wait_s,
        sleep=sleep,
        reraise=True,
    ):
        with turn:
            return await attempt(max(ends_at - time.monotonic(), 0.001))
    raise AssertionError("unreachable: reraise=True")  # for the type checker
