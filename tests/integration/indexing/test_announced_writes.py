"""Announced writes, leases and the lock W, call by call: what is refused, what waits, what is lost."""

import asyncio
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.db.base import new_id
from app.indexing.errors import WriteRefused
from app.indexing.models import IndexGeneration
from app.indexing.writes import announce, list_expired, lock_work, renew, shared_lock, take_over, withdraw
from tests.integration.indexing.conftest import Desk


async def announced(desk: Desk) -> list[tuple[UUID, int, UUID]]:
    async with desk.session() as session:
        rows = await session.execute(text("select document_id, build, owner from index_writes order by build"))
        return [(row[0], row[1], row[2]) for row in rows]


async def say(desk: Desk, *, build: int = 1, owner: UUID | None = None, lease_s: float = 30, **changes: UUID) -> UUID:
    owner = owner or new_id()
    wanted = {"document_id": desk.document_id, "generation_id": desk.generation_id, **changes}
    async with desk.session(first=shared_lock(desk.work_id)) as session:
        await announce(session, desk.work_id, build=build, owner=owner, lease_s=lease_s, **wanted)
    return owner


async def test_a_write_is_announced_once_for_each_document_generation_and_build(desk: Desk) -> None:
    first = await say(desk, build=1)
    second = await say(desk, build=2)

    with pytest.raises(WriteRefused):
        await say(desk, build=1)

    assert await announced(desk) == [(desk.document_id, 1, first), (desk.document_id, 2, second)]


async def test_a_refused_announcement_leaves_no_row(desk: Desk) -> None:
    with pytest.raises(WriteRefused):
        await say(desk, document_id=uuid4())

    assert await announced(desk) == []


@pytest.mark.parametrize(
    ("table", "key"), [("kb_documents", "document_id"), ("knowledge_bases", "kb_id"), ("works", "work_id")]
)
async def test_nothing_is_announced_in_what_is_being_deleted(desk: Desk, table: str, key: str) -> None:
    async with desk.session() as session:
        await session.execute(text(f"update {table} set deleting_at = now() where id = :i"), {"i": getattr(desk, key)})

    with pytest.raises(WriteRefused):
        await say(desk)

    assert await announced(desk) == []


@pytest.mark.parametrize("state", ["retired", "removing", "removed", "failed", "cancelled"])
async def test_nothing_is_announced_to_a_generation_that_is_neither_active_nor_building(desk: Desk, state: str) -> None:
    await desk.set_state(state)

    with pytest.raises(WriteRefused):
        await say(desk)


@pytest.mark.parametrize("state", ["active", "building"])
async def test_a_write_is_announced_to_an_active_or_building_generation(desk: Desk, state: str) -> None:
    await desk.set_state(state)

    owner = await say(desk)

    assert await announced(desk) == [(desk.document_id, 1, owner)]


async def test_two_announcements_of_one_build_at_the_same_time_are_one(desk: Desk) -> None:
    outcomes = await asyncio.gather(*(say(desk) for _ in range(5)), return_exceptions=True)

    assert sum(isinstance(outcome, UUID) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, WriteRefused) for outcome in outcomes) == 4


async def test_an_announcement_waits_for_a_flip_and_then_looks_at_its_outcome(desk: Desk) -> None:
    async with desk.session() as flip:
        await lock_work(flip, desk.work_id, exclusive=True)
        writer = asyncio.create_task(say(desk))
        await asyncio.sleep(0.2)
        assert not writer.done()
        await flip.execute(
            text("update index_generations set state = 'retired' where id = :i"), {"i": desk.generation_id}
        )

    with pytest.raises(WriteRefused):
        await asyncio.wait_for(writer, 10)


