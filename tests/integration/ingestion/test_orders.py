"""More forced orders: two deliveries in each order, a moved index, a lost lease, a store that finishes too late."""

import asyncio
import random
from collections.abc import Sequence
from uuid import UUID

import pytest
from sqlalchemy import text

from app.indexing.writes import take_over
from app.jobs.queue import JobRetry
from app.vector_stores.contract import Space, UpsertResult, VectorChunk
from tests.integration.ingestion.conftest import Bench
from tests.integration.ingestion.moving import (
    active_of,
    assert_consistent,
    coordinates_of,
    drain_deletion,
    drain_ingestion,
    move_generation,
    stored_in,
    waits_for_store,
)


def hold(bench: Bench, moment: str) -> asyncio.Event:
    """Hold the next write before or after it happens."""
    gate = asyncio.Event()
    setattr(bench.store, moment, gate)
    return gate


def land_late(bench: Bench) -> "list[asyncio.Task[UpsertResult]]":
    """Let the next write land after our time limit (0.8 s) and before the lease is over (1 s)."""
    landing: list[asyncio.Task[UpsertResult]] = []
    plain_write = bench.store.write_chunks

    async def slow_server(
        work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        async def lands() -> UpsertResult:
            await asyncio.sleep(0.95)
            return await plain_write(work_id, document_id, space, build, chunks)

        bench.store.write_chunks = plain_write  # type: ignore[method-assign]
        landing.append(asyncio.create_task(lands()))
        return await asyncio.shield(landing[0])

    bench.store.write_chunks = slow_server  # type: ignore[method-assign]
    return landing


@pytest.mark.parametrize("first", ["older", "newer"])
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_two_deliveries_end_alike_whoever_finishes_first(bench: Bench, moment: str, first: str) -> None:
    document_id = await bench.upload("delivered to two workers")
    older_gate = hold(bench, moment)
    older = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, older)
    newer_gate = hold(bench, moment)
    newer = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, newer)

    for gate, task in [(older_gate, older), (newer_gate, newer)][:: 1 if first == "older" else -1]:
        gate.set()
        await task

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.live_build, row.live_revision) == ("ready", 2, 1)
    assert await bench.texts(document_id) == ["delivered to two workers"]
    await bench.upkeep.prune()
    await assert_consistent(bench)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_revision_that_comes_while_the_older_is_written_wins_in_the_end(bench: Bench, moment: str) -> None:
    document_id = await bench.upload("older words")
    gate = hold(bench, moment)
    older = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, older)
    await bench.upload("newer words", document_id)
    newer = asyncio.create_task(bench.ingest(document_id))
    await newer
    assert await bench.texts(document_id) == ["newer words"]

    gate.set()
    await older

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.live_revision, row.revision) == ("ready", 2, 2)
    assert await bench.texts(document_id) == ["newer words"]
    await assert_consistent(bench)


async def test_a_failing_newer_attempt_does_not_take_the_older_build_away(bench: Bench) -> None:
    document_id = await bench.upload("good words")
    await bench.ingest(document_id)
    await bench.upload("  \n ", document_id)

    await bench.ingest(document_id)

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.error_code, row.live_revision, row.live_build) == ("failed", "no_text", 1, 1)
    assert await bench.texts(document_id) == ["good words"]
    await assert_consistent(bench)


# --- the index moves


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_build_whose_index_was_replaced_meanwhile_goes_live_in_the_new_one(bench: Bench, moment: str) -> None:
    await bench.ingest(await bench.upload("makes the first generation"))
    old = await active_of(bench)
    document_id = await bench.upload("caught by the flip")
    gate = hold(bench, moment)
    writer = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, writer)
    new = await move_generation(bench)

    gate.set()
    await writer

    row = await bench.row(document_id)
    assert row is not None
    assert row.status == "ready"
    assert row.live_build is not None
    assert await stored_in(bench, new) == {(document_id, row.live_build, 1)}
    assert document_id not in {found[0] for found in await stored_in(bench, old)}
    await assert_consistent(bench)


