from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.service import Service, Tenant, running_service

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


VENDORS = ("lancedb", "pinecone", "qdrant")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one vendor's store are marked by the name of their file."""
    for item in items:
        if item.path.stem.removeprefix("test_").split("_")[0] in VENDORS:
            item.add_marker(pytest.mark.stores)


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """The real service, one for the whole run; tests make tenants of their own in it."""
    with running_service() as started:
        yield started


@pytest.fixture
def tenant(service: Service) -> Tenant:
    """An organization that nobody else uses."""
    return service.tenant()
