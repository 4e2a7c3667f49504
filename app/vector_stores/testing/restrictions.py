"""Searching a part of a space: documents and knowledge bases, and never fewer hits than there are."""

from uuid import UUID, uuid4

from app.vector_stores.contract import Space, VectorStore
from app.vector_stores.testing.base import ContractBase, a_space, chunks_of, direction, documents_of


async def a_crowded_space(store: VectorStore) -> "Crowd":
    """Many chunks that lie nearer to `direction(0)` than the few of one document in one knowledge base."""
    crowd = Crowd()
    near = [direction(0, lean=0.001 * at) for at in range(300)]
    await store.write_chunks(crowd.work, uuid4(), crowd.space, 1, chunks_of(near))
    far = [direction(2, lean=0.1 * at) for at in range(12)]
    await store.write_chunks(
        crowd.work, crowd.document, crowd.space, 1, chunks_of(far, knowledge_base_id=crowd.knowledge_base)
    )
    return crowd


class Crowd:
    """The ids of `a_crowded_space`."""

    def __init__(self) -> None:
        self.work, self.document, self.knowledge_base = uuid4(), uuid4(), uuid4()
        self.space: Space = a_space()


class RestrictionContract(ContractBase):
    """`None` = no restriction, empty = nothing, else exactly these."""

    async def test_top_k_hits_come_from_one_document_in_a_crowd(self, store: VectorStore) -> None:
        crowd = await a_crowded_space(store)

        for eligible in (None, 12):
            hits = await store.query_chunks(
                crowd.work,
                crowd.space,
                vector=direction(0),
                top_k=10,
                document_ids=[crowd.document],
                eligible=eligible,
            )
            assert documents_of(hits) == [crowd.document] * 10

    async def test_top_k_hits_come_from_one_knowledge_base_in_a_crowd(self, store: VectorStore) -> None:
        crowd = await a_crowded_space(store)

        hits = await store.query_chunks(
            crowd.work, crowd.space, vector=direction(0), top_k=10, knowledge_base_ids=[crowd.knowledge_base]
        )

        assert documents_of(hits) == [crowd.document] * 10

    async def test_two_restrictions_hold_both(self, store: VectorStore) -> None:
        work, space, base, other_base = uuid4(), a_space(), uuid4(), uuid4()
        here, elsewhere, unasked = uuid4(), uuid4(), uuid4()
        for document, home in ((here, base), (elsewhere, other_base), (unasked, base)):
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)], knowledge_base_id=home))

        hits = await store.query_chunks(
            work,
            space,
            vector=direction(0),
            top_k=10,
            knowledge_base_ids=[base],
            document_ids=[here, elsewhere],
        )

        assert documents_of(hits) == [here]

    async def test_several_ids_are_alternatives(self, store: VectorStore) -> None:
        work, space = uuid4(), a_space()
        documents, bases = [uuid4() for _ in range(4)], [uuid4() for _ in range(4)]
        for document, base in zip(documents, bases, strict=True):
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)], knowledge_base_id=base))

        by_document = await store.query_chunks(
            work, space, vector=direction(0), top_k=10, document_ids=frozenset(documents[:3])
        )
        by_base = await store.query_chunks(
            work, space, vector=direction(0), top_k=10, knowledge_base_ids=tuple(bases[1:])
        )

        assert set(documents_of(by_document)) == set(documents[:3])
        assert set(documents_of(by_base)) == set(documents[1:])

    async def test_an_empty_set_of_documents_means_nothing(self, store: VectorStore) -> None:
        crowd = await a_crowded_space(store)

        hits = await store.query_chunks(crowd.work, crowd.space, vector=direction(0), top_k=10, document_ids=[])

        assert hits == []

    async def test_an_empty_set_of_knowledge_bases_means_nothing(self, store: VectorStore) -> None:
        crowd = await a_crowded_space(store)

        hits = await store.query_chunks(
            crowd.work,
            crowd.space,
            vector=direction(0),
            top_k=10,
            knowledge_base_ids=[],
            document_ids=[crowd.document],
        )

        assert hits == []

    async def test_unknown_ids_narrow_to_nothing(self, store: VectorStore) -> None:
        crowd = await a_crowded_space(store)

        by_document = await store.query_chunks(
            crowd.work, crowd.space, vector=direction(0), top_k=10, document_ids=[uuid4()]
        )
        by_base = await store.query_chunks(
            crowd.work, crowd.space, vector=direction(0), top_k=10, knowledge_base_ids=[uuid4()]
        )

        assert by_document == []
        assert by_base == []

    async def test_as_many_ids_as_the_manifest_allows_are_taken(self, store: VectorStore) -> None:
        crowd = await a_crowded_space(store)
        most = min(store.manifest.store.max_filter_ids or 5_000, 5_000)
        strangers: list[UUID] = [uuid4() for _ in range(most - 1)]

        hits = await store.query_chunks(
            crowd.work, crowd.space, vector=direction(0), top_k=10, document_ids=[*strangers, crowd.document]
        )

        assert documents_of(hits) == [crowd.document] * 10
