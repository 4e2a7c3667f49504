"""Limits of what a worker waits for."""

from dataclasses import dataclass

from app.errors import Unavailable


@dataclass(frozen=True)
class Timing:
    """Limits of an attempt, in seconds and attempts."""

    lease_s: float
    store_call_timeout_s: float
    retry_wait_s: float
    max_attempts: int


class StoreTimeout(Unavailable):
    """The vector store did not finish a write in time."""

    code = "vector_store_timeout"
