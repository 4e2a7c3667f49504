"""Fixtures of the contract tests: backends that really run."""

from collections.abc import Iterator

import pytest

from tests.contract.vector_stores.lancedb_data import LoopbackS3, serve_s3
from tests.contract.vector_stores.pgvector_data import pgvector_database
from tests.postgres import fresh_database


@pytest.fixture(scope="session")
def pgvector_dsn() -> str:
    """A database with the plugin's tables, shared by tests that keep to Works of their own."""
    return pgvector_database()


@pytest.fixture(scope="session")
def empty_dsn() -> str:
    """A database in which nothing of the plugin was before the first test."""
    return fresh_database()


@pytest.fixture
def own_pgvector_dsn() -> str:
    """The same, for one test alone."""
    return pgvector_database()


@pytest.fixture(scope="session")
def loopback_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackS3]:
    """An S3-compatible server on loopback, shared by tests that keep to prefixes of their own."""
    with serve_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server
