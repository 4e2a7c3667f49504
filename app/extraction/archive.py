"""Reads members of zip files while counting what they really unpack to."""

import zipfile
import zlib
from pathlib import Path
from types import TracebackType
from typing import Self

from app.extraction.contract import Corrupt, DocumentTooLarge, Encrypted, Limits

_STEP_BYTES = 1 << 18
_ENCRYPTED_FLAG = 0x1


class Archive:
    """A zip file whose bounds are those of `Limits`; declared sizes are never trusted.

    Raises on opening: Corrupt (no readable directory), DocumentTooLarge (too many entries).
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._left_bytes = limits.max_inflated_bytes
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError, UnicodeDecodeError) as exc:
            raise Corrupt("The file is damaged: its archive directory cannot be read.") from exc
        if len(self._zip.filelist) > limits.max_archive_entries:
            raise DocumentTooLarge(f"The archive has more than {limits.max_archive_entries} entries.")
        self.names = frozenset(self._zip.NameToInfo)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    def read(self, name: str) -> bytes:
        """Unpack one member.

        Raises: KeyError when absent, Encrypted, Corrupt, DocumentTooLarge (all members read so far, together).
        """
        info = self._zip.NameToInfo[name]
        if info.flag_bits & _ENCRYPTED_FLAG:
            raise Encrypted
        unpacked = bytearray()
        try:
            with self._zip.open(info) as member:
                while step := member.read(_STEP_BYTES):
                    unpacked += step
                    self._left_bytes -= len(step)
                    if self._left_bytes < 0:
                        raise DocumentTooLarge
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as exc:
            raise Corrupt(f"The file is damaged: its part {name!r} cannot be unpacked.") from exc
        return bytes(unpacked)
