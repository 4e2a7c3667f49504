"""What this room needs to know of documents; `documents` answers."""

from collections.abc import Mapping, Sequence
from typing import Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession


class DocumentCounter(Protocol):
    """Counts documents for knowledge bases."""

    async def count_by_status(
        self, session: AsyncSession, knowledge_base_ids: Sequence[UUID]
    ) -> Mapping[UUID, Mapping[str, int]]:
        """Knowledge base → status → number of documents, in one query."""
        ...
