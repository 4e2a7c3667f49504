"""What goes into the chunker and what comes out. All offsets are code points of the given text."""

import hashlib
from array import array
from dataclasses import dataclass
from typing import Literal, Protocol

BlockKind = Literal["heading", "paragraph", "list", "code", "table", "quote"]


class Tokenizer(Protocol):
    """Counts tokens; the packaged model's, whatever model embeds."""

    @property
    def fingerprint(self) -> str:
        """Changes when counts could."""
        ...

    def token_starts(self, text: str) -> "array[int]":
        """Code-point offset where each token of `text` starts, ascending; its length is the token count.

        One encode of the whole text; without special tokens and prefixes.
        """
        ...


@dataclass(frozen=True)
class Block:
    """A structural block of the text: text[start:end]. Blocks ascend and do not overlap.

    `level` 1 to 6 for headings. `header_end`: a table's header rows are text[start:header_end].
    `title`: a heading's text without markup. `opening`/`closing`: what reopens and closes a cut fence.
    """

    kind: BlockKind
    start: int
    end: int
    level: int = 0
    title: str = ""
    header_end: int | None = None
    opening: str = ""
    closing: str = ""


@dataclass(frozen=True)
class Outline:
    """Structure of a text: blocks (gaps between them are paragraphs) and the offset where each page starts."""

    blocks: tuple[Block, ...] = ()
    page_starts: tuple[int, ...] = ()


@dataclass(frozen=True)
class ChunkSettings:
    """Sizes in tokens of the packaged tokenizer, prefix, heading path and special tokens included."""

    size_tokens: int = 512
    overlap_tokens: int = 0


@dataclass(frozen=True)
class Chunk:
    """A piece of text: `text == whole[start:end]`, never blank.

    `context` (heading path, repeated table header, reopened fence) stands before the text when it is embedded.
    `page` counts from 1; `token_count` is that of context + text.
    """

    chunk_index: int
    start: int
    end: int
    text: str
    context: str
    heading_path: tuple[str, ...]
    page: int | None
    token_count: int

    @property
    def embedded_text(self) -> str:
        """Exactly what is embedded, before the model's own prefix."""
        return self.context + self.text

    @property
    def content_sha256(self) -> bytes:
        """Hash over exactly what is embedded; 32 bytes."""
        return hashlib.sha256(self.embedded_text.encode()).digest()
