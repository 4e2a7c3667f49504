"""Tokenizers with simple rules, and the promises every list of chunks keeps."""

import re
from array import array
from collections.abc import Sequence

from app.chunking.contract import Chunk, ChunkSettings, Outline, Tokenizer
from app.chunking.markdown import outline_markdown
from app.chunking.service import RESERVED_TOKENS, chunk


class WordTokenizer:
    """Up to six letters, one CJK or Thai character, or one sign is a token; white space is none."""

    fingerprint = "words"
    pattern = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w{1,6}|[^\w\s]")

    def __init__(self) -> None:
        self.encoded: list[int] = []

    def token_starts(self, text: str) -> "array[int]":
        self.encoded.append(len(text))
        return array("q", (token.start() for token in self.pattern.finditer(text)))


class MarkedTokenizer(WordTokenizer):
    """Like a word-piece model: each run of visible characters begins with a mark, which starts at the space before."""

    fingerprint = "marked"
    pattern = re.compile(r"(?:\s+|\A)(?=\S)|[^\W\s]{1,4}|[^\w\s]{1,2}")


class DriftingTokenizer(WordTokenizer):
    """Counts three tokens more in whatever it is given: a slice alone is more than its part of the whole."""

    fingerprint = "drifting"

    def token_starts(self, text: str) -> "array[int]":
        return array("q", [0, 0, 0]) + super().token_starts(text)


def assert_promises(text: str, chunks: Sequence[Chunk], tokenizer: Tokenizer, *, size: int) -> None:
    """Indices, exact slices, order, coverage, no blank chunk, counts and the cap."""
    assert [c.chunk_index for c in chunks] == list(range(len(chunks)))
    covered_to = 0
    previous_start = -1
    for c in chunks:
        assert c.text == text[c.start : c.end]
        assert c.text
        assert c.text == c.text.strip()
        assert c.start > previous_start
        assert c.end > covered_to
        assert not text[covered_to : c.start].strip()
        assert c.token_count == len(tokenizer.token_starts(c.embedded_text))
        assert c.token_count + RESERVED_TOKENS <= size
        covered_to, previous_start = c.end, c.start
    assert not text[covered_to:].strip()


def markdown_chunks(text: str, *, size: int = 64, overlap: int = 0) -> list[Chunk]:
    tokenizer = WordTokenizer()
    chunks = chunk(text, outline_markdown(text), ChunkSettings(size, overlap), tokenizer)
    assert_promises(text, chunks, tokenizer, size=size)
    return chunks


def chunks_of(text: str, outline: Outline | None = None, *, size: int = 64, overlap: int = 0) -> list[Chunk]:
    tokenizer = WordTokenizer()
    chunks = chunk(text, outline or Outline(), ChunkSettings(size, overlap), tokenizer)
    assert_promises(text, chunks, tokenizer, size=size)
    return chunks


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * count)
