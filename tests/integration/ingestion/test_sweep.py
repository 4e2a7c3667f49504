"""Sweeps from one generation to the next, in forced orders: nothing lost, nothing twice, searches always complete."""

import asyncio
from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from app.ai_providers.contract import ProviderUnavailable
from app.chunking.contract import ChunkSettings
from app.db.engine import Reach
from app.indexing.generations import Generations
from app.indexing.models import IndexGeneration
from app.ingestion.sweeping import MOST_MENDED, PAGE
from app.jobs.queue import JobRetry
from app.tenancy.models import Work
from tests.integration.ingestion.changing import Changing
from tests.integration.ingestion.conftest import Bench
from tests.integration.ingestion.moving import active_of, assert_consistent, drain_deletion, drain_ingestion


@pytest.fixture
async def changing(bench: Bench) -> Changing:
    return Changing.of(bench)


async def filled(bench: Bench, *texts: str) -> list[UUID]:
    documents = [await bench.upload(words) for words in texts or ("red apples", "green pears", "blue plums")]
    for document_id in documents:
        await bench.ingest(document_id)
    return documents


async def test_another_model_becomes_another_generation_and_the_old_one_is_kept(changing: Changing) -> None:
    documents = await filled(changing.bench)

    found = await changing.want(model="n")
    assert found.outcome == "begun"
    await changing.run(found.generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert set(await changing.stored(2)) == set(documents) == set(await changing.stored(1))
    new = await changing.generation(2)
    assert (new.documents_done, new.documents_total, new.documents_refused) == (3, 3, 0)
    assert new.activated_at is not None
    assert await changing.activity() == ["KB_REEMBED_STARTED", "KB_REEMBED_COMPLETED"]
    await assert_consistent(changing.bench)


async def test_what_is_wanted_already_begins_nothing(changing: Changing) -> None:
    await filled(changing.bench)

    assert (await changing.want()).outcome == "up_to_date"
    assert await changing.states() == {1: "active"}


async def test_a_work_without_an_index_is_left_alone(changing: Changing) -> None:
    assert (await changing.want(model="n")).outcome == "no_index"


async def test_the_same_wish_twice_is_one_generation(changing: Changing) -> None:
    await filled(changing.bench)
    first = await changing.want(model="n")

    second = await changing.want(model="n")

    assert second.outcome == "building"
    assert second.generation is not None
    assert first.generation is not None
    assert second.generation.id == first.generation.id
    assert await changing.states() == {1: "active", 2: "building"}


async def test_back_within_the_grace_period_revives_the_old_one_and_adds_only_what_changed(changing: Changing) -> None:
    """m1 → m2 → m1."""
    bench = changing.bench
    documents = await filled(bench)
    await changing.run((await changing.want(model="n")).generation)
    await bench.upload("yellow apples", documents[0])
    await bench.ingest(documents[0])
    before = changing.embedded()

    back = await changing.want()
    assert back.outcome == "revived"
    await changing.run(back.generation)

    assert await changing.states() == {1: "active", 2: "retired"}
    assert changing.embedded() - before == 2  # the one document that changed, and the probe
    await bench.upkeep.prune()
    await assert_consistent(bench)


async def test_back_before_the_sweep_has_ended_cancels_it_and_empties_its_space(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    begun = await changing.want(model="n")
    assert begun.generation is not None

    assert (await changing.want()).outcome == "up_to_date"
    await changing.sweep.run(bench.work_id, begun.generation.id)  # its job comes too late
    await changing.forget(begun.generation)

    assert await changing.states() == {1: "active", 2: "cancelled"}
    assert await changing.stored(2) == {}
    assert (await changing.generation(2)).removed_at is not None


async def test_a_revived_generation_that_is_cancelled_can_still_be_gone_back_to(changing: Changing) -> None:
    """m1 → m2 → m1 → m2, the last while m1 is being caught up."""
    await filled(changing.bench)
    await changing.run((await changing.want(model="n")).generation)
    assert (await changing.want()).outcome == "revived"

    assert (await changing.want(model="n")).outcome == "up_to_date"

    assert await changing.states() == {1: "retired", 2: "active"}
    assert len(await changing.stored(1)) == 3
    await changing.run((await changing.want()).generation)
    assert await changing.states() == {1: "active", 2: "retired"}
    await assert_consistent(changing.bench)


async def test_a_third_wish_during_a_sweep_cancels_the_second_even_in_the_middle_of_a_write(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    second = (await changing.want(model="n")).generation
    bench.store.after = gate = asyncio.Event()
    running = asyncio.create_task(changing.run(second))
    await asyncio.wait_for(bench.store.reached.wait(), 20)

    third = (await changing.want(model="o")).generation
    gate.set()
    await running
    await changing.run(third)
    assert second is not None
    await changing.forget(second)

    assert await changing.states() == {1: "retired", 2: "cancelled", 3: "active"}
    assert await changing.stored(2) == {}
    await assert_consistent(bench)


async def test_uploads_edits_and_deletes_during_a_sweep_are_in_the_new_index_as_they_are(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench, "red apples", "green pears", "blue plums", "black cherries")
    generation = (await changing.want(model="n")).generation
    bench.store.before = gate = asyncio.Event()
    running = asyncio.create_task(changing.run(generation))
    await asyncio.wait_for(bench.store.reached.wait(), 20)

    await bench.upload("other apples", documents[0])
    new = await bench.upload("fresh figs")
    receipt = await bench.delete(documents[1])
    for document_id in (documents[0], new):
        await drain_ingestion(bench, document_id)
    gate.set()
    await running
    await drain_deletion(bench, documents[1], receipt)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert set(await changing.stored(2)) == {documents[0], documents[2], documents[3], new}
    await bench.upkeep.prune()
    await assert_consistent(bench)


async def test_upload_delete_and_upload_again_while_it_is_verified(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    generation = (await changing.want(model="n")).generation
    plain = changing.auditor.verify
    again: list[UUID] = []

    async def meanwhile(building: object) -> bool:
        is_complete = await plain(building)  # type: ignore[arg-type]
        if not again:
            receipt = await bench.delete(documents[0])
            again.append(await bench.upload("red apples, again"))
            await bench.ingest(again[0])
            await bench.upload("greener pears", documents[1])
            await bench.ingest(documents[1])
            await drain_deletion(bench, documents[0], receipt)
        return is_complete

    changing.auditor.verify = meanwhile  # type: ignore[method-assign]
    await changing.run(generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert set(await changing.stored(2)) == {documents[1], documents[2], again[0]}
    await bench.upkeep.prune()
    await assert_consistent(bench)


async def test_a_sweep_that_was_cut_off_goes_on_without_repeating_what_is_done(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench, *(f"apple number {n}" for n in range(6)))
    changing.sweep.at_once = 1
    generation = (await changing.want(model="n")).generation
    before = changing.embedded()
    bench.store.after = asyncio.Event()
    running = asyncio.create_task(changing.run(generation))
    await asyncio.wait_for(bench.store.reached.wait(), 20)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    await changing.run(generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert changing.embedded() - before == 6 + 1 + 1  # six, the one that was cut off again, and the probe
    await assert_consistent(bench)


async def test_where_only_the_store_or_nothing_changes_vectors_are_copied_and_nobody_embeds(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    built = await changing.under().build(bench.work_id, forced=True)
    before = changing.embedded()
    await changing.run(built)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert changing.embedded() - before == 1  # the probe
    await assert_consistent(bench)


async def test_a_provider_that_is_away_is_waited_for_and_searches_have_the_old_index(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    generation = (await changing.want(model="n")).generation
    assert generation is not None
    bench.provider.always = "server_error"

    with pytest.raises(JobRetry):
        await changing.sweep.run(bench.work_id, generation.id)
    waiting = await changing.generation(2)
    assert waiting.state == "building"
    assert waiting.error is not None
    assert waiting.error.startswith("Waits")
    assert (await active_of(bench)).number == 1

    bench.provider.always = None
    await changing.run(generation)
    assert await changing.states() == {1: "retired", 2: "active"}


async def test_a_provider_that_refuses_our_key_ends_it_and_only_a_command_tries_again(
    changing: Changing,
) -> None:
    bench = changing.bench
    await filled(bench)
    generation = (await changing.want(model="n")).generation
    bench.provider.always = "unauthorized"
    await changing.run(generation)
    bench.provider.always = None

    assert await changing.states() == {1: "active", 2: "failed"}
    failed = await changing.generation(2)
    assert failed.error is not None
    assert failed.error.startswith("provider_misconfigured")
    assert await changing.activity() == ["KB_REEMBED_STARTED", "KB_REEMBED_FAILED"]
    assert (await changing.want(model="n")).outcome == "failed_before"

    built = await changing.under(model="n").build(bench.work_id, forced=False)
    await changing.run(built)
    assert await changing.states() == {1: "retired", 2: "failed", 3: "active"}


async def test_documents_that_the_provider_refuses_are_listed_and_wait_for_acceptance(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    changing.sweep.at_once = 1
    generation = (await changing.want(model="n")).generation
    assert generation is not None
    bench.provider.misbehave("bad_request")
    await changing.run(generation)

    waiting = await changing.generation(2)
    assert (waiting.state, waiting.documents_done, waiting.documents_refused) == ("building", 2, 1)
    async with bench.session() as session:
        await session.execute(text("update index_refusals set accepted = true"))
    await changing.run(generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    [refused] = set(documents) - set(await changing.stored(2))
    row = await bench.row(refused)
    assert row is not None
    assert (row.status, [one["code"] for one in row.warnings]) == ("ready", ["not_embedded"])

    await changing.run((await changing.want(model="o")).generation)  # another model takes it
    row = await bench.row(refused)
    assert row is not None
    assert row.warnings == []
    assert set(await changing.stored(3)) == set(documents)


async def test_a_refused_document_that_is_replaced_is_tried_as_it_is_now(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench, "red apples")
    generation = (await changing.want(model="n")).generation
    bench.provider.misbehave("bad_request")
    await changing.run(generation)
    assert (await changing.generation(2)).state == "building"

    await bench.upload("better apples", documents[0])
    await bench.ingest(documents[0])
    await changing.run(generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    await assert_consistent(bench)


async def test_what_the_store_has_lost_is_brought_again_before_the_switch(changing: Changing) -> None:
    bench = changing.bench
    documents = await filled(bench)
    generation = (await changing.want(model="n")).generation
    assert generation is not None
    plain, lost = changing.auditor.audit, []

    async def audit(building: object) -> object:
        if not lost:
            lost.append(documents[1])
            space = (await bench.routing.store(building)).space  # type: ignore[arg-type, union-attr]
            await bench.store.delete_by_document(bench.work_id, documents[1], space)
        return await plain(building)  # type: ignore[arg-type]

    changing.auditor.audit = audit  # type: ignore[method-assign, assignment]
    await changing.run(generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert set(await changing.stored(2)) == set(documents)
    await assert_consistent(bench)


async def test_uploads_that_outrun_the_sweep_are_written_to_both_until_the_switch(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    generation = (await changing.want(model="n")).generation
    async with bench.session() as session:
        await session.execute(text("update index_generations set dual_writes = true where state = 'building'"))

    new = await bench.upload("fresh figs")
    await bench.ingest(new)

    assert (await changing.stored(1))[new] == (await changing.stored(2))[new]
    before = changing.embedded()
    await changing.run(generation)
    assert changing.embedded() - before == 3 + 1  # not the fourth
    assert await changing.states() == {1: "retired", 2: "active"}
    await assert_consistent(bench)


async def test_a_second_write_that_fails_leaves_the_upload_alone(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    generation = (await changing.want(model="n")).generation
    assert generation is not None
    async with bench.session() as session:
        await session.execute(text("update index_generations set dual_writes = true where state = 'building'"))
    plain = bench.routing.embedder

    async def refusing(asked: IndexGeneration) -> object:
        if asked.id == generation.id:
            raise ProviderUnavailable("away")
        return await plain(asked)

    bench.routing.embedder = refusing  # type: ignore[method-assign, assignment]
    new = await bench.upload("fresh figs")
    await bench.ingest(new)
    bench.routing.embedder = plain  # type: ignore[method-assign]

    row = await bench.row(new)
    assert row is not None
    assert row.status == "ready"
    assert new not in await changing.stored(2)
    assert await bench.announced() == 0
    await changing.run(generation)
    assert new in await changing.stored(2)
    await assert_consistent(bench)


async def test_a_second_write_that_crashes_leaves_the_upload_alone(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    generation = (await changing.want(model="n")).generation
    assert generation is not None
    async with bench.session() as session:
        await session.execute(text("update index_generations set dual_writes = true where state = 'building'"))
    plain = bench.routing.embedder

    async def broken(asked: IndexGeneration) -> object:
        if asked.id == generation.id:
            raise ValueError("no error of ours")
        return await plain(asked)

    bench.routing.embedder = broken  # type: ignore[method-assign, assignment]
    new = await bench.upload("fresh figs")
    await bench.ingest(new)
    bench.routing.embedder = plain  # type: ignore[method-assign]

    row = await bench.row(new)
    assert row is not None
    assert row.status == "ready"
    await changing.run(generation)
    assert new in await changing.stored(2)
    await assert_consistent(bench)


async def test_uploads_that_overtake_every_verification_are_no_fault_of_the_store(changing: Changing) -> None:
    """Out of an index of words nothing is written to both, so only the end of the uploads lets the switch come."""
    bench = changing.bench
    words = replace(bench.environment, provider_pin=None, disabled=frozenset({"openai"}))
    first = Generations(bench.database, bench.chooser_of(words), ChunkSettings())
    assert (await first.ensure_active(bench.work_id)).vector_store_id is None
    documents = await filled(bench)
    generation = (await changing.want()).generation
    plain = changing.auditor.verify

    async def meanwhile(building: IndexGeneration) -> bool:
        is_complete = await plain(building)
        if len(documents) < 3 + MOST_MENDED + 2:
            documents.append(await bench.upload(f"figs, basket {len(documents)}"))
            await bench.ingest(documents[-1])
        return is_complete

    changing.auditor.verify = meanwhile  # type: ignore[method-assign]
    await changing.run(generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert set(await changing.stored(2)) == set(documents)


async def test_a_build_written_to_both_when_the_switch_comes_goes_live_in_the_new_one(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    generation = (await changing.want(model="n")).generation
    async with bench.session() as session:
        await session.execute(text("update index_generations set dual_writes = true where state = 'building'"))
    new = await bench.upload("fresh figs")
    bench.store.after = gate = asyncio.Event()
    uploading = asyncio.create_task(bench.ingest(new))
    await asyncio.wait_for(bench.store.reached.wait(), 20)

    await changing.run(generation)
    assert await changing.states() == {1: "retired", 2: "active"}
    gate.set()
    await uploading

    assert new in await changing.stored(2)
    await assert_consistent(bench)


async def test_a_retired_generation_goes_after_its_grace_period_with_a_receipt(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    await changing.run((await changing.want(model="n")).generation)

    await changing.removal.start_due()
    await changing.forget(await changing.generation(1))

    assert await changing.states() == {1: "removed", 2: "active"}
    assert await changing.stored(1) == {}
    async with bench.session() as session:
        closed, stores = (
            await session.execute(text("select closed_at is not null, stores from deletion_receipts"))
        ).one()
    assert closed
    assert [one["remaining"] for one in stores] == [0]
    assert (await changing.want()).outcome == "begun"  # it can't be revived any more
    await assert_consistent(bench)


async def test_a_generation_in_its_grace_period_stays(changing: Changing) -> None:
    await filled(changing.bench)
    await changing.run((await changing.want(model="n")).generation)
    changing.removal.grace_s = 3600

    await changing.removal.start_due()

    assert await changing.states() == {1: "retired", 2: "active"}


async def test_more_documents_than_a_page(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    copies = PAGE + 3
    async with bench.session() as session:
        await session.execute(
            text(
                """
                with originals as (select * from kb_documents limit 1), made as (
                    insert into kb_documents (id, work_id, kb_id, external_id, name, content_type, size_bytes, sha256,
                        attributes, revision, live_revision, build, live_build, status, attempts, error_retryable,
                        warnings, chunks_done, chunks_total, chunk_count, token_count, lexical_length)
                    select gen_random_uuid(), o.work_id, o.kb_id, n::text, 'copy', 'text/plain', 1, o.sha256, '{}', 1,
                           1, 1, 1, 'ready', 1, false, '[]', 1, 1, 1, 1, 1
                      from originals o, generate_series(1, :copies) n returning id, work_id)
                insert into kb_spans (document_id, chunk_index, work_id, build, heading_path, token_count, context,
                                      content_sha256, text)
                select id, 0, work_id, 1, '{}', 1, '', sha256(id::text::bytea), id::text from made
                """
            ),
            {"copies": copies},
        )

    await changing.run((await changing.want(model="n")).generation)

    assert await changing.states() == {1: "retired", 2: "active"}
    assert len(await changing.stored(2)) == 3 + copies


async def test_an_environment_that_changed_lets_every_work_be_looked_at_once(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    same, other = changing.under(), changing.under(model="n")
    await same.note_environment()
    await same.run_due()
    assert await same.note_environment() == 0

    assert await other.note_environment() == 1
    await other.run_due()

    assert await changing.states() == {1: "active", 2: "building"}
    assert await other.note_environment() == 0


async def test_a_work_whose_look_crashes_does_not_keep_the_others_from_being_looked_at(changing: Changing) -> None:
    bench = changing.bench
    await filled(bench)
    broken = uuid4()
    async with bench.session() as session:
        of_work = {"w": bench.work_id}
        organization = await session.scalar(text("select organization_id from works where id = :w"), of_work)
    async with bench.database.transaction(Reach.of(broken, organizations=[organization])) as session:
        session.add(Work(id=broken, organization_id=organization, name="B", settings={}))
    await Generations(bench.database, bench.chooser_of(bench.environment), ChunkSettings()).ensure_active(broken)
    async with bench.database.transaction(Reach.of(broken, bench.work_id)) as session:
        await session.execute(text("update works set reconcile_at = now()"))
        await session.execute(
            text("update works set reconcile_at = now() - interval '1 hour' where id = :w"), {"w": broken}
        )
    looking = changing.under(model="n")
    plain = looking.reconcile

    async def crashing(work_id: UUID) -> object:
        if work_id == broken:
            raise ValueError("no error of ours")
        return await plain(work_id)

    looking.reconcile = crashing  # type: ignore[method-assign, assignment]
    await looking.run_due()

    assert await changing.states() == {1: "active", 2: "building"}
    async with bench.database.transaction(Reach.of(broken)) as session:
        assert await session.scalar(text("select reconcile_at > now() from works where id = :w"), {"w": broken})
