"""Which index a Work has: the active generation, and the first one, chosen by the selection chain."""

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.chunking.contract import ChunkSettings
from app.chunking.settings import fitting
from app.db.base import new_id
from app.db.engine import Database, Reach, Transaction
from app.indexing.choices import Choice
from app.indexing.choosing import Chooser
from app.indexing.facts import work_facts
from app.indexing.going_live import find_active
from app.indexing.models import IndexGeneration
from app.indexing.writes import lock_work


class Generations:
    """Finds a Work's active generation and makes the first one."""

    def __init__(self, database: Database, chooser: Chooser, chunks: ChunkSettings) -> None:
        self._database = database
        self._chooser = chooser
        self._chunks = chunks

    async def ensure_active(self, work_id: UUID) -> IndexGeneration:
        """The active generation; where there is none, the first one.

        Raises: Unavailable when no store answers in time (documents wait), Misconfigured.
        """
        async with self._database.transaction(Reach.of(work_id)) as session:
            active = await find_active(session, work_id)
        if active is not None:
            return active
        choice = await self._chooser.choose(work_id)
        async with self._database.transaction(Reach.of(work_id)) as session:
            await lock_work(session, work_id, exclusive=True)
            active = await find_active(session, work_id)
            if active is not None:
                return active
            return await _add(session, work_id, choice)

    async def chunk_settings(self, session: Transaction, work_id: UUID) -> ChunkSettings:
        """Environment default → organization → Work, later wins."""
        facts = await work_facts(session, work_id)
        merged = {**facts.organization_settings, **facts.work_settings}
        return fitting(
            merged.get("chunk_size_tokens", self._chunks.size_tokens),
            merged.get("chunk_overlap_tokens", self._chunks.overlap_tokens),
        )


async def _add(session: AsyncSession, work_id: UUID, choice: Choice) -> IndexGeneration:
    newest = await session.scalar(select(func.max(IndexGeneration.number)).where(IndexGeneration.work_id == work_id))
    now = datetime.now(UTC)
    made = IndexGeneration(
        id=new_id(),
        work_id=work_id,
        number=(newest or 0) + 1,
        state="active",
        vector_store_id=choice.vector_store_id,
        store_instance_id=choice.store_instance_id,
        embedding_mode=choice.embedding_mode,
        embedding_provider_id=choice.embedding_provider_id,
        provider_instance_id=choice.provider_instance_id,
        embedding_model=choice.embedding_model,
        model_fingerprint=choice.model_fingerprint,
        dims=choice.dims,
        passed_over=list(choice.passed_over),
        documents_done=0,
        documents_total=0,
        documents_refused=0,
        created_at=now,
        activated_at=now,
    )
    session.add(made)
    await session.flush()
    return made
