"""The answer itself: its order, its length, its scores, and that it is the right one."""

from itertools import pairwise
from uuid import UUID, uuid4

import numpy as np
import pytest

from app.vector_stores.contract import VectorStore, VectorStoreRefused
from app.vector_stores.testing.base import (
    ContractBase,
    a_space,
    chunks_of,
    clustered_vectors,
    direction,
    random_vectors,
)


class SearchContract(ContractBase):
    """Best first, at most `top_k`, ties in a fixed order, scores that mean the same everywhere."""

    async def test_the_best_come_first_and_no_more_than_asked(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        leans = [0.5, 0.1, 0.9, 0.0, 0.3, 0.7]
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0, lean=lean) for lean in leans]))

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=4)

        assert [hit.chunk.chunk_index for hit in hits] == [3, 1, 4, 0]

    async def test_scores_fall_from_hit_to_hit_and_agree_with_the_raw_ones(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        await store.write_chunks(work, uuid4(), space, 1, chunks_of(random_vectors(60)))

        hits = await store.query_chunks(work, space, vector=random_vectors(1, seed=9)[0], top_k=60)

        assert len(hits) == 60
        assert all(0.0 <= hit.normalized_score <= 1.0 for hit in hits)
        assert all(first.normalized_score >= second.normalized_score for first, second in pairwise(hits))
        assert all(hit.normalized_score == pytest.approx(store.normalize(hit.raw_score), abs=1e-6) for hit in hits)

    async def test_a_score_is_half_of_one_plus_the_cosine(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        opposite = [-value for value in direction(0)]
        vectors = [direction(0), direction(0, lean=1.0), direction(3), opposite]
        await store.write_chunks(work, uuid4(), space, 1, chunks_of(vectors))

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=4)

        exact = [1.0, (1 + 0.5**0.5) / 2, 0.5, 0.0]
        assert [hit.normalized_score for hit in hits] == pytest.approx(exact, abs=self.tolerance)

    async def test_only_the_direction_of_a_vector_counts(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        sizes = [1e-6, 0.5, 1.0, 1_000.0, 1e12]
        vectors = [[size * value for value in direction(0, lean=0.2)] for size in sizes]
        await store.write_chunks(work, uuid4(), space, 1, chunks_of(vectors))

        hits = await store.query_chunks(work, space, vector=[5e7 * v for v in direction(0, lean=0.2)], top_k=9)

        assert [hit.normalized_score for hit in hits] == pytest.approx([1.0] * 5, abs=self.tolerance)

    async def test_ties_are_ordered_by_document_chunk_and_build(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        documents = [UUID(int=number << 64 | 0xFACE) for number in (9, 2, 7, 1)]
        for document in documents:
            for build in (2, 1):
                await store.write_chunks(work, document, space, build, chunks_of([direction(0, lean=0.3)] * 3))
        everyone = sorted((document, index, build) for document in documents for index in range(3) for build in (1, 2))

        for top_k in (24, 7, 1):
            hits = await store.query_chunks(work, space, vector=direction(0), top_k=top_k)
            order = [(hit.chunk.document_id, hit.chunk.chunk_index, hit.chunk.build) for hit in hits]
            assert order == everyone[:top_k]

    async def test_the_number_of_eligible_chunks_is_only_a_hint(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        await store.write_chunks(work, uuid4(), space, 1, chunks_of(random_vectors(40)))
        expected = await store.query_chunks(work, space, vector=direction(0), top_k=10)
        assert len(expected) == 10

        for hint in (0, 1, 10, 40, 10**9):
            assert await store.query_chunks(work, space, vector=direction(0), top_k=10, eligible=hint) == expected

    async def test_asking_for_all_that_the_manifest_allows_gives_all_there_is(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        await store.write_chunks(work, uuid4(), space, 1, chunks_of(random_vectors(150)))

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=store.manifest.store.max_top_k)

        assert len(hits) == min(150, store.manifest.store.max_top_k)

    async def test_asking_for_none_or_for_too_many_is_refused(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        await store.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))

        for top_k in (0, -1, store.manifest.store.max_top_k + 1):
            with pytest.raises(VectorStoreRefused):
                await store.query_chunks(work, space, vector=direction(0), top_k=top_k)

    async def test_the_answer_is_the_exact_one_at_small_scale(self, store: VectorStore) -> None:
        work, document, space, dims = uuid4(), uuid4(), a_space(dims=16), 16
        vectors = random_vectors(500, dims=dims)
        await store.write_chunks(work, document, space, 1, chunks_of(vectors))
        rows = np.array(vectors)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)

        for question in random_vectors(10, seed=2, dims=dims):
            hits = await store.query_chunks(work, space, vector=question, top_k=10)

            scores = (1 + rows @ (np.array(question) / np.linalg.norm(question))) / 2
            best = np.sort(scores)[::-1][:10]
            assert [hit.normalized_score for hit in hits] == pytest.approx(best.tolist(), abs=self.tolerance)
            of_these = [scores[hit.chunk.chunk_index] for hit in hits]
            assert of_these == pytest.approx(best.tolist(), abs=self.tolerance)

    async def test_an_index_finds_nearly_all_of_the_nearest(self, store: VectorStore) -> None:
        work, space, dims = uuid4(), a_space(dims=32), 32
        vectors, most = clustered_vectors(self.recall_rows, dims=dims), store.manifest.store.max_batch
        per_document = min(most, self.recall_rows // 20)
        documents = [uuid4() for _ in range(0, len(vectors), per_document)]
        for at, document in enumerate(documents):
            part = vectors[at * per_document : (at + 1) * per_document]
            await store.write_chunks(work, document, space, 1, chunks_of(part, first=at * per_document))
        await store.maintain(work, space)
        rows = np.array(vectors)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)

        for restriction in (None, documents[:1], documents[::2]):
            allowed = np.array(
                [restriction is None or documents[at // per_document] in restriction for at in range(len(rows))]
            )
            recalls = []
            for question in clustered_vectors(20, seed=2, dims=dims):
                hits = await store.query_chunks(work, space, vector=question, top_k=10, document_ids=restriction)
                assert len(hits) == 10
                scores = np.where(allowed, rows @ (np.array(question) / np.linalg.norm(question)), -2.0)
                tenth = np.sort(scores)[-10] - self.tolerance
                recalls.append(sum(scores[hit.chunk.chunk_index] >= tenth for hit in hits) / 10)
            assert np.mean(recalls) >= self.least_recall
