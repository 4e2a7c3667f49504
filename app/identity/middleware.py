"""Authentication before anything is read: a pure ASGI middleware, token → `Caller` in the scope."""

from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from app.errors import AppError, TooLarge, Unauthenticated
from app.identity.contract import Authenticator

Message = MutableMapping[str, Any]
ASGI = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
Answer = Callable[[Message, AppError], ASGI]


class AuthenticationMiddleware:
    """Refuse every path that is not public unless a valid key comes with it; bound the size of JSON bodies.

    `answer` turns an error into the ASGI application that says it.
    """

    def __init__(
        self,
        app: ASGI,
        *,
        authenticator: Callable[[], Authenticator],
        answer: Answer,
        public_paths: Collection[str],
        max_json_bytes: int,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._answer = answer
        self._public = frozenset(public_paths)
        self._max_json_bytes = max_json_bytes

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """Authenticate, then hand on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] not in self._public:
            try:
                scope.setdefault("state", {})["caller"] = await self._authenticator().authenticate(_token(scope))
            except AppError as error:
                await self._answer(scope, error)(scope, receive, send)
                return
        if _header(scope, b"content-type").startswith("application/json"):
            receive = self._bounded(scope, receive)
        await self._app(scope, receive, send)

    def _bounded(self, scope: Message, receive: Callable[[], Awaitable[Message]]) -> Callable[[], Awaitable[Message]]:
        limit = self._max_json_bytes
        seen = 0
        too_large = TooLarge(f"A JSON body may have at most {limit} bytes.", limit_bytes=limit)
        declared = _header(scope, b"content-length")

        async def bounded() -> Message:
            nonlocal seen
            if declared.isdigit() and int(declared) > limit:
                raise too_large
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise too_large
            return message

        return bounded


def _header(scope: Message, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


def _token(scope: Message) -> str:
    scheme, _, token = _header(scope, b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated()
    return token.strip()
