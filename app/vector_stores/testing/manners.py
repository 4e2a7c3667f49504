"""How a store behaves as a guest: opening, answering for itself, upkeep, closing."""

from uuid import uuid4

import pytest

from app.plugins.manifest import VectorStoreManifest
from app.vector_stores.contract import VectorStore, VectorStoreUnavailable
from app.vector_stores.testing.base import ContractBase, a_space, chunks_of, direction, random_vectors, scanned


class MannersContract(ContractBase):
    """Nothing connects early, nothing raises where it must not, nothing is lost on the way."""

    async def test_it_is_a_vector_store_with_a_manifest(self, store: VectorStore) -> None:
        assert isinstance(store, VectorStore)
        assert isinstance(type(store).manifest, VectorStoreManifest)
        assert "vector-store" in store.manifest.capabilities
        assert store.manifest.settings_model.model_config.get("extra") == "forbid"
        assert set(store.manifest.location_fields) <= set(store.manifest.settings_model.model_fields)

    async def test_a_store_that_answers_is_available(self, store: VectorStore) -> None:
        availability = await store.is_available()

        assert availability.ok, availability.reason

    async def test_building_does_not_connect_and_a_backend_that_is_away_is_said_to_be(self) -> None:
        store = await self.build_unreachable_store()
        if store is None:
            pytest.skip("build_unreachable_store is not given: there is nothing to be away")

        availability = await store.is_available()

        assert not availability.ok
        assert availability.reason
        with pytest.raises(VectorStoreUnavailable):
            await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
        with pytest.raises(VectorStoreUnavailable):
            await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1)
        await store.close()

    async def test_upkeep_changes_no_answer(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(50)))
        before = await store.query_chunks(work, space, vector=direction(0), top_k=10)

        await store.maintain(work, space)
        await store.maintain(uuid4(), space)

        assert len(before) == 10
        assert await store.query_chunks(work, space, vector=direction(0), top_k=10) == before
        assert await scanned(store, work, space) == {(document, 1): 50}

    async def test_closing_may_be_repeated_and_asking_afterwards_does_not_raise(self, store: VectorStore) -> None:
        await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))

        await store.close()
        await store.close()

        await store.is_available()

    async def test_data_outlives_the_store(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 3, chunks_of(random_vectors(7)))
        before = await store.query_chunks(work, space, vector=direction(0), top_k=10)

        reopened = await self.reopen_store(store)

        if reopened is None:
            pytest.skip("reopen_store is not given: data ends with the store")
        assert await reopened.query_chunks(work, space, vector=direction(0), top_k=10) == before
        assert await scanned(reopened, work, space) == {(document, 3): 7}
        await reopened.close()
