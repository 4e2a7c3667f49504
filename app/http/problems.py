"""The one place where an error becomes an HTTP answer: `application/problem+json`."""

import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.errors import (
    AppError,
    Conflict,
    FieldFault,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    RateLimited,
    StorageFull,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from app.http.shapes import Problem
from app.logs import get_logger

__all__ = ["Problem", "answer", "install", "status_of"]
log = get_logger()

STATUS: dict[type[AppError], int] = {
    Unauthenticated: 401,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    TooLarge: 413,
    Invalid: 422,
    RateLimited: 429,
    Unavailable: 503,
    Misconfigured: 503,
    StorageFull: 507,
    AppError: 500,
}
TITLES = {
    400: "Bad request",
    401: "Unauthenticated",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Invalid input",
    429: "Too many requests",
    500: "Internal error",
    503: "Unavailable",
    507: "Insufficient storage",
}


def status_of(error: AppError) -> int:
    """The status of an error's family: that of its nearest ancestor in `STATUS`."""
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def answer(scope: Mapping[str, Any], error: AppError) -> Response:
    """The problem document of an error. Texts of internal errors are never shown."""
    status = status_of(error)
    detail = error.message if status != 500 else "Something went wrong; quote the request id when you report it."
    headers = {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after_s is not None or status == 503:
        headers["Retry-After"] = str(max(1, round(error.retry_after_s or 5)))
    return _problem(scope, status, error.code, detail, error.faults, error.facts, headers)


def install(app: FastAPI) -> None:
    """Register the handlers of every kind of error."""
    app.add_exception_handler(AppError, _on_app_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


async def _on_app_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, AppError):
        raise error
    if status_of(error) >= 500:
        log.warning("request.failed", code=error.code, error=type(error).__name__, exc_info=status_of(error) == 500)
    return answer(dict(request.scope), error)


async def _on_validation_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    faults = [FieldFault(loc=tuple(e["loc"]), msg=_message(e)) for e in error.errors()]
    detail = "; ".join(f"{'.'.join(str(p) for p in f.loc)}: {f.msg}" for f in faults[:3])
    return _problem(dict(request.scope), 422, "invalid", detail or "The input is not valid.", faults, {}, {})


async def _on_http_exception(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    cause = error.__cause__
    if isinstance(cause, AppError):  # raised while the body was read
        return answer(request.scope, cause)
    if error.status_code == 400:
        fault = FieldFault(("body",), "not valid JSON")
        return answer(request.scope, Invalid("The body could not be read as JSON.", faults=[fault]))
    code = TITLES.get(error.status_code, "error").lower().replace(" ", "_")
    headers = dict(error.headers or {})
    return _problem(dict(request.scope), error.status_code, code, _PLAIN.get(error.status_code), (), {}, headers)


_PLAIN = {404: "No such path.", 405: "This path does not know that method.", 400: "The request could not be read."}


def _message(error: dict[str, Any]) -> str:
    return str(error["msg"]).removeprefix("Value error, ")


def _problem(
    scope: Mapping[str, Any],
    status: int,
    code: str,
    detail: str | None,
    faults: tuple[FieldFault, ...] | list[FieldFault],
    facts: dict[str, object],
    headers: dict[str, str],
) -> Response:
    title = TITLES.get(status, "Error")
    body: dict[str, object] = {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail or title,
        "code": code,
        "request_id": scope.get("state", {}).get("request_id", ""),
    }
    if faults:
        body["errors"] = [{"loc": list(f.loc), "msg": f.msg} for f in faults]
    content = json.dumps({**facts, **body}, ensure_ascii=True, default=str).encode()
    return Response(content, status_code=status, headers=headers, media_type="application/problem+json")
