"""Pinecone that embeds by itself: text goes there in spaces without a width, and nowhere else."""

import json
from collections.abc import AsyncIterator, Iterator
from uuid import UUID, uuid4

import pytest

from app.plugins.sealing import fingerprint
from app.vector_stores.contract import BadVector, Space, VectorChunk, VectorStoreMisconfigured, VectorStoreRefused
from app.vector_stores.pinecone import PineconeIntegratedSettings, PineconeIntegratedStore, PineconeStore
from app.vector_stores.testing.base import a_space, chunks_of, direction, documents_of, scanned
from tests.contract.vector_stores.pinecone_double import API_KEY, PineconeDouble
from tests.contract.vector_stores.pinecone_stores import integrated

WORDS = Space(1, "native", 0)


@pytest.fixture(params=[0.0, 0.05], ids=["at once", "later"])
def double(request: pytest.FixtureRequest) -> Iterator[PineconeDouble]:
    with PineconeDouble(replica_lags_s=(0.0, request.param), listing_lag_s=request.param) as double:
        yield double


@pytest.fixture
async def store(double: PineconeDouble) -> AsyncIterator[PineconeIntegratedStore]:
    async with integrated(double, stale_read_wait_s=5) as store:
        yield store


def texts(*words: str, base: UUID | None = None, first: int = 0) -> list[VectorChunk]:
    home = base or uuid4()
    return [VectorChunk(home, first + at, text=text) for at, text in enumerate(words)]


def test_it_says_that_it_embeds_and_the_other_that_it_does_not() -> None:
    assert PineconeIntegratedStore.manifest.store.embeds_on_write
    assert not PineconeStore.manifest.store.embeds_on_write
    assert PineconeIntegratedStore.manifest.extra == PineconeStore.manifest.extra == "pinecone"
    assert PineconeIntegratedStore.manifest.tested_against == "double"


def test_another_model_is_another_place_and_another_key_is_not() -> None:
    def place(**settings: object) -> str:
        return fingerprint(PineconeIntegratedStore.manifest, PineconeIntegratedSettings(**{"api_key": "k", **settings}))

    assert place() == place(api_key="rotated")
    different = [place(), place(embed_model="other"), place(embed_dimensions=512), place(project="b")]
    assert len({*different, place(index_prefix="c"), place(api_url="https://d.example")}) == 6


async def test_words_find_the_text_that_shares_them(store: PineconeIntegratedStore) -> None:
    work, document, base = uuid4(), uuid4(), uuid4()
    chunks = texts("the sauce needs salt and butter", "an invoice is paid in thirty days", base=base)
    await store.write_chunks(work, document, WORDS, 3, chunks)

    hits = await store.query_chunks(work, WORDS, text="when must the invoice be paid", top_k=2)

    assert [hit.chunk.chunk_index for hit in hits] == [1, 0]
    assert (hits[0].chunk.document_id, hits[0].chunk.build, hits[0].chunk.knowledge_base_id) == (document, 3, base)
    assert 0.5 < hits[0].normalized_score <= 1


async def test_the_text_is_embedded_and_not_kept(double: PineconeDouble, store: PineconeIntegratedStore) -> None:
    work, document = uuid4(), uuid4()
    await store.write_chunks(work, document, WORDS, 1, texts("the recipe of the sauce"))
    await store.query_chunks(work, WORDS, text="salt", top_k=1)

    [index] = double.indexes.values()
    field = index.schema["fields"]["text"]
    assert field["store_text"] is False
    assert (field["embed"]["model"], field["embed"]["metric"]) == ("llama-text-embed-v2", "cosine")
    assert await store.fetch_vectors(work, document, WORDS, 1) is None
    assert all("recipe" not in json.dumps(seen.body) for seen in double.seen if seen.call != "upsert")


@pytest.mark.parametrize(("chunks", "requests"), [(96, [96]), (97, [96, 1]), (300, [96, 96, 96, 12])])
async def test_a_request_holds_ninety_six_texts(
    double: PineconeDouble, store: PineconeIntegratedStore, chunks: int, requests: list[int]
) -> None:
    work, document = uuid4(), uuid4()

    await store.write_chunks(work, document, WORDS, 1, texts(*(f"text {at}" for at in range(chunks))))

    assert [len(seen.body["documents"]) for seen in double.calls("upsert")] == requests
    assert await store.count(work, WORDS, document) == chunks


