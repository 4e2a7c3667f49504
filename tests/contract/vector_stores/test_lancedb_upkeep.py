"""Upkeep of LanceDB's tables: files, versions, indexes, and the readers who are in the middle of something."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest

from app.vector_stores.contract import Space, VectorStoreUnavailable
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.lancedb.maintenance import DOCUMENTS, VECTORS
from app.vector_stores.lancedb.places import Place
from app.vector_stores.testing.base import chunks_of, random_vectors, scanned

DIMS = 32
SPACE = Space(1, "model", DIMS)
ROWS = 4_000


def clustered(count: int, *, seed: int = 1) -> Any:
    """(count, DIMS) float64: vectors around forty centres, as texts of a few topics are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(40, DIMS))
    return centres[random.integers(0, 40, size=count)] + 0.5 * random.normal(size=(count, DIMS))


async def fill(store: LanceDbStore, work: UUID, vectors: Any, *, per_document: int = 500) -> list[UUID]:
    documents = []
    for first in range(0, len(vectors), per_document):
        documents.append(uuid4())
        part = chunks_of(vectors[first : first + per_document].tolist(), first=first)
        await store.write_chunks(work, documents[-1], SPACE, 1, part)
    return documents


async def table_of(store: LanceDbStore, work: UUID) -> Any:
    return await (await store._database.connection()).open_table(Place(work, SPACE).table)


async def indexes(store: LanceDbStore, work: UUID) -> set[str]:
    return {index.name for index in await (await table_of(store, work)).list_indices()}


def files_of(directory: Path, work: UUID) -> int:
    return sum(1 for path in (directory / f"{Place(work, SPACE).table}.lance").rglob("*") if path.is_file())


async def test_upkeep_leaves_few_files_of_many_writes(tmp_path: Path) -> None:
    store, work, document = LanceDbStore(LanceDbSettings(path=tmp_path)), uuid4(), uuid4()
    for build in range(1, 21):
        await store.upsert_chunks(work, document, SPACE, build, chunks_of(random_vectors(5, dims=DIMS)))
    many = files_of(tmp_path, work)

    await store.maintain(work, SPACE)
    assert (await (await table_of(store, work)).stats())["fragment_stats"]["num_fragments"] == 1
    assert files_of(tmp_path, work) >= many  # older versions are still readable
    store._maintenance._settings = store._settings.model_copy(update={"keep_versions_s": 0.001})
    await store.maintain(work, SPACE)

    assert files_of(tmp_path, work) <= 6 < 60 < many
    assert await scanned(store, work, SPACE) == {(document, 20): 5}
    await store.close()


async def test_upkeep_of_a_quiet_table_changes_nothing(tmp_path: Path) -> None:
    store, work = LanceDbStore(LanceDbSettings(path=tmp_path, index_after_rows=50)), uuid4()
    await fill(store, work, clustered(1_000))
    await store.maintain(work, SPACE)
    version = await (await table_of(store, work)).version()

    for _ in range(3):
        await store.maintain(work, SPACE)

    assert await (await table_of(store, work)).version() == version
    await store.close()


async def test_a_large_table_is_indexed_and_a_small_one_is_not(tmp_path: Path) -> None:
    store, work = LanceDbStore(LanceDbSettings(path=tmp_path, index_after_rows=100)), uuid4()
    documents = await fill(store, work, clustered(1_000))
    await store.maintain(work, SPACE)
    assert await indexes(store, work) == set()

    documents += await fill(store, work, clustered(1_000, seed=2))  # more than 100 * 384 / 32 = 1,200
    await store.maintain(work, SPACE)
    assert await indexes(store, work) == {VECTORS, DOCUMENTS}

    for document in documents[1:]:
        await store.delete_by_document(work, document, SPACE)
    await store.maintain(work, SPACE)
    assert await indexes(store, work) == set()
    await store.close()


async def both_kinds(directory: Path, *, probes: int) -> "Both":
    settings = LanceDbSettings(path=directory, index_after_rows=10, rows_per_list=100, probes=probes)
    indexed, exact = LanceDbStore(settings), LanceDbStore(LanceDbSettings(path=directory))
    both = Both(indexed, exact)
    vectors = np.random.default_rng(1).normal(size=(ROWS, DIMS))  # neighbours lie in many lists
    both.documents = await fill(indexed, both.work, vectors)
    await fill(exact, both.copy, vectors)
    await indexed.maintain(both.work, SPACE)
    assert VECTORS in await indexes(indexed, both.work)
    return both