async def test_an_index_that_moves_twice_is_followed(bench: Bench) -> None:
    await bench.ingest(await bench.upload("makes the first generation"))
    document_id = await bench.upload("caught twice")
    gate = hold(bench, "after")
    writer = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, writer)
    await move_generation(bench)
    second = hold(bench, "after")
    gate.set()
    await waits_for_store(bench, writer)
    newest = await move_generation(bench)
    second.set()
    await writer

    assert {found[0] for found in await stored_in(bench, newest)} == {document_id}
    await assert_consistent(bench)


async def test_a_replacement_in_a_new_index_leaves_the_old_indexes_copy_to_its_removal(bench: Bench) -> None:
    document_id = await bench.upload("first in the old index")
    await bench.ingest(document_id)
    old = await active_of(bench)
    new = await move_generation(bench)
    await bench.upload("second in the new index", document_id)

    await bench.ingest(document_id)

    assert await coordinates_of(bench, old) == {(document_id, 1, 1)}
    assert await coordinates_of(bench, new) == {(document_id, 2, 1)}
    assert await bench.texts(document_id) == ["second in the new index"]
    await assert_consistent(bench)


async def test_a_delete_empties_every_index_that_holds_a_part(bench: Bench) -> None:
    document_id = await bench.upload("in two indexes")
    await bench.ingest(document_id)
    old = await active_of(bench)
    new = await move_generation(bench)
    await bench.upload("in two indexes, newer", document_id)
    await bench.ingest(document_id)

    await drain_deletion(bench, document_id, await bench.delete(document_id))

    assert await stored_in(bench, old) == await stored_in(bench, new) == set()
    await assert_consistent(bench)


async def test_a_delete_while_the_index_moves_under_a_writer_leaves_nothing(bench: Bench) -> None:
    await bench.ingest(await bench.upload("makes the first generation"))
    document_id = await bench.upload("deleted during the flip")
    gate = hold(bench, "after")
    writer = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, writer)
    await move_generation(bench)
    receipt_id = await bench.delete(document_id)
    gate.set()
    await writer
    await drain_deletion(bench, document_id, receipt_id)

    assert await bench.row(document_id) is None
    await assert_consistent(bench)


# --- leases


async def test_a_writer_whose_announcement_was_taken_over_does_not_go_live_with_that_build(bench: Bench) -> None:
    """As after a pause of the whole process: the lease ran out, the reaper removed the build, then the writer wakes."""
    document_id = await bench.upload("woke up late")
    gate = hold(bench, "after")
    writer = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, writer)
    generation = await active_of(bench)
    thief = UUID(int=7)
    async with bench.session() as session:
        await session.execute(text("update index_writes set lease_until = now() - interval '1 minute'"))
        assert await take_over(
            session, document_id=document_id, generation_id=generation.id, build=1, owner=thief, lease_s=0.5
        )
    gate.set()
    for _ in range(3):
        try:
            await writer
        except JobRetry:
            break
        else:
            break
    await asyncio.sleep(0.6)
    await bench.upkeep.reap_writes()
    await drain_ingestion(bench, document_id)

    row = await bench.row(document_id)
    assert row is not None
    assert row.status == "ready"
    assert await bench.texts(document_id) == ["woke up late"]
    await bench.upkeep.prune()
    await assert_consistent(bench)


async def test_a_long_write_keeps_its_lease(bench: Bench) -> None:
    """Longer than the lease in sum, each call shorter than its limit: the reaper finds nothing."""
    document_id = await bench.upload("\n\n".join(f"# Part {n}\n\n" + f"word{n} " * 400 for n in range(4)))
    gate = hold(bench, "after")
    writer = asyncio.create_task(bench.ingest(document_id))
    await waits_for_store(bench, writer)
    for _ in range(3):
        await asyncio.sleep(0.2)
        await bench.upkeep.reap_writes()
    gate.set()
    await writer

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.live_build) == ("ready", 1)
    await assert_consistent(bench)


