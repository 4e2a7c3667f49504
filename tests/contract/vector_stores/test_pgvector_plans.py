"""Which plan answers a question, and that the answer is right whichever it is."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from app.vector_stores.base import Matrix
from app.vector_stores.contract import QueryHit
from app.vector_stores.pgvector import PgvectorSettings, PgvectorStore, statements
from app.vector_stores.pgvector.catalogue import SpaceRow, find_space
from app.vector_stores.pgvector.connections import Connections, Knobs
from app.vector_stores.pgvector.searching import Question, index_knobs
from tests.contract.vector_stores.pgvector_data import (
    DIMS,
    SPACE,
    ann_indexes,
    clustered,
    do,
    fill,
    look,
    pgvector_database,
)

ROWS = 4_000
SETTINGS = PgvectorSettings(hnsw_threshold_rows=50)  # 600 rows of this width
VECTORS = clustered(ROWS)
UNIT = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)


class Loaded:
    """A promoted space beside another Work's rows."""

    def __init__(self, dsn: str) -> None:
        self.dsn, self.work = dsn, uuid4()
        self.documents: list[UUID] = []

    def store(self, settings: PgvectorSettings = SETTINGS) -> PgvectorStore:
        return PgvectorStore(settings, own_dsn=self.dsn)

    def question(self, vector: Matrix, **restriction: Any) -> Question:
        return Question(self.work, SPACE, vector.astype(np.float32), 10, None, restriction.get("document_ids"))

    async def explain(self, sql: str, question: Question, knobs: Knobs) -> str:
        connections = Connections(self.dsn, direct_dsn=self.dsn, role="stackroom_app", pool_size=1, pool_wait_s=5)
        async with connections.transaction(self.work, timeout_s=10, knobs=knobs) as connection:
            cursor = await connection.execute(f"EXPLAIN {sql}", {**question.values(), "top_k": 10})
            plan = "\n".join(line for (line,) in await cursor.fetchall())
        await connections.close()
        return plan

    async def row(self) -> SpaceRow:
        connections = Connections(self.dsn, direct_dsn=self.dsn, role=None, pool_size=1, pool_wait_s=5)
        async with connections.transaction(self.work, timeout_s=10) as connection:
            row = await find_space(connection, self.work, SPACE)
        await connections.close()
        assert row is not None
        return row


@pytest.fixture(scope="module")
async def loaded() -> Loaded:
    loaded = Loaded(pgvector_database())
    store = loaded.store()
    loaded.documents = await fill(store, loaded.work, VECTORS)
    for seed in range(20):
        await fill(store, uuid4(), clustered(200, seed=50 + seed))
    await store.maintain(loaded.work, SPACE)
    await store.close()
    do(loaded.dsn, "ANALYZE pgvector_chunks")
    return loaded


def exact(question: Any, rows: Any = UNIT, top_k: int = 10) -> list[int]:
    order: list[int] = np.argsort(-(rows @ question), kind="stable")[:top_k].tolist()
    return order


def indexes_of(hits: list[QueryHit]) -> list[int]:
    return [hit.chunk.chunk_index for hit in hits]


async def walks(dsn: str, name: str) -> int:
    """How often the index has been walked, once the server has counted."""
    do(dsn, "SELECT pg_stat_force_next_flush()")
    await asyncio.sleep(1.1)  # backends report at most once a second
    return int(look(dsn, "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = %s", name)[0][0])


async def test_an_exact_question_reads_the_spaces_rows_by_key_and_no_vector_index(loaded: Loaded) -> None:
    row = await loaded.row()

    plan = await loaded.explain(statements.exact_query(row.space_no, ""), loaded.question(UNIT[0]), Knobs())

    assert "pgvector_ann" not in plan
    assert row.has_index

    small = loaded.question(UNIT[0], document_ids=loaded.documents[:1])
    plan = await loaded.explain(statements.exact_query(row.space_no, small.where), small, Knobs())
    assert "pk_pgvector_chunks" in plan
    assert "Seq Scan on pgvector_chunks" not in plan


async def test_a_small_spaces_rows_are_read_by_key(loaded: Loaded) -> None:
    ((space_no, work),) = look(loaded.dsn, "SELECT space_no, work_id FROM pgvector_spaces WHERE row_count = 0 LIMIT 1")
    question = Question(work, SPACE, UNIT[0].astype(np.float32), 10, None, None)

    plan = await loaded.explain(statements.exact_query(space_no, ""), question, Knobs())

    assert "Seq Scan on pgvector_chunks" not in plan
    assert "pgvector_ann" not in plan
    assert f"(space_no = {space_no})" in plan


