"""What every blob store promises."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.errors import TooLarge
from app.storage.contract import BlobNotFound, BlobStore

MIB = 1024 * 1024
SIZES = [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB, 12 * MIB + 7]


async def pieces(data: bytes, piece_bytes: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), piece_bytes):
        yield data[start : start + piece_bytes]


def bytes_of(size: int) -> bytes:
    return (bytes(range(251)) * (size // 251 + 1))[:size]


async def keys(blobs: BlobStore, prefix: str = "") -> set[str]:
    return {key async for key in blobs.list_keys(prefix)}


@pytest.mark.parametrize("size", SIZES)
async def test_what_was_written_is_read_back_with_its_size_and_hash(blobs: BlobStore, size: int) -> None:
    data = bytes_of(size)

    written = await blobs.write("w/doc/1", pieces(data, 100_003))

    assert (written.size_bytes, written.sha256) == (size, hashlib.sha256(data).hexdigest())
    assert await blobs.read_bytes("w/doc/1") == data
    assert b"".join([block async for block in blobs.read_stream("w/doc/1")]) == data


async def test_a_second_write_replaces_the_first(blobs: BlobStore) -> None:
    await blobs.write_bytes("w/doc/1", bytes_of(7 * MIB))

    await blobs.write_bytes("w/doc/1", b"short")

    assert await blobs.read_bytes("w/doc/1") == b"short"


async def test_text_comes_back_as_text(blobs: BlobStore) -> None:
    text = "Grüße, 世界 👋" * 100_000

    await blobs.write_bytes("w/doc/text", text.encode())

    assert await blobs.read_text("w/doc/text") == text


@pytest.mark.parametrize(("size", "limit"), [(11, 10), (12 * MIB, 12 * MIB - 1), (12 * MIB, MIB)])
async def test_a_stream_over_the_limit_is_refused_and_leaves_nothing(
    blobs: BlobStore, tmp_path: Path, size: int, limit: int
) -> None:
    with pytest.raises(TooLarge) as refusal:
        await blobs.write("w/doc/1", pieces(bytes_of(size), 65_536), max_bytes=limit)

    assert refusal.value.facts == {"max_bytes": limit}
    assert await keys(blobs) == set()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_stream_of_exactly_the_limit_is_accepted(blobs: BlobStore) -> None:
    written = await blobs.write("w/doc/1", pieces(bytes_of(MIB), 65_536), max_bytes=MIB)

    assert written.size_bytes == MIB


async def test_reading_stops_at_the_limit(blobs: BlobStore) -> None:
    taken = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield bytes(1000)

    with pytest.raises(TooLarge):
        await blobs.write("w/doc/1", endless(), max_bytes=10_000)

    assert taken == 11


@pytest.mark.parametrize("error", [FileNotFoundError("the client's"), ConnectionResetError("gone"), KeyError("x")])
async def test_an_error_of_the_stream_comes_out_unchanged_and_leaves_nothing(
    blobs: BlobStore, tmp_path: Path, error: Exception
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes_of(11 * MIB)
        raise error

    with pytest.raises(type(error)) as raised:
        await blobs.write("w/doc/1", broken())

    assert raised.value is error
    assert await keys(blobs) == set()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_cancelled_write_leaves_nothing(blobs: BlobStore, tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def stuck() -> AsyncIterator[bytes]:
        yield bytes_of(11 * MIB)
        begun.set()
        await asyncio.Event().wait()

    writing = asyncio.create_task(blobs.write("w/doc/1", stuck()))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing

    assert await keys(blobs) == set()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_failed_write_leaves_the_earlier_blob_as_it_was(blobs: BlobStore) -> None:
    await blobs.write_bytes("w/doc/1", b"earlier")

    with pytest.raises(TooLarge):
        await blobs.write("w/doc/1", pieces(bytes_of(12 * MIB), MIB), max_bytes=11 * MIB)

    assert await blobs.read_bytes("w/doc/1") == b"earlier"


async def test_writes_side_by_side_do_not_mix(blobs: BlobStore) -> None:
    contents = {f"w/doc/{n}": bytes([n]) * (6 * MIB + n) for n in range(6)}

    await asyncio.gather(*(blobs.write(key, pieces(data, 70_000)) for key, data in contents.items()))

    assert {key: await blobs.read_bytes(key) for key in contents} == contents


async def test_a_blob_that_is_not_there_is_not_found(blobs: BlobStore, tmp_path: Path) -> None:
    with pytest.raises(BlobNotFound):
        await blobs.read_bytes("w/doc/1")
    with pytest.raises(BlobNotFound):
        await blobs.read_text("w/doc/1")
    with pytest.raises(BlobNotFound):
        await anext(blobs.read_stream("w/doc/1"))
    with pytest.raises(BlobNotFound):
        await blobs.fetch_to("w/doc/1", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_a_blob_is_fetched_into_a_file(blobs: BlobStore, tmp_path: Path) -> None:
    data = bytes_of(9 * MIB)
    await blobs.write_bytes("w/doc/1", data)

    await blobs.fetch_to("w/doc/1", tmp_path / "copy")

    assert (tmp_path / "copy").read_bytes() == data


async def test_a_fetch_into_a_directory_that_is_not_there_is_the_callers_error(
    blobs: BlobStore, tmp_path: Path
) -> None:
    await blobs.write_bytes("w/doc/1", b"x")

    with pytest.raises(FileNotFoundError):
        await blobs.fetch_to("w/doc/1", tmp_path / "nowhere" / "copy")


async def test_deleting_is_idempotent_and_takes_one_blob_only(blobs: BlobStore) -> None:
    await blobs.write_bytes("w/doc/1", b"1")
    await blobs.write_bytes("w/doc/2", b"2")

    for _ in range(2):
        await blobs.delete("w/doc/1")

    assert not await blobs.exists("w/doc/1")
    assert await blobs.exists("w/doc/2")


async def test_keys_are_listed_below_whole_segments(blobs: BlobStore) -> None:
    for key in ("w/a/1", "w/a/b/2", "w/ab/3", "x/4"):
        await blobs.write_bytes(key, b"")

    assert await keys(blobs, "w/a") == await keys(blobs, "w/a/") == {"w/a/1", "w/a/b/2"}
    assert await keys(blobs) == {"w/a/1", "w/a/b/2", "w/ab/3", "x/4"}
    assert await keys(blobs, "nothing") == set()


@pytest.mark.parametrize(
    "key", ["", "/", "/a", "a/", "a//b", "..", "a/../b", "a/.b", "a b", "a#1", "ä", "a\x00", "a\n", "x" * 513]
)
async def test_a_key_that_is_not_ours_is_refused(blobs: BlobStore, key: str) -> None:
    with pytest.raises(ValueError, match="not a storage key"):
        await blobs.write_bytes(key, b"")
    with pytest.raises(ValueError, match="not a storage key"):
        await blobs.read_bytes(key)
    with pytest.raises(ValueError, match="not a storage key"):
        await blobs.delete(key)


async def test_closing_twice_is_fine(blobs: BlobStore) -> None:
    await blobs.close()
    await blobs.close()
