"""The mark that older builds of a document still lie in a store."""

from uuid import UUID

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession

from app.indexing.models import Coordinates


async def clear_prune(session: AsyncSession, document_id: UUID, generation_id: UUID, build: int) -> None:
    """Older builds are gone; nothing if a newer build has been stamped meanwhile."""
    await session.execute(
        update(Coordinates)
        .where(
            Coordinates.document_id == document_id,
            Coordinates.generation_id == generation_id,
            Coordinates.build == build,
        )
        .values(prune_pending=False)
        .execution_options(synchronize_session=False)
    )
