"""The contract between the service and object storage: blobs under keys invented from ids, never from a user's text."""

import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.errors import Misconfigured, NotFound, Unavailable

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
MAX_KEY_LENGTH = 512


class BlobNotFound(NotFound):
    """The stored file is not there."""

    code = "blob_not_found"


class StorageUnavailable(Unavailable):
    """The object storage does not answer; try again in a few seconds."""

    code = "storage_unavailable"


class StorageMisconfigured(Misconfigured):
    """The object storage refuses our settings, credentials or permissions."""

    code = "storage_misconfigured"


@dataclass(frozen=True)
class Written:
    """What was stored, counted while it streamed by. `sha256` = 64 lower-case hex digits."""

    size_bytes: int
    sha256: str


class BlobStore(Protocol):
    """Blobs by key. A blob is whole or absent: no reader ever sees half of one.

    Keys match `valid_key`; no key may continue another (`a` and `a/b`), because on disk one would be a file and a
    directory. Every method raises StorageUnavailable (transient) or StorageMisconfigured (until an operator acts);
    a key that does not match is a ValueError, a fault of ours.
    """

    async def write(self, key: str, stream: AsyncIterable[bytes], *, max_bytes: int | None = None) -> Written:
        """Store a stream of unknown length in constant memory; when this returns it survives a power cut.

        Replaces what was there. Blocks may have any size. An exception of the stream comes out unchanged, and then,
        as when the task is cancelled, nothing of the stream is left behind.
        Raises: TooLarge (with fact `max_bytes`) as soon as the stream exceeds `max_bytes`; StorageFull.
        """
        ...

    async def write_bytes(self, key: str, data: bytes) -> Written:
        """Store `data`; otherwise as `write`."""
        ...

    def read_stream(self, key: str) -> AsyncIterator[bytes]:
        """The blob in blocks of about 256 KiB, in constant memory. Raises: BlobNotFound, at the first block."""
        ...

    async def read_bytes(self, key: str) -> bytes:
        """The whole blob. Raises: BlobNotFound."""
        ...

    async def read_text(self, key: str) -> str:
        """The whole blob, decoded as UTF-8. Raises: BlobNotFound."""
        ...

    async def fetch_to(self, key: str, path: Path) -> None:
        """Copy the blob into a local file, replacing it; on failure the file is removed. Raises: BlobNotFound."""
        ...

    async def exists(self, key: str) -> bool:
        """Whether there is a blob under exactly this key."""
        ...

    async def delete(self, key: str) -> None:
        """Make the blob be gone; deleting nothing is success."""
        ...

    def list_keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Keys below `prefix` (whole path segments: `a/b` lists `a/b/c`, not `a/bc`), in no particular order."""
        ...

    async def free_bytes(self) -> int | None:
        """Free space of the local disk, in bytes; None where the storage has no such limit."""
        ...

    async def sweep_leftovers(self, *, older_than_s: float) -> int:
        """Remove parts of writes that a killed process left; how many. Only those untouched for `older_than_s`.

        Cloud storage answers 0: there a life-cycle rule of the bucket removes incomplete multipart uploads.
        """
        ...

    async def close(self) -> None:
        """Let go of what is held; idempotent."""
        ...


def valid_key(key: str) -> str:
    """`key` itself: segments of ASCII letters, digits, `.`, `_`, `-`, none beginning with a dot, joined by `/`.

    Raises: ValueError for anything else, also for more than 512 characters.
    """
    if len(key) > MAX_KEY_LENGTH or not _KEY.fullmatch(key):
        raise ValueError(f"not a storage key: {key[:80]!r}")
    return key
