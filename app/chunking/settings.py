"""Which chunk sizes are accepted, wherever they are set: environment, organization, Work or knowledge base."""

from app.chunking.contract import ChunkSettings
from app.errors import FieldFault, Invalid

MIN_SIZE_TOKENS = 32
MAX_SIZE_TOKENS = 512
"""The packaged model's input: a chunk of at most this is seen whole by it."""


def validate_settings(size: int, overlap: int) -> ChunkSettings:
    """Accept a chunk size in [32, 512] tokens and an overlap in [0, size / 2).

    The overlap stays below half, so that each chunk brings more that is new than it repeats.

    Raises:
        Invalid: with a fault at `("chunk_size_tokens",)`, `("chunk_overlap_tokens",)` or both.
    """
    faults = []
    if not MIN_SIZE_TOKENS <= size <= MAX_SIZE_TOKENS:
        msg = f"must be between {MIN_SIZE_TOKENS} and {MAX_SIZE_TOKENS} tokens, not {size}"
        faults.append(FieldFault(("chunk_size_tokens",), msg))
    if overlap < 0 or overlap * 2 >= max(size, 1):
        msg = f"must be at least 0 and less than half of chunk_size_tokens ({size}), not {overlap}"
        faults.append(FieldFault(("chunk_overlap_tokens",), msg))
    if faults:
        raise Invalid("The chunk settings are not valid.", faults=faults)
    return ChunkSettings(size_tokens=size, overlap_tokens=overlap)


def fitting(size: int, overlap: int) -> ChunkSettings:
    """Sizes that two levels said apart from each other: an overlap too large for the other's size is cut to fit."""
    return ChunkSettings(size_tokens=size, overlap_tokens=min(overlap, max(0, (size - 1) // 2)))
