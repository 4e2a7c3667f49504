"""The orphan check: damage made by hand is found, mended on request, and nothing else is touched."""

import asyncio
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.indexing.routing import space_of
from app.ingestion.checking import Checked, Checker
from app.ingestion.copying import Copier
from app.vector_stores.contract import Space, VectorChunk, VectorStoreUnavailable
from tests.integration.ingestion.changing import Changing
from tests.integration.ingestion.conftest import TIMING, Bench
from tests.integration.ingestion.moving import active_of, assert_consistent, drain_deletion, drain_ingestion
from tests.integration.ingestion.test_sweep import filled


@pytest.fixture
async def changing(bench: Bench) -> Changing:
    return Changing.of(bench)


def checker_of(changing: Changing) -> Checker:
    bench = changing.bench
    return Checker(bench.database, changing.auditor, Copier(bench.database, bench.routing, TIMING))


async def look(changing: Changing, *, repair: bool = False) -> list[Checked]:
    return [one async for one in checker_of(changing).run(repair=repair)]


async def space(bench: Bench) -> Space:
    return space_of(await active_of(bench))


def a_chunk(bench: Bench, index: int) -> VectorChunk:
    return VectorChunk(bench.kb_id, index, [1.0] + [0.0] * 15)


async def test_an_index_as_it_should_be_is_clean(changing: Changing) -> None:
    await filled(changing.bench)

    [found] = await look(changing)

    assert found.is_clean
    assert (found.audit.documents, found.audit.chunks) == (3, 3)


@pytest.mark.parametrize("of_whom", ["a document that is gone", "an older build", "a build that never went live"])
async def test_what_nobody_names_is_found_and_deleted(changing: Changing, of_whom: str) -> None:
    bench = changing.bench
    documents = await filled(bench)
    document_id, build = {
        "a document that is gone": (uuid4(), 1),
        "an older build": (documents[0], 0),
        "a build that never went live": (documents[0], 7),
    }[of_whom]
    await bench.store.write_chunks(bench.work_id, document_id, await space(bench), build, [a_chunk(bench, 0)])

    [found] = await look(changing)
    assert [(one.document_id, one.build, one.found) for one in found.audit.leftovers.values()] == [
        (document_id, build, 1)
    ]
    assert not found.audit.missing

    [mended] = await look(changing, repair=True)
    assert mended.is_clean
    assert mended.mended == 1
    await assert_consistent(bench)


