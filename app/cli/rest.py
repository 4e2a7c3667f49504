"""The REST interface as the client commands use it: paging, patience with a busy service, errors as sentences."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import httpx
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_delay, wait_random_exponential

from app.cli.first_key import Access, ClientProblem

Json = dict[str, Any]
TRANSIENT_STATUS = frozenset({429, 502, 503, 504})
LONGEST_WAIT_S = 60.0
PAGE = 200
_TIMEOUT = httpx.Timeout(120, connect=5, pool=None)
_growing_wait = wait_random_exponential(multiplier=0.5, max=10)


class Refused(Exception):
    """The service answered a request with an error. `code` as in its problem document."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class _Busy(Exception):
    """Worth another try: no connection, or an answer that says later."""

    def __init__(self, cause: httpx.TransportError | Refused, retry_after_s: float | None = None) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.retry_after_s = retry_after_s


class Rest:
    """One service, one key. `patience_s` = how long a request is repeated while the service is away or busy."""

    def __init__(self, access: Access, *, patience_s: float = 120) -> None:
        self._access = access
        self._patience_s = patience_s
        self._http = httpx.AsyncClient(
            base_url=access.url,
            headers={"authorization": f"Bearer {access.key}"},
            timeout=_TIMEOUT,
            verify=_trust(access.url),
            trust_env=not _is_loopback(access.url),  # a proxy of the environment can't reach this machine's loopback
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def check(self) -> Json:
        """Who we are to the service; asked once, without patience. Raises: ClientProblem when it does not answer."""
        try:
            return await self._once(lambda: self._http.build_request("GET", "/v1/me"))
        except _Busy as busy:
            raise self._problem(busy) from None

    async def get(self, path: str, **params: str | int) -> Json:
        """The JSON answer. Raises: Refused, ClientProblem."""
        return await self._patiently(lambda: self._http.build_request("GET", path, params=params))

    async def post(self, path: str, body: Json) -> Json:
        """The JSON answer of a request that may be repeated without harm. Raises: Refused, ClientProblem."""
        return await self._patiently(lambda: self._http.build_request("POST", path, json=body))

    async def create(self, path: str, body: Json) -> Json:
        """The JSON answer of a request that is sent once, since it makes something new each time it arrives."""
        try:
            return await self._once(lambda: self._http.build_request("POST", path, json=body))
        except _Busy as busy:
            raise self._problem(busy) from None

    async def pages(self, path: str) -> AsyncIterator[Json]:
        """The items of a list, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = await self.get(path, limit=PAGE, **({"cursor": cursor} if cursor else {}))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]

    async def upload(
        self, path: str, file: Path, fields: Mapping[str, str], content_type: str, on_bytes: Callable[[int], None]
    ) -> Json:
        """Send a file as a stream, again from its start when the service is busy; `on_bytes` gets what was sent.

        What was sent in vain is taken back from `on_bytes`. Raises: OSError, Refused, ClientProblem.
        """

        async def attempt() -> Json:
            sent = _Watched(await asyncio.to_thread(file.open, "rb"), on_bytes)
            try:
                form = {"file": (file.name, sent, content_type)}
                return await self._once(
                    lambda: self._http.build_request("POST", path, data=dict(fields), files=form)  # type: ignore[arg-type]
                )
            except BaseException:
                on_bytes(-sent.sent)
                raise
            finally:
                sent.close()

        return await self._patiently_call(attempt)

    async def _patiently(self, build: Callable[[], httpx.Request]) -> Json:
        return await self._patiently_call(lambda: self._once(build))

    async def _patiently_call(self, attempt: Callable[[], Awaitable[Json]]) -> Json:
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_Busy),
            wait=_wait_s,
            stop=stop_after_delay(self._patience_s),
            reraise=True,
        )
        try:
            async for once in retrying:
                with once:
                    return await attempt()
        except _Busy as busy:
            raise self._problem(busy) from None
        raise AssertionError("a retry ends with an answer or an error")

    async def _once(self, build: Callable[[], httpx.Request]) -> Json:
        try:
            response = await self._http.send(build())
        except httpx.LocalProtocolError:
            raise Refused("changed_while_reading", "The file changed while it was being sent.", 0) from None
        except httpx.TransportError as exc:
            raise _Busy(exc) from exc
        if response.is_success:
            return _json(response)
        refused = _refused(response)
        if response.status_code == 401:
            raise ClientProblem(
                f"The service at {self._access.url} does not accept the key from {self._access.source}: it is wrong, "
                f"expired or revoked. KB_API_KEY names another."
            )
        if response.status_code in TRANSIENT_STATUS:
            raise _Busy(refused, _retry_after_s(response))
        raise refused

    def _problem(self, busy: _Busy) -> Exception:
        if isinstance(busy.cause, Refused):
            return busy.cause
        if isinstance(busy.cause, httpx.ConnectError | httpx.ConnectTimeout):
            return ClientProblem(
                f"No service answers at {self._access.url}. Start one with `stackroom serve`, or set KB_URL."
            )
        return ClientProblem(f"The connection to {self._access.url} broke off; run the same command again.")


class _Watched:
    """A file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], on_bytes: Callable[[int], None]) -> None:
        self._file = file
        self._on_bytes = on_bytes
        self.sent = 0
        self.fileno = file.fileno
        self.seek = file.seek
        self.close = file.close

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self.sent += len(data)
        self._on_bytes(len(data))
        return data


def _wait_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    told = error.retry_after_s if isinstance(error, _Busy) else None
    return _growing_wait(state) if told is None else min(told, LONGEST_WAIT_S)


def _retry_after_s(response: httpx.Response) -> float | None:
    with suppress(ValueError):
        return max(0.0, float(response.headers.get("retry-after", "")))
    return None  # absent, or a date: our own growing wait serves


def _json(response: httpx.Response) -> Json:
    with suppress(ValueError):
        body = response.json()
        if isinstance(body, dict):
            return body
    raise ClientProblem(f"What answers at {response.url.copy_with(path='/')} is not this service; look at KB_URL.")


def _refused(response: httpx.Response) -> Refused:
    """The error of a problem document; of a proxy's page only the status."""
    try:
        body = response.json()
        return Refused(str(body["code"]), str(body.get("detail") or body.get("title") or ""), response.status_code)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Refused(f"http_{response.status_code}", response.reason_phrase, response.status_code)


def _trust(url: str) -> ssl.SSLContext:
    """The usual authorities for https; none for plain http, where reading them would only cost a third of a second."""
    return httpx.create_ssl_context() if url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _is_loopback(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
