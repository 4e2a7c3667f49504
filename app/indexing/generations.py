"""Which index a Work has: the active generation, and the first one, chosen by the selection chain."""

from uuid import UUID

from sqlalchemy import text

from app.chunking.contract import ChunkSettings
from app.chunking.settings import fitting
from app.db.engine import Database, Reach, Transaction
from app.indexing.choosing import Chooser
from app.indexing.facts import work_facts
from app.indexing.going_live import find_active
from app.indexing.models import IndexGeneration
from app.indexing.succession import add_generation
from app.indexing.writes import lock_work

LOOK_AGAIN_S = 60.0
_LOOK_AT_IT_LATER = text(
    "update works set reconcile_at = now() + make_interval(secs => :seconds) where id = :work and reconcile_at is null"
)


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
            await session.execute(_LOOK_AT_IT_LATER, {"work": work_id, "seconds": LOOK_AGAIN_S})
            return await add_generation(session, work_id, choice, state="active")

    async def chunk_settings(self, session: Transaction, work_id: UUID) -> ChunkSettings:
        """Environment default → organization → Work, later wins."""
        facts = await work_facts(session, work_id)
        merged = {**facts.organization_settings, **facts.work_settings}
        return fitting(
            merged.get("chunk_size_tokens", self._chunks.size_tokens),
            merged.get("chunk_overlap_tokens", self._chunks.overlap_tokens),
        )
