"""What tests of interleavings share: moving a Work to another generation, and the invariant over all of them."""

import asyncio
from uuid import UUID

from sqlalchemy import select, update

from app.db.base import new_id
from app.indexing.going_live import find_active
from app.indexing.models import Coordinates, IndexGeneration
from app.indexing.routing import space_of
from app.indexing.writes import lock_work
from app.jobs.queue import JobRetry
from tests.integration.ingestion.conftest import Bench

Builds = set[tuple[UUID, int, int]]


async def active_of(bench: Bench) -> IndexGeneration:
    async with bench.session() as session:
        found = await find_active(session, bench.work_id)
    assert found is not None
    return found


async def move_generation(bench: Bench) -> IndexGeneration:
    """Flip to a new, empty generation at the same store, as a finished sweep would: exclusive, retired, active."""
    async with bench.session() as session:
        await lock_work(session, bench.work_id, exclusive=True)
        old = await find_active(session, bench.work_id)
        assert old is not None
        facts = {
            column.name: getattr(old, column.name)
            for column in IndexGeneration.__table__.columns
            if column.name not in ("id", "number", "state")
        }
        await session.execute(update(IndexGeneration).where(IndexGeneration.id == old.id).values(state="retired"))
        made = IndexGeneration(id=new_id(), number=old.number + 1, state="active", **facts)
        session.add(made)
        await session.flush()
        return made


async def coordinates_of(bench: Bench, generation: IndexGeneration) -> Builds:
    async with bench.session() as session:
        rows = await session.execute(
            select(Coordinates.document_id, Coordinates.build, Coordinates.chunk_count).where(
                Coordinates.generation_id == generation.id
            )
        )
        return {(row[0], row[1], row[2]) for row in rows}


async def stored_in(bench: Bench, generation: IndexGeneration) -> Builds:
    scan = bench.store.scan_documents(bench.work_id, space_of(generation))
    return {(found.document_id, found.build, found.chunks) async for found in scan}


async def assert_consistent(bench: Bench) -> None:
    """Every space holds what its coordinates name and nothing else; nothing is announced; live builds have places."""
    async with bench.session() as session:
        generations = (await session.scalars(select(IndexGeneration))).all()
    named: Builds = set()
    for generation in generations:
        stored, wanted = await stored_in(bench, generation), await coordinates_of(bench, generation)
        assert stored == wanted, f"generation {generation.number}"
        named |= wanted
    assert await bench.live_builds() <= named
    assert await bench.announced() == 0


async def waits_for_store(bench: Bench, task: "asyncio.Task[None]") -> None:
    """Wait until the writer stands at the store's barrier."""
    reached = asyncio.create_task(bench.store.reached.wait())
    await asyncio.wait([reached, task], return_when=asyncio.FIRST_COMPLETED, timeout=20)
    reached.cancel()
    assert bench.store.reached.is_set(), task
    bench.store.reached.clear()


async def drain_deletion(bench: Bench, document_id: UUID, receipt_id: UUID) -> None:
    for _ in range(200):
        try:
            await bench.forgetting.forget_document(bench.work_id, document_id, receipt_id)
        except JobRetry as again:
            await asyncio.sleep(again.delay_s)
        else:
            return
    raise AssertionError("the receipt does not close")


async def drain_ingestion(bench: Bench, document_id: UUID) -> None:
    """Run the document's job until it no longer asks to be run again."""
    for _ in range(100):
        try:
            await bench.ingest(document_id)
        except JobRetry as again:
            await asyncio.sleep(min(again.delay_s, 0.2))
        else:
            return
    raise AssertionError("the job never ends")