class Both:
    """The same vectors in a table with an index of forty lists and in one without."""

    def __init__(self, indexed: LanceDbStore, exact: LanceDbStore) -> None:
        self.indexed, self.exact = indexed, exact
        self.work, self.copy = uuid4(), uuid4()
        self.documents: list[UUID] = []

    async def close(self) -> None:
        await self.indexed.close()
        await self.exact.close()


async def test_an_index_of_which_every_list_is_asked_answers_as_a_scan(tmp_path: Path) -> None:
    both = await both_kinds(tmp_path, probes=1_000)

    for question in random_vectors(10, seed=3, dims=DIMS):
        for top_k in (1, 10, 300, ROWS):
            found = await both.indexed.query_chunks(both.work, SPACE, vector=question, top_k=top_k)
            wanted = await both.exact.query_chunks(both.copy, SPACE, vector=question, top_k=top_k)
            assert {hit.chunk.chunk_index for hit in found} == {hit.chunk.chunk_index for hit in wanted}
            assert [hit.raw_score for hit in found] == pytest.approx([hit.raw_score for hit in wanted], abs=1e-5)
    await both.close()


async def test_an_index_of_which_few_lists_are_asked_finds_most_and_is_never_short(tmp_path: Path) -> None:
    both = await both_kinds(tmp_path, probes=12)
    shares = []

    for question in random_vectors(10, seed=3, dims=DIMS):
        found = await both.indexed.query_chunks(both.work, SPACE, vector=question, top_k=10)
        wanted = await both.exact.query_chunks(both.copy, SPACE, vector=question, top_k=10)
        shares.append(len({h.chunk.chunk_index for h in found} & {h.chunk.chunk_index for h in wanted}) / 10)
        for top_k in (300, 1_000, ROWS):
            assert len(await both.indexed.query_chunks(both.work, SPACE, vector=question, top_k=top_k)) == top_k
        for hint in (None, 1, 500, ROWS):  # beyond the limit the index is asked, and has to find the rest of them
            hits = await both.indexed.query_chunks(
                both.work, SPACE, vector=question, top_k=400, document_ids=both.documents[3:4], eligible=hint
            )
            assert {hit.chunk.document_id for hit in hits} == {both.documents[3]}
            assert len(hits) == 400

    assert sum(shares) / len(shares) >= 0.8
    await both.close()


