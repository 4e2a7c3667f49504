"""One embedded server for the tests of this folder, a fresh database for each test."""

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.db.embedded import EmbeddedServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def shared_server() -> Iterator[EmbeddedServer]:
    with tempfile.TemporaryDirectory(prefix="stackroom-test-") as directory:
        server = EmbeddedServer(Path(directory))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def database_url(shared_server: EmbeddedServer) -> Iterator[str]:
    """URL of an empty database."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(shared_server.dsn, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        yield shared_server.dsn.replace(f"/{shared_server.database}?", f"/{name}?")
        connection.execute(f"drop database {name} with (force)")
