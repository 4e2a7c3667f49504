"""The chunks of a live build, read back from their spans: what another index is filled from."""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.documents.models import Span


@dataclass(frozen=True)
class Piece:
    """One chunk: its place in the build, the text that is embedded, and that text's hash."""

    chunk_index: int
    embedded_text: str
    content_sha256: bytes


async def read_pieces(session: AsyncSession, document_id: UUID, build: int) -> list[Piece]:
    """Every chunk of the build in order; none where another build is live by now."""
    query = (
        select(Span.chunk_index, Span.context, Span.text, Span.content_sha256)
        .where(Span.document_id == document_id, Span.build == build)
        .order_by(Span.chunk_index)
    )
    return [Piece(index, context + body, digest) for index, context, body, digest in await session.execute(query)]
