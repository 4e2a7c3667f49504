"""The limits of Pinecone's API, kept by the plugin and held by the double: numbers, bytes, ids, names."""

import asyncio
import json
from collections.abc import Iterator
from uuid import UUID, uuid4

import httpx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.vector_stores.contract import Space, VectorChunk, VectorStoreMisconfigured, VectorStoreRefused
from app.vector_stores.pinecone import naming
from app.vector_stores.pinecone.batching import DECIMALS, FLOAT_BYTES, batches, vector_records
from app.vector_stores.testing.base import a_space, chunks_of, direction, random_vectors, scanned
from tests.contract.vector_stores.pinecone_double import API_KEY, API_VERSION, PineconeDouble
from tests.contract.vector_stores.pinecone_stores import only_namespace, pinecone


@pytest.fixture
def double() -> Iterator[PineconeDouble]:
    with PineconeDouble() as double:
        yield double


@pytest.mark.parametrize(
    ("chunks", "requests"), [(1, [1]), (1_000, [1_000]), (1_001, [1_000, 1]), (2_000, [1_000] * 2)]
)
async def test_a_request_holds_a_thousand_records(double: PineconeDouble, chunks: int, requests: list[int]) -> None:
    work, document, space = uuid4(), uuid4(), a_space(dims=2)
    async with pinecone(double) as store:
        await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(chunks, dims=2)))

        assert [len(seen.body["documents"]) for seen in double.calls("upsert")] == requests
        assert await store.count(work, space, document) == chunks


@pytest.mark.parametrize("batch_bytes", [300_000, 2_000_000])
async def test_a_request_stays_under_its_bytes_and_uses_them(double: PineconeDouble, batch_bytes: int) -> None:
    work, document, space = uuid4(), uuid4(), a_space(dims=1_536)
    async with pinecone(double, batch_bytes=batch_bytes) as store:
        await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(300, dims=1_536)))

        sizes = [seen.size for seen in double.calls("upsert")]
        assert max(sizes) <= batch_bytes
        assert all(size > 0.8 * batch_bytes for size in sizes[:-1])
        assert await store.count(work, space, document) == 300


async def test_the_widest_vectors_fit_and_wider_ones_are_refused(double: PineconeDouble) -> None:
    work, most = uuid4(), 20_000
    async with pinecone(double, batch_bytes=300_000) as store:
        wide = random_vectors(2, dims=most)
        await store.write_chunks(work, uuid4(), a_space(dims=most), 1, chunks_of(wide))
        with pytest.raises(VectorStoreRefused, match="20000"):
            await store.write_chunks(work, uuid4(), a_space(dims=most + 1), 1, chunks_of([[1.0] * (most + 1)]))

    assert [len(seen.body["documents"]) for seen in double.calls("upsert")] == [1, 1]


@given(st.floats(min_value=-1.0, max_value=1.0))
def test_no_number_of_a_vector_takes_more_bytes_than_are_counted(value: float) -> None:
    [shown] = np.round(np.array([value], dtype=np.float64), DECIMALS).tolist()

    assert len(json.dumps(shown)) + 1 <= FLOAT_BYTES


@given(st.integers(1, 40), st.integers(1, 30), st.integers(700, 5_000), st.integers(1, 12))
def test_batches_keep_both_limits_the_order_and_every_record(
    chunks: int, dims: int, max_bytes: int, max_records: int
) -> None:
    document, vectors = uuid4(), np.full((chunks, dims), -0.12345678, dtype=np.float32)
    records = vector_records(document, 1, chunks_of([[0.0]] * chunks), vectors)

    found = batches(records, max_records=max_records, max_bytes=max_bytes)

    assert [record["chunk_index"] for batch in found for record in batch] == list(range(chunks))
    assert all(len(batch) <= max_records for batch in found)
    assert all(len(json.dumps({"documents": batch}, separators=(",", ":"))) <= max_bytes for batch in found)


async def test_eight_decimals_are_enough_for_the_same_scores(double: PineconeDouble) -> None:
    work, document, space = uuid4(), uuid4(), a_space(dims=384)
    vectors = random_vectors(50, dims=384)
    rows = np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    async with pinecone(double) as store:
        await store.write_chunks(work, document, space, 1, chunks_of(vectors))

        hits = await store.query_chunks(work, space, vector=vectors[0], top_k=50)

    exact = {at: float((1 + rows[at] @ rows[0]) / 2) for at in range(50)}
    assert all(hit.normalized_score == pytest.approx(exact[hit.chunk.chunk_index], abs=1e-7) for hit in hits)


async def test_ids_can_be_read_and_hold_the_largest_numbers(double: PineconeDouble) -> None:
    work, document, space, largest = uuid4(), UUID(int=(1 << 128) - 1), a_space(), 2**31 - 1
    async with pinecone(double) as store:
        await store.write_chunks(work, document, space, 7, chunks_of([direction(0)], first=41))
        await store.write_chunks(work, document, space, largest, chunks_of([direction(0)], first=largest))
        found = await scanned(store, work, space)
        await store.prune_chunks(work, document, space, largest)

        assert found == {(document, 7): 1, (document, largest): 1}
        assert await scanned(store, work, space) == {(document, largest): 1}

    first = double.calls("upsert")[0].body["documents"][0]
    assert first["_id"] == f"{document}#00000007#000041"
    assert set(first) == {"_id", "embedding", "knowledge_base_id", "document_id", "build", "chunk_index"}