async def test_a_part_of_an_indexed_table_is_scanned_where_it_is_small(tmp_path: Path) -> None:
    both = await both_kinds(tmp_path, probes=1)
    of_document = {document: at for at, document in enumerate(both.documents)}

    for question in random_vectors(10, seed=3, dims=DIMS):
        for document in both.documents[:3]:
            for hint in (None, 100):
                found = await both.indexed.query_chunks(
                    both.work, SPACE, vector=question, top_k=5, document_ids=[document], eligible=hint
                )
                everything = await both.exact.query_chunks(both.copy, SPACE, vector=question, top_k=ROWS)
                wanted = [h for h in everything if h.chunk.chunk_index // 500 == of_document[document]][:5]
                assert [h.chunk.chunk_index for h in found] == [h.chunk.chunk_index for h in wanted]
    await both.close()


async def test_rows_written_after_the_index_was_built_are_found(tmp_path: Path) -> None:
    store, work = LanceDbStore(LanceDbSettings(path=tmp_path, index_after_rows=10)), uuid4()
    await fill(store, work, clustered(ROWS))
    await store.maintain(work, SPACE)
    odd = [5.0] + [0.0] * (DIMS - 1)
    document = uuid4()

    await store.write_chunks(work, document, SPACE, 1, chunks_of([odd]))

    (hit,) = await store.query_chunks(work, SPACE, vector=odd, top_k=1)
    assert hit.chunk.document_id == document
    await store.delete_by_document(work, document, SPACE)
    assert document not in {h.chunk.document_id for h in await store.query_chunks(work, SPACE, vector=odd, top_k=50)}
    await store.close()


async def test_an_index_with_many_parts_is_built_anew(tmp_path: Path) -> None:
    store, work = LanceDbStore(LanceDbSettings(path=tmp_path, index_after_rows=10)), uuid4()
    await fill(store, work, clustered(ROWS))
    parts = []
    for seed in range(8):
        await fill(store, work, clustered(500, seed=seed))
        await store.maintain(work, SPACE)
        parts.append((await (await table_of(store, work)).index_stats(VECTORS)).num_indices)

    assert max(parts) <= 5
    assert await store.count(work, SPACE) == ROWS + 8 * 500
    await store.close()


async def test_a_key_with_indexes_beside_it_stays_unique(tmp_path: Path) -> None:
    """With an index on the key itself LanceDB no longer notices that two commits insert the same."""
    stores = [LanceDbStore(LanceDbSettings(path=tmp_path, index_after_rows=10)) for _ in range(4)]
    work, document = uuid4(), uuid4()
    await fill(stores[0], work, clustered(1_000))
    await stores[0].maintain(work, SPACE)
    assert await indexes(stores[0], work) == {VECTORS, DOCUMENTS}
    chunks = chunks_of(random_vectors(50, dims=DIMS))

    await asyncio.gather(*(store.write_chunks(work, document, SPACE, 1, chunks) for store in stores))

    assert await stores[0].count(work, SPACE, document) == 50
    for store in stores:
        await store.close()


async def test_readers_and_writers_go_on_while_a_table_is_tidied(tmp_path: Path) -> None:
    settings = LanceDbSettings(path=tmp_path, index_after_rows=10)
    reader, writer, keeper = (LanceDbStore(settings) for _ in range(3))
    work, kept, busy = uuid4(), uuid4(), uuid4()
    vectors = random_vectors(40, dims=DIMS)
    await reader.write_chunks(work, kept, SPACE, 1, chunks_of(vectors))
    await fill(reader, work, clustered(1_500))
    done = asyncio.Event()

    async def reading() -> int:
        answers = 0
        while not done.is_set():
            hits = await reader.query_chunks(work, SPACE, vector=vectors[0], top_k=40, document_ids=[kept])
            assert len(hits) == 40
            assert await reader.count(work, SPACE, kept) == 40
            answers += 1
        return answers

    async def writing() -> None:
        for build in range(1, 25):
            await writer.upsert_chunks(work, busy, SPACE, build, chunks_of(random_vectors(10, dims=DIMS)))
        done.set()

    async def keeping() -> None:
        keeper._maintenance._settings = settings.model_copy(update={"keep_versions_s": 2.0})
        while not done.is_set():
            try:
                await keeper.maintain(work, SPACE)
            except VectorStoreUnavailable:
                continue  # writers were faster, again and again: the next turn will do it
            await asyncio.sleep(0)

    answers, _, _ = await asyncio.gather(reading(), writing(), keeping())

    assert answers > 10
    assert (await scanned(reader, work, SPACE))[busy, 24] == 10
    for store in (reader, writer, keeper):
        await store.close()


async def test_upkeep_is_done_by_one_process_at_a_time(tmp_path: Path) -> None:
    ours, theirs, work = *(LanceDbStore(LanceDbSettings(path=tmp_path)) for _ in range(2)), uuid4()
    await ours.write_chunks(work, uuid4(), SPACE, 1, chunks_of(random_vectors(5, dims=DIMS)))
    await ours.write_chunks(work, uuid4(), SPACE, 1, chunks_of(random_vectors(5, dims=DIMS)))
    version = await (await table_of(ours, work)).version()

    async with theirs._database.locks.if_free(f"upkeep {Place(work, SPACE).table}") as free:
        assert free
        await ours.maintain(work, SPACE)
        assert await (await table_of(ours, work)).version() == version
    await ours.maintain(work, SPACE)

    assert await (await table_of(ours, work)).version() > version
    await ours.close()
    await theirs.close()


async def test_a_large_write_leaves_the_event_loop_free(tmp_path: Path) -> None:
    store, work = LanceDbStore(LanceDbSettings(path=tmp_path)), uuid4()
    await store.write_chunks(work, uuid4(), SPACE, 1, chunks_of(random_vectors(1, dims=DIMS)))
    wide = Space(2, "model", 384)
    chunks = chunks_of(random_vectors(2_000, dims=384))
    pauses: list[float] = []

    async def watch() -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.005)
            pauses.append(loop.time() - before)

    watching = asyncio.create_task(watch())
    await store.write_chunks(work, uuid4(), wide, 1, chunks)
    await store.query_chunks(work, wide, vector=chunks[0].vector, top_k=1_000)
    watching.cancel()

    assert sorted(pauses)[-3] < 0.25  # a busy machine takes a pause or two of its own
    await store.close()
