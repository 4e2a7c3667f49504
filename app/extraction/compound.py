"""Names the streams of an OLE compound file (the container of old Office files and of encrypted new ones)."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from app.extraction.contract import Corrupt

_LAST_REGULAR_SECTOR = 0xFFFFFFFA
_HEADER_FAT_SECTORS = 109
_ENTRY_BYTES = 128
_MAX_DIRECTORY_SECTORS = 4096


def stream_names(path: Path) -> frozenset[str]:
    """Names of all streams and storages, the root's included.

    Source: [MS-CFB] 2.2 (header), 2.3 and 2.5 (FAT, DIFAT), 2.6 (directory). Raises: Corrupt.
    """
    try:
        with path.open("rb") as file:
            names = frozenset(_Compound(file).names())
    except (struct.error, OSError, OverflowError) as exc:
        raise Corrupt from exc
    if not names:  # there is always a root
        raise Corrupt
    return names


class _Compound:
    """Follows sector chains; a chain that loops simply ends."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        header = file.read(512)
        shift = struct.unpack_from("<H", header, 30)[0]
        if shift not in (9, 12):
            raise Corrupt
        self._sector_bytes = 1 << shift
        self._directory: int = struct.unpack_from("<I", header, 48)[0]
        self._difat: int = struct.unpack_from("<I", header, 68)[0]
        self._fat_sectors: list[int] = list(struct.unpack_from(f"<{_HEADER_FAT_SECTORS}I", header, 76))

    def names(self) -> Iterator[str]:
        number, seen = self._directory, set[int]()
        while number < _LAST_REGULAR_SECTOR and number not in seen and len(seen) < _MAX_DIRECTORY_SECTORS:
            seen.add(number)
            sector = self._sector(number)
            for start in range(0, len(sector) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
                length = struct.unpack_from("<H", sector, start + 64)[0]
                if 2 <= length <= 64 and sector[start + 66]:
                    yield sector[start : start + length - 2].decode("utf-16-le", "replace")
            number = self._next(number)

    def _next(self, number: int) -> int:
        per_sector = self._sector_bytes // 4
        index, place = divmod(number, per_sector)
        fat_sector = self._sector(self._fat_sector(index))
        following: int = struct.unpack_from("<I", fat_sector, place * 4)[0]
        return following

    def _fat_sector(self, index: int) -> int:
        """Number of the sector that holds part `index` of the FAT; beyond the header's list by the DIFAT chain."""
        seen: set[int] = set()
        while index >= len(self._fat_sectors):
            if self._difat >= _LAST_REGULAR_SECTOR or self._difat in seen:
                raise Corrupt
            seen.add(self._difat)
            *numbers, self._difat = struct.unpack(f"<{self._sector_bytes // 4}I", self._sector(self._difat))
            self._fat_sectors += numbers
        return self._fat_sectors[index]

    def _sector(self, number: int) -> bytes:
        if number >= _LAST_REGULAR_SECTOR:
            raise Corrupt
        self._file.seek((number + 1) * self._sector_bytes)
        return self._file.read(self._sector_bytes)
