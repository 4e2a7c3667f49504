"""The Pinecone plugins under the suite, against a double (see `pinecone_double`): how it would be with Pinecone itself
is not shown here.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from app.vector_stores.contract import VectorStore
from app.vector_stores.pinecone import (
    PineconeIntegratedSettings,
    PineconeIntegratedStore,
    PineconeSettings,
    PineconeStore,
)
from app.vector_stores.testing import VectorStoreContract
from tests.contract.vector_stores.pinecone_double import API_KEY, PineconeDouble

NOWHERE = "http://127.0.0.1:1"


class TestPineconeStore(VectorStoreContract):
    lives = 20  # each call waits until the double shows what it did

    double_settings: ClassVar[dict[str, Any]] = {}
    hurried: ClassVar[dict[str, Any]] = {}  # for the test of six hundred calls

    @pytest.fixture(autouse=True)
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        hurried = self.hurried if "any_order" in request.node.name else {}
        with PineconeDouble(**{**self.double_settings, **hurried}) as self.double:
            yield

    async def build_store(self) -> VectorStore:
        return PineconeStore(PineconeSettings(api_key=API_KEY, api_url=self.double.url, stale_read_wait_s=5))

    async def build_unreachable_store(self) -> VectorStore | None:
        return PineconeStore(PineconeSettings(api_key=API_KEY, api_url=NOWHERE))

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        return await self.build_store()


class TestPineconeStoreThatShowsWritesLater(TestPineconeStore):
    """Two replicas, one of them behind, and a listing that is behind both."""

    double_settings: ClassVar[dict[str, Any]] = {"replica_lags_s": (0.0, 0.04), "listing_lag_s": 0.06}
    hurried: ClassVar[dict[str, Any]] = {"replica_lags_s": (0.0, 0.004), "listing_lag_s": 0.006}


class TestPineconeStoreWithoutPositions(TestPineconeStore):
    """A Pinecone that names no log positions: what was written is looked for."""

    double_settings: ClassVar[dict[str, Any]] = {
        "replica_lags_s": (0.04,),
        "listing_lag_s": 0.02,
        "tells_positions": False,
        "delete_sees_only_visible": True,
    }
    hurried: ClassVar[dict[str, Any]] = {"replica_lags_s": (0.004,), "listing_lag_s": 0.002}


class TestPineconeIntegratedStore(TestPineconeStore):
    """With vectors from the platform the other plugin keeps the same promises."""

    async def build_store(self) -> VectorStore:
        settings = PineconeIntegratedSettings(api_key=API_KEY, api_url=self.double.url)
        return PineconeIntegratedStore(settings)
