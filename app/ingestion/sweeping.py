"""The sweep: it fills a generation with every live document, has it verified, and switches to it.

What is left is a query, so it may be killed, repeated and shared at any point without doing anything twice.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import BadEmbedding, ProviderRefused
from app.db.engine import Database, Reach
from app.errors import AppError, Misconfigured, Unavailable
from app.indexing.models import IndexGeneration
from app.indexing.remaining import (
    Live,
    count_coordinates,
    count_documents,
    count_remaining,
    drop_outdated_refusals,
    list_refusals,
    next_remaining,
    refuse,
)
from app.indexing.succession import flip, generations_now, give_up, set_progress
from app.indexing.writes import lock_work
from app.ingestion.auditing import Auditor
from app.ingestion.copying import Copier
from app.jobs.queue import JobRetry
from app.logs import get_logger
from app.vector_stores.contract import BadVector, VectorStoreRefused

log = get_logger()
PAGE = 64
ROUNDS_IN_VAIN = 3  # rounds that leave no less than the best before: then new documents are written to both
MOST_IN_VAIN = 20  # then there is a pause, whoever is to blame
MOST_MENDED = 10
BUSY_WAIT_S = 1.0
# What a provider or store says of one document, for good; the rest of the index is built without it.
REFUSALS = (ProviderRefused, BadEmbedding, VectorStoreRefused, BadVector)
Step = Literal["done", "busy", "gone"]
Finish = Literal["ended", "mended", "overtaken"]


class StoreLosesChunks(AppError):
    """The vector store does not keep what is written to it."""

    code = "store_loses_chunks"


class SweepFailed(AppError):
    """An index could not be built for a reason that only the log tells."""

    code = "internal"


@dataclass
class Sweep:
    """The use case behind `kb_reembed_work`. `at_once` = documents that are copied side by side."""

    database: Database
    copier: Copier
    auditor: Auditor
    retry_wait_s: float
    at_once: int = 4

    async def run(self, work_id: UUID, generation_id: UUID) -> None:
        """Go on with the generation until it is active, ended, or has to wait.

        Raises: JobRetry while a store or provider is away, or another writer holds what is left.
        """
        try:
            await self._run(work_id, generation_id)
        except Unavailable as error:
            await self._note(work_id, generation_id, error=f"Waits: {error.message}")
            log.info("reembed.waits", work_id=str(work_id), code=error.code)
            raise JobRetry(error.retry_after_s or self.retry_wait_s) from error
        except TimeoutError as error:
            await self._note(work_id, generation_id, error="Waits: the vector store took too long.")
            raise JobRetry(self.retry_wait_s) from error
        except AppError as error:
            await self._fail(work_id, generation_id, error)
        except (JobRetry, asyncio.CancelledError):
            raise
        except Exception:
            log.exception("reembed.crashed", work_id=str(work_id), generation_id=str(generation_id))
            await self._fail(work_id, generation_id, SweepFailed("It failed for a reason that only the log tells."))

    async def _run(self, work_id: UUID, generation_id: UUID) -> None:
        fewest: int | None = None
        in_vain = mended = 0
        while True:
            left = await self._begin_round(work_id, generation_id)
            if left is None:
                return
            if left:
                in_vain = in_vain + 1 if fewest is not None and left >= fewest else 0
                fewest = left if fewest is None else min(left, fewest)
                if in_vain >= ROUNDS_IN_VAIN:
                    await self._note(work_id, generation_id, dual_writes=True)
                step = await self._round(work_id, generation_id)
                if step == "gone":
                    return
                if step == "busy" or in_vain >= MOST_IN_VAIN:
                    raise JobRetry(BUSY_WAIT_S)
                continue
            finish = await self._finish(work_id, generation_id)
            if finish == "ended":
                return
            mended += finish == "mended"  # what uploads have overtaken is no fault of the store
            if mended >= MOST_MENDED:
                raise StoreLosesChunks()

    async def _begin_round(self, work_id: UUID, generation_id: UUID) -> int | None:
        """How many documents are left, written down; None when the generation is no longer being built."""
        async with self._transaction(work_id) as session:
            building = (await generations_now(session, work_id)).building
            if building is None or building.id != generation_id:
                return None
            await drop_outdated_refusals(session, generation_id)
            left = await count_remaining(session, work_id, generation_id)
            refused = await list_refusals(session, generation_id, limit=10_000)
            await set_progress(
                session,
                generation_id,
                documents_total=await count_documents(session, work_id),
                documents_done=await count_coordinates(session, generation_id),
                documents_refused=len(refused),
                error=None,
            )
            return left

    async def _round(self, work_id: UUID, generation_id: UUID) -> Step:
        """Once through everything that is left. `busy`: nothing could be done, others are at all of it."""
        after: UUID | None = None
        done = 0
        while True:
            async with self._transaction(work_id) as session:
                now = await generations_now(session, work_id)
                if now.building is None or now.building.id != generation_id:
                    return "gone"
                page = await next_remaining(session, work_id, generation_id, after=after, limit=PAGE)
            if not page:
                return "done" if done else "busy"
            after = page[-1].document_id
            moved = await self._copy_all(page, now.building, now.active)
            done += moved
            await self._advance(work_id, generation_id)

    async def _copy_all(self, page: Sequence[Live], target: IndexGeneration, source: IndexGeneration | None) -> int:
        """Copy side by side, none longer than it takes to find out that something is away; how many came further."""
        gate = asyncio.Semaphore(self.at_once)

        async def one(document: Live) -> bool:
            async with gate:
                return await self._copy(document, target, source)

        tasks = [asyncio.create_task(one(document)) for document in page]
        try:
            return sum(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _copy(self, document: Live, target: IndexGeneration, source: IndexGeneration | None) -> bool:
        try:
            return await self.copier.copy(document, target, source) != "busy"
        except REFUSALS as error:
            log.info("reembed.refused", document_id=str(document.document_id), code=error.code)
            async with self._transaction(target.work_id) as session:
                await refuse(session, target, document, code=error.code, message=error.message)
            return True

    async def _advance(self, work_id: UUID, generation_id: UUID) -> None:
        async with self._transaction(work_id) as session:
            await set_progress(session, generation_id, documents_done=await count_coordinates(session, generation_id))

    async def _finish(self, work_id: UUID, generation_id: UUID) -> Finish:
        """Verify and switch. There is another round where the store lacked something, or uploads were faster."""
        async with self._transaction(work_id) as session:
            building = (await generations_now(session, work_id)).building
            if building is None or building.id != generation_id:
                return "ended"
            refused = await list_refusals(session, generation_id, accepted=False, limit=1)
        if refused:
            await self._wait_for_acceptance(work_id, generation_id)
            return "ended"
        if not await self.auditor.verify(building):
            return "mended"
        await self._maintain(building)
        async with self._transaction(work_id) as session:
            await lock_work(session, work_id, exclusive=True)
            outcome = await flip(session, work_id, generation_id)
        if outcome == "flipped":
            log.info("reembed.completed", work_id=str(work_id), generation_id=str(generation_id))
        return "ended" if outcome in ("flipped", "gone") else "overtaken"

    async def _maintain(self, building: IndexGeneration) -> None:
        """Let the store build its indexes before searches come: it may take minutes, and nobody waits."""
        place = await self.copier.routing.store(building)
        if place is not None:
            await place.store.maintain(building.work_id, place.space)

    async def _wait_for_acceptance(self, work_id: UUID, generation_id: UUID) -> None:
        """Everything else is there: somebody decides whether the index is activated without the refused ones."""
        said = "Documents were refused; activate it with allow_missing, or remove or replace them."
        await self._note(work_id, generation_id, error=said)

    async def _fail(self, work_id: UUID, generation_id: UUID, error: AppError) -> None:
        """It can't be finished; the active index is as it was."""
        level = log.error if isinstance(error, Misconfigured) else log.warning
        level("reembed.failed", work_id=str(work_id), generation_id=str(generation_id), code=error.code)
        async with self._transaction(work_id) as session:
            await lock_work(session, work_id, exclusive=True)
            building = (await generations_now(session, work_id)).building
            if building is not None and building.id == generation_id:
                await give_up(session, building, "failed", f"{error.code}: {error.message}")

    async def _note(self, work_id: UUID, generation_id: UUID, **values: object) -> None:
        async with self._transaction(work_id) as session:
            await set_progress(session, generation_id, **values)

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))
