"""Vectors for the chunks of a build: known ones are reused, the others bought in batches."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from app.ai_providers.contract import Vector
from app.indexing.routing import Embedder

Progress = Callable[[int], Awaitable[None]]
BATCH_CHUNKS = 64


class Embeddable(Protocol):
    """A chunk as a provider needs it."""

    @property
    def chunk_index(self) -> int:
        """Its place in the build."""
        ...

    @property
    def embedded_text(self) -> str:
        """Exactly what is embedded."""
        ...

    @property
    def content_sha256(self) -> bytes:
        """The hash of that."""
        ...


async def embed_chunks(
    chunks: Sequence[Embeddable], known: Mapping[bytes, Vector], embedder: Embedder, progress: Progress
) -> dict[int, Vector]:
    """One vector per chunk index. `known`: content hash → vector of the same space; equal texts are embedded once."""
    vectors: dict[bytes, Vector] = dict(known)
    missing: dict[bytes, str] = {}
    for piece in chunks:
        if piece.content_sha256 not in vectors:
            missing.setdefault(piece.content_sha256, piece.embedded_text)
    waiting = list(missing.items())
    done = len(chunks) - len(waiting)
    for start in range(0, len(waiting), BATCH_CHUNKS):
        batch = waiting[start : start + BATCH_CHUNKS]
        made = await embedder.provider.create_embedding(
            [text for _, text in batch], role="document", model=embedder.model.name, dimensions=embedder.dims
        )
        vectors.update((digest, vector) for (digest, _), vector in zip(batch, made, strict=True))
        done += len(batch)
        await progress(done)
    return {piece.chunk_index: vectors[piece.content_sha256] for piece in chunks}
