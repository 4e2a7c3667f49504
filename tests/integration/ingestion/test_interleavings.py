"""Builds that meet deletions, replacements and each other, in forced orders: the end is the same as without."""

import asyncio

import pytest

from app.jobs.queue import JobRetry
from tests.integration.ingestion.conftest import Bench


async def started(task: "asyncio.Task[None]", bench: Bench) -> None:
    """Wait until the store's barrier is reached."""
    reached = asyncio.create_task(bench.store.reached.wait())
    await asyncio.wait([reached, task], return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert bench.store.reached.is_set(), task
    bench.store.reached.clear()


async def forgotten(bench: Bench, document_id: object, receipt_id: object) -> None:
    for _ in range(100):
        try:
            await bench.forgetting.forget_document(bench.work_id, document_id, receipt_id)  # type: ignore[arg-type]
            return
        except JobRetry as again:
            await asyncio.sleep(again.delay_s)
    raise AssertionError("the receipt does not close")


async def test_a_document_becomes_ready_and_the_store_holds_exactly_its_live_build(bench: Bench) -> None:
    document_id = await bench.upload("alpha beta gamma")
    await bench.ingest(document_id)

    row = await bench.row(document_id)

    assert row is not None
    assert (row.status, row.live_build, row.live_revision, row.chunk_count) == ("ready", 1, 1, 1)
    assert await bench.consistent()


async def test_a_job_delivered_twice_ends_as_once(bench: Bench) -> None:
    document_id = await bench.upload("delivered twice")

    await asyncio.gather(bench.ingest(document_id), bench.ingest(document_id))

    row = await bench.row(document_id)
    assert row is not None
    assert row.status == "ready"
    assert await bench.texts(document_id) == ["delivered twice"]
    await bench.upkeep.prune()
    assert await bench.consistent()


async def test_a_slow_worker_that_wakes_up_after_another_finished_changes_nothing(bench: Bench) -> None:
    document_id = await bench.upload("first words")
    gate = asyncio.Event()
    bench.store.after = gate
    slow = asyncio.create_task(bench.ingest(document_id))
    await started(slow, bench)
    await bench.upload("second words", document_id)
    await bench.ingest(document_id)
    assert await bench.texts(document_id) == ["second words"]

    gate.set()
    await slow

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.live_revision, row.live_build) == ("ready", 2, 2)
    assert await bench.texts(document_id) == ["second words"]
    assert await bench.consistent()


async def test_an_older_build_may_go_live_while_a_newer_revision_waits(bench: Bench) -> None:
    document_id = await bench.upload("old text")
    gate = asyncio.Event()
    bench.store.after = gate
    old = asyncio.create_task(bench.ingest(document_id))
    await started(old, bench)
    await bench.upload("new text", document_id)
    gate.set()
    await old

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.live_revision, row.revision) == ("queued", 1, 2)
    assert await bench.texts(document_id) == ["old text"]
    await bench.ingest(document_id)
    assert await bench.texts(document_id) == ["new text"]
    assert await bench.consistent()


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_a_delete_during_a_write_wins_and_nothing_comes_back(bench: Bench, moment: str) -> None:
    document_id = await bench.upload("soon gone")
    gate = asyncio.Event()
    setattr(bench.store, moment, gate)
    writer = asyncio.create_task(bench.ingest(document_id))
    await started(writer, bench)
    receipt_id = await bench.delete(document_id)
    with pytest.raises(JobRetry):  # the writer's lease lives: the receipt stays open
        await bench.forgetting.forget_document(bench.work_id, document_id, receipt_id)

    gate.set()
    await writer
    await forgotten(bench, document_id, receipt_id)

    assert await bench.row(document_id) is None
    assert await bench.stored_builds() == set()
    assert await bench.announced() == 0


async def test_a_delete_while_the_store_hangs_waits_for_the_lease_and_then_removes_all(bench: Bench) -> None:
    document_id = await bench.upload("hung up")
    bench.store.before = asyncio.Event()  # never set: the call runs into its time limit
    writer = asyncio.create_task(bench.ingest(document_id))
    await started(writer, bench)
    receipt_id = await bench.delete(document_id)

    with pytest.raises(JobRetry):
        await writer
    await forgotten(bench, document_id, receipt_id)

    assert await bench.row(document_id) is None
    assert await bench.stored_builds() == set()


