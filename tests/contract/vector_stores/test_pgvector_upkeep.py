"""Upkeep of the pgvector store: indexes come when a space has grown, and go with it."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.vector_stores.contract import Space
from app.vector_stores.pgvector import PgvectorSettings, PgvectorStore
from app.vector_stores.testing.base import chunks_of, direction, scanned
from tests.contract.vector_stores.pgvector_data import DIMS, SPACE, ann_indexes, clustered, do, fill, look

SETTINGS = PgvectorSettings(hnsw_threshold_rows=50)  # 600 rows of this width
STRAY_CHUNKS = "SELECT count(*) FROM pgvector_chunks WHERE space_no NOT IN (SELECT space_no FROM pgvector_spaces)"


@pytest.fixture
def dsn(own_pgvector_dsn: str) -> str:
    return own_pgvector_dsn


def a_store(dsn: str, **changes: Any) -> PgvectorStore:
    return PgvectorStore(SETTINGS.model_copy(update=changes), own_dsn=dsn)


def state_of(dsn: str, work: UUID) -> tuple[Any, ...]:
    return look(dsn, "SELECT index_state, index_kind, row_count FROM pgvector_spaces WHERE work_id = %s", work)[0]


def definition(dsn: str, name: str) -> str:
    return str(look(dsn, "SELECT pg_get_indexdef(to_regclass(%s))", name)[0][0])


async def test_a_space_is_promoted_when_it_has_grown_and_not_before(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    await fill(store, work, clustered(600))
    await store.maintain(work, SPACE)
    assert (ann_indexes(dsn), state_of(dsn, work)) == ([], ("none", None, 600))

    await fill(store, work, clustered(1))
    await store.maintain(work, SPACE)

    assert state_of(dsn, work) == ("ready", "hnsw", 601)
    (name,) = ann_indexes(dsn)
    for part in ("USING hnsw", f"halfvec({DIMS})", "halfvec_cosine_ops", "ef_construction='200'", "WHERE (space_no ="):
        assert part in definition(dsn, name)
    await store.close()


async def test_a_space_that_has_shrunk_loses_its_index(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    documents = await fill(store, work, clustered(700))
    await store.maintain(work, SPACE)

    for document in documents[2:]:
        await store.delete_by_document(work, document, SPACE)
    await store.maintain(work, SPACE)

    assert (ann_indexes(dsn), state_of(dsn, work)) == ([], ("none", None, 200))
    await store.close()


async def test_upkeep_without_cause_leaves_the_index_as_it_is(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    await fill(store, work, clustered(700))
    await store.maintain(work, SPACE)
    before = look(dsn, "SELECT relfilenode FROM pg_class WHERE relname ~ '^pgvector_ann_'")

    await store.maintain(work, SPACE)

    assert look(dsn, "SELECT relfilenode FROM pg_class WHERE relname ~ '^pgvector_ann_'") == before
    await store.close()


async def test_an_index_full_of_dead_rows_is_rebuilt_smaller(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    documents = await fill(store, work, clustered(2_000))
    await store.maintain(work, SPACE)
    size = "SELECT pg_relation_size(oid) FROM pg_class WHERE relname ~ '^pgvector_ann_'"
    before = look(dsn, size)

    for document in documents[:8]:
        await store.delete_by_document(work, document, SPACE)
    await store.maintain(work, SPACE)

    assert look(dsn, size) < before
    assert state_of(dsn, work) == ("ready", "hnsw", 1_200)
    assert len(ann_indexes(dsn)) == 1
    await store.close()


async def test_an_invalid_index_is_thrown_away_and_built_again(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    await fill(store, work, clustered(700))
    await store.maintain(work, SPACE)
    (name,) = ann_indexes(dsn)
    do(dsn, f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass")
    do(dsn, "UPDATE pgvector_spaces SET index_state = 'building'")

    await store.maintain(work, SPACE)

    assert look(dsn, "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", name) == [(True,)]
    assert state_of(dsn, work)[0] == "ready"
    await store.close()


async def test_a_build_that_never_began_is_begun_again(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    await fill(store, work, clustered(700))
    do(dsn, "UPDATE pgvector_spaces SET index_state = 'building'")
    assert len(await store.query_chunks(work, SPACE, vector=clustered(1)[0].tolist(), top_k=10)) == 10

    await store.maintain(work, SPACE)

    assert state_of(dsn, work)[0] == "ready"
    await store.close()


async def test_another_kind_of_index_replaces_the_first(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    await fill(store, work, clustered(700))
    await store.maintain(work, SPACE)
    await store.close()
    other = a_store(dsn, index="ivfflat")

    await other.maintain(work, SPACE)

    (name,) = ann_indexes(dsn)
    assert "USING ivfflat" in definition(dsn, name)
    assert state_of(dsn, work)[1] == "ivfflat"
    await other.close()


async def test_no_more_spaces_are_promoted_than_allowed(dsn: str) -> None:
    store, works = a_store(dsn, max_promoted=1), [uuid4(), uuid4()]
    for work in works:
        await fill(store, work, clustered(700))

    for work in works:
        await store.maintain(work, SPACE)

    assert [state_of(dsn, work)[0] for work in works] == ["ready", "none"]
    await store.close()


async def test_several_spaces_can_be_kept_up_at_the_same_time(dsn: str) -> None:
    store, works = a_store(dsn), [uuid4() for _ in range(4)]
    for work in works:
        await fill(store, work, clustered(700))

    await asyncio.gather(*(store.maintain(work, SPACE) for work in [*works, *works]))

    assert [state_of(dsn, work)[0] for work in works] == ["ready"] * 4
    await store.close()


async def test_a_bulk_load_is_followed_by_fresh_statistics(dsn: str) -> None:
    store, work = a_store(dsn), uuid4()
    await fill(store, work, clustered(1_200))
    analyzed = "SELECT last_analyze IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'pgvector_chunks'"
    assert look(dsn, analyzed) == [(False,)]

    await store.maintain(work, SPACE)

    assert look(dsn, "SELECT count(*) > 0 FROM pg_stats WHERE tablename = 'pgvector_chunks'") == [(True,)]
    await store.close()


async def test_a_dropped_space_leaves_no_row_no_index_and_no_number(dsn: str) -> None:
    store, work, neighbour = a_store(dsn), uuid4(), uuid4()
    await fill(store, work, clustered(700))
    await fill(store, neighbour, clustered(5))
    await store.maintain(work, SPACE)

    await store.delete_by_work(work, SPACE)

    assert ann_indexes(dsn) == []
    assert look(dsn, "SELECT work_id FROM pgvector_spaces") == [(neighbour,)]
    assert look(dsn, "SELECT count(*) FROM pgvector_chunks") == [(5,)]
    await store.close()


async def test_an_index_whose_space_is_gone_goes_with_the_next_upkeep(dsn: str) -> None:
    store, work, neighbour = a_store(dsn), uuid4(), uuid4()
    await fill(store, work, clustered(700))
    await store.maintain(work, SPACE)
    do(dsn, f"DELETE FROM pgvector_chunks; DELETE FROM pgvector_spaces WHERE work_id = '{work}'")

    await store.maintain(neighbour, SPACE)

    assert ann_indexes(dsn) == []
    await store.close()


async def test_a_space_dropped_and_made_again_elsewhere_is_found_under_its_new_number(dsn: str) -> None:
    here, elsewhere, work, space = a_store(dsn), a_store(dsn), uuid4(), Space(1, "model", 8)
    await here.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))
    assert len(await here.query_chunks(work, space, vector=direction(0), top_k=5)) == 1

    await elsewhere.delete_by_work(work, space)
    assert await here.query_chunks(work, space, vector=direction(0), top_k=5) == []
    await elsewhere.write_chunks(work, uuid4(), space, 2, chunks_of([direction(0)] * 2))

    hits = await here.query_chunks(work, space, vector=direction(0), top_k=5)
    assert [hit.chunk.build for hit in hits] == [2, 2]
    await here.close()
    await elsewhere.close()


async def test_writers_beside_a_removal_leave_no_chunk_without_a_space(dsn: str) -> None:
    here, elsewhere, work, space = a_store(dsn), a_store(dsn), uuid4(), Space(1, "model", 8)

    async def write(at: int) -> None:
        await here.write_chunks(work, uuid4(), space, at, chunks_of([direction(at)] * 20))

    for _ in range(5):
        await asyncio.gather(
            *(write(at) for at in range(10)), *(elsewhere.delete_by_work(work, space) for _ in range(3))
        )
        assert look(dsn, STRAY_CHUNKS) == [(0,)]

    await elsewhere.delete_by_work(work, space)
    assert look(dsn, "SELECT count(*) FROM pgvector_chunks") == [(0,)]
    await here.close()
    await elsewhere.close()


async def test_a_scan_of_many_pages_names_every_build_once(dsn: str) -> None:
    store, work, space = a_store(dsn), uuid4(), Space(1, "model", 8)
    await store.write_chunks(work, uuid4(), space, 1, chunks_of([direction(0)]))
    do(
        dsn,
        "INSERT INTO pgvector_chunks"
        " SELECT work_id, space_no, gen_random_uuid(), n % 3, 0, knowledge_base_id, embedding"
        " FROM pgvector_chunks, generate_series(1, 2500) AS n",
    )

    assert len(await scanned(store, work, space)) == 2_501

    await store.close()
