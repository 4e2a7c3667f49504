"""Batches, windows and unit vectors: the arithmetic that every embedding provider shares. No I/O."""

from array import array
from collections.abc import Callable, Sequence

import numpy as np

from app.ai_providers.contract import BadEmbedding, Vector

TokenCount = Callable[[str], int]


def estimate_tokens(text: str) -> int:
    """Tokens of a text, guessed high from its UTF-8 bytes, for models whose tokenizer is not at hand.

    ASCII counts half a token a character, everything else two thirds of a token a byte. Common byte-pair
    vocabularies need less than that for prose in any script; dense data (base64, rare scripts) can need more, which
    a provider answers with a refusal of size. Lone surrogates count like any other three bytes.
    """
    size_bytes = len(text.encode("utf-8", "surrogatepass"))
    ascii_chars = len(text.encode("ascii", "ignore"))
    return -(-(3 * ascii_chars + 4 * (size_bytes - ascii_chars)) // 6)


def halve(text: str) -> tuple[str, str]:
    """Cut a text of two or more characters near its middle, behind white space where some is close.

    Both halves are non-empty and together are the text.
    """
    middle, reach = len(text) // 2, len(text) // 8
    for distance in range(reach):
        for cut in (middle - distance, middle + distance):
            if text[cut - 1].isspace():
                return text[:cut], text[cut:]
    return text[:middle], text[middle:]


def windows(text: str, max_tokens: int, *, count: TokenCount = estimate_tokens) -> list[str]:
    """Cut a text into pieces of at most `max_tokens` each, in order; a text that fits is its only window.

    Windows do not overlap and together are the text, but for pieces of white space alone, which are left out.
    A single character is never cut, whatever it counts.
    """
    if len(text) < 2 or count(text) <= max_tokens:
        return [text]
    pieces = [piece for half in halve(text) for piece in windows(half, max_tokens, count=count)]
    return without_blanks(pieces)


def without_blanks(pieces: Sequence[str]) -> list[str]:
    """The pieces that are more than white space; the first one when none is."""
    return [piece for piece in pieces if not piece.isspace()] or [*pieces[:1]]


def batches(costs: Sequence[int], *, max_inputs: int, max_tokens: int) -> list[range]:
    """Group neighbours so that each batch has at most `max_inputs` members and `max_tokens` in sum.

    Returns index ranges that cover all inputs in order; one input above `max_tokens` is a batch of its own.
    """
    found: list[range] = []
    start = spent = 0
    for index, cost in enumerate(costs):
        if index > start and (index - start >= max_inputs or spent + cost > max_tokens):
            found.append(range(start, index))
            start, spent = index, 0
        spent += cost
    if start < len(costs):
        found.append(range(start, len(costs)))
    return found


def unit_vector(values: object, *, width: int | None) -> "array[float]":
    """`values` as `array("f")` of length 1 in the L2 norm; `width` None accepts any width.

    Raises: BadEmbedding for another width, a value that is no finite number, or a vector of zeros.
    """
    try:
        row = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadEmbedding("the provider's answer has a vector with values that are no numbers") from None
    if row.ndim != 1 or row.size == 0 or (width is not None and row.size != width):
        found = "x".join(str(size) for size in row.shape)
        raise BadEmbedding(f"the provider's answer has a vector of width {found or 'none'}; expected {width or 'any'}")
    largest = float(np.max(np.abs(row)))
    if not np.isfinite(largest):
        raise BadEmbedding("the provider's answer has a vector with values that are not finite")
    if largest == 0.0:
        raise BadEmbedding("the provider's answer has a vector of zeros")
    row = row / largest  # first to a safe range: squares of very large or small values leave that of a double
    return array("f", (row / np.linalg.norm(row)).astype(np.float32).tobytes())


def weighted_mean(vectors: Sequence[Vector], weights: Sequence[float]) -> "array[float]":
    """The L2-normalised mean of unit vectors of one width, each counting as much as its weight (> 0).

    Raises: BadEmbedding when the vectors cancel each other out.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    return unit_vector(np.average(rows, axis=0, weights=np.asarray(weights, dtype=np.float64)), width=rows.shape[1])
