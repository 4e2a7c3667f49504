"""Fixtures of the contract tests: backends that really run."""

import pytest

from tests.contract.vector_stores.pgvector_data import pgvector_database


@pytest.fixture(scope="session")
def pgvector_dsn() -> str:
    """A database with the plugin's tables, shared by tests that keep to Works of their own."""
    return pgvector_database()


@pytest.fixture
def own_pgvector_dsn() -> str:
    """The same, for one test alone."""
    return pgvector_database()
