"""The guard of tenants' endpoints: which addresses are public, and that a connection goes to a checked one."""

from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from pydantic import BaseModel, SecretStr

from app.ai_providers.contract import ProviderMisconfigured
from app.ai_providers.openai import OpenAiProvider
from app.ai_providers.openai_settings import OpenAiSettings
from app.plugins.endpoints import EndpointGuard, EndpointRefused, GuardedTransport, is_public
from app.plugins.fields import kinds, shown
from tests.unit.ai_providers.openai_server import EmbeddingServer


@pytest.mark.parametrize(
    "address", ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "2002:808:808::"]
)
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "192.0.0.8", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16",
        "::1", "::", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::a00:1", "64:ff9b:1::808:808",
        "2002:a00:1::", "2001:0:1::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1",
        "2001:db8::1", "not an address",
    ],
)  # fmt: skip
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


class Names:
    """A resolver that answers from a table and can change its mind."""

    def __init__(self, **answers: list[str]) -> None:
        self.answers = {name.replace("_", "."): found for name, found in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host not in self.answers:
            raise OSError("no such host")
        return self.answers[host]


async def test_one_private_address_among_many_refuses_the_host() -> None:
    guard = EndpointGuard(Names(mixed_example=["93.184.215.14", "10.0.0.1"]))

    with pytest.raises(EndpointRefused, match="private network"):
        await guard.check("https://mixed.example/v1")


@pytest.mark.parametrize(
    "endpoint",
    ["ftp://a.example", "file:///etc/passwd", "unix:///socket", "https://", "http://u:p@a.example", "//:80", ""],
)
async def test_what_is_no_plain_address_of_a_host_is_refused(endpoint: str) -> None:
    guard = EndpointGuard(Names(a_example=["93.184.215.14"]))

    with pytest.raises(EndpointRefused):
        await guard.check(endpoint)


@pytest.mark.parametrize("endpoint", ["a.example", "a.example:6334", "https://a.example/x", "grpc://a.example"])
async def test_hosts_are_understood_with_and_without_a_scheme(endpoint: str) -> None:
    await EndpointGuard(Names(a_example=["93.184.215.14"])).check(endpoint)


class Recorder(httpx.AsyncBaseTransport):
    """Stands where the network is."""

    def __init__(self, *away: str) -> None:
        self.away = away
        self.seen: list[tuple[str, str, Any]] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.seen.append((request.url.host, request.headers["host"], request.extensions.get("sni_hostname")))
        if request.url.host in self.away:
            raise httpx.ConnectError("away")
        return httpx.Response(200, request=request)


async def test_a_connection_goes_to_the_checked_address_and_tls_still_names_the_host() -> None:
    names, network = Names(a_example=["93.184.215.14"]), Recorder()
    guard = EndpointGuard(names)
    await guard.check("https://a.example/v1")
    names.answers["a.example"] = ["127.0.0.1"]  # another answer, a moment later
    async with httpx.AsyncClient(transport=GuardedTransport(guard, network)) as client:  # type: ignore[arg-type]
        answer = await client.get("https://a.example/v1")

    assert network.seen == [("93.184.215.14", "a.example", "a.example")]
    assert str(answer.request.url) == "https://a.example/v1"
    assert names.asked == ["a.example"]


async def test_a_name_that_comes_to_mean_a_private_address_is_refused_by_the_connection() -> None:
    names, network = Names(a_example=["169.254.169.254"]), Recorder()
    async with httpx.AsyncClient(transport=GuardedTransport(EndpointGuard(names), network)) as client:  # type: ignore[arg-type]
        with pytest.raises(EndpointRefused):
            await client.get("http://a.example/latest")

    assert network.seen == []


async def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    names, network = Names(a_example=["93.184.215.14", "93.184.215.15"]), Recorder("93.184.215.14")
    async with httpx.AsyncClient(transport=GuardedTransport(EndpointGuard(names), network)) as client:  # type: ignore[arg-type]
        answer = await client.get("https://a.example/")

    assert answer.status_code == 200
    assert [host for host, _, _ in network.seen] == ["93.184.215.14", "93.184.215.15"]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433"])
async def test_the_openai_provider_of_a_tenant_never_connects_to_a_private_address(host: str) -> None:
    async with EmbeddingServer(width=8) as server:
        settings = OpenAiSettings(base_url=f"http://{host}:{server.port}/v1", model="m", dimensions=8)
        provider = OpenAiProvider.build_guarded(settings, EndpointGuard())
        try:
            with pytest.raises(ProviderMisconfigured, match="private network"):
                await provider.create_embedding(["a text"], role="query", model="m")
        finally:
            await provider.close()

        assert server.requests == []


async def test_the_environments_proxies_are_not_used_for_a_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    async with EmbeddingServer(width=8) as server:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.port}")
        settings = OpenAiSettings(base_url="http://127.0.0.1:1/v1", model="m", dimensions=8)
        provider = OpenAiProvider.build_guarded(settings, EndpointGuard())
        try:
            with pytest.raises(ProviderMisconfigured):
                await provider.create_embedding(["a text"], role="query", model="m")
        finally:
            await provider.close()

        assert server.requests == []


class Nested(BaseModel):
    token: SecretStr | None = None


class Many(BaseModel):
    api_key: SecretStr | None = None
    headers: dict[str, SecretStr] = {}
    nested: Nested = Nested()
    data_dir: str | None = None
    base_url: str = "https://user:secret-word@a.example/?token=secret-word&database=d"
    hosts: list[str] = []
    collection: str = "c"


def test_fields_are_sorted_by_type_and_by_name_where_an_author_marked_nothing() -> None:
    found = kinds(Many)

    assert found.secret == {"api_key", "headers", "nested"}
    assert found.operator == {"data_dir"}
    assert found.endpoint == {"base_url", "hosts"}


def test_what_is_shown_has_no_secret_in_it() -> None:
    values, secrets = shown(Many(api_key=SecretStr("secret-word"), headers={"X": SecretStr("secret-word")}))

    assert "secret-word" not in str(values)
    assert values["base_url"] == "https://user@a.example?database=d"
    assert values["collection"] == "c"
    assert secrets == ["api_key", "headers", "nested"]
