"""A Work never meets another, nor a space another, whatever ids and names they have in common."""

import asyncio
from uuid import UUID, uuid4

from app.vector_stores.contract import Space, VectorStore
from app.vector_stores.testing.base import (
    ContractBase,
    a_space,
    chunks_of,
    direction,
    documents_of,
    random_vectors,
    scanned,
)

HOSTILE = [
    "x' OR '1'='1",
    '"; DROP TABLE chunks; --',
    ") or 1=1 or (",
    'work_id == "x" or work_id != "x"',
    "back\\slash\\",
    "100%s {0} $1 :name ?",
    "nul\0byte",
    "多语言 🗂️ \U0001f5c2",
    "a/b/../c",
    "",
    " ",
]


class IsolationContract(ContractBase):
    """Cross-Work and cross-space leakage, collision of ids, injection."""

    async def test_a_work_never_sees_another_works_chunks(self, store: VectorStore) -> None:
        ours, theirs, document, foreign, space = uuid4(), uuid4(), uuid4(), uuid4(), a_space()
        await store.write_chunks(ours, document, space, 1, chunks_of([direction(0, lean=0.5)]))
        await store.write_chunks(theirs, foreign, space, 1, chunks_of([direction(0)] * 5))

        hits = await store.query_chunks(ours, space, vector=direction(0), top_k=10)

        assert documents_of(hits) == [document]

    async def test_naming_another_works_document_does_not_open_it(self, store: VectorStore) -> None:
        ours, theirs, foreign, base, space = uuid4(), uuid4(), uuid4(), uuid4(), a_space()
        await store.write_chunks(ours, uuid4(), space, 1, chunks_of([direction(0)]))
        await store.write_chunks(theirs, foreign, space, 1, chunks_of([direction(0)], knowledge_base_id=base))

        by_document = await store.query_chunks(ours, space, vector=direction(0), top_k=10, document_ids=[foreign])
        by_base = await store.query_chunks(ours, space, vector=direction(0), top_k=10, knowledge_base_ids=[base])

        assert by_document == []
        assert by_base == []
        assert await store.count(ours, space, foreign) == 0

    async def test_one_document_id_in_two_works_is_two_documents(self, store: VectorStore) -> None:
        ours, theirs, document, space = uuid4(), uuid4(), uuid4(), a_space()
        await store.write_chunks(ours, document, space, 1, chunks_of([direction(0)] * 2))
        await store.write_chunks(theirs, document, space, 1, chunks_of([direction(1)] * 3))

        assert await store.count(ours, space) == 2
        assert await store.count(theirs, space) == 3
        hits = await store.query_chunks(ours, space, vector=direction(0), top_k=10)
        assert all(hit.normalized_score > 0.99 for hit in hits)

    async def test_every_kind_of_deletion_stays_in_its_work(self, store: VectorStore) -> None:
        ours, theirs, document, space = uuid4(), uuid4(), uuid4(), a_space()
        for work in (ours, theirs):
            for build in (1, 2, 3, 4):
                await store.write_chunks(work, document, space, build, chunks_of([direction(build)]))

        await store.prune_chunks(ours, document, space, 2)
        await store.delete_build(ours, document, space, 2)
        assert await scanned(store, ours, space) == {(document, 3): 1, (document, 4): 1}
        await store.upsert_chunks(ours, document, space, 5, chunks_of([direction(0)]))
        await store.delete_by_document(ours, document, space)
        await store.delete_by_work(ours, space)

        assert await scanned(store, theirs, space) == {(document, build): 1 for build in (1, 2, 3, 4)}

    async def test_two_spaces_of_a_work_do_not_mix(self, store: VectorStore) -> None:
        work, document, old, new = uuid4(), uuid4(), a_space(1), a_space(2)
        await store.write_chunks(work, document, old, 1, chunks_of([direction(0)] * 2))
        await store.write_chunks(work, document, new, 1, chunks_of([direction(1)] * 3))

        hits = await store.query_chunks(work, old, vector=direction(0), top_k=10)

        assert len(hits) == 2
        assert all(hit.normalized_score > 0.99 for hit in hits)
        assert await scanned(store, work, new) == {(document, 1): 3}

    async def test_two_spaces_of_a_work_are_filled_emptied_and_searched_at_once(self, store: VectorStore) -> None:
        """A re-embed sweep beside uploads: one Work, its old space, the one being built, and one being removed."""
        work, old, new, gone = uuid4(), a_space(1), a_space(2), a_space(3, dims=16)
        documents = [uuid4() for _ in range(8)]
        axis = {old: 0, new: 3}
        for document in documents:
            await store.write_chunks(work, document, old, 1, chunks_of([direction(0)] * 3))
            await store.write_chunks(work, document, gone, 1, chunks_of([direction(0, dims=16)]))

        async def upload(document: UUID) -> None:
            await store.write_chunks(work, document, old, 2, chunks_of([direction(0)] * 2))
            await store.prune_chunks(work, document, old, 2)

        async def copy(document: UUID) -> None:
            await store.upsert_chunks(work, document, new, 1, chunks_of([direction(3)] * 4))

        async def search(space: Space) -> None:
            hits = await store.query_chunks(work, space, vector=direction(axis[space]), top_k=50)
            assert all(hit.normalized_score > 0.99 for hit in hits)

        searches = [search(space) for _ in range(4) for space in axis]
        removals = [store.delete_by_document(work, document, gone) for document in documents[1:]]
        await asyncio.gather(
            *(upload(one) for one in documents), *(copy(one) for one in documents), *searches, *removals
        )

        assert await scanned(store, work, old) == {(document, 2): 2 for document in documents}
        assert await scanned(store, work, new) == {(document, 1): 4 for document in documents}
        assert await scanned(store, work, gone) == {(documents[0], 1): 1}

    async def test_every_kind_of_deletion_stays_in_its_space(self, store: VectorStore) -> None:
        work, document, old, new = uuid4(), uuid4(), a_space(1), a_space(2)
        for space in (old, new):
            for build in (1, 2, 3):
                await store.write_chunks(work, document, space, build, chunks_of([direction(build)]))

        await store.prune_chunks(work, document, old, 2)
        await store.delete_build(work, document, old, 2)
        await store.delete_by_document(work, document, old)
        await store.delete_by_work(work, old)

        assert await scanned(store, work, new) == {(document, build): 1 for build in (1, 2, 3)}

    async def test_spaces_of_different_width_live_side_by_side(self, store: VectorStore) -> None:
        work, document, narrow, wide = uuid4(), uuid4(), a_space(dims=4), a_space(dims=32)
        await store.write_chunks(work, document, narrow, 1, chunks_of([direction(0, dims=4)]))
        await store.write_chunks(work, document, wide, 1, chunks_of([direction(0, dims=32)] * 2))

        assert len(await store.query_chunks(work, narrow, vector=direction(0, dims=4), top_k=5)) == 1
        assert len(await store.query_chunks(work, wide, vector=direction(0, dims=32), top_k=5)) == 2

    async def test_a_small_work_beside_a_large_one_gets_its_hits(self, store: VectorStore) -> None:
        small, large, document, space = uuid4(), uuid4(), uuid4(), a_space(dims=16)
        near = [direction(0, lean=0.001 * at, dims=16) for at in range(600)]
        await store.write_chunks(large, uuid4(), space, 1, chunks_of(near))
        far = [direction(5, lean=0.01 * at, dims=16) for at in range(20)]
        await store.write_chunks(small, document, space, 1, chunks_of(far))

        hits = await store.query_chunks(small, space, vector=direction(0, dims=16), top_k=10)

        assert documents_of(hits) == [document] * 10

    async def test_identities_that_look_alike_when_joined_do_not_collide(self, store: VectorStore) -> None:
        work, document, space = uuid4(), uuid4(), a_space()
        alike = [(1, 11), (11, 1), (1, 1), (11, 11), (111, 1), (1, 111)]

        for build, index in alike:
            await store.write_chunks(work, document, space, build, chunks_of([direction(0)], first=index))

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=50)
        assert sorted((hit.chunk.build, hit.chunk.chunk_index) for hit in hits) == sorted(alike)

    async def test_spaces_that_look_alike_when_joined_do_not_collide(self, store: VectorStore) -> None:
        work, document = uuid4(), uuid4()
        alike = [a_space(1, model="1-m"), a_space(11, model="m"), a_space(1, model="1m"), a_space(1, model="M")]
        alike += [a_space(1, model="m"), a_space(1, model="m-1"), a_space(1, model="m%00"), a_space(1, model="m\0")]

        for at, space in enumerate(alike):
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * (at + 1)))

        assert [await store.count(work, space) for space in alike] == [at + 1 for at in range(len(alike))]

    async def test_a_hostile_name_of_a_model_is_only_a_name(self, store: VectorStore) -> None:
        victim, work, document, plain = uuid4(), uuid4(), uuid4(), a_space()
        await store.write_chunks(victim, document, plain, 1, chunks_of(random_vectors(3)))
        await store.write_chunks(work, document, plain, 1, chunks_of(random_vectors(3)))

        for name in HOSTILE:
            space = a_space(model=name)
            assert await store.query_chunks(work, space, vector=direction(0), top_k=10) == []
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
            assert len(await store.query_chunks(work, space, vector=direction(0), top_k=10)) == 1, repr(name)
            assert await scanned(store, work, space) == {(document, 1): 1}
            await store.delete_by_work(work, space)

        assert await store.count(victim, plain) == 3
        assert await store.count(work, plain) == 3

    async def test_a_work_nobody_has_written_to_is_empty(self, store: VectorStore) -> None:
        await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
        stranger = uuid4()

        assert await store.query_chunks(stranger, a_space(), vector=direction(0), top_k=10) == []
        assert await store.count(stranger, a_space()) == 0
        assert await scanned(store, stranger, a_space()) == {}
