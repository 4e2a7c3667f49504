"""The orphan check: every space that any generation names is compared with its coordinates, and mended on request."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import delete, text
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.models import DeletionReceipt
from app.db.engine import Database, Reach
from app.documents.models import Document
from app.documents.starting import begin_again
from app.errors import AppError
from app.indexing.models import Coordinates, IndexGeneration
from app.indexing.remaining import Live
from app.ingestion.auditing import Audit, Auditor, Finding
from app.ingestion.copying import Copier
from app.logs import get_logger

log = get_logger()
MAX_ROWS = 100
A_DAY_S = 86_400.0
AN_HOUR_S = 3_600.0
_GENERATIONS = text("select work_id, generation_id from stackroom_list_generations(:after, :max_rows)")
_CLAIM = text("select work_id, generation_id from stackroom_claim_check(make_interval(secs => :seconds), :max_rows)")
_RECEIPTS = text("select work_id, id from stackroom_open_receipts(make_interval(secs => :seconds), :max_rows)")


@dataclass
class Checked:
    """One space. `away` = why its store could not be asked; `mended` = findings that were mended."""

    generation: IndexGeneration
    audit: Audit = field(default_factory=Audit)
    away: str | None = None
    mended: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether the store was asked and holds just what it should."""
        return self.away is None and self.audit.is_clean


@dataclass(frozen=True)
class OpenReceipt:
    """A deletion that has not ended for an hour. `stores`: what remains where; -1 = the store is away."""

    id: UUID
    kind: str
    object_id: UUID
    created_at: datetime
    stores: list[Any]


@dataclass
class Checker:
    """The use cases behind `stackroom check` and the daily look at each active index."""

    database: Database
    auditor: Auditor
    copier: Copier

    async def run(self, *, repair: bool) -> AsyncIterator[Checked]:
        """Every generation, one after the other, by age; with `repair` looked at again after mending."""
        after = UUID(int=0)
        while True:
            async with self.database.unscoped() as session:
                rows = (await session.execute(_GENERATIONS, {"after": after, "max_rows": MAX_ROWS})).all()
            for work_id, generation_id in rows:
                found = await self.check(work_id, generation_id, repair=repair)
                if found is not None:
                    yield found
            if len(rows) < MAX_ROWS:
                return
            after = rows[-1][1]

    async def run_due(self) -> None:
        """Look at active indexes that nobody has looked at for a day, and say what is wrong. Mends nothing."""
        async with self.database.unscoped() as session:
            rows = (await session.execute(_CLAIM, {"seconds": A_DAY_S, "max_rows": MAX_ROWS})).all()
        for work_id, generation_id in rows:
            found = await self.check(work_id, generation_id, repair=False)
            if found is not None and found.away is None and not found.is_clean:
                log.warning(
                    "check.found",
                    generation_id=str(generation_id),
                    missing=len(found.audit.missing),
                    leftovers=len(found.audit.leftovers),
                    hint="stackroom check --repair",
                )

    async def check(self, work_id: UUID, generation_id: UUID, *, repair: bool) -> Checked | None:
        """One generation; None for a lexical one."""
        async with self._transaction(work_id) as session:
            generation = await session.get(IndexGeneration, generation_id)
        if generation is None or generation.store_instance_id is None:
            return None
        found = Checked(generation)
        try:
            found.audit = await self.auditor.audit(generation)
            if repair and not found.audit.is_clean:
                found.mended = await self._mend(generation, found.audit)
                found.audit = await self.auditor.audit(generation)
        except (AppError, TimeoutError) as error:
            found.away = error.message if isinstance(error, AppError) else "the store took too long"
        except Exception as error:  # a plugin's own: the other indexes are looked at all the same
            log.exception("check.crashed", generation_id=str(generation_id))
            found.away = f"its plugin crashed ({type(error).__name__})"
        return found

    async def open_receipts(self) -> list[OpenReceipt]:
        """Deletions that have been open for an hour, oldest first, at most a hundred."""
        async with self.database.unscoped() as session:
            rows = (await session.execute(_RECEIPTS, {"seconds": AN_HOUR_S, "max_rows": MAX_ROWS})).all()
        found = []
        for work_id, receipt_id in rows:
            async with self._transaction(work_id) as session:
                row = await session.get(DeletionReceipt, receipt_id)
            if row is not None and row.closed_at is None:
                found.append(OpenReceipt(row.id, row.kind, row.object_id, row.created_at, row.stores or []))
        return found

    async def _mend(self, generation: IndexGeneration, audit: Audit) -> int:
        """Delete what nobody names; bring what is missing. How many findings."""
        mended = await self.auditor.delete_leftovers(generation, audit.leftovers)
        for finding in audit.missing.values():
            try:
                mended += await self._bring(generation, finding)
            except (AppError, TimeoutError) as error:
                log.warning("check.not_mended", document_id=str(finding.document_id), error=type(error).__name__)
        return mended

    async def _bring(self, generation: IndexGeneration, finding: Finding) -> bool:
        """In the active index the chunks are written again; with too many of them, as another build.

        In a retired one a document of which nothing is left is taken out: going back to it brings it again. One of
        which some is left stays named, so that a deletion finds it; going back mends it. A sweep sees to its own.
        """
        if generation.state == "building" or (generation.state != "active" and finding.found):
            return False
        if generation.state != "active":
            async with self._transaction(generation.work_id) as session:
                await session.execute(
                    delete(Coordinates).where(
                        Coordinates.work_id == generation.work_id,
                        Coordinates.document_id == finding.document_id,
                        Coordinates.generation_id == generation.id,
                        Coordinates.build == finding.build,
                    )
                )
            return True
        if finding.expected is not None and finding.found > finding.expected:
            return await self._begin_again(generation, finding)
        async with self._transaction(generation.work_id) as session:
            document = await session.get(Document, finding.document_id)
        if document is None or document.live_build != finding.build:
            return False
        live = Live(document.id, finding.build, document.kb_id)
        return await self.copier.copy(live, generation, None) == "copied"

    async def _begin_again(self, generation: IndexGeneration, finding: Finding) -> bool:
        async with self._transaction(generation.work_id) as session:
            document = await session.get(Document, finding.document_id, with_for_update=True)
            if document is None or document.deleting_at is not None or document.live_build != finding.build:
                return False
            await begin_again(session, document)
        return True

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))
