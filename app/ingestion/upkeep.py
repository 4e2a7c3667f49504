"""Upkeep: what is repeated until done. Every round is safe to run twice, by several workers."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, text

from app.db.base import new_id
from app.db.engine import Database, Reach
from app.documents import outbox
from app.documents.models import Document
from app.errors import AppError
from app.indexing import writes
from app.indexing.going_live import find_active
from app.indexing.models import Coordinates, IndexGeneration
from app.indexing.pruning import clear_prune
from app.indexing.routing import Routing, space_of
from app.jobs.queue import enqueue
from app.logs import get_logger
from app.storage.contract import BlobStore

log = get_logger()
MAX_ROWS = 200
_PRUNES = text("select work_id, document_id, generation_id from stackroom_pending_prunes(:max_rows)")
_STRANDED = text(
    "select work_id, document_id from stackroom_stranded_documents(make_interval(secs => :seconds), :max_rows)"
)
_RECEIPTS = text(
    "select work_id, id, kind, object_id from stackroom_open_receipts(make_interval(secs => :seconds), :max_rows)"
)
_MAINTAIN = text("select work_id, index_version from stackroom_works_to_maintain(:max_rows)")
_MAINTAINED = text("update works set maintained_version = :version where id = :work_id")
_FORGET = text("select stackroom_forget_old_rows(interval '24 hours', interval '90 days')")


@dataclass
class Upkeep:
    """Reaper, prunes, stranded documents, open receipts, uploads nobody finished, superfluous blobs, old rows."""

    database: Database
    storage: BlobStore
    routing: Routing
    lease_s: float
    store_call_timeout_s: float
    pending_upload_ttl_s: float
    stranded_after_s: float

    async def run(self) -> None:
        """One round of everything; a part that fails does not keep the others from running."""
        for part in (
            self.reap_writes,
            self.prune,
            self.requeue_stranded,
            self.requeue_receipts,
            self.clean_uploads,
            self.delete_blobs,
            self.forget_old_rows,
        ):
            try:
                await part()
            except (AppError, TimeoutError) as error:
                log.warning("upkeep.part_failed", part=part.__name__, error=type(error).__name__)

    async def reap_writes(self) -> None:
        """Take over announced writes with expired leases, delete those builds, then the rows."""
        async with self.database.unscoped() as session:
            expired = await writes.list_expired(session, max_rows=MAX_ROWS)
        for work_id, document_id, generation_id, build in expired:
            try:
                await self._reap(work_id, document_id, generation_id, build)
            except (AppError, TimeoutError) as error:
                log.warning("reaper.later", document_id=str(document_id), error=type(error).__name__)

    async def _reap(self, work_id: UUID, document_id: UUID, generation_id: UUID, build: int) -> None:
        owner = new_id()
        async with self.database.transaction(Reach.of(work_id)) as session:
            taken = await writes.take_over(
                session,
                document_id=document_id,
                generation_id=generation_id,
                build=build,
                owner=owner,
                lease_s=self.lease_s,
            )
            generation = await session.get(IndexGeneration, generation_id)
        if not taken or generation is None:
            return
        await self._delete_unless_live(work_id, document_id, generation, build)
        async with self.database.transaction(Reach.of(work_id)) as session:
            await writes.withdraw(
                session, document_id=document_id, generation_id=generation_id, build=build, owner=owner
            )
        log.info("reaper.build_removed", document_id=str(document_id), build=build)

    async def _delete_unless_live(
        self, work_id: UUID, document_id: UUID, generation: IndexGeneration, build: int
    ) -> None:
        """A build that coordinates name is live (its announcement was a repeated one) and stays."""
        async with self.database.transaction(Reach.of(work_id)) as session:
            live = await session.scalar(
                select(Coordinates.build).where(
                    Coordinates.work_id == work_id,
                    Coordinates.document_id == document_id,
                    Coordinates.generation_id == generation.id,
                )
            )
        place = await self.routing.store(generation)
        if place is None or live == build:
            return
        async with asyncio.timeout(self.store_call_timeout_s):
            await place.store.delete_build(work_id, document_id, place.space, build)

    async def prune(self) -> None:
        """Repeat prunes that have not worked yet."""
        async with self.database.unscoped() as session:
            rows = (await session.execute(_PRUNES, {"max_rows": MAX_ROWS})).all()
        for work_id, document_id, generation_id in rows:
            try:
                await self._prune(work_id, document_id, generation_id)
            except (AppError, TimeoutError) as error:
                log.warning("prune.later", document_id=str(document_id), error=type(error).__name__)

    async def _prune(self, work_id: UUID, document_id: UUID, generation_id: UUID) -> None:
        async with self.database.transaction(Reach.of(work_id)) as session:
            row = await session.get(Coordinates, (work_id, document_id, generation_id))
            generation = await session.get(IndexGeneration, generation_id)
        if row is None or generation is None or row.instance_id is None:
            return
        store = await self.routing.store_at(work_id, row.instance_id)
        async with asyncio.timeout(self.store_call_timeout_s):
            await store.prune_chunks(work_id, document_id, space_of(generation), row.build)
        async with self.database.transaction(Reach.of(work_id)) as session:
            await clear_prune(session, document_id, generation_id, row.build)

    async def requeue_stranded(self) -> None:
        """A waiting document without a job gets one: none stays in a state that nothing ends."""
        async with self.database.unscoped() as session:
            facts = {"seconds": self.stranded_after_s, "max_rows": MAX_ROWS}
            rows = (await session.execute(_STRANDED, facts)).all()
        for work_id, document_id in rows:
            async with self.database.transaction(Reach.of(work_id)) as session:
                document = await session.get(Document, document_id)
                if document is None or document.status not in ("queued", "processing"):
                    continue
                await enqueue(
                    session,
                    "ingest_document",
                    args={"work_id": str(work_id), "document_id": str(document_id)},
                    lock=f"document:{document_id}",
                    queueing_lock=f"ingest:{document_id}",
                    queue="ingest",
                )
            log.warning("document.requeued", document_id=str(document_id))

    async def requeue_receipts(self) -> None:
        """An open receipt without a job gets one."""
        async with self.database.unscoped() as session:
            facts = {"seconds": self.stranded_after_s, "max_rows": MAX_ROWS}
            rows = (await session.execute(_RECEIPTS, facts)).all()
        for work_id, receipt_id, kind, object_id in rows:
            args = {"work_id": str(work_id), "receipt_id": str(receipt_id), f"{kind}_id": str(object_id)}
            async with self.database.transaction(Reach.of(work_id)) as session:
                await enqueue(
                    session,
                    f"forget_{kind}",
                    args=args,
                    lock=f"forget:{object_id}",
                    queueing_lock=f"forget:{object_id}",
                    queue="forget",
                )

    async def clean_uploads(self) -> None:
        """Uploads that nobody touches any more."""
        await outbox.clean_uploads(self.database, older_than_s=self.pending_upload_ttl_s)

    async def delete_blobs(self) -> None:
        """Bytes that are superfluous."""
        await outbox.delete_blobs(self.database, self.storage)

    async def forget_old_rows(self) -> None:
        """Idempotency keys after 24 hours, receipts 90 days after they closed."""
        async with self.database.unscoped() as session:
            await session.execute(_FORGET)

    async def maintain(self) -> None:
        """Let stores build indexes and compact for Works that have changed since the last time; may take minutes."""
        async with self.database.unscoped() as session:
            rows = (await session.execute(_MAINTAIN, {"max_rows": MAX_ROWS})).all()
        for work_id, version in rows:
            async with self.database.transaction(Reach.of(work_id)) as session:
                generation = await find_active(session, work_id)
            place = None if generation is None else await self.routing.store(generation)
            if place is not None:
                await place.store.maintain(work_id, place.space)
            async with self.database.transaction(Reach.of(work_id)) as session:
                await session.execute(_MAINTAINED, {"work_id": work_id, "version": version})
