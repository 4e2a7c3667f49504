from collections.abc import Iterator

import pytest

from tests.service import Service, Tenant, running_service


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """The real service, one for the whole run; tests make tenants of their own in it."""
    with running_service() as started:
        yield started


@pytest.fixture
def tenant(service: Service) -> Tenant:
    """An organization that nobody else uses."""
    return service.tenant()