async def test_what_a_store_finishes_after_our_time_limit_is_removed_too(bench: Bench) -> None:
    """A server goes on with a request that its client has given up: the write lands after we have cleaned up.

    No call may outlast the lease, so until the lease has run out the build can still appear.
    """
    document_id = await bench.upload("landed late")
    landing = land_late(bench)
    with pytest.raises(JobRetry):
        await bench.ingest(document_id)
    await landing[0]
    receipt_id = await bench.delete(document_id)
    await drain_deletion(bench, document_id, receipt_id)
    await asyncio.sleep(1.1)
    await bench.upkeep.reap_writes()

    await assert_consistent(bench)


async def test_what_lands_late_of_a_living_document_is_removed_by_the_reaper_or_the_next_build(bench: Bench) -> None:
    document_id = await bench.upload("landed late, but lives")
    landing = land_late(bench)
    with pytest.raises(JobRetry):
        await bench.ingest(document_id)
    bench.pipeline.patience.succeeded()
    await drain_ingestion(bench, document_id)
    await landing[0]
    await asyncio.sleep(1.1)
    await bench.upkeep.reap_writes()
    await bench.upkeep.prune()

    row = await bench.row(document_id)
    assert row is not None
    assert row.status == "ready"
    await assert_consistent(bench)


async def test_a_delete_that_overtakes_a_late_landing_keeps_its_receipt_open_until_the_lease_is_over(
    bench: Bench,
) -> None:
    """The write is still under way at the store when the deletion counts zero: zero must not be believed yet."""
    document_id = await bench.upload("deleted before it landed")
    landing = land_late(bench)
    with pytest.raises(JobRetry):
        await bench.ingest(document_id)
    receipt_id = await bench.delete(document_id)
    await drain_deletion(bench, document_id, receipt_id)
    await landing[0]
    await asyncio.sleep(1.1)
    await bench.upkeep.reap_writes()

    assert await stored_in(bench, await active_of(bench)) == set()


# --- pruning