async def test_no_text_goes_to_the_store_that_gets_vectors(double: PineconeDouble) -> None:
    work, space = uuid4(), a_space()
    async with pinecone(double) as store:
        chunk = VectorChunk(uuid4(), 0, direction(0), text="the recipe of the sauce")
        await store.write_chunks(work, uuid4(), space, 1, [chunk])
        await store.query_chunks(work, space, vector=direction(0), top_k=1)

    assert all("sauce" not in json.dumps(seen.body) for seen in double.seen)


async def test_the_longest_filter_is_taken_and_a_longer_one_is_not_sent(double: PineconeDouble) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    async with pinecone(double) as store:
        most = store.manifest.store.max_filter_ids or 0
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
        strangers = [uuid4() for _ in range(most - 1)]

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=5, document_ids=[*strangers, document])
        before = len(double.seen)
        with pytest.raises(VectorStoreRefused, match=str(most)):
            await store.query_chunks(
                work, space, vector=direction(0), top_k=5, document_ids=[*strangers, document, uuid4()]
            )

    assert len(hits) == 1
    assert len(double.seen) == before


async def test_chunks_that_share_the_last_place_are_all_asked_for(double: PineconeDouble) -> None:
    work, space = uuid4(), a_space()
    documents = sorted(uuid4() for _ in range(120))
    async with pinecone(double) as store:
        for document in documents[:60]:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 2))

        for top_k in (1, 10, 30):
            hits = await store.query_chunks(work, space, vector=direction(0), top_k=top_k)
            expected = [(document, index) for document in documents[:60] for index in (0, 1)][:top_k]
            assert [(hit.chunk.document_id, hit.chunk.chunk_index) for hit in hits] == expected


async def test_what_is_deleted_by_id_goes_in_calls_of_a_thousand() -> None:
    work, document, space = uuid4(), uuid4(), a_space(dims=2)
    with PineconeDouble(delete_sees_only_visible=True, replica_lags_s=(0.3,), listing_lag_s=0.3) as double:
        async with pinecone(double) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([[1.0, 0.0]]))
            late = double.calls("upsert")[0].body["documents"][0]
            records = [{**late, "_id": naming.record_id(document, 1, at)} for at in range(1, 1_501)]
            only_namespace(double).append(lambda view: view.records.update({one["_id"]: one for one in records}))

            await store.delete_by_document(work, document, space)

            assert await store.count(work, space) == 0
        by_id = [len(seen.body["ids"]) for seen in double.calls("delete") if "ids" in seen.body]
        assert sum(by_id) >= 1_500
        assert max(by_id) == 1_000


async def test_records_that_are_not_ours_are_no_hits(double: PineconeDouble) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    async with pinecone(double) as store:
        await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
        stranger = {**double.calls("upsert")[0].body["documents"][0], "_id": "somebody's#note"}
        baseless = {**stranger, "_id": naming.record_id(uuid4(), 1, 0), "knowledge_base_id": None}
        only_namespace(double).append(lambda view: view.records.update({"1": stranger, "2": baseless}))

        hits = await store.query_chunks(work, space, vector=direction(0), top_k=10)

        assert [hit.chunk.document_id for hit in hits] == [document]
        assert await scanned(store, work, space) == {(document, 1): 1}


@pytest.mark.parametrize("model", ["", "x" * 5_000, "nul\0", "多语言", "\ud800"])
def test_a_namespace_is_a_short_ascii_name_whatever_the_model_is_called(model: str) -> None:
    name = naming.namespace(uuid4(), Space(2**31, model, 1_536))

    assert name.isascii()
    assert len(name) <= 512