async def test_long_texts_share_a_request_only_while_they_fit(double: PineconeDouble) -> None:
    work, long = uuid4(), "\N{GRINNING FACE}" * 20_000
    async with integrated(double, batch_bytes=300_000) as store:
        await store.write_chunks(work, uuid4(), WORDS, 1, texts(*[long] * 7))

        sizes = [seen.size for seen in double.calls("upsert")]
        assert max(sizes) <= 300_000
        assert len(sizes) == 3
        with pytest.raises(VectorStoreRefused, match="chunk 9"):
            await store.write_chunks(work, uuid4(), WORDS, 1, [*texts("short"), *texts(long * 4, first=9)])
        assert len(double.calls("upsert")) == 3


@pytest.mark.parametrize(
    "chunk", [VectorChunk(uuid4(), 1), VectorChunk(uuid4(), 1, text=" \n"), VectorChunk(uuid4(), 1, direction(0))]
)
async def test_a_chunk_without_text_is_refused_before_anything_is_written(
    store: PineconeIntegratedStore, chunk: VectorChunk
) -> None:
    work = uuid4()

    with pytest.raises(BadVector):
        await store.write_chunks(work, uuid4(), WORDS, 1, [*texts("words"), chunk])

    assert await scanned(store, work, WORDS) == {}


async def test_a_space_of_texts_is_asked_with_words_and_a_space_of_vectors_with_a_vector(
    store: PineconeIntegratedStore,
) -> None:
    work = uuid4()

    for wrong in ({"vector": direction(0)}, {"text": " "}, {}, {"vector": direction(0), "text": "both"}):
        with pytest.raises(BadVector):
            await store.query_chunks(work, WORDS, top_k=1, **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadVector):
        await store.query_chunks(work, a_space(), top_k=1, text="words")
    for top_k in (0, 10_001):
        with pytest.raises(VectorStoreRefused):
            await store.query_chunks(work, WORDS, top_k=top_k, text="words")


async def test_the_life_of_texts_is_that_of_vectors(store: PineconeIntegratedStore) -> None:
    work, other, document, sibling, base = uuid4(), uuid4(), uuid4(), uuid4(), uuid4()
    for one, home in ((document, base), (sibling, uuid4())):
        for build in (1, 2, 3):
            await store.write_chunks(work, one, WORDS, build, texts("salt", "butter", base=home))
    await store.write_chunks(other, document, WORDS, 1, texts("salt"))

    await store.prune_chunks(work, document, WORDS, 2)
    await store.delete_build(work, document, WORDS, 2)
    assert await scanned(store, work, WORDS) == {(document, 3): 2, **{(sibling, build): 2 for build in (1, 2, 3)}}
    by_base = await store.query_chunks(work, WORDS, text="salt", top_k=9, knowledge_base_ids=[base])
    by_document = await store.query_chunks(work, WORDS, text="salt", top_k=9, document_ids=[sibling])
    await store.delete_by_document(work, sibling, WORDS)
    left = await store.query_chunks(work, WORDS, text="salt", top_k=9)
    await store.delete_by_work(work, WORDS)

    assert documents_of(by_base) == [document] * 2
    assert documents_of(by_document) == [sibling] * 6
    assert documents_of(left) == [document] * 2
    assert await scanned(store, work, WORDS) == {}
    assert await store.count(other, WORDS) == 1


async def test_texts_and_vectors_of_one_work_live_in_two_indexes(
    double: PineconeDouble, store: PineconeIntegratedStore
) -> None:
    work, document = uuid4(), uuid4()
    await store.write_chunks(work, document, WORDS, 1, texts("salt"))
    await store.write_chunks(work, document, a_space(2), 1, chunks_of([direction(0)] * 2))

    assert len(double.indexes) == 2
    assert await store.count(work, WORDS) == 1
    assert await store.count(work, a_space(2)) == 2


async def test_a_model_that_is_not_hosted_is_a_matter_of_settings(double: PineconeDouble) -> None:
    async with integrated(double, embed_model="no-such-model") as store:
        with pytest.raises(VectorStoreMisconfigured):
            await store.write_chunks(uuid4(), uuid4(), WORDS, 1, texts("salt"))


async def test_its_key_stays_secret(double: PineconeDouble, store: PineconeIntegratedStore) -> None:
    assert API_KEY not in repr(vars(store))
