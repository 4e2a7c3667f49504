"""What a local disk needs beyond the object-store library: durability, leftovers of killed processes, free space."""

import os
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path

_LEFTOVER = re.compile(r".+#\d+")  # the library writes `name#1` and renames it when it is whole


def make_durable(root: Path, path: Path) -> None:
    """Make a file and its directory entries, up to `root`, survive a power cut."""
    _sync(path)
    sync_directories(root, path.parent)


def sync_directories(root: Path, directory: Path) -> None:
    """Write the entries of `directory` and of its parents up to `root` to disk; those that are gone are passed over."""
    while directory.is_relative_to(root):
        with suppress(FileNotFoundError):  # removed meanwhile, having become empty: its parent's entry is what counts
            _sync(directory)
        directory = directory.parent


def remove_leftovers(root: Path, older_than_s: float) -> int:
    """Remove half-written files untouched for `older_than_s`; how many."""
    oldest = time.time() - older_than_s
    removed = 0
    for directory, _, names in os.walk(root):
        for path in (Path(directory, name) for name in names if _LEFTOVER.fullmatch(name)):
            try:
                if path.stat().st_mtime <= oldest:
                    path.unlink()
                    removed += 1
            except FileNotFoundError:
                continue  # its writer has just finished
    return removed


def free_bytes(root: Path) -> int:
    """Bytes that an ordinary user may still write."""
    return shutil.disk_usage(root).free


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
