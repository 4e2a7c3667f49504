"""The directory of a built model: its files, its manifest, and whether both agree."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.ai_providers.contract import ProviderMisconfigured

FORMAT = 1  # raised when the layout changes or the same source gives other vectors or counts
MODEL_NAME = "multilingual-e5-small"
GRAPH_FILE = "model.onnx"
WORDS_FILE = "words.q4"
TOKENIZER_FILE = "tokenizer.model"
MANIFEST_FILE = "manifest.json"
FILE_NAMES = (GRAPH_FILE, WORDS_FILE, TOKENIZER_FILE)


class ModelNotBuilt(ProviderMisconfigured):
    """The packaged model is not built, or its files are damaged: run `stackroom model build`."""

    code = "model_not_built"


@dataclass(frozen=True)
class Reference:
    """What the float32 graph gives for `prefix + text`; `vector` is L2-normalised."""

    prefix: str
    text: str
    vector: tuple[float, ...]


@dataclass(frozen=True)
class ModelFiles:
    """A built model whose files are present. `tokenizer_fingerprint`: 16 hex digits over the tokenizer's bytes."""

    directory: Path
    tokenizer_fingerprint: str
    references: tuple[Reference, ...]

    @property
    def graph(self) -> Path:
        """The int8 ONNX graph."""
        return self.directory / GRAPH_FILE

    @property
    def words(self) -> Path:
        """Rows of the word table, four bits a weight: (words, hidden / 32, 18) bytes."""
        return self.directory / WORDS_FILE

    @property
    def tokenizer(self) -> Path:
        """The sentencepiece model."""
        return self.directory / TOKENIZER_FILE


def open_model(directory: Path, *, verify: bool = False) -> ModelFiles:
    """The built model in `directory`; compares names and sizes with the manifest, with `verify` checksums too.

    Raises: ModelNotBuilt.
    """
    manifest = _read_manifest(directory)
    for name in FILE_NAMES:
        _compare(directory / name, manifest["files"][name], verify=verify)
    return ModelFiles(
        directory=directory,
        tokenizer_fingerprint=manifest["files"][TOKENIZER_FILE]["sha256"][:16],
        references=tuple(Reference(r["prefix"], r["text"], tuple(r["vector"])) for r in manifest["references"]),
    )


def describe_file(path: Path) -> dict[str, object]:
    """Size in bytes and sha256 of a file, as the manifest has them."""
    with path.open("rb") as stream:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def _read_manifest(directory: Path) -> Any:
    path = directory / MANIFEST_FILE
    try:
        manifest = json.loads(path.read_bytes())
        complete = manifest["format"] == FORMAT and manifest["references"] and set(FILE_NAMES) <= set(manifest["files"])
    except FileNotFoundError as exc:
        raise ModelNotBuilt(f"there is no packaged model in {directory}: run `stackroom model build`") from exc
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise ModelNotBuilt(f"{path} cannot be read: run `stackroom model build`") from exc
    if not complete:
        raise ModelNotBuilt(f"{path} is of another version: run `stackroom model build`")
    return manifest


def _compare(path: Path, expected: Mapping[str, object], *, verify: bool) -> None:
    if not path.is_file():
        raise ModelNotBuilt(f"{path} is missing: run `stackroom model build`")
    if path.stat().st_size != expected["size"]:
        raise ModelNotBuilt(f"{path} has {path.stat().st_size} bytes, expected {expected['size']}")
    if verify and describe_file(path) != expected:
        raise ModelNotBuilt(f"{path} has been changed: its checksum is not that of the manifest")
