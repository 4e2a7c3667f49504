"""The families of errors. A room's own error derives from one of them and adds a stable `code`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class FieldFault:
    """One fault of an input: `loc` is the path to the field, as a client wrote it."""

    loc: tuple[str | int, ...]
    msg: str


class AppError(Exception):
    """Something went wrong inside the service."""

    code: ClassVar[str] = "internal"

    def __init__(
        self,
        message: str | None = None,
        *,
        faults: Sequence[FieldFault] = (),
        retry_after_s: float | None = None,
        **facts: object,
    ) -> None:
        """Build the error; `message` defaults to the first line of the class's docstring.

        `facts` are extra members of the problem document (plain JSON values, never secrets or content).
        """
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.faults = tuple(faults)
        self.retry_after_s = retry_after_s
        self.facts = facts
        super().__init__(self.message)


class Unauthenticated(AppError):
    """A valid API key is needed: send `Authorization: Bearer <key>`."""

    code = "unauthenticated"


class Forbidden(AppError):
    """This key may not do that."""

    code = "forbidden"


class NotFound(AppError):
    """No such object."""

    code = "not_found"


class Conflict(AppError):
    """The request disagrees with the present state."""

    code = "conflict"


class TooLarge(AppError):
    """The input is larger than allowed."""

    code = "too_large"


class Invalid(AppError):
    """The input is not valid."""

    code = "invalid"


class RateLimited(AppError):
    """Too many requests; try again later."""

    code = "rate_limited"


class Unavailable(AppError):
    """A part this needs does not answer at the moment; try again later. Transient: waiting counts as no attempt."""

    code = "unavailable"


class Misconfigured(AppError):
    """A setting is wrong or missing. Permanent until an operator changes it."""

    code = "misconfigured"


class StorageFull(AppError):
    """There is not enough free space."""

    code = "storage_full"
