"""Read your writes over a store that shows them later: what a call promises holds when it returns, or it fails."""

import asyncio
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.vector_stores.contract import VectorStoreUnavailable
from app.vector_stores.pinecone import PineconeStore, naming
from app.vector_stores.testing.base import a_space, chunks_of, direction, documents_of, scanned
from tests.contract.vector_stores.pinecone_double import PineconeDouble
from tests.contract.vector_stores.pinecone_stores import only_namespace, pinecone

Deletion = Callable[[PineconeStore, UUID, UUID], Any]
DELETIONS: dict[str, Deletion] = {
    "prune": lambda store, work, document: store.prune_chunks(work, document, a_space(), 9),
    "build": lambda store, work, document: store.delete_build(work, document, a_space(), 1),
    "document": lambda store, work, document: store.delete_by_document(work, document, a_space()),
    "work": lambda store, work, document: store.delete_by_work(work, a_space()),
}


async def test_a_write_returns_when_a_search_and_a_listing_show_it() -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble(replica_lags_s=(0.2,), listing_lag_s=0.4) as double:
        async with pinecone(double) as store:
            started = time.monotonic()
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 3))
            took = time.monotonic() - started

            assert len(await store.query_chunks(work, space, vector=direction(0), top_k=9)) == 3
            assert await store.count(work, space) == 3
    assert 0.4 <= took < 3


@pytest.mark.parametrize("tells_positions", [True, False])
async def test_a_write_that_is_never_shown_fails_for_a_while_and_in_time(tells_positions: bool) -> None:
    with PineconeDouble(replica_lags_s=(60.0,), tells_positions=tells_positions) as double:
        async with pinecone(double, freshness_wait_s=0.5) as store:
            started = time.monotonic()
            with pytest.raises(VectorStoreUnavailable, match="does not show what was written"):
                await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))
            assert time.monotonic() - started < 2


async def test_a_write_that_is_searched_but_never_listed_fails_too() -> None:
    with PineconeDouble(listing_lag_s=60.0) as double:
        async with pinecone(double, freshness_wait_s=0.5) as store:
            with pytest.raises(VectorStoreUnavailable, match="does not list"):
                await store.write_chunks(uuid4(), uuid4(), a_space(), 1, chunks_of([direction(0)]))


async def test_a_build_that_is_written_again_with_more_is_listed_with_more() -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    chunks = chunks_of([direction(0)] * 250)
    with PineconeDouble(listing_lag_s=0.3) as double:
        async with pinecone(double) as store:
            await store.write_chunks(work, document, space, 1, [chunks[0], chunks[249]])

            await store.write_chunks(work, document, space, 1, chunks)

            assert await scanned(store, work, space) == {(document, 1): 250}


@pytest.mark.parametrize("tells_positions", [True, False])
async def test_a_build_that_a_newer_one_prunes_before_it_was_seen_is_no_failure(tells_positions: bool) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    lags: dict[str, Any] = {"replica_lags_s": (0.1,), "listing_lag_s": 0.5, "tells_positions": tells_positions}
    with PineconeDouble(**lags) as double:
        async with pinecone(double, freshness_wait_s=6) as store:
            await store.write_chunks(work, document, space, 2, chunks_of([direction(0)]))
            older = asyncio.create_task(store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 3)))
            while len(double.calls("upsert")) < 2:
                await asyncio.sleep(0.01)
            await store.prune_chunks(work, document, space, 2)
            await older

            assert await scanned(store, work, space) == {(document, 2): 1}


@pytest.mark.parametrize("deletion", DELETIONS.values(), ids=DELETIONS)
async def test_what_is_deleted_is_gone_from_every_replica_when_the_call_returns(deletion: Deletion) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble(replica_lags_s=(0.0, 0.25, 0.1), listing_lag_s=0.2) as double:
        async with pinecone(double, stale_read_wait_s=3) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))

            await deletion(store, work, document)

            for _ in range(6):
                assert await store.query_chunks(work, space, vector=direction(0), top_k=9) == []
            assert await store.count(work, space) == 0


@pytest.mark.parametrize("deletion", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("tells_positions", [True, False])
async def test_a_delete_that_is_never_shown_fails_for_a_while(deletion: Deletion, tells_positions: bool) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble(tells_positions=tells_positions) as double:
        async with pinecone(double, freshness_wait_s=0.4) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
            for view in only_namespace(double).replicas:
                view.lag_s = 60.0

            with pytest.raises(VectorStoreUnavailable, match="still"):
                await deletion(store, work, document)


@pytest.mark.parametrize("deletion", DELETIONS.values(), ids=DELETIONS)
@pytest.mark.parametrize("tells_positions", [True, False])
async def test_chunks_committed_before_a_delete_that_could_not_see_them_go_too(
    deletion: Deletion, tells_positions: bool
) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    lags: dict[str, Any] = {"replica_lags_s": (0.2,), "listing_lag_s": 0.1}
    with PineconeDouble(**lags, tells_positions=tells_positions, delete_sees_only_visible=True) as double:
        async with pinecone(double) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
            written = double.calls("upsert")[0].body["documents"][0]
            late = {**written, "_id": naming.record_id(document, 1, 77), "chunk_index": 77}
            only_namespace(double).append(lambda view: view.records.update({late["_id"]: late}))

            await deletion(store, work, document)

            await asyncio.sleep(0.5)
            assert await store.query_chunks(work, space, vector=direction(0), top_k=9) == []
            assert await scanned(store, work, space) == {}


async def test_an_old_answer_is_asked_for_again() -> None:
    work, document, sibling, space = uuid4(), uuid4(), uuid4(), a_space()
    with PineconeDouble(replica_lags_s=(0.0, 0.3)) as double:
        async with pinecone(double, stale_read_wait_s=3) as store:
            for one in (document, sibling):
                await store.write_chunks(work, one, space, 1, chunks_of([direction(0)]))
            await store.delete_by_document(work, document, space)
            before = len(double.calls("search"))

            answers = [await store.query_chunks(work, space, vector=direction(0), top_k=9) for _ in range(4)]

            assert [documents_of(hits) for hits in answers] == [[sibling]] * 4
            assert len(double.calls("search")) - before > 4


async def test_where_every_answer_is_old_there_is_none() -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble() as double:
        async with pinecone(double, stale_read_wait_s=0.2) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))
            await store.delete_by_document(work, document, space)
            for view in only_namespace(double).replicas:
                view.read, view.lag_s = 1, 60.0

            with pytest.raises(VectorStoreUnavailable, match="before the last write or delete"):
                await store.query_chunks(work, space, vector=direction(0), top_k=9)


