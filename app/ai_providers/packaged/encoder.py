"""Computes vectors with the packaged model: one text, one call."""

from array import array
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.ai_providers.contract import BadEmbedding
from app.ai_providers.packaged.files import ModelFiles, ModelNotBuilt, Reference
from app.ai_providers.packaged.graph import POOLED, ROWS
from app.ai_providers.packaged.source import BLOCK_BYTES, BLOCK_WEIGHTS, unpack_blocks
from app.ai_providers.packaged.tokenizer import PackagedTokenizer

DIMENSIONS = 384
MAX_TOKENS = 512
_BEGIN, _END = 0, 2  # ids of <s> and </s>
LEAST_COSINE = 0.98  # to the float32 reference

Floats = NDArray[np.float32]


class Encoder:
    """The loaded model. Threads may call `embed` side by side: each call computes in its own thread."""

    def __init__(self, tokenizer: PackagedTokenizer, session: Any, words: NDArray[np.uint8]) -> None:
        self._tokenizer = tokenizer
        self._session = session
        self._words = words
        self._prefixes: dict[str, NDArray[np.int32]] = {}

    @classmethod
    def load(cls, files: ModelFiles) -> "Encoder":
        """Load a built model and compare one vector with its reference.

        Raises: ModelNotBuilt when the graph is damaged; BadEmbedding when this processor computes something else.
        """
        encoder = cls(PackagedTokenizer(files), open_session(files.graph), open_words(files.words))
        cosine = encoder.compare(files.references[0])
        if not cosine >= LEAST_COSINE:
            raise BadEmbedding(f"the packaged model computes other vectors here: cosine {cosine:.3f} to its reference")
        return encoder

    def compare(self, reference: Reference) -> float:
        """Cosine of what this encoder gives to the reference, about .996 for int8 to float32."""
        return float(np.dot(self.embed(reference.text, reference.prefix), reference.vector))

    def embed(self, text: str, prefix: str) -> "array[float]":
        """The vector of `prefix + text`, (384,) float32, L2-normalised; the same whatever else is being embedded.

        Beyond 512 tokens: the normalised mean of windows of nearly equal length, weighted by it, the prefix before
        each. Raises: BadEmbedding for values that are not finite.
        """
        before = self._encode_prefix(prefix)
        ids = np.array(self._tokenizer.encode(text), dtype=np.int32)
        size = MAX_TOKENS - 2 - len(before)
        windows = np.array_split(ids, max(1, -(-len(ids) // size)))
        vectors = [self._embed_window(before, window) for window in windows]
        if len(vectors) == 1:
            return array("f", vectors[0].tobytes())
        weights = np.array([len(window) for window in windows], dtype=np.float32)
        return array("f", normalised(weights @ np.stack(vectors)).tobytes())

    def _embed_window(self, before: NDArray[np.int32], window: NDArray[np.int32]) -> Floats:
        ids = np.concatenate([[_BEGIN], before, window, [_END]])
        pooled: Floats = self._session.run([POOLED], {ROWS: read_rows(self._words, ids)})[0]
        return normalised(pooled)

    def _encode_prefix(self, prefix: str) -> NDArray[np.int32]:
        if prefix not in self._prefixes:
            self._prefixes[prefix] = np.array(self._tokenizer.encode(prefix), dtype=np.int32)
        return self._prefixes[prefix]


def open_words(path: Path) -> NDArray[np.uint8]:
    """The word table as a memory map: (words, 12, 18) uint8."""
    return np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, DIMENSIONS // BLOCK_WEIGHTS, BLOCK_BYTES)


def read_rows(words: NDArray[np.uint8], ids: NDArray[Any]) -> Floats:
    """The unpacked rows of `ids`: (tokens, 384) float32."""
    return unpack_blocks(words[ids].reshape(-1, BLOCK_BYTES)).reshape(len(ids), DIMENSIONS)


def open_session(graph: Path | bytes) -> Any:
    """An onnxruntime session that computes in the calling thread and keeps no thread of its own.

    Measured on two cores: two calls side by side give more tokens a second than one call on two threads, a query
    of twenty tokens takes no longer on one thread than on two, and an idle process uses no processor time.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    model = graph if isinstance(graph, bytes) else str(graph)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as exc:  # onnxruntime raises one of a dozen classes, derived from Exception, for a damaged graph
        raise ModelNotBuilt(f"the packaged graph cannot be loaded: {exc}") from exc


def normalised(vector: Floats) -> Floats:
    """The vector divided by its length. Raises: BadEmbedding when that is zero or not finite."""
    length = np.sqrt(np.dot(vector, vector))
    if not (np.isfinite(length) and length > 0):
        raise BadEmbedding
    return np.divide(vector, length, dtype=np.float32)
