"""A backend that goes away in the middle, and comes back: what is said meanwhile, and what is there afterwards."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import pytest

from app.vector_stores.contract import Space, VectorStore, VectorStoreUnavailable
from app.vector_stores.testing.base import ContractBase, a_space, chunks_of, direction, random_vectors, scanned

Operation = Callable[[VectorStore, UUID, UUID, Space], Coroutine[Any, Any, object]]
OPERATIONS: dict[str, Operation] = {
    "write": lambda store, work, one, space: store.write_chunks(work, one, space, 2, chunks_of([direction(1)])),
    "upsert": lambda store, work, one, space: store.upsert_chunks(work, one, space, 2, chunks_of([direction(1)])),
    "prune": lambda store, work, one, space: store.prune_chunks(work, one, space, 9),
    "delete a build": lambda store, work, one, space: store.delete_build(work, one, space, 1),
    "delete a document": lambda store, work, one, space: store.delete_by_document(work, one, space),
    "delete a space": lambda store, work, _, space: store.delete_by_work(work, space),
    "query": lambda store, work, _, space: store.query_chunks(work, space, vector=direction(0), top_k=3),
    "count": lambda store, work, _, space: store.count(work, space),
    "scan": lambda store, work, _, space: scanned(store, work, space),
}


@dataclass
class Interruptible:
    """A store whose backend can be taken away, so that nothing answers, and given back."""

    store: VectorStore
    go_away: Callable[[], Awaitable[None]]
    come_back: Callable[[], Awaitable[None]]


class OutageContract(ContractBase):
    """While the backend is away, every promise fails as transient; afterwards it is kept again."""

    async def build_interruptible_store(self) -> Interruptible | None:
        """A store with a switch for its backend (`Relay` is one); None where there is nothing to be away."""
        return None

    @asynccontextmanager
    async def interruptible(self) -> AsyncIterator[Interruptible]:
        """The store, closed afterwards and its backend gone; or the test skips."""
        found = await self.build_interruptible_store()
        if found is None:
            pytest.skip("build_interruptible_store is not given: there is nothing to be away")
        try:
            yield found
        finally:
            await found.store.close()
            await found.go_away()

    async def recovered(self, store: VectorStore) -> None:
        """Wait until the store has found its backend again; fail when that takes too long."""
        deadline = asyncio.get_running_loop().time() + self.recovers_within_s
        while not (back := await store.is_available()).ok:
            assert asyncio.get_running_loop().time() < deadline, back.reason
            await asyncio.sleep(0.1)

    async def test_a_backend_that_goes_away_is_unavailable_until_it_is_back(self) -> None:
        async with self.interruptible() as backend:
            store, work, document, space = backend.store, uuid4(), uuid4(), a_space()
            await store.write_chunks(work, document, space, 1, chunks_of(random_vectors(5)))

            await backend.go_away()

            away = await store.is_available()
            assert not away.ok
            assert away.reason
            assert away.temporary
            for name, operation in OPERATIONS.items():
                try:
                    await operation(store, work, document, space)
                except VectorStoreUnavailable:
                    continue
                pytest.fail(f"{name}: no word of the backend's absence")

            await backend.come_back()

            await self.recovered(store)
            assert await scanned(store, work, space) == {(document, 1): 5}
            await store.upsert_chunks(work, document, space, 2, chunks_of(random_vectors(3)))
            assert await scanned(store, work, space) == {(document, 2): 3}

    async def test_a_write_that_was_cut_off_can_be_repeated(self) -> None:
        async with self.interruptible() as backend:
            store, work, document, space = backend.store, uuid4(), uuid4(), a_space(dims=64)
            chunks = chunks_of(random_vectors(store.manifest.store.max_batch, dims=64))
            await store.write_chunks(work, document, space, 1, chunks[:1])

            for patience_s in (0.0, 0.005, 0.05):
                writing = asyncio.create_task(store.write_chunks(work, document, space, 2, chunks))
                await asyncio.sleep(patience_s)
                await backend.go_away()
                with suppress(VectorStoreUnavailable):  # it may have been faster
                    await writing
                await backend.come_back()
                await self.recovered(store)
            await store.write_chunks(work, document, space, 2, chunks)
            await store.prune_chunks(work, document, space, 2)

            assert await scanned(store, work, space) == {(document, 2): len(chunks)}
            hits = await store.query_chunks(work, space, vector=direction(0, dims=64), top_k=len(chunks))
            assert sorted(hit.chunk.chunk_index for hit in hits) == list(range(len(chunks)))


class Relay:
    """A loopback port in front of a backend's: what a test cuts and mends.

    `connect` opens a connection to the backend (`asyncio.open_connection(host, port)`, or a Unix socket's).
    """

    def __init__(self, connect: Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]) -> None:
        self._connect = connect
        self._server: asyncio.Server | None = None
        self._conversations: set[asyncio.Task[None]] = set()
        self.port = 0

    async def open(self) -> None:
        """Listen; after `close`, on the same port again."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening, and cut every conversation in the middle of its sentence."""
        if self._server is not None:
            self._server.close()
        for conversation in list(self._conversations):
            conversation.cancel()
        await asyncio.gather(*self._conversations, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._converse(reader, writer))
        self._conversations.add(task)
        task.add_done_callback(self._conversations.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            there_reader, there_writer = await self._connect()
            writers.append(there_writer)
            await asyncio.gather(_pass_on(reader, there_writer), _pass_on(there_reader, writer))
        except OSError:
            return
        finally:
            for one in writers:
                one.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
