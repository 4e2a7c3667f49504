"""From the SDK's exceptions to ours. Nothing of what they say is repeated: their texts quote answers and headers."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from app.errors import AppError
from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreRefused, VectorStoreUnavailable

_CODE = re.compile(r"[A-Z][A-Z_]{1,40}")
TRANSIENT_STATUSES = frozenset({408, 409, 423, 425, 429})


class NotThere(VectorStoreMisconfigured):
    """The index or namespace does not exist."""


FAMILIES: dict[str, type[AppError]] = {
    "PineconeError": VectorStoreUnavailable,
    "ApiError": VectorStoreRefused,
    "UnauthorizedError": VectorStoreMisconfigured,
    "ForbiddenError": VectorStoreMisconfigured,
    "PaymentRequiredError": VectorStoreMisconfigured,
    "NotFoundError": NotThere,
    "ConflictError": VectorStoreUnavailable,
    "FailedPreconditionError": VectorStoreMisconfigured,
    "PayloadTooLargeError": VectorStoreRefused,
    "RateLimitError": VectorStoreUnavailable,
    "ServiceError": VectorStoreUnavailable,
    "IndexInitFailedError": VectorStoreMisconfigured,
    "IndexTerminatedError": VectorStoreMisconfigured,
    "PineconeTimeoutError": VectorStoreUnavailable,
    "PineconeConnectionError": VectorStoreUnavailable,
    "PineconeValueError": VectorStoreRefused,
    "PineconeTypeError": VectorStoreRefused,
    "ResponseParsingError": VectorStoreUnavailable,
}
"""Every exception class of the SDK by name; what derives from one of them follows it."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the SDK raises inside the block into the errors of the contract.

    `from None`: the SDK's exceptions quote the answer, and a traceback would carry it into the logs.
    """
    from pinecone.errors import PineconeError

    try:
        yield
    except PineconeError as exc:
        raise as_ours(exc) from None
    except httpx.HTTPError as exc:
        raise VectorStoreUnavailable(f"no answer from Pinecone ({type(exc).__name__})") from None


def as_ours(exc: Exception) -> AppError:
    """The error of the contract for an exception of the SDK, in our words."""
    name = next(cls.__name__ for cls in type(exc).__mro__ if cls.__name__ in FAMILIES)
    family = FAMILIES[name]
    status: Any = getattr(exc, "status_code", None)
    if name == "ApiError" and status in TRANSIENT_STATUSES:
        family = VectorStoreUnavailable
    return family(_said(family, name, exc, status), retry_after_s=getattr(exc, "retry_after", None))


def _said(family: type[AppError], name: str, exc: Exception, status: Any) -> str:
    code = getattr(exc, "error_code", None)
    known = isinstance(code, str) and _CODE.fullmatch(code)
    detail = f"{name}, HTTP {status}" if isinstance(status, int) else name
    detail += f", {code}" if known else ""
    if name == "RateLimitError":
        return f"Pinecone asks for fewer requests ({detail})"
    if name in ("UnauthorizedError", "ForbiddenError"):
        return f"Pinecone refuses the API key, or what it may do ({detail}): check api_key and the project's quotas"
    if family is NotThere:
        return f"Pinecone does not know this index or namespace ({detail})"
    if issubclass(family, VectorStoreUnavailable):
        return f"Pinecone did not answer ({detail})"
    if issubclass(family, VectorStoreMisconfigured):
        return f"Pinecone can't be used as it is set up ({detail})"
    return f"Pinecone refused the request ({detail})"
