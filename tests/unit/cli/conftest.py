"""A service to talk to, and the command line as a person uses it."""

import threading
from collections.abc import Callable, Iterator

import pytest
import typer
from service_double import KEY, ServiceDouble
from typer.testing import CliRunner, Result

from app.cli.client import register

Run = Callable[..., Result]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceDouble]:
    server = ServiceDouble()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    monkeypatch.setenv("KB_URL", server.url)
    monkeypatch.setenv("KB_API_KEY", KEY)
    monkeypatch.setenv("COLUMNS", "200")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def run() -> Run:
    app = typer.Typer()
    register(app)
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words])
