"""The guard of endpoints that a tenant sets: only public addresses, checked when set and again by each connection.

A name is resolved once, every address it has is checked, and the connection goes to a checked address and nowhere
else: a name that means another address a moment later gains nothing.
"""

import asyncio
import contextlib
import ipaddress
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, Self, runtime_checkable
from urllib.parse import urlsplit

from pydantic import BaseModel

from app.errors import FieldFault, Invalid
from app.plugins.fields import endpoints

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

RESOLVE_TIMEOUT_S: Final = 5.0
KEEP_S: Final = 30.0
MAX_KNOWN: Final = 1_000
PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
# Addresses that count as public and are a cloud's own: Azure's host agent.
METADATA: Final = frozenset({ipaddress.ip_address("168.63.129.16")})
# IPv6 ranges that carry an IPv4 address in their last four bytes, and ranges that nothing public has.
EMBEDDING: Final = tuple(ipaddress.IPv6Network(text) for text in ("64:ff9b::/96", "::/96", "::ffff:0:0:0/96"))
CLOSED: Final = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "64:ff9b:1::/48", "2001::/23", "fec0::/10", "5f00::/16")
)


class EndpointRefused(Invalid):
    """This endpoint can't be used here."""

    code = "endpoint_refused"


@runtime_checkable
class ChecksEndpoints(Protocol):
    """A plugin class that can be told to connect only where a guard allows it."""

    @classmethod
    def build_guarded(cls, settings: Any, guard: "EndpointGuard") -> Any:
        """An instance whose every connection goes to an address that the guard gave out."""
        ...


class EndpointGuard:
    """Gives out the addresses of a host, if all of them are public."""

    def __init__(self, resolve: Resolve | None = None) -> None:
        self._resolve = resolve or _look_up
        self._known: dict[tuple[str, int], tuple[float, list[str]]] = {}

    async def check_settings(self, plugin: type, settings: BaseModel) -> list[FieldFault]:
        """What is wrong with the endpoints in a plugin's settings, by field."""
        faults = []
        for name, value in endpoints(settings):
            if not isinstance(plugin, ChecksEndpoints):
                faults.append(
                    FieldFault((name,), "only an operator sets it: this plugin can't check where it connects")
                )
                continue
            try:
                await self.check(value)
            except EndpointRefused as refused:
                faults.append(FieldFault((name,), refused.message))
        return faults

    async def check(self, endpoint: str) -> None:
        """Look at the endpoint as it is written: a URL, `host:port` or a host.

        Raises: EndpointRefused.
        """
        host, port = _host_and_port(endpoint)
        await self.addresses(host, port)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Where to connect instead of resolving the name again. Raises: EndpointRefused."""
        known = self._known.get((host, port))
        now = time.monotonic()
        if known is not None and now - known[0] < KEEP_S:
            return known[1]
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                found = list(dict.fromkeys(await self._resolve(host, port)))
        except (OSError, UnicodeError, TimeoutError):
            found = []
        if not found:
            raise EndpointRefused(f"the host '{host}' has no address")
        for address in found:
            if not is_public(address):
                raise EndpointRefused(f"the host '{host}' lies in a private network; only an operator allows that")
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[host, port] = (now, found)
        return found


class GuardedTransport:
    """A transport for `httpx` and `httpx2` clients: asks the guard, then connects to that very address.

    TLS still names and checks the host; so does the Host header. Given as `transport`, it also keeps the client from
    the environment's proxies, which would resolve names by themselves. The client must not follow redirects, though
    a redirect would be checked in the same way.
    """

    def __init__(self, guard: EndpointGuard, inner: Any) -> None:
        self._guard = guard
        self._inner = inner

    async def handle_async_request(self, request: Any) -> Any:
        """Raises: EndpointRefused, and the errors of the inner transport."""
        asked = request.url
        host = asked.raw_host.decode("ascii")
        addresses = await self._guard.addresses(host, asked.port or PORTS.get(asked.scheme, 443))
        extensions = dict(request.extensions)
        if not _is_address(host):
            extensions["sni_hostname"] = host
        request.extensions = extensions
        with _restored(request, asked):
            for address in addresses[:-1]:
                request.url = asked.copy_with(host=address)
                try:
                    return await self._inner.handle_async_request(request)
                except Exception as exc:
                    if type(exc).__name__ not in ("ConnectError", "ConnectTimeout"):
                        raise
            request.url = asked.copy_with(host=addresses[-1])
            return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await self._inner.__aexit__(*failure)


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet's, whatever it is wrapped in."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False  # a scope such as %eth0: link-local
    return all(
        one.is_global
        and not (one.is_multicast or one.is_reserved or one.is_unspecified)
        and one not in METADATA
        and not any(one.version == net.version and one in net for net in CLOSED)
        for one in _unwrapped(found)
    )


def _unwrapped(address: IpAddress) -> list[IpAddress]:
    """The address that is meant: the IPv4 one inside an IPv6 one, else itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if any(address in net for net in EMBEDDING):
        return [ipaddress.IPv4Address(address.packed[-4:])]
    return [address]


def _host_and_port(endpoint: str) -> tuple[str, int]:
    text = endpoint.strip()
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise EndpointRefused("it is no address: a URL or host:port is expected") from None
    if not host or parts.scheme not in ("", "http", "https", "grpc", "grpcs"):
        raise EndpointRefused("it must be an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise EndpointRefused("it must not hold a user name or password")
    return host, port or PORTS.get(parts.scheme, 443)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _look_up(host: str, port: int) -> list[str]:
    """Every address of a host, as the system resolves it: so `0x7f.1` and `2130706433` are what they mean."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[4][0]) for address in found]


@contextlib.contextmanager
def _restored(request: Any, url: Any) -> Iterator[None]:
    try:
        yield
    finally:
        request.url = url