class TestTheIndex:
    async def test_it_is_made_once_however_many_writers_come_first(self, double: PineconeDouble) -> None:
        async with pinecone(double) as one, pinecone(double) as other:
            await asyncio.gather(
                *(
                    store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
                    for store in (one, other) * 3
                )
            )

        [index] = double.indexes.values()
        assert index.name == "stackroom-8"
        assert index.deployment == {"deployment_type": "managed", "cloud": "aws", "region": "us-east-1"}

    async def test_a_write_waits_until_it_is_ready(self) -> None:
        with PineconeDouble(ready_after_s=0.8) as double:
            async with pinecone(double) as store:
                work = uuid4()
                await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))
                assert await store.count(work, a_space()) == 1

    async def test_it_is_not_made_where_the_operator_makes_it(self, double: PineconeDouble) -> None:
        async with pinecone(double, create_indexes=False) as store:
            with pytest.raises(VectorStoreMisconfigured, match=r"stackroom-8.*create_indexes"):
                await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
        assert double.indexes == {}

    @pytest.mark.parametrize(
        ("field", "said"),
        [
            ({"embedding": {"type": "dense_vector", "dimension": 9, "metric": "cosine"}}, "dimension"),
            ({"embedding": {"type": "dense_vector", "dimension": 8, "metric": "dotproduct"}}, "metric"),
            ({"_values": {"type": "dense_vector", "dimension": 8, "metric": "cosine"}}, "not there"),
        ],
    )
    async def test_one_that_was_made_for_something_else_is_refused(
        self, double: PineconeDouble, field: dict[str, object], said: str
    ) -> None:
        make_index(double, "stackroom-8", field)
        async with pinecone(double) as store:
            with pytest.raises(VectorStoreMisconfigured, match=said):
                await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
            with pytest.raises(VectorStoreMisconfigured, match=said):
                await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1)

    async def test_a_question_makes_none_and_misses_one_where_chunks_must_be(self, double: PineconeDouble) -> None:
        async with pinecone(double) as store:
            assert await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1, eligible=0) == []
            with pytest.raises(VectorStoreMisconfigured, match="is gone"):
                await store.query_chunks(uuid4(), a_space(), vector=direction(0), top_k=1, eligible=7)
        assert double.indexes == {}


def make_index(double: PineconeDouble, name: str, fields: dict[str, object]) -> None:
    body = {
        "name": name,
        "schema": {"fields": fields},
        "deployment": {"deployment_type": "managed", "cloud": "aws", "region": "eu"},
    }
    assert httpx.post(f"{double.url}/indexes", json=body, headers=HEADERS).status_code == 201


HEADERS = {"Api-Key": API_KEY, "X-Pinecone-Api-Version": API_VERSION}
RECORD = {"_id": "a", "embedding": [1.0, 0.0]}


@pytest.mark.parametrize(
    ("call", "body", "status"),
    [
        ("upsert", {"documents": [RECORD]}, 200),
        ("upsert", {"documents": [{**RECORD, "_id": str(at)} for at in range(1_000)]}, 200),
        ("upsert", {"documents": [{**RECORD, "_id": str(at)} for at in range(1_001)]}, 400),
        ("upsert", {"documents": [{**RECORD, "_id": "x" * 512}]}, 200),
        ("upsert", {"documents": [{**RECORD, "_id": "x" * 513}]}, 400),
        ("upsert", {"documents": [{**RECORD, "_id": "ü"}]}, 400),
        ("upsert", {"documents": [{**RECORD, "note": "x" * 41_000}]}, 400),
        ("upsert", {"documents": [{**RECORD, "_id": str(at), "note": "x" * 39_000} for at in range(52)]}, 413),
        ("upsert", {"documents": [{**RECORD, "note": None}]}, 400),
        ("upsert", {"documents": [{**RECORD, "note": {"nested": 1}}]}, 400),
        ("upsert", {"documents": [{**RECORD, "embedding": [0.0, 0.0]}]}, 400),
        ("upsert", {"documents": [{**RECORD, "embedding": [1.0]}]}, 400),
        ("delete", {"ids": [str(at) for at in range(1_000)]}, 200),
        ("delete", {"ids": [str(at) for at in range(1_001)]}, 400),
        ("delete", {"ids": ["a"], "delete_all": True}, 400),
        ("delete", {"filter": {}}, 400),
        ("fetch", {"ids": [str(at) for at in range(1_001)]}, 400),
        ("list", {"limit": 101}, 400),
        (
            "search",
            {"top_k": 10_001, "score_by": [{"type": "dense_vector", "field": "embedding", "values": [1, 0]}]},
            400,
        ),
        (
            "search",
            {
                "top_k": 1,
                "score_by": [{"type": "dense_vector", "field": "embedding", "values": [1, 0]}],
                "filter": {"document_id": {"$in": [str(at) for at in range(10_001)]}},
            },
            400,
        ),
    ],
)
def test_the_double_holds_the_limits_that_it_was_written_for(
    double: PineconeDouble, call: str, body: dict[str, object], status: int
) -> None:
    make_index(double, "narrow", {"embedding": {"type": "dense_vector", "dimension": 2, "metric": "cosine"}})
    url = f"{double.indexes['narrow'].url}/namespaces/one/documents"
    assert httpx.post(f"{url}/upsert", json={"documents": [RECORD]}, headers=HEADERS).status_code == 200

    answer = httpx.post(f"{url}/{call}", json=body, headers=HEADERS)

    assert answer.status_code == status, answer.text
    assert answer.headers["Server"] == "pinecone-double"


async def test_of_two_chunks_with_one_number_the_first_is_written(double: PineconeDouble) -> None:
    work, document, base, space = uuid4(), uuid4(), uuid4(), a_space()
    async with pinecone(double) as store:
        twins = [VectorChunk(base, 5, direction(0)), VectorChunk(base, 5, direction(1))]
        result = await store.write_chunks(work, document, space, 1, twins)

        [hit] = await store.query_chunks(work, space, vector=direction(0), top_k=9)

    assert (result.written, result.skipped) == (1, 1)
    assert hit.normalized_score > 0.99
