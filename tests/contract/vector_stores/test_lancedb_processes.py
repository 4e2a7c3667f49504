"""Several processes on one directory: nothing twice, nothing lost, and everyone sees what the others did."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.vector_stores.contract import VectorStore
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.testing.base import a_space, chunks_of, direction, random_vectors, scanned
from tests.contract.vector_stores.lancedb_data import LoopbackS3

ROOT = Path(__file__).parents[3]
PROCESSES = 3
SPACE = a_space()

ANOTHER = """
import asyncio, json, sys
from uuid import UUID
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from tests.contract.vector_stores.test_lancedb_processes import act

async def main():
    order = json.loads(sys.argv[1])
    store = LanceDbStore(LanceDbSettings(**order.pop("settings")))
    await store._database.connection()  # imported and connected: from here on all are equally fast
    print("ready", flush=True)
    sys.stdin.readline()
    await act(store, **order)
    await store.close()

asyncio.run(main())
"""


async def act(store: VectorStore, *, deed: str, work: str, documents: list[str], rounds: int) -> None:
    """What another process is told to do, in as many tasks as there are documents."""

    async def one(document: UUID) -> None:
        for build in range(1, rounds + 1):
            chunks = chunks_of(random_vectors(10, seed=build), knowledge_base_id=UUID(int=7))
            if deed == "write":
                await store.write_chunks(UUID(work), document, SPACE, build, chunks)
            elif deed == "upsert":
                await store.upsert_chunks(UUID(work), document, SPACE, build, chunks)
            else:
                await store.delete_by_document(UUID(work), document, SPACE)
                await store.maintain(UUID(work), SPACE)

    await asyncio.gather(*(one(UUID(document)) for document in documents))


async def together(settings: dict[str, Any], orders: list[dict[str, Any]]) -> None:
    """Run each order in a process of its own, all from the same moment."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            ANOTHER,
            json.dumps({"settings": settings, **order}),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for order in orders
    ]
    for process in processes:
        assert process.stdout is not None
        if await process.stdout.readline() != b"ready\n":
            pytest.fail((await process.communicate())[1].decode()[-2_000:])
    ends = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    for process, (_, errors) in zip(processes, ends, strict=True):
        assert process.returncode == 0, errors.decode()[-2_000:]


def order(deed: str, work: UUID, documents: list[UUID], *, rounds: int = 3) -> dict[str, Any]:
    return {"deed": deed, "work": str(work), "documents": [str(one) for one in documents], "rounds": rounds}


async def test_the_same_builds_written_by_several_processes_are_there_once(tmp_path: Path) -> None:
    work, documents = uuid4(), [uuid4() for _ in range(4)]
    await together({"path": str(tmp_path)}, [order("write", work, documents, rounds=5)] * PROCESSES)

    store = LanceDbStore(LanceDbSettings(path=tmp_path))
    assert await scanned(store, work, SPACE) == {(one, build): 10 for one in documents for build in range(1, 6)}
    hits = await store.query_chunks(work, SPACE, vector=direction(0), top_k=1_000)
    assert len({hit.chunk for hit in hits}) == len(hits) == 4 * 5 * 10
    await store.close()


async def test_the_same_holds_where_the_directory_is_a_bucket(loopback_s3: LoopbackS3) -> None:
    work, documents = uuid4(), [uuid4() for _ in range(2)]
    place = loopback_s3.settings()
    settings = {
        **place.model_dump(mode="json", include={"uri", "endpoint", "region"}),
        "storage_options": {name: secret.get_secret_value() for name, secret in place.storage_options.items()},
    }
    await together(settings, [order("write", work, documents)] * 2)

    store = LanceDbStore(place)
    assert await scanned(store, work, SPACE) == {(one, build): 10 for one in documents for build in range(1, 4)}
    await store.close()


async def test_replacing_deleting_and_tidying_side_by_side_lose_nothing(tmp_path: Path) -> None:
    work, mine, theirs, doomed = uuid4(), [uuid4(), uuid4()], [uuid4(), uuid4()], [uuid4(), uuid4()]
    store = LanceDbStore(LanceDbSettings(path=tmp_path))
    await act(store, deed="write", work=str(work), documents=[str(one) for one in doomed], rounds=2)

    await together(
        {"path": str(tmp_path), "keep_versions_s": 10},
        [
            order("upsert", work, mine, rounds=8),
            order("upsert", work, theirs, rounds=8),
            order("delete", work, doomed, rounds=8),
        ],
    )

    assert await scanned(store, work, SPACE) == {(one, 8): 10 for one in mine + theirs}
    await store.close()


async def test_what_another_process_did_is_seen_at_once(tmp_path: Path) -> None:
    work, document = uuid4(), uuid4()
    store = LanceDbStore(LanceDbSettings(path=tmp_path))
    assert await store.query_chunks(work, SPACE, vector=direction(0), top_k=1) == []

    await together({"path": str(tmp_path)}, [order("write", work, [document], rounds=1)])
    assert await store.count(work, SPACE) == 10

    await together({"path": str(tmp_path)}, [order("delete", work, [document], rounds=1)])
    assert await store.query_chunks(work, SPACE, vector=direction(0), top_k=1) == []
    await store.close()


async def test_a_table_dropped_under_its_writers_is_whole_or_gone(tmp_path: Path) -> None:
    """Two stores are two connections, as in two processes."""
    work, space = uuid4(), a_space()
    stores = [LanceDbStore(LanceDbSettings(path=tmp_path)) for _ in range(2)]

    async def writing() -> None:
        for build in range(1, 31):
            await stores[0].write_chunks(work, uuid4(), space, build, chunks_of(random_vectors(5)))

    async def dropping() -> None:
        for _ in range(10):
            await asyncio.sleep(0.02)
            await stores[1].delete_by_work(work, space)

    await asyncio.gather(writing(), dropping())

    left = await scanned(stores[0], work, space)
    hits = await stores[1].query_chunks(work, space, vector=direction(0), top_k=1_000)
    assert len(hits) == sum(left.values())
    await stores[0].delete_by_work(work, space)
    assert [entry.name for entry in tmp_path.iterdir()] == [".locks"]
    for store in stores:
        await store.close()


async def test_a_table_made_anew_by_another_process_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    work, space = uuid4(), a_space()
    ours, theirs = (LanceDbStore(LanceDbSettings(path=tmp_path)) for _ in range(2))
    for build in (1, 2, 3):
        await ours.write_chunks(work, uuid4(), space, build, chunks_of([direction(0)] * 5))
    assert len(await ours.query_chunks(work, space, vector=direction(0), top_k=50)) == 15

    await theirs.delete_by_work(work, space)
    document = uuid4()
    for build in (4, 5, 6):  # as many versions as before
        await theirs.write_chunks(work, document, space, build, chunks_of([direction(1)]))

    hits = await ours.query_chunks(work, space, vector=direction(1), top_k=50)
    assert {hit.chunk.build for hit in hits} == {4, 5, 6}
    await ours.write_chunks(work, document, space, 7, chunks_of([direction(1)]))
    assert await theirs.count(work, space) == 4
    await ours.close()
    await theirs.close()
