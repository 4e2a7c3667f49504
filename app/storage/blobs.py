"""Blobs over obstore: local disk, S3, Google Cloud Storage and Azure behind one contract."""

import asyncio
import errno
import re
import shutil
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import (
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import LocalStore, from_url

from app.errors import AppError, StorageFull
from app.storage import local_disk
from app.storage.contract import BlobNotFound, BlobStore, StorageMisconfigured, StorageUnavailable, Written, valid_key
from app.storage.streams import CountedStream

if TYPE_CHECKING:
    from obstore.store import ObjectStore

CLOUD_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss"})
READ_BLOCK_BYTES = 256 * 1024
FETCH_BLOCK_BYTES = 4 * 1024 * 1024
PART_BYTES = 5 * 1024 * 1024  # the smallest part that S3 accepts; what is smaller goes in one plain request
PARTS_AT_ONCE = 2  # bounds the memory of one write to about 15 MiB
DECODE_IN_THREAD_FROM_BYTES = 1024 * 1024
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
_OS_ERROR = re.compile(r"\(os error (\d+)\)")
_REFUSED_BY_CLOUD = re.compile(r"status code: 40[134]")  # the library's writer keeps the text of an error, not its type
_REFUSED = (
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
    InvalidPathError,
    NotSupportedError,
)


def open_blob_store(url: str) -> BlobStore:
    """The store behind `KB_STORAGE_URL`; a local directory is made when absent, a cloud is not contacted.

    `file:///absolute/path`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://account/container/prefix`; credentials
    and endpoints of a cloud come from its usual environment variables (`AWS_…`, `GOOGLE_…`, `AZURE_…`).
    Raises: StorageMisconfigured.
    """
    scheme = urlsplit(url).scheme.lower()
    if scheme == "file":
        return _open_directory(url)
    if scheme not in CLOUD_SCHEMES:
        raise StorageMisconfigured("KB_STORAGE_URL must begin with file:///, s3://, gs:// or az://.")
    try:
        store = from_url(
            url,
            # the timeout includes reading a large body; an http:// endpoint is the operator's own word
            client_options={"connect_timeout": "5s", "timeout": "15m", "allow_http": True},
            retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=30)},
        )
    except (BaseError, ValueError) as exc:
        raise StorageMisconfigured(f"KB_STORAGE_URL ({scheme}://…) is incomplete or wrong.") from exc
    return ObstoreBlobs(store)


def _open_directory(url: str) -> BlobStore:
    path = unquote(url[len("file://") :])  # not split at ? and #, which a directory's name may contain
    root = Path(path)
    if not root.is_absolute():
        raise StorageMisconfigured("KB_STORAGE_URL must name an absolute path: file:///var/lib/stackroom/blobs")
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StorageMisconfigured(f"The directory {root} can't be made: {exc.strerror}.") from exc
    return ObstoreBlobs(LocalStore(root, automatic_cleanup=True), root=root)