async def test_a_promoted_spaces_question_walks_its_own_index_without_sorting(loaded: Loaded) -> None:
    row, question = await loaded.row(), loaded.question(UNIT[0])

    plan = await loaded.explain(
        statements.index_query(row.space_no, DIMS, ""), question, index_knobs(SETTINGS, row, 10)
    )

    assert f"Index Scan using pgvector_ann_{row.space_no}" in plan
    assert "Sort" not in plan


async def test_a_promoted_space_answers_nearly_as_well_as_an_exact_scan(loaded: Loaded) -> None:
    store, found = loaded.store(), 0
    questions = UNIT[::200] + 0.05 * np.random.default_rng(3).normal(size=(20, DIMS))

    for question in questions:
        hits = await store.query_chunks(loaded.work, SPACE, vector=question.tolist(), top_k=10)
        found += len(set(indexes_of(hits)) & set(exact(question)))

    assert found / (10 * len(questions)) >= 0.98
    await store.close()


async def test_questions_about_a_neighbours_topics_get_all_their_hits(loaded: Loaded) -> None:
    store = loaded.store()

    for question in clustered(10, seed=50):
        hits = await store.query_chunks(loaded.work, SPACE, vector=question.tolist(), top_k=50, eligible=ROWS)
        assert len(hits) == 50

    await store.close()


async def test_an_index_walk_that_comes_back_short_is_replaced_by_the_exact_answer(loaded: Loaded) -> None:
    store, allowed = loaded.store(), loaded.documents[7]
    rows = UNIT[700:800]
    farthest = -rows.mean(axis=0)

    hits = await store.query_chunks(
        loaded.work, SPACE, vector=farthest.tolist(), top_k=100, document_ids=[allowed], eligible=100_000
    )

    assert len(hits) == 100
    assert indexes_of(hits[:5]) == [700 + at for at in exact(farthest, rows, 5)]
    await store.close()


async def test_with_few_eligible_chunks_the_answer_is_exact_though_there_is_an_index(loaded: Loaded) -> None:
    store, allowed = loaded.store(), loaded.documents[:3]
    before = await walks(loaded.dsn, f"pgvector_ann_{(await loaded.row()).space_no}")

    for hint in (300, None):
        hits = await store.query_chunks(
            loaded.work, SPACE, vector=UNIT[1500].tolist(), top_k=10, document_ids=allowed, eligible=hint
        )
        assert indexes_of(hits) == exact(UNIT[1500], UNIT[:300])

    await store.close()
    assert await walks(loaded.dsn, f"pgvector_ann_{(await loaded.row()).space_no}") == before


async def test_the_index_is_walked_even_where_the_server_is_set_to_generic_plans(loaded: Loaded) -> None:
    database = look(loaded.dsn, "SELECT current_database()")[0][0]
    do(loaded.dsn, f"ALTER DATABASE {database} SET plan_cache_mode = force_generic_plan")
    name = f"pgvector_ann_{(await loaded.row()).space_no}"
    before = await walks(loaded.dsn, name)
    store = loaded.store(SETTINGS.model_copy(update={"pool_size": 1}))

    for _ in range(15):
        await store.query_chunks(loaded.work, SPACE, vector=UNIT[0].tolist(), top_k=10)

    await store.close()
    assert await walks(loaded.dsn, name) == before + 15
    do(loaded.dsn, f"ALTER DATABASE {database} RESET plan_cache_mode")


async def test_ties_beyond_the_margin_are_ordered_as_everywhere(loaded: Loaded) -> None:
    store, work = loaded.store(), uuid4()
    documents = await fill(store, work, np.tile(VECTORS[:1], (700, 1)), per_document=100)
    await store.maintain(work, SPACE)

    hits = await store.query_chunks(work, SPACE, vector=VECTORS[0].tolist(), top_k=10)

    first = min(documents)
    assert {hit.chunk.document_id for hit in hits} == {first}
    assert indexes_of(hits) == [documents.index(first) * 100 + at for at in range(10)]
    await store.delete_by_work(work, SPACE)
    await store.close()
    assert len(ann_indexes(loaded.dsn)) == 1
