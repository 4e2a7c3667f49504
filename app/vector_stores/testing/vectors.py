"""What counts as a vector, what is refused before anything is written, and vectors given back."""

from array import array
from uuid import uuid4

import numpy as np
import pytest

from app.vector_stores.contract import BadVector, Vector, VectorChunk, VectorStore
from app.vector_stores.testing.base import DIMS, ContractBase, a_space, chunks_of, direction, random_vectors, scanned

FLAWED: dict[str, Vector | None] = {
    "too narrow": direction(0)[:-1],
    "too wide": [*direction(0), 0.0],
    "empty": [],
    "not a number": [*direction(0)[:-1], float("nan")],
    "infinite": [float("inf"), *direction(0)[1:]],
    "zero": [0.0] * DIMS,
}


class VectorContract(ContractBase):
    """Width, finiteness, length, round trips."""

    async def test_a_flawed_vector_is_refused_before_anything_is_written(self, store: VectorStore) -> None:
        work, document, base, space = uuid4(), uuid4(), uuid4(), a_space()
        for flaw, vector in FLAWED.items():
            chunks = [
                VectorChunk(base, 0, direction(0)),
                VectorChunk(base, 1, vector),
                VectorChunk(base, 2, direction(1)),
            ]

            with pytest.raises(BadVector):
                await store.write_chunks(work, document, space, 1, chunks)

            assert await scanned(store, work, space) == {}, flaw

    async def test_a_refused_upsert_leaves_the_old_build(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.upsert_chunks(work, document, space, 1, chunks_of(random_vectors(2)))

        with pytest.raises(BadVector):
            await store.upsert_chunks(work, document, space, 2, chunks_of([direction(0), [0.0] * DIMS]))

        assert await scanned(store, work, space) == {(document, 1): 2}

    async def test_a_flawed_question_is_refused(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        await store.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))

        for flawed in FLAWED.values():
            with pytest.raises(BadVector):
                await store.query_chunks(work, space, vector=flawed, top_k=1)

    async def test_a_store_that_does_not_embed_refuses_bare_text(self, store: VectorStore) -> None:
        if store.manifest.store.embeds_on_write:
            pytest.skip("this store embeds by itself")
        work, space = uuid4(), a_space()

        with pytest.raises(BadVector):
            await store.write_chunks(work, uuid4(), space, 1, [VectorChunk(uuid4(), 0, text="words")])
        with pytest.raises(BadVector):
            await store.query_chunks(work, space, text="words", top_k=1)

    async def test_any_sequence_of_numbers_is_a_vector(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        shapes: list[Vector] = [array("f", direction(0)), array("d", direction(0)), direction(0), tuple(direction(0))]

        await store.write_chunks(work, document, space, 1, chunks_of(shapes))

        for shape in shapes:
            hits = await store.query_chunks(work, space, vector=shape, top_k=10)
            assert [hit.normalized_score for hit in hits] == pytest.approx([1.0] * 4, abs=self.tolerance)

    async def test_fetched_vectors_are_those_of_the_build_up_to_length(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(3, seed=3)))
        vectors = random_vectors(5, seed=4)
        await store.write_chunks(work, document, space, 2, chunks_of(vectors, first=10))
        await store.write_chunks(work, uuid4(), space, 2, chunks_of(random_vectors(2, seed=5)))

        fetched = await store.fetch_vectors(work, document, space, 2)

        if fetched is None:
            pytest.skip("this store does not give vectors back")
        assert sorted(fetched) == [10, 11, 12, 13, 14]
        for at, vector in enumerate(vectors):
            given, found = np.array(vector), np.array(fetched[10 + at])
            cosine = given @ found / np.linalg.norm(given) / np.linalg.norm(found)
            assert cosine == pytest.approx(1.0, abs=self.tolerance)

    async def test_fetched_vectors_can_be_written_to_another_space(self, store: VectorStore) -> None:
        work, document, old, new = uuid4(), uuid4(), a_space(1), a_space(2)
        await store.write_chunks(work, document, old, 1, chunks_of(random_vectors(6)))
        fetched = await store.fetch_vectors(work, document, old, 1)
        if fetched is None:
            pytest.skip("this store does not give vectors back")

        await store.write_chunks(work, document, new, 1, [VectorChunk(uuid4(), at, fetched[at]) for at in fetched])

        question = random_vectors(1, seed=7)[0]
        before = await store.query_chunks(work, old, vector=question, top_k=6)
        after = await store.query_chunks(work, new, vector=question, top_k=6)
        assert [hit.chunk.chunk_index for hit in after] == [hit.chunk.chunk_index for hit in before]

    async def test_an_unknown_build_has_no_vectors(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))

        fetched = await store.fetch_vectors(work, document, space, 2)
        foreign = await store.fetch_vectors(uuid4(), document, space, 1)

        assert fetched in (None, {})
        assert foreign in (None, {})
