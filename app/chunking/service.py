"""Text and its structure to chunks, each within a token limit, with exact offsets."""

import hashlib

from app.chunking.context import Contexts
from app.chunking.contract import Chunk, ChunkSettings, Outline, Tokenizer
from app.chunking.emitting import Emitter
from app.chunking.packing import Packer
from app.chunking.ruler import Ruler
from app.chunking.settings import validate_settings
from app.chunking.units import units

CHUNKER_VERSION = "1"
"""Raised whenever some text would be chunked differently with the same settings."""

RESERVED_TOKENS = 6
"""Room in every chunk for what the model adds: its prefix (`passage: `, up to 4 tokens) and 2 special tokens."""


def chunk(
    text: str,
    outline: Outline,
    settings: ChunkSettings,
    tokenizer: Tokenizer,
    *,
    reserved_tokens: int = RESERVED_TOKENS,
) -> list[Chunk]:
    """Cut a text into chunks that together hold every visible character of it, in ascending order.

    - `token_count + reserved_tokens <= settings.size_tokens`, context included. (A single character that is more
      tokens than fit is the one thing that cannot be cut.) Counts well below the limit, of slices between white
      space, are taken from the encode of the whole text; all others are made again for the chunk alone.
    - Slices begin and end with visible characters, `chunk_index` counts from 0 without gaps.
    - A heading stands with the text after it; `heading_path` is the path in force for the first text of the chunk,
      its own leading headings included, and `context` names those headings that the chunk's text does not hold.
    - A fence or table that fits into a chunk is not cut. A longer one is cut between lines; each continuation carries
      the opening fence or the table's header rows in `context`.
    - Prose that is too long is cut after a sentence, else a word, else a grapheme. Only there, and only with
      `overlap_tokens` > 0, the next chunk begins up to that many tokens earlier, at a sentence or word of the same
      block; starts and ends still strictly ascend. Chunks that meet between blocks never overlap.

    `text` has no lone surrogates. Blank text gives no chunks. Time is linear in the text, with one encode of the
    whole and short ones for headings and for chunks near the limit.

    Raises:
        Invalid: settings that `validate_settings` refuses.
        ValueError: `reserved_tokens` is negative or more than a quarter of the size.
    """
    validate_settings(settings.size_tokens, settings.overlap_tokens)
    if not 0 <= reserved_tokens <= settings.size_tokens // 4:
        raise ValueError(f"reserved_tokens must be at most a quarter of {settings.size_tokens}, not {reserved_tokens}")
    ruler = Ruler(text, tokenizer)
    contexts = Contexts(tokenizer, size_tokens=settings.size_tokens, reserved_tokens=reserved_tokens)
    room = settings.size_tokens - reserved_tokens
    emitter = Emitter(text, outline.page_starts, ruler=ruler, tokenizer=tokenizer, room=room)
    packer = Packer(text, settings, ruler=ruler, contexts=contexts, emitter=emitter, reserved_tokens=reserved_tokens)
    packer.pack(units(text, outline))
    return emitter.chunks


def chunking_fingerprint(settings: ChunkSettings, tokenizer: Tokenizer) -> str:
    """Return what decides about chunks beside the text: at most 64 characters, equal only if all of it is equal."""
    counted_by = hashlib.sha256(tokenizer.fingerprint.encode()).hexdigest()[:16]
    return f"chunks-{CHUNKER_VERSION}-{settings.size_tokens}-{settings.overlap_tokens}-{counted_by}"