async def test_another_work_does_not_wait_for_it() -> None:
    slow, other, space = uuid4(), uuid4(), a_space()
    with PineconeDouble() as double:
        async with pinecone(double, stale_read_wait_s=0) as store:
            for work in (slow, other):
                await store.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))
            [index] = double.indexes.values()
            view = index.namespaces[naming.namespace(slow, space)].replicas[0]
            view.read, view.lag_s = 0, 60.0

            assert len(await store.query_chunks(other, space, vector=direction(0), top_k=9)) == 1
            with pytest.raises(VectorStoreUnavailable):
                await store.query_chunks(slow, space, vector=direction(0), top_k=9)


async def test_the_namespace_of_a_deleted_work_is_given_back_and_its_positions_begin_anew() -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble(replica_lags_s=(0.0, 0.05), listing_lag_s=0.05) as double:
        async with pinecone(double) as store, pinecone(double) as elsewhere:
            for build in range(1, 6):
                await store.write_chunks(work, document, space, build, chunks_of([direction(0)]))
            await elsewhere.delete_by_work(work, space)
            await asyncio.sleep(0.2)

            await store.write_chunks(work, document, space, 6, chunks_of([direction(0)]))

            assert len(only_namespace(double).log) == 1
            hits = await store.query_chunks(work, space, vector=direction(0), top_k=9)
            assert [hit.chunk.build for hit in hits] == [6]
            await store.delete_by_work(work, space)
            await asyncio.sleep(0.2)
            assert await store.count(work, space) == 0
            assert double.indexes["stackroom-8"].namespaces == {}


async def test_vectors_are_given_back_whole_or_not_at_all() -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble() as double:
        async with pinecone(double, freshness_wait_s=0.3) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 3))
            missing = naming.record_id(document, 1, 1)
            only_namespace(double).append(lambda view: view.records.update({missing: {"_id": missing}}))

            with pytest.raises(VectorStoreUnavailable, match="every vector"):
                await store.fetch_vectors(work, document, space, 1)


@pytest.mark.parametrize("deletion", DELETIONS.values(), ids=DELETIONS)
async def test_what_is_deleted_is_not_counted_either_where_the_listing_is_far_behind(deletion: Deletion) -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble(listing_lag_s=0.5) as double:
        async with pinecone(double) as store:
            await store.write_chunks(work, document, space, 1, chunks_of([direction(0)]))

            await deletion(store, work, document)

            assert await store.count(work, space) == 0


@pytest.mark.parametrize("deletion", DELETIONS.values(), ids=DELETIONS)
async def test_a_delete_waits_for_a_write_that_nobody_has_seen_yet(deletion: Deletion) -> None:
    work, document, sibling, space = uuid4(), uuid4(), uuid4(), a_space()
    with PineconeDouble(delete_sees_only_visible=True) as double:
        async with pinecone(double) as store:
            await store.write_chunks(work, sibling, space, 9, chunks_of([direction(0)]))
            namespace = only_namespace(double)
            for view in (*namespace.replicas, namespace.listing):
                view.lag_s = 0.4
            written = double.calls("upsert")[0].body["documents"][0]
            late = {**written, "_id": naming.record_id(document, 1, 0), "document_id": str(document), "build": 1}
            namespace.append(lambda view: view.records.update({late["_id"]: late}))

            await deletion(store, work, document)

            await asyncio.sleep(0.6)
            assert (document, 1) not in await scanned(store, work, space)


async def test_a_work_that_others_fill_again_after_we_emptied_it_is_read_at_once() -> None:
    work, document, space = uuid4(), uuid4(), a_space()
    with PineconeDouble() as double:
        async with pinecone(double, stale_read_wait_s=0) as store, pinecone(double) as elsewhere:
            for build in (1, 2, 3):
                await store.write_chunks(work, document, space, build, chunks_of([direction(0)]))
            await store.delete_by_work(work, space)

            await elsewhere.write_chunks(work, document, space, 4, chunks_of([direction(0)]))

            assert len(await store.query_chunks(work, space, vector=direction(0), top_k=9)) == 1
