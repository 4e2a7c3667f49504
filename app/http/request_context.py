"""The outermost middleware: a request id on every answer and log line, and a plain 500 for the unexpected."""

import re
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import structlog
from prometheus_client import Histogram
from starlette.datastructures import MutableHeaders

from app.db.base import new_id
from app.errors import AppError
from app.http.problems import answer
from app.logs import get_logger

log = get_logger()
_ACCEPTABLE = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
_SECONDS = Histogram("stackroom_request_seconds", "Time to answer", ["method", "status"])


class RequestContextMiddleware:
    """Give the request an id (the caller's `X-Request-Id` if it is harmless), log its end, catch what escapes."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[..., Awaitable[Any]],
        send: Callable[..., Awaitable[None]],
    ) -> None:
        """Wrap one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _ACCEPTABLE.match(given) else new_id().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = time.perf_counter()
        status = 0

        async def stamped(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, stamped)
            except Exception:
                log.exception("request.crashed", method=scope["method"], path=scope["path"])
                if status:
                    raise
                await answer(scope, AppError())(scope, receive, stamped)
            took = time.perf_counter() - started
            _SECONDS.labels(scope["method"], str(status)).observe(took)
            level = log.info if status < 500 else log.warning
            level("request", method=scope["method"], path=scope["path"], status=status, took_ms=round(took * 1000, 1))
