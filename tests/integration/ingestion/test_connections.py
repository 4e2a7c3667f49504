"""No connection is checked out while storage, a provider or a store is waited for; `tests/api` does it for requests."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from app.storage.contract import BlobStore, Written
from tests.integration.ingestion.conftest import Bench
from tests.integration.ingestion.moving import active_of, drain_deletion
from tests.unit.ai_providers.openai_server import Request


class Watch:
    """Notes how many connections are checked out whenever something outside is waited for."""

    def __init__(self, bench: Bench) -> None:
        self._pool: Any = bench.database.engine.pool
        self.seen: dict[str, list[int]] = {}

    def look(self, what: str) -> None:
        self.seen.setdefault(what, []).append(self._pool.checkedout())

    def on(self, thing: Any, *names: str) -> None:
        """Look before and after each call of these coroutine methods."""
        for name in names:
            plain = getattr(thing, name)

            async def watched(*args: Any, _plain: Any = plain, _name: str = name, **more: Any) -> Any:
                self.look(_name)
                answer = await _plain(*args, **more)
                self.look(_name)
                return answer

            setattr(thing, name, watched)

    def assert_none(self, *names: str) -> None:
        assert set(self.seen) >= set(names), f"never waited for: {set(names) - set(self.seen)}"
        assert {name: max(counts) for name, counts in self.seen.items() if max(counts)} == {}


class WatchedStorage:
    """Storage in which every block that passes is a look."""

    def __init__(self, storage: BlobStore, watch: Watch) -> None:
        self._storage = storage
        self._watch = watch
        watch.on(storage, "fetch_to", "read_text", "delete")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def write(self, key: str, stream: AsyncIterable[bytes], *, max_bytes: int | None = None) -> Written:
        async def looked() -> AsyncIterator[bytes]:
            async for block in stream:
                self._watch.look("write")
                yield block

        return await self._storage.write(key, looked(), max_bytes=max_bytes)

    async def write_bytes(self, key: str, data: bytes) -> Written:
        self._watch.look("write_bytes")
        written = await self._storage.write_bytes(key, data)
        self._watch.look("write_bytes")
        return written


STORE_CALLS = (
    "write_chunks",
    "prune_chunks",
    "delete_build",
    "delete_by_document",
    "count",
    "fetch_vectors",
)


@pytest.fixture
async def watch(bench: Bench) -> Watch:
    made = Watch(bench)
    await bench.ingest(await bench.upload("opens the instances"))
    made.on(bench.store, *STORE_CALLS)
    storage = WatchedStorage(bench.storage, made)
    bench.pipeline.storage = bench.pipeline.writer.storage = storage
    bench.upkeep.storage = storage
    plain_answer = bench.provider._answer

    async def answered(fault: str | None, request: Request, writer: asyncio.StreamWriter) -> bool:
        made.look("provider")
        return await plain_answer(fault, request, writer)

    bench.provider._answer = answered  # type: ignore[method-assign]
    return made


async def test_ingestion_holds_none(bench: Bench, watch: Watch) -> None:
    document_id = await bench.upload("held by nobody")
    await bench.ingest(document_id)
    await bench.upload("held by nobody, again", document_id)
    await bench.ingest(document_id)

    watch.assert_none("fetch_to", "write_bytes", "provider", "write_chunks", "fetch_vectors", "prune_chunks")


async def test_extraction_holds_none(bench: Bench, watch: Watch) -> None:
    plain = bench.pipeline.extractor.extract

    async def watched(path: Path, *, name: str, declared_type: str | None) -> Any:
        watch.look("extract")
        extracted = await plain(path, name=name, declared_type=declared_type)
        watch.look("extract")
        return extracted

    bench.pipeline.extractor.extract = watched  # type: ignore[method-assign]
    try:
        await bench.ingest(await bench.upload("extracted by nobody's connection"))
    finally:
        bench.pipeline.extractor.extract = plain  # type: ignore[method-assign]

    watch.assert_none("extract")


async def test_deletion_and_upkeep_hold_none(bench: Bench, watch: Watch) -> None:
    document_id = await bench.upload("deleted without a connection")
    await bench.ingest(document_id)
    async with bench.session() as session:
        await session.execute(text("update work_knowledge_chunk_coordinates set prune_pending = true"))
    await bench.upkeep.prune()
    await drain_deletion(bench, document_id, await bench.delete(document_id))
    await bench.upkeep.delete_blobs()

    watch.assert_none("prune_chunks", "delete_by_document", "count", "delete")


async def test_what_is_taken_back_and_reaped_holds_none(bench: Bench, watch: Watch) -> None:
    document_id = await bench.upload("announced and dead")
    generation = await active_of(bench)
    async with bench.session() as session:
        await session.execute(
            text(
                "insert into index_writes (document_id, generation_id, build, work_id, owner, lease_until)"
                " values (:d, :g, 1, :w, :o, now() - interval '1 hour')"
            ),
            {"d": document_id, "g": generation.id, "w": bench.work_id, "o": UUID(int=1)},
        )

    await bench.upkeep.reap_writes()

    assert await bench.announced() == 0
    watch.assert_none("delete_build")
