"""What only a local disk must show: leftovers of killed processes, free space, durability, memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.storage.blobs import open_blob_store
from app.storage.contract import BlobStore, StorageMisconfigured

MIB = 1024 * 1024

WRITE_FOR_EVER = """
import asyncio, sys
from app.storage.blobs import open_blob_store

async def endless():
    while True:
        yield bytes(1024 * 1024)
        await asyncio.sleep(0.01)

asyncio.run(open_blob_store(sys.argv[1]).write("w/doc/1", endless()))
"""

MEASURE = """
import asyncio, resource, sys
from app.storage.blobs import open_blob_store

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def zeros(mib):
    for _ in range(mib * 16):
        yield bytes(65536)

async def main():
    blobs = open_blob_store(sys.argv[1])
    await blobs.write("warm", zeros(1))
    before = peak_kib()
    await blobs.write("big", zeros(400))
    async for _ in blobs.read_stream("big"):
        pass
    print(peak_kib() - before)

asyncio.run(main())
"""

FILL_DISK = """
import asyncio, sys
from pathlib import Path
from app.errors import StorageFull
from app.storage.blobs import open_blob_store

try:
    asyncio.run(open_blob_store("file://" + sys.argv[1]).write_bytes("w/doc/1", bytes(20 * 1024 * 1024)))
except StorageFull as full:
    print(full.code)
print([str(path) for path in Path(sys.argv[1]).rglob("*") if path.is_file()])
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "a directory with # and ä" / "blobs"


@pytest.fixture
def blobs(root: Path) -> BlobStore:
    return open_blob_store(f"file://{root}")


async def test_a_killed_write_is_invisible_and_swept(root: Path, blobs: BlobStore) -> None:
    writer = subprocess.Popen([sys.executable, "-c", WRITE_FOR_EVER, f"file://{root}"])
    while not (begun := list(root.glob("w/doc/1#*"))) or begun[0].stat().st_size < 11 * MIB:
        time.sleep(0.02)
    writer.send_signal(signal.SIGKILL)
    writer.wait()

    assert [key async for key in blobs.list_keys()] == []
    assert not await blobs.exists("w/doc/1")
    assert await blobs.sweep_leftovers(older_than_s=3600) == 0
    assert await blobs.sweep_leftovers(older_than_s=0) == 1
    assert list(root.glob("w/doc/*")) == []


async def test_a_new_write_succeeds_beside_a_leftover(root: Path, blobs: BlobStore) -> None:
    (root / "w/doc").mkdir(parents=True)
    (root / "w/doc/1#1").write_bytes(b"left by a killed process")

    await blobs.write_bytes("w/doc/1", b"new")

    assert await blobs.read_bytes("w/doc/1") == b"new"


async def test_the_sweep_takes_nothing_but_leftovers(root: Path, blobs: BlobStore) -> None:
    await blobs.write_bytes("w/doc/1", b"kept")
    os.utime(root / "w/doc/1", (0, 0))

    assert await blobs.sweep_leftovers(older_than_s=0) == 0
    assert await blobs.read_bytes("w/doc/1") == b"kept"


async def test_file_and_directories_are_synced_before_the_write_returns(
    root: Path, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    really_sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.path.realpath(f"/proc/self/fd/{descriptor}"))
        really_sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)

    await blobs.write_bytes("w/doc/1", b"x")

    real = root.resolve()
    assert synced == [str(real / "w/doc/1"), str(real / "w/doc"), str(real / "w"), str(real)]


async def test_directories_that_become_empty_go_with_their_last_blob(root: Path, blobs: BlobStore) -> None:
    await blobs.write_bytes("w/doc/1", b"x")

    await blobs.delete("w/doc/1")

    assert list(root.iterdir()) == []


async def test_a_large_file_passes_in_constant_memory(root: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", MEASURE, f"file://{root}"], capture_output=True, text=True, check=True
    )

    assert int(finished.stdout) < 64 * 1024, "KiB of growth while 400 MiB were written and read"


def test_a_full_disk_is_told_apart_and_leaves_nothing(root: Path) -> None:
    root.mkdir(parents=True)
    in_small_disk = f'mount -t tmpfs -o size=8m none "$1" && exec "{sys.executable}" -c "$2" "$1"'

    finished = subprocess.run(
        ["unshare", "-rm", "sh", "-c", in_small_disk, "sh", str(root), FILL_DISK], capture_output=True, text=True
    )

    if "unshare" in finished.stderr or "mount" in finished.stderr:
        pytest.skip(f"a small disk can't be mounted here: {finished.stderr.strip()}")
    assert finished.stdout.splitlines() == ["storage_full", "[]"], finished.stderr


async def test_free_space_is_that_of_the_disk(root: Path, blobs: BlobStore) -> None:
    free = await blobs.free_bytes()

    assert free is not None
    assert 0 < free <= os.statvfs(root).f_blocks * os.statvfs(root).f_frsize


def test_the_directory_is_for_its_owner_only(root: Path, blobs: BlobStore) -> None:
    assert root.stat().st_mode & 0o077 == 0


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StorageMisconfigured, match="can't be made"):
        open_blob_store(f"file://{tmp_path / 'file' / 'blobs'}")
