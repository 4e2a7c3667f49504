"""The part of the pipeline without a store: bytes → text → chunks → postings. Values only, no rows."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from app.chunking.contract import Block, Chunk, ChunkSettings, Outline, Tokenizer
from app.chunking.markdown import outline_markdown
from app.chunking.plain import outline_plain
from app.chunking.service import chunk, chunking_fingerprint
from app.documents.attempts import Attempt
from app.documents.lexical.analysis import ANALYZER_FINGERPRINT, analyze_document
from app.documents.lexical.language import detect_language
from app.documents.lexical.postings import pack
from app.extraction.contract import Extracted, Extractor, NoText
from app.storage.contract import BlobStore


@dataclass(frozen=True)
class Prepared:
    """Everything of a build but its vectors. `terms` are (term, packed postings)."""

    extracted: Extracted
    language: str | None
    chunks: list[Chunk]
    terms: list[tuple[str, bytes]]
    lexical_length: int
    chunking_fingerprint: str
    analyzer_fingerprint: str = field(default=ANALYZER_FINGERPRINT)


async def extract(storage: BlobStore, extractor: Extractor, attempt: Attempt) -> Extracted:
    """The text of the attempt's revision. Raises: ExtractionFailed, StorageUnavailable."""
    if attempt.size_bytes == 0:
        raise NoText("The file is empty.")
    with tempfile.TemporaryDirectory(prefix="stackroom-") as folder:
        path = Path(folder) / "original"
        await storage.fetch_to(attempt.storage_key, path)
        return await extractor.extract(path, name=attempt.file_name, declared_type=attempt.declared_type)


async def prepare(extracted: Extracted, settings: ChunkSettings, tokenizer: Tokenizer) -> Prepared:
    """Chunks and postings of a text, made in a thread."""
    return await anyio.to_thread.run_sync(_prepare, extracted, settings, tokenizer)


def _prepare(extracted: Extracted, settings: ChunkSettings, tokenizer: Tokenizer) -> Prepared:
    chunks = chunk(extracted.text, _outline(extracted), settings, tokenizer)
    if not chunks:
        raise NoText()
    language = extracted.language or detect_language(extracted.text)
    terms = analyze_document([c.text for c in chunks], language)
    return Prepared(
        extracted=extracted,
        language=language,
        chunks=chunks,
        terms=pack(terms),
        lexical_length=terms.total_length,
        chunking_fingerprint=chunking_fingerprint(settings, tokenizer),
    )


def _outline(extracted: Extracted) -> Outline:
    if extracted.markdown:
        return outline_markdown(extracted.text)
    if not extracted.marks:
        plain = outline_plain(extracted.text)
        return Outline(blocks=plain.blocks, page_starts=extracted.page_starts)
    blocks = tuple(
        Block(
            kind=mark.kind,
            start=mark.start,
            end=mark.end,
            level=mark.level,
            title=mark.title,
            header_end=mark.header_end,
            opening=mark.opening,
            closing=mark.closing,
        )
        for mark in extracted.marks
    )
    return Outline(blocks=blocks, page_starts=extracted.page_starts)