async def test_a_prune_that_failed_is_repeated_until_it_has_worked(bench: Bench) -> None:
    document_id = await bench.upload("one")
    await bench.ingest(document_id)
    plain_prune = bench.store.prune_chunks

    async def away(work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        await asyncio.sleep(10)

    bench.store.prune_chunks = away  # type: ignore[method-assign]
    await bench.upload("two", document_id)
    await bench.ingest(document_id)
    row = await bench.row(document_id)
    assert row is not None
    assert row.status == "ready"
    assert len(await bench.stored_builds()) == 2
    await bench.upkeep.prune()
    assert len(await bench.stored_builds()) == 2
    bench.store.prune_chunks = plain_prune  # type: ignore[method-assign]

    await bench.upkeep.prune()

    await assert_consistent(bench)


async def test_a_prune_that_comes_late_does_not_touch_a_newer_build(bench: Bench) -> None:
    document_id = await bench.upload("one")
    await bench.ingest(document_id)
    plain_prune = bench.store.prune_chunks
    gate, reached = asyncio.Event(), asyncio.Event()

    async def held(work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        reached.set()
        await gate.wait()
        await plain_prune(work_id, document_id, space, before_build)

    bench.store.prune_chunks = held  # type: ignore[method-assign]
    await bench.upload("two", document_id)
    second = asyncio.create_task(bench.ingest(document_id))
    await asyncio.wait_for(reached.wait(), 20)
    bench.store.prune_chunks = plain_prune  # type: ignore[method-assign]
    await bench.upload("three", document_id)
    await bench.ingest(document_id)
    gate.set()
    await second

    assert await bench.texts(document_id) == ["three"]
    await bench.upkeep.prune()
    await assert_consistent(bench)


# --- deletion


async def test_a_deletion_is_repeatable_and_closes_once(bench: Bench) -> None:
    document_id = await bench.upload("deleted twice")
    await bench.ingest(document_id)
    receipt_id = await bench.delete(document_id)

    await asyncio.gather(*(drain_deletion(bench, document_id, receipt_id) for _ in range(3)))
    await drain_deletion(bench, document_id, receipt_id)

    assert await bench.row(document_id) is None
    await assert_consistent(bench)


async def test_a_store_that_is_away_keeps_the_receipt_open_and_says_so(bench: Bench) -> None:
    document_id = await bench.upload("store is away")
    await bench.ingest(document_id)
    plain = bench.store.delete_by_document

    async def away(work_id: UUID, document_id: UUID, space: Space) -> None:
        await asyncio.sleep(10)

    bench.store.delete_by_document = away  # type: ignore[method-assign]
    receipt_id = await bench.delete(document_id)
    with pytest.raises(JobRetry):
        await bench.forgetting.forget_document(bench.work_id, document_id, receipt_id)
    async with bench.session() as session:
        closed, stores = (
            await session.execute(
                text("select closed_at, stores from deletion_receipts where id = :i"), {"i": receipt_id}
            )
        ).one()
    assert closed is None
    assert [(s["vector_store_id"], s["remaining"]) for s in stores] == [("memory", -1)]
    bench.store.delete_by_document = plain  # type: ignore[method-assign]

    await drain_deletion(bench, document_id, receipt_id)

    await assert_consistent(bench)


async def test_a_job_that_starts_after_the_delete_does_nothing(bench: Bench) -> None:
    document_id = await bench.upload("deleted before its job")
    receipt_id = await bench.delete(document_id)

    await bench.ingest(document_id)
    await drain_deletion(bench, document_id, receipt_id)
    await bench.ingest(document_id)

    assert bench.provider.requests == []
    assert await bench.row(document_id) is None


# --- chance


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_happens_in_whatever_order_the_end_is_consistent(bench: Bench, seed: int) -> None:
    """Uploads, deliveries, deletions, flips, reapers and prunes at random; then everything is drained."""
    chance = random.Random(seed)
    documents: dict[UUID, int] = {}  # document → newest revision
    receipts: dict[UUID, UUID] = {}
    running: list[asyncio.Task[None]] = []
    await bench.ingest(await bench.upload("makes the first generation"))
    plain_write = bench.store.write_chunks

    async def jittery(
        work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        await asyncio.sleep(chance.random() * 0.1)
        written = await plain_write(work_id, document_id, space, build, chunks)
        await asyncio.sleep(chance.random() * 0.1)
        return written

    bench.store.write_chunks = jittery  # type: ignore[method-assign]
    for step in range(30):
        alive = [d for d in documents if d not in receipts]
        action = chance.choice(["new", "revise", "deliver", "deliver", "delete", "reap", "prune", "move", "cancel"])
        if action == "new":
            documents[await bench.upload(f"document {step}")] = 1
        elif action == "revise" and alive:
            document_id = chance.choice(alive)
            await bench.upload(f"revision {step}", document_id)
            documents[document_id] += 1
        elif action == "deliver" and documents:
            running.append(asyncio.create_task(drain_ingestion(bench, chance.choice(list(documents)))))
        elif action == "delete" and alive:
            document_id = chance.choice(alive)
            receipts[document_id] = await bench.delete(document_id)
            running.append(asyncio.create_task(drain_deletion(bench, document_id, receipts[document_id])))
        elif action == "reap":
            await bench.upkeep.reap_writes()
        elif action == "prune":
            await bench.upkeep.prune()
        elif action == "move" and chance.random() < 0.3:
            await move_generation(bench)
        elif action == "cancel" and running and chance.random() < 0.5:
            chance.choice(running).cancel()  # a worker that is stopped
        await asyncio.sleep(chance.random() * 0.05)
    await asyncio.gather(*running, return_exceptions=True)
    for document_id, receipt_id in receipts.items():
        await drain_deletion(bench, document_id, receipt_id)
    for document_id in documents.keys() - receipts.keys():
        await drain_ingestion(bench, document_id)
    await asyncio.sleep(1.1)
    await bench.upkeep.reap_writes()
    await bench.upkeep.prune()

    await assert_consistent(bench)
    for document_id, revision in documents.items():
        row = await bench.row(document_id)
        if document_id in receipts:
            assert row is None
        else:
            assert row is not None
            assert (row.status, row.live_revision, row.revision) == ("ready", revision, revision)