async def test_a_flip_waits_for_announcements_and_is_not_starved_by_new_ones(desk: Desk) -> None:
    """The lock queues fairly: who comes after the waiting flip waits behind it."""
    order: list[str] = []

    async def flip() -> None:
        async with desk.session() as session:
            await lock_work(session, desk.work_id, exclusive=True)
            order.append("flip")

    async def writer() -> None:
        async with desk.session() as session:
            await lock_work(session, desk.work_id)
            order.append("writer")

    async with desk.session() as first:
        await lock_work(first, desk.work_id)
        flipping = asyncio.create_task(flip())
        await asyncio.sleep(0.2)
        late = asyncio.create_task(writer())
        await asyncio.sleep(0.2)
        assert order == []
    await asyncio.wait_for(asyncio.gather(flipping, late), 10)

    assert order == ["flip", "writer"]


async def test_writers_of_one_work_do_not_wait_for_each_other_nor_for_another_works_flip(desk: Desk) -> None:
    async with desk.session() as one, desk.session() as two:
        await lock_work(one, desk.work_id)
        await asyncio.wait_for(lock_work(two, desk.work_id), 5)
        async with desk.session() as stranger:
            await asyncio.wait_for(lock_work(stranger, uuid4(), exclusive=True), 5)


async def test_a_delete_that_holds_the_row_makes_the_announcement_wait_and_then_refuses_it(desk: Desk) -> None:
    async with desk.session() as deleting:
        await deleting.execute(
            text("update kb_documents set deleting_at = now() where id = :i"), {"i": desk.document_id}
        )
        writer = asyncio.create_task(say(desk))
        await asyncio.sleep(0.2)
        assert not writer.done()

    with pytest.raises(WriteRefused):
        await asyncio.wait_for(writer, 10)


async def test_a_living_lease_is_neither_listed_nor_taken_over(desk: Desk) -> None:
    owner = await say(desk, lease_s=30)
    async with desk.database.unscoped() as session:
        assert await list_expired(session, max_rows=10) == []
    async with desk.session() as session:
        assert not await take_over(session, **desk.key(), build=1, owner=new_id(), lease_s=1)

    assert await announced(desk) == [(desk.document_id, 1, owner)]


async def test_an_expired_lease_is_taken_over_by_exactly_one(desk: Desk) -> None:
    await say(desk, lease_s=-1)
    async with desk.database.unscoped() as session:
        assert await list_expired(session, max_rows=10) == [(desk.work_id, desk.document_id, desk.generation_id, 1)]

    async def take(owner: UUID) -> bool:
        async with desk.session() as session:
            return await take_over(session, **desk.key(), build=1, owner=owner, lease_s=30)

    owners = [new_id() for _ in range(4)]
    taken = await asyncio.gather(*(take(owner) for owner in owners))

    assert sum(taken) == 1
    assert await announced(desk) == [(desk.document_id, 1, owners[taken.index(True)])]


async def test_who_lost_the_lease_can_neither_renew_nor_withdraw(desk: Desk) -> None:
    old, new = await say(desk, lease_s=-1), new_id()
    async with desk.session() as session:
        assert await take_over(session, **desk.key(), build=1, owner=new, lease_s=30)
    async with desk.session() as session:
        assert not await renew(session, document_id=desk.document_id, build=1, owner=old, lease_s=30)
        assert not await withdraw(session, **desk.key(), build=1, owner=old)

    assert await announced(desk) == [(desk.document_id, 1, new)]


async def test_renewing_lengthens_the_owners_lease_only(desk: Desk) -> None:
    owner = await say(desk, build=1, lease_s=1)
    await say(desk, build=2, lease_s=-1)
    async with desk.session() as session:
        assert await renew(session, document_id=desk.document_id, build=1, owner=owner, lease_s=100)
    async with desk.session() as session:
        rows = await session.execute(text("select build, lease_until from index_writes order by build"))
        leases = {row[0]: row[1] for row in rows}

    assert (leases[1] - datetime.now(UTC)).total_seconds() > 60
    assert leases[2] < datetime.now(UTC)


async def test_a_work_has_at_most_one_active_and_one_building_generation(desk: Desk) -> None:
    from sqlalchemy.exc import IntegrityError

    for state in ("active", "building"):
        await desk.set_state(state)
        with pytest.raises(IntegrityError):
            async with desk.session() as session:
                session.add(IndexGeneration(id=new_id(), work_id=desk.work_id, number=99, state=state))
