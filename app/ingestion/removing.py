"""Removing a generation: its space is emptied and counted, then its coordinates go and its receipt closes."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.receipts import note_stores
from app.db.engine import Database, Reach
from app.errors import AppError
from app.indexing.models import Coordinates, IndexGeneration, IndexRefusal, IndexWrite
from app.indexing.routing import Routing, space_of
from app.indexing.succession import enqueue_sweep, generations_now, start_removal
from app.indexing.writes import lock_work
from app.jobs.queue import JobRetry
from app.logs import get_logger

log = get_logger()
MAX_ROWS = 100
ENDED = ("removing", "cancelled", "failed")
_DUE = text(
    "select work_id, generation_id from stackroom_generations_to_remove(make_interval(secs => :grace), :max_rows)"
)
_IDLE = text("select work_id, generation_id from stackroom_idle_sweeps(:max_rows)")


@dataclass
class Removal:
    """The use case behind `forget_generation`, and the upkeep of generations. Repeating it changes nothing."""

    database: Database
    routing: Routing
    store_call_timeout_s: float
    retry_wait_s: float
    grace_s: float

    async def start_due(self) -> None:
        """Let retired generations go whose grace period is over."""
        async with self.database.unscoped() as session:
            rows = (await session.execute(_DUE, {"grace": self.grace_s, "max_rows": MAX_ROWS})).all()
        for work_id, generation_id in rows:
            async with self._transaction(work_id) as session:
                await lock_work(session, work_id, exclusive=True)
                found = await session.get(IndexGeneration, generation_id, populate_existing=True)
                if found is not None and found.state == "retired":
                    await start_removal(session, found)

    async def wake_sweeps(self) -> None:
        """A generation that is being built without a job gets one."""
        async with self.database.unscoped() as session:
            rows = (await session.execute(_IDLE, {"max_rows": MAX_ROWS})).all()
        for work_id, generation_id in rows:
            async with self._transaction(work_id) as session:
                now = await generations_now(session, work_id)
                if now.active is not None and now.building is not None and now.building.id == generation_id:
                    await enqueue_sweep(session, now.building, previous=now.active.id)

    async def forget_generation(self, work_id: UUID, generation_id: UUID, receipt_id: UUID) -> None:
        """Empty the space and close the receipt. Raises: JobRetry while a store is away or a writer's lease lives."""
        async with self._transaction(work_id) as session:
            generation = await session.get(IndexGeneration, generation_id)
            if generation is None or generation.state not in ENDED or generation.removed_at is not None:
                await note_stores(
                    session, receipt_id, [], close=generation is None or generation.removed_at is not None
                )
                return
            writing = await _living_leases(session, generation_id)
            if generation.store_instance_id is not None:
                await note_stores(session, receipt_id, [_line(generation, -1)], close=False)
        if writing:
            raise JobRetry(self.retry_wait_s)
        remaining = await self._empty(generation)
        if remaining:
            async with self._transaction(work_id) as session:
                await note_stores(session, receipt_id, [_line(generation, remaining)], close=False)
            raise JobRetry(self.retry_wait_s)
        await self._close(work_id, generation_id, receipt_id)

    async def _empty(self, generation: IndexGeneration) -> int:
        """Delete and count; -1 when the store is away."""
        if generation.store_instance_id is None:
            return 0
        try:
            store = await self.routing.store_at(generation.work_id, generation.store_instance_id)
            async with asyncio.timeout(self.store_call_timeout_s):
                await store.delete_by_work(generation.work_id, space_of(generation))
                return await store.count(generation.work_id, space_of(generation))
        except (AppError, TimeoutError) as error:
            log.warning("forget.store_away", error=type(error).__name__, vector_store_id=generation.vector_store_id)
            return -1

    async def _close(self, work_id: UUID, generation_id: UUID, receipt_id: UUID) -> None:
        """Look again, then drop what names the space; nobody announces a write to it any more."""
        async with self._transaction(work_id) as session:
            await lock_work(session, work_id, exclusive=True)
            late = await _living_leases(session, generation_id)
            if not late:
                for table in (IndexWrite, Coordinates, IndexRefusal):
                    await session.execute(delete(table).where(table.generation_id == generation_id))
                generation = await session.get_one(IndexGeneration, generation_id)
                generation.removed_at = datetime.now(UTC)
                if generation.state == "removing":
                    generation.state = "removed"
                lines = [] if generation.store_instance_id is None else [_line(generation, 0)]
                await note_stores(session, receipt_id, lines, close=True)
        if late:
            raise JobRetry(self.retry_wait_s)
        log.info("generation.removed", work_id=str(work_id), generation_id=str(generation_id))

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))


async def _living_leases(session: AsyncSession, generation_id: UUID) -> bool:
    query = select(IndexWrite.build).where(
        IndexWrite.generation_id == generation_id, IndexWrite.lease_until >= func.now()
    )
    return await session.scalar(query.limit(1)) is not None


def _line(generation: IndexGeneration, remaining: int) -> dict[str, object]:
    return {
        "vector_store_id": generation.vector_store_id,
        "instance_id": str(generation.store_instance_id),
        "remaining": remaining,
    }