async def test_chunks_that_are_missing_are_brought_again_without_another_build(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    await bench.store.delete_by_document(bench.work_id, documents[1], await space(bench))

    [found] = await look(changing)
    assert [(one.document_id, one.expected, one.found) for one in found.audit.missing.values()] == [
        (documents[1], 1, 0)
    ]
    row = await bench.row(documents[1])
    assert row is not None
    build = row.live_build

    [mended] = await look(changing, repair=True)
    assert mended.is_clean
    row = await bench.row(documents[1])
    assert row is not None
    assert row.live_build == build
    await assert_consistent(bench)


async def test_a_build_with_too_many_chunks_is_replaced_by_another(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    await bench.store.write_chunks(bench.work_id, documents[0], await space(bench), 1, [a_chunk(bench, 5)])

    await look(changing, repair=True)
    await drain_ingestion(bench, documents[0])

    row = await bench.row(documents[0])
    assert row is not None
    assert (row.live_build, row.status) == (2, "ready")
    assert (await look(changing))[0].is_clean
    await assert_consistent(bench)


async def test_a_retired_index_is_mended_by_leaving_out_what_it_lacks(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    old = await space(bench)
    await changing.run((await changing.want(model="n")).generation)
    await bench.store.delete_by_document(bench.work_id, documents[0], old)

    assert [one.is_clean for one in await look(changing)] == [False, True]
    assert [one.is_clean for one in await look(changing, repair=True)] == [True, True]

    back = await changing.want()
    assert back.outcome == "revived"
    await changing.run(back.generation)
    assert set(await changing.stored(1)) == set(documents)


async def test_what_a_removed_index_left_behind_is_found(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    old = await space(bench)
    await changing.run((await changing.want(model="n")).generation)
    await changing.removal.start_due()
    await changing.forget(await changing.generation(1))
    await bench.store.write_chunks(bench.work_id, documents[0], old, 1, [a_chunk(bench, 0)])

    assert [one.is_clean for one in await look(changing)] == [False, True]
    assert [one.is_clean for one in await look(changing, repair=True)] == [True, True]
    assert await changing.stored(1) == {}


async def test_what_is_being_written_is_no_leftover(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    new = await bench.upload("fresh figs")
    bench.store.after = gate = asyncio.Event()
    writing = asyncio.create_task(bench.ingest(new))
    await asyncio.wait_for(bench.store.reached.wait(), 20)

    [found] = await look(changing, repair=True)
    gate.set()
    await writing

    assert found.is_clean
    assert found.mended == 0
    await assert_consistent(bench)


async def test_a_document_replaced_between_scan_and_coordinates_is_no_finding(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    plain, replaced = changing.auditor._read, []

    async def read(generation: object) -> object:
        if not replaced:
            replaced.append(True)
            await bench.upload("other apples", documents[0])
            await bench.ingest(documents[0])
        return await plain(generation)  # type: ignore[arg-type]

    changing.auditor._read = read  # type: ignore[method-assign, assignment]
    [found] = await look(changing, repair=True)

    assert found.is_clean
    assert found.mended == 0
    assert replaced


async def test_a_build_that_goes_live_while_it_is_deleted_as_a_leftover_stays(changing: Changing) -> None:
    """Repair is a writer: it looks again under its announcement."""
    bench = changing.bench
    documents = await filled(bench)
    await bench.store.write_chunks(bench.work_id, documents[0], await space(bench), 2, [a_chunk(bench, 0)])
    plain = changing.auditor.delete_leftovers

    async def later(generation: object, leftovers: object) -> int:
        await bench.upload("other apples", documents[0])
        await bench.ingest(documents[0])  # build 2 goes live after it was taken for a leftover
        return await plain(generation, leftovers)  # type: ignore[arg-type]

    changing.auditor.delete_leftovers = later  # type: ignore[method-assign, assignment]
    await look(changing, repair=True)

    row = await bench.row(documents[0])
    assert row is not None
    assert row.live_build == 2
    assert (await changing.stored(1))[documents[0]] == (2, 1)


async def test_a_store_that_is_away_is_said_to_be_and_is_not_clean(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)

    async def away(*_: object) -> object:
        raise VectorStoreUnavailable("nobody answers")
        yield

    bench.store.scan_documents = away  # type: ignore[method-assign, assignment]
    [found] = await look(changing)

    assert not found.is_clean
    assert found.away == "nobody answers"


async def test_deletions_that_stay_open_are_listed_with_what_they_wait_for(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    receipt = await bench.delete(documents[0])
    assert await checker_of(changing).open_receipts() == []
    async with bench.session() as session:
        await session.execute(
            text(
                "update deletion_receipts set created_at = now() - interval '2 hours',"
                """ stores = '[{"vector_store_id": "memory", "instance_id": "x", "remaining": -1}]'"""
            )
        )

    [found] = await checker_of(changing).open_receipts()

    assert (found.id, found.kind, found.object_id) == (receipt, "document", documents[0])
    assert found.stores[0]["remaining"] == -1


async def test_each_active_index_is_looked_at_once_a_day_by_one_worker(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    seen: list[UUID] = []
    checker = checker_of(changing)
    plain = checker.check

    async def check(work_id: UUID, generation_id: UUID, *, repair: bool) -> Checked | None:
        assert not repair
        seen.append(generation_id)
        return await plain(work_id, generation_id, repair=repair)

    checker.check = check  # type: ignore[method-assign]
    await checker.run_due()
    assert seen == []
    async with bench.session() as session:
        await session.execute(text("update index_generations set checked_at = now() - interval '25 hours'"))
    await checker.run_due()
    await checker.run_due()

    assert seen == [(await active_of(bench)).id]


async def test_a_part_of_a_build_in_a_retired_index_stays_named_so_that_a_deletion_finds_it(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    old = await space(bench)
    await changing.run((await changing.want(model="n")).generation)
    await bench.store.write_chunks(bench.work_id, documents[0], old, 1, [a_chunk(bench, 5)])

    await look(changing, repair=True)
    receipt = await bench.delete(documents[0])
    await drain_deletion(bench, documents[0], receipt)

    assert documents[0] not in await changing.stored(1)
    assert [one.is_clean for one in await look(changing)] == [True, True]


async def test_a_document_that_is_being_deleted_is_not_missing(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    await bench.delete(documents[0])
    await bench.store.delete_by_document(bench.work_id, documents[0], await space(bench))

    assert (await look(changing))[0].is_clean


async def test_a_plugin_that_crashes_is_told_and_the_others_are_looked_at(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)

    async def crashing(*_: object) -> object:
        raise RuntimeError("no error of ours")
        yield

    bench.store.scan_documents = crashing  # type: ignore[method-assign, assignment]
    [found] = await look(changing)

    assert not found.is_clean
    assert found.away == "its plugin crashed (RuntimeError)"