async def test_a_worker_that_dies_after_the_write_leaves_nothing_that_the_reaper_does_not_find(bench: Bench) -> None:
    document_id = await bench.upload("written, not live")
    bench.store.after = asyncio.Event()
    dying = asyncio.create_task(bench.ingest(document_id))
    await started(dying, bench)
    bench.pipeline.writer.database = None  # type: ignore[assignment] - what a dead process can't do any more
    dying.cancel()
    with pytest.raises((asyncio.CancelledError, JobRetry)):
        await dying
    bench.pipeline.writer.database = bench.database
    assert await bench.stored_builds() == {(document_id, 1, 1)}
    assert await bench.announced() == 1

    await asyncio.sleep(1.1)  # the lease runs out
    await bench.upkeep.reap_writes()

    assert await bench.stored_builds() == set()
    assert await bench.announced() == 0
    await bench.ingest(document_id)
    assert await bench.consistent()


async def test_the_reaper_leaves_a_living_writer_alone(bench: Bench) -> None:
    document_id = await bench.upload("slow but alive")
    gate = asyncio.Event()
    bench.store.after = gate
    writer = asyncio.create_task(bench.ingest(document_id))
    await started(writer, bench)
    await bench.upkeep.reap_writes()
    gate.set()
    await writer

    assert await bench.consistent()


async def test_a_store_that_is_away_keeps_the_document_waiting_without_end(bench: Bench) -> None:
    document_id = await bench.upload("patience")
    for _ in range(5):
        bench.store.before = asyncio.Event()
        bench.pipeline.patience.succeeded()
        with pytest.raises(JobRetry):
            await bench.ingest(document_id)
    bench.store.before = None
    bench.pipeline.patience.succeeded()

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.error_code, row.attempts) == ("queued", "vector_store_timeout", 0)
    await bench.ingest(document_id)
    await asyncio.sleep(1.1)  # calls that ran into the time limit keep their announcements until the lease is over
    await bench.upkeep.reap_writes()
    assert await bench.consistent()


async def test_attempts_that_end_without_a_word_are_bounded(bench: Bench) -> None:
    from app.documents.attempts import begin_attempt

    document_id = await bench.upload("killed three times")
    for _ in range(3):
        async with bench.session() as session:
            assert await begin_attempt(session, bench.work_id, document_id, max_attempts=3)

    await bench.ingest(document_id)

    row = await bench.row(document_id)
    assert row is not None
    assert (row.status, row.error_code) == ("failed", "gave_up")


async def test_unchanged_chunks_are_not_embedded_again(bench: Bench) -> None:
    document_id = await bench.upload("the very same words")
    await bench.ingest(document_id)
    bought = len(bench.provider.requests)
    async with bench.session() as session:
        from app.documents.models import Document
        from app.documents.starting import begin_again

        await begin_again(session, await session.get_one(Document, document_id))

    await bench.ingest(document_id)

    assert len(bench.provider.requests) == bought
    row = await bench.row(document_id)
    assert row is not None
    assert (row.live_build, row.status) == (2, "ready")
    assert await bench.consistent()


async def test_no_connection_is_held_while_the_store_is_waited_for(bench: Bench) -> None:
    held: list[int] = []
    pool = bench.database.engine.pool
    bench.store.watch.append(lambda: held.append(pool.checkedout()))  # type: ignore[attr-defined]
    document_id = await bench.upload("let go")

    await bench.ingest(document_id)

    assert held == [0]


async def test_blobs_of_superseded_revisions_and_deleted_documents_go(bench: Bench) -> None:
    document_id = await bench.upload("one")
    await bench.ingest(document_id)
    await bench.upload("two", document_id)
    await bench.ingest(document_id)
    await bench.upkeep.delete_blobs()
    assert len([key async for key in bench.storage.list_keys()]) == 2  # the original and its text

    await forgotten(bench, document_id, await bench.delete(document_id))
    await bench.upkeep.delete_blobs()

    assert [key async for key in bench.storage.list_keys()] == []
