"""How chunks come and go: builds, replacement, deletion, writers side by side, and the counting of it all."""

import asyncio
from itertools import permutations
from uuid import UUID, uuid4

from app.vector_stores.contract import VectorStore
from app.vector_stores.testing.base import (
    ContractBase,
    a_space,
    chunks_of,
    direction,
    documents_of,
    random_vectors,
    scanned,
)


class LifeContract(ContractBase):
    """Write, prune, replace, delete, count, scan."""

    async def test_what_is_written_is_found_with_its_whole_identity(self, store: VectorStore) -> None:
        work, document, base, space = uuid4(), uuid4(), uuid4(), a_space()

        result = await store.write_chunks(
            work, document, space, 7, chunks_of([direction(0), direction(1)], knowledge_base_id=base, first=40)
        )

        assert (result.written, result.skipped) == (2, 0)
        (hit,) = await store.query_chunks(work, space, vector=direction(1), top_k=1)
        assert hit.chunk.knowledge_base_id == base
        assert (hit.chunk.document_id, hit.chunk.build, hit.chunk.chunk_index) == (document, 7, 41)

    async def test_writing_twice_changes_nothing(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        chunks = chunks_of(random_vectors(5))
        await store.write_chunks(work, document, space, 1, chunks)
        before = await store.query_chunks(work, space, vector=direction(0), top_k=10)

        again = await store.write_chunks(work, document, space, 1, chunks)

        assert again.written + again.skipped == 5
        assert await store.query_chunks(work, space, vector=direction(0), top_k=10) == before
        assert await scanned(store, work, space) == {(document, 1): 5}

    async def test_batches_of_one_build_add_up(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        vectors = random_vectors(9)

        for first in (6, 0, 3):
            batch = chunks_of(vectors[first : first + 3], first=first)
            await store.write_chunks(work, document, space, 1, batch)

        assert await scanned(store, work, space) == {(document, 1): 9}

    async def test_a_write_of_nothing_writes_nothing(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()

        result = await store.write_chunks(work, document, space, 1, [])

        assert (result.written, result.skipped) == (0, 0)
        assert await scanned(store, work, space) == {}

    async def test_a_long_document_arrives_whole(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        count = 1_201
        most = store.manifest.store.max_batch
        vectors = random_vectors(count)

        for first in range(0, count, most):
            await store.write_chunks(work, document, space, 1, chunks_of(vectors[first : first + most], first=first))

        assert await store.count(work, space, document) == count
        (hit,) = await store.query_chunks(work, space, vector=vectors[-1], top_k=1)
        assert hit.chunk.chunk_index == count - 1

    async def test_a_new_build_stands_beside_the_old_one_until_it_is_pruned(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 3))
        await store.write_chunks(work, document, space, 2, chunks_of([direction(0)] * 2))
        assert await scanned(store, work, space) == {(document, 1): 3, (document, 2): 2}

        await store.prune_chunks(work, document, space, 2)

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=10)
        assert [hit.chunk.build for hit in hits] == [2, 2]

    async def test_builds_may_be_written_and_pruned_in_any_order(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        expected: dict[tuple[UUID, int], int] = {}
        for order in permutations([("write", 1), ("write", 2), ("write", 3), ("prune", 2), ("prune", 3)]):
            document, builds = uuid4(), set[int]()
            for act, build in order:
                if act == "write":
                    await store.write_chunks(work, document, space, build, chunks_of([direction(build)] * build))
                    builds.add(build)
                else:
                    await store.prune_chunks(work, document, space, build)
                    builds = {kept for kept in builds if kept >= build}
            expected |= {(document, build): build for build in builds}

        assert await scanned(store, work, space) == expected

    async def test_pruning_leaves_other_documents_alone(self, store: VectorStore) -> None:
        work, document, other, space = uuid4(), uuid4(), uuid4(), a_space()
        for one in (document, other):
            await store.write_chunks(work, one, space, 1, chunks_of([direction(0)]))

        await store.prune_chunks(work, document, space, 9)

        assert await scanned(store, work, space) == {(other, 1): 1}

    async def test_upsert_replaces_and_leaves_no_tail(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.upsert_chunks(work, document, space, 1, chunks_of(random_vectors(10)))

        await store.upsert_chunks(work, document, space, 2, chunks_of(random_vectors(3)))

        assert await scanned(store, work, space) == {(document, 2): 3}

    async def test_upsert_of_nothing_leaves_nothing(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.upsert_chunks(work, document, space, 1, chunks_of(random_vectors(3)))

        await store.upsert_chunks(work, document, space, 2, [])

        assert await store.count(work, space, document) == 0

    async def test_a_late_upsert_of_an_older_build_takes_nothing_from_the_newer(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.upsert_chunks(work, document, space, 2, chunks_of(random_vectors(4)))

        await store.upsert_chunks(work, document, space, 1, chunks_of(random_vectors(6)))

        assert (await scanned(store, work, space)).get((document, 2)) == 4

    async def test_delete_build_removes_that_build_and_nothing_else(self, store: VectorStore) -> None:
        work, document, other, space = uuid4(), uuid4(), uuid4(), a_space()
        for one in (document, other):
            for build in (1, 2, 3):
                await store.write_chunks(work, one, space, build, chunks_of(random_vectors(2)))

        await store.delete_build(work, document, space, 2)

        left = {(document, 1): 2, (document, 3): 2} | {(other, build): 2 for build in (1, 2, 3)}
        assert await scanned(store, work, space) == left

    async def test_a_deleted_build_may_be_written_again_with_other_chunks(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 5))
        await store.delete_build(work, document, space, 1)

        await store.write_chunks(work, document, space, 1, chunks_of([direction(1)] * 2))

        hits = await store.query_chunks(work, space, vector=direction(1), top_k=10)
        assert [hit.normalized_score > 0.99 for hit in hits] == [True, True]

    async def test_a_deleted_document_is_gone_from_every_query_and_its_siblings_stay(self, store: VectorStore) -> None:
        work, document, sibling, base, space = uuid4(), uuid4(), uuid4(), uuid4(), a_space()
        for one in (document, sibling):
            for build in (1, 2):
                await store.write_chunks(work, one, space, build, chunks_of([direction(0)] * 2, knowledge_base_id=base))

        await store.delete_by_document(work, document, space)

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=10)
        assert documents_of(hits) == [sibling] * 4
        assert await store.query_chunks(work, space, vector=direction(0), top_k=10, document_ids=[document]) == []
        assert await store.count(work, space, document) == 0

    async def test_a_deleted_space_is_gone_and_can_be_filled_again(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(5)))
        await store.query_chunks(work, space, vector=direction(0), top_k=1)

        await store.delete_by_work(work, space)

        assert await store.query_chunks(work, space, vector=direction(0), top_k=10) == []
        assert await scanned(store, work, space) == {}
        await store.write_chunks(work, document, space, 2, chunks_of([direction(0)]))
        hits = await store.query_chunks(work, space, vector=direction(0), top_k=10)
        assert [hit.chunk.build for hit in hits] == [2]

    async def test_deleting_what_is_not_there_is_success(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        for _ in range(2):
            await store.prune_chunks(work, document, space, 5)
            await store.delete_build(work, document, space, 5)
            await store.delete_by_document(work, document, space)
            await store.delete_by_work(work, space)

        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
        await store.delete_by_document(work, uuid4(), space)
        await store.delete_build(work, document, space, 99)

        assert await store.count(work, space) == 1

    async def test_counts_tell_what_is_stored(self, store: VectorStore) -> None:
        work, document, other, space = uuid4(), uuid4(), uuid4(), a_space()
        await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(3)))
        await store.write_chunks(work, document, space, 2, chunks_of(random_vectors(4)))
        await store.write_chunks(work, other, space, 1, chunks_of(random_vectors(5)))

        assert await store.count(work, space) == 12
        assert await store.count(work, space, document) == 7
        assert await store.count(work, space, uuid4()) == 0

    async def test_a_scan_names_every_build_once(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        expected = {}
        for at in range(30):
            document, build = uuid4(), 1 + at % 3
            await store.write_chunks(work, document, space, build, chunks_of(random_vectors(1 + at % 4)))
            expected[document, build] = 1 + at % 4

        assert await scanned(store, work, space) == expected

    async def test_writers_of_the_same_build_make_each_chunk_once(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        chunks = chunks_of(random_vectors(20))

        await asyncio.gather(*(store.write_chunks(work, document, space, 1, chunks) for _ in range(6)))

        assert await scanned(store, work, space) == {(document, 1): 20}
        hits = await store.query_chunks(work, space, vector=direction(0), top_k=50)
        assert sorted(hit.chunk.chunk_index for hit in hits) == list(range(20))

    async def test_writers_of_different_documents_do_not_disturb_each_other(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        documents = [uuid4() for _ in range(12)]

        await asyncio.gather(
            *(store.upsert_chunks(work, one, space, 1, chunks_of(random_vectors(10))) for one in documents)
        )

        assert await scanned(store, work, space) == {(one, 1): 10 for one in documents}

    async def test_concurrent_replacements_of_one_document_leave_the_newest(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()

        await asyncio.gather(
            *(
                store.upsert_chunks(work, document, space, build, chunks_of(random_vectors(build)))
                for build in range(1, 7)
            )
        )
        await store.prune_chunks(work, document, space, 6)

        assert await scanned(store, work, space) == {(document, 6): 6}