class ObstoreBlobs:
    """A BlobStore over any obstore store. `root` = its directory when it is the local disk."""

    def __init__(self, store: "ObjectStore", *, root: Path | None = None) -> None:
        self._store = store
        self._root = root

    async def write(self, key: str, stream: AsyncIterable[bytes], *, max_bytes: int | None = None) -> Written:
        """See BlobStore."""
        counted = CountedStream(stream, max_bytes=max_bytes)
        writer = obstore.open_writer_async(
            self._store, valid_key(key), buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
        )
        try:
            async for block in counted.blocks():  # the source's own errors pass untranslated
                with _translated(absent=StorageMisconfigured):  # what a write does not find is its bucket
                    await writer.write(block)
            with _translated(absent=StorageMisconfigured):
                await writer.close()
        except BaseException as exc:
            with suppress(BaseError, OSError):  # the first error is the one to tell; unreachable parts are swept later
                await writer.__aexit__(type(exc), exc, exc.__traceback__)
            raise
        if self._root is not None:
            with _translated():
                await asyncio.to_thread(local_disk.make_durable, self._root, self._root / key)
        return counted.written

    async def write_bytes(self, key: str, data: bytes) -> Written:
        """See BlobStore."""
        return await self.write(key, _once(data))

    def read_stream(self, key: str) -> AsyncIterator[bytes]:
        """See BlobStore."""
        return self._blocks(key, READ_BLOCK_BYTES)

    async def read_bytes(self, key: str) -> bytes:
        """See BlobStore."""
        with _translated():
            found = await obstore.get_async(self._store, valid_key(key))
            return bytes(await found.bytes_async())

    async def read_text(self, key: str) -> str:
        """See BlobStore."""
        data = await self.read_bytes(key)
        if len(data) < DECODE_IN_THREAD_FROM_BYTES:
            return data.decode()
        return await asyncio.to_thread(data.decode)

    async def fetch_to(self, key: str, path: Path) -> None:
        """See BlobStore."""
        if self._root is not None:
            await asyncio.to_thread(_copy, self._root / valid_key(key), path)
            return
        file = await asyncio.to_thread(path.open, "wb")
        try:
            async for block in self._blocks(key, FETCH_BLOCK_BYTES):
                await asyncio.to_thread(file.write, block)
            await asyncio.to_thread(file.close)
        except BaseException:
            file.close()
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - must happen even when the task is being cancelled
            raise

    async def exists(self, key: str) -> bool:
        """See BlobStore."""
        try:
            with _translated():
                await obstore.head_async(self._store, valid_key(key))
        except BlobNotFound:
            return False
        return True

    async def delete(self, key: str) -> None:
        """See BlobStore."""
        try:
            with _translated():
                await obstore.delete_async(self._store, valid_key(key))
        except BlobNotFound:
            return
        if self._root is not None:
            await asyncio.to_thread(local_disk.sync_directories, self._root, (self._root / key).parent)

    async def list_keys(self, prefix: str = "") -> AsyncIterator[str]:
        """See BlobStore."""
        below = valid_key(prefix.rstrip("/")) if prefix else None
        with _translated():
            async for page in obstore.list(self._store, below, chunk_size=1000):
                for found in page:
                    yield found["path"]

    async def free_bytes(self) -> int | None:
        """See BlobStore."""
        if self._root is None:
            return None
        with _translated():
            return await asyncio.to_thread(local_disk.free_bytes, self._root)

    async def sweep_leftovers(self, *, older_than_s: float) -> int:
        """See BlobStore."""
        if self._root is None:
            return 0
        with _translated():
            return await asyncio.to_thread(local_disk.remove_leftovers, self._root, older_than_s)

    async def close(self) -> None:
        """See BlobStore. The library's connections belong to its own runtime and end with the process."""

    async def _blocks(self, key: str, block_bytes: int) -> AsyncIterator[bytes]:
        with _translated():
            found = await obstore.get_async(self._store, valid_key(key))
            async for block in found.stream(min_chunk_size=block_bytes):
                yield bytes(block)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _copy(blob: Path, path: Path) -> None:
    """What is wrong with the place is the caller's affair, as with any other store; half a copy does not stay."""
    with path.open("wb") as target:
        try:
            with _translated():
                source = blob.open("rb")
            with source:
                shutil.copyfileobj(source, target, FETCH_BLOCK_BYTES)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


@contextmanager
def _translated(*, absent: type[AppError] = BlobNotFound) -> Iterator[None]:
    """Turn the library's and the system's errors into ours; the messages name no key, path or address."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as exc:
        raise absent from exc
    except (*_REFUSED, PermissionError) as exc:
        raise StorageMisconfigured from exc
    except (BaseError, OSError) as exc:
        if _system_error(exc) in _NO_SPACE:
            raise StorageFull from exc
        if _REFUSED_BY_CLOUD.search(str(exc)):
            raise StorageMisconfigured from exc
        raise StorageUnavailable(retry_after_s=5) from exc


def _system_error(exc: Exception) -> int | None:
    """The system's error number; obstore 0.12 has no type for a full disk and tells it in the message only."""
    if isinstance(exc, OSError) and exc.errno is not None:
        return exc.errno
    told = _OS_ERROR.search(str(exc))
    return int(told.group(1)) if told else None
