"""What each failure of the client library means to us: transient, an operator's business, or final."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from json import JSONDecodeError

import httpx
from pydantic import ValidationError

from app.errors import AppError
from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreRefused, VectorStoreUnavailable

AWAY = "Qdrant does not answer"
TRANSIENT = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS}
FORBIDDEN = {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED}
MOVED = range(300, 400)
SERVER = range(500, 600)
WRONG_ADDRESS = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.TooManyRedirects, httpx.LocalProtocolError)


class NoSuchCollection(VectorStoreUnavailable):
    """The collection is not there: nothing was written yet, or it was removed meanwhile."""


class CollectionExists(VectorStoreRefused):
    """Somebody else has made the collection meanwhile."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn whatever the client library raises into the contract's errors, cause attached, without its text."""
    try:
        yield
    except AppError:
        raise
    except Exception as exc:
        raise ours(exc) from exc


def ours(exc: Exception) -> AppError:
    """The error of ours that stands for one of the library's."""
    from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
    from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

    if isinstance(exc, UnexpectedResponse):
        return _of_answer(exc.status_code or 0, exc.content)
    if isinstance(exc, ResourceExhaustedResponse):
        return VectorStoreUnavailable("Qdrant has too many requests", retry_after_s=float(exc.retry_after_s))
    if isinstance(exc, ResponseHandlingException):
        return _of_transport(exc.source)
    if isinstance(exc, ApiException | QdrantException):
        return VectorStoreUnavailable(f"Qdrant's client failed ({type(exc).__name__})")
    if isinstance(exc, httpx.HTTPError | httpx.InvalidURL | httpx.StreamError | JSONDecodeError):
        return _of_transport(exc)
    return _of_local_mode(exc)


def _of_answer(status: int, content: bytes) -> AppError:
    said = content[:2_000].lower()
    if status == HTTPStatus.NOT_FOUND and b"collection" in said and b"exist" in said:
        return NoSuchCollection()
    if status == HTTPStatus.CONFLICT or (status == HTTPStatus.BAD_REQUEST and b"already exists" in said):
        return CollectionExists()
    if status in TRANSIENT or status in SERVER:
        return VectorStoreUnavailable(f"Qdrant does not serve at the moment (HTTP {status})")
    if status in FORBIDDEN:
        return VectorStoreMisconfigured(f"Qdrant refuses the API key (HTTP {status})")
    if status in MOVED or status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return VectorStoreMisconfigured(f"what answers at this url is not Qdrant (HTTP {status})")
    if b"index required" in said:
        return VectorStoreMisconfigured("the collection lacks a payload index: was it made by something else?")
    if b"dimension" in said:
        return VectorStoreMisconfigured("the collection holds vectors of another width")
    return VectorStoreRefused(f"Qdrant refuses this (HTTP {status})")


def _of_transport(source: Exception) -> AppError:
    if isinstance(source, WRONG_ADDRESS):
        return VectorStoreMisconfigured(f"the url of Qdrant can't be asked ({type(source).__name__})")
    if isinstance(source, httpx.TimeoutException):
        return VectorStoreUnavailable("Qdrant took too long")
    if isinstance(source, ValidationError | JSONDecodeError | httpx.DecodingError):
        return VectorStoreUnavailable("what answers at this url does not speak Qdrant's protocol")
    return VectorStoreUnavailable(AWAY)


def _of_local_mode(exc: Exception) -> AppError:
    said = str(exc)
    if isinstance(exc, ValueError) and said.startswith("Collection ") and said.endswith(" not found"):
        return NoSuchCollection()
    if isinstance(exc, ValueError) and said.startswith("Collection ") and said.endswith(" already exists"):
        return CollectionExists()
    if isinstance(exc, RuntimeError) and "already accessed by another instance" in said:
        return VectorStoreUnavailable("another process has opened this directory of Qdrant's: one may")
    if isinstance(exc, RuntimeError) and "closed" in said:
        return VectorStoreUnavailable("this vector store has been closed")
    if isinstance(exc, PermissionError | NotADirectoryError | FileNotFoundError):
        return VectorStoreMisconfigured(f"the directory of Qdrant's can't be used ({type(exc).__name__})")
    if isinstance(exc, OSError | sqlite3.OperationalError | TimeoutError | ConnectionError):
        return VectorStoreUnavailable(f"{AWAY} ({type(exc).__name__})")
    return VectorStoreRefused(f"Qdrant's client refuses this ({type(exc).__name__})")
