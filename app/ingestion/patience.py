"""Patience with parts that are away: after a failure, nobody works towards them in vain until a pause is over."""

import time
from collections.abc import Callable

from app.errors import Unavailable

MAX_PAUSE_S = 60.0


class Patience:
    """Remembers the last failure of a provider or store; pauses double up to a minute, a success ends them."""

    def __init__(self, first_pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._first_pause_s = first_pause_s
        self._clock = clock
        self._pause_s = 0.0
        self._until = 0.0
        self._error: Unavailable | None = None

    def check(self) -> None:
        """Raises: the last failure again, with the rest of the pause, while the pause lasts."""
        left = self._until - self._clock()
        if self._error is not None and left > 0:
            again = type(self._error)(self._error.message, retry_after_s=max(left, 0.1))
            raise again

    def failed(self, error: Unavailable) -> float:
        """Note a failure; how long to wait (seconds). Failures during a pause do not lengthen it."""
        now = self._clock()
        if now >= self._until:
            doubled = min(MAX_PAUSE_S, max(self._first_pause_s, self._pause_s * 2))
            self._pause_s = max(doubled, error.retry_after_s or 0.0)
            self._until = now + self._pause_s
        self._error = error
        return max(self._until - now, 0.1)

    def succeeded(self) -> None:
        """Forget the failure."""
        self._pause_s = self._until = 0.0
        self._error = None
