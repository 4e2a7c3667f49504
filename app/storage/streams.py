"""What happens to bytes on their way into storage: counted, hashed, bounded, in blocks of one size."""

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator

from app.errors import TooLarge
from app.storage.contract import Written

BLOCK_BYTES = 1024 * 1024
THREAD_FROM_BYTES = 1024 * 1024


class CountedStream:
    """A stream regrouped into blocks of exactly `BLOCK_BYTES` (only the last may be shorter), counted and hashed."""

    def __init__(self, source: AsyncIterable[bytes], *, max_bytes: int | None) -> None:
        self._source = source
        self._max_bytes = max_bytes
        self._digest = hashlib.sha256()
        self._size_bytes = 0

    @property
    def written(self) -> Written:
        """Size and hash of what has passed."""
        return Written(self._size_bytes, self._digest.hexdigest())

    async def blocks(self) -> AsyncIterator[bytes]:
        """The blocks, each counted and hashed before it is handed on. Raises: TooLarge; what the source raises."""
        waiting = bytearray()
        async for piece in self._source:
            self._size_bytes += len(piece)
            if self._max_bytes is not None and self._size_bytes > self._max_bytes:
                raise TooLarge(f"The file is larger than {self._max_bytes} bytes.", max_bytes=self._max_bytes)
            waiting += piece
            while len(waiting) >= BLOCK_BYTES:
                block = bytes(memoryview(waiting)[:BLOCK_BYTES])
                del waiting[:BLOCK_BYTES]
                await _hash(self._digest, block)
                yield block
        if waiting:
            await _hash(self._digest, waiting)
            yield bytes(waiting)


async def _hash(digest: "hashlib._Hash", data: bytes | bytearray) -> None:
    """Hash `data`; in a thread from 1 MiB on: hashlib lets go of the interpreter, so the event loop runs on."""
    if len(data) >= THREAD_FROM_BYTES:
        await asyncio.to_thread(digest.update, data)
    else:
        digest.update(data)
