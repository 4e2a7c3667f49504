"""Whether a Work has the index it should have; if not, another is built beside it.

Looked at when something is said anew, at the start of a worker whose environment is another, and now and then.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import UUID

from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Database, Reach
from app.errors import AppError, Misconfigured, Unavailable
from app.indexing.choices import Choice, EnvironmentChoice
from app.indexing.choosing import Chooser
from app.indexing.errors import GenerationBuilding, NoIndexYet, UpToDate
from app.indexing.models import IndexGeneration
from app.indexing.succession import generations_now, give_up, list_retired, revive, start_building
from app.indexing.writes import lock_work
from app.jobs.queue import INGEST, enqueue
from app.logs import get_logger
from app.plugins.registry import Registry
from app.plugins.sealing import fingerprint
from app.tenancy.models import Work

log = get_logger()
MAX_WORKS = 100
LOOK_AGAIN_S = 6 * 3_600.0  # changes are marked when they are made; this finds what nobody has marked
SOON_S = 60.0  # where a store that was away kept a Work from getting vectors, or the choice could not be made
_DUE = text("select work_id from stackroom_works_to_reconcile(:max_rows)")
_ENVIRONMENT = text("select stackroom_environment_is(:wanted)")
_LATEST = text("select id from index_generations where work_id = :work order by number desc limit 1")

Outcome = Literal["no_index", "up_to_date", "building", "begun", "revived", "failed_before", "undecided"]


@dataclass(frozen=True)
class Reconciled:
    """What a look came to, and the generation that it is about."""

    outcome: Outcome
    generation: IndexGeneration | None = None


class Reconciler:
    """Compares and begins. `environment` = a fingerprint of what the operator's environment says."""

    def __init__(self, database: Database, chooser: Chooser, environment: str) -> None:
        self._database = database
        self._chooser = chooser
        self._environment = environment

    async def note_environment(self) -> int:
        """Let every Work be looked at that was last looked at under another environment; how many."""
        async with self._database.unscoped() as session:
            marked = int(await session.scalar(_ENVIRONMENT, {"wanted": self._environment}) or 0)
        if marked:
            log.info("reconcile.environment_changed", works=marked)
        return marked

    async def run_due(self) -> None:
        """Look at the Works whose time has come, until none is left. One that fails does not keep the others."""
        seen: set[UUID] = set()
        while True:
            async with self._database.unscoped() as session:
                rows = (await session.execute(_DUE, {"max_rows": MAX_WORKS})).all()
            due = [row[0] for row in rows if row[0] not in seen]
            if not due:
                return
            seen.update(due)
            for work_id in due:
                try:
                    await self.reconcile(work_id)
                except AppError as error:
                    log.warning("reconcile.failed", work_id=str(work_id), code=error.code)
                    await self._postpone(work_id, SOON_S)
                except Exception:  # a plugin's own, perhaps: the other Works are looked at all the same
                    log.exception("reconcile.crashed", work_id=str(work_id))
                    await self._postpone(work_id, SOON_S)

    async def build(self, work_id: UUID, *, forced: bool) -> IndexGeneration:
        """Build what is wanted by command; `forced` = also where the active index is what is wanted.

        A generation that failed is built anew. Raises: GenerationBuilding, UpToDate, NoIndexYet, Misconfigured,
        Unavailable.
        """
        found = await self.reconcile(work_id, by_command=True, forced=forced)
        if found.outcome == "building" and found.generation is not None:
            raise GenerationBuilding(generation_id=str(found.generation.id))
        if found.outcome == "up_to_date":
            raise UpToDate()
        if found.generation is None or found.outcome == "no_index":
            raise NoIndexYet()
        return found.generation

    async def reconcile(self, work_id: UUID, *, by_command: bool = False, forced: bool = False) -> Reconciled:
        """Compare and, where needed, begin. Raises (by command only): Misconfigured, Unavailable."""
        for _ in range(3):
            async with self._database.transaction(Reach.of(work_id)) as session:
                seen = (await generations_now(session, work_id)).active
            if seen is None:
                await self._postpone(work_id, None)
                return Reconciled("no_index")
            try:
                choice = await self._chooser.wanted(work_id, seen)
            except (Misconfigured, Unavailable) as error:
                if by_command:
                    raise
                log.info("reconcile.undecided", work_id=str(work_id), code=error.code)
                await self._postpone(work_id, SOON_S)
                return Reconciled("undecided")
            async with self._database.transaction(Reach.of(work_id)) as session:
                await lock_work(session, work_id, exclusive=True)
                now = await generations_now(session, work_id)
                if now.active is None or now.active.id != seen.id:
                    continue  # another index has become the active one meanwhile
                found = await self._settle(session, work_id, choice, by_command=by_command, forced=forced)
                waits = choice.vector_store_id is None and choice.passed_over
                await self._looked(session, work_id, SOON_S if waits else LOOK_AGAIN_S)
            if found.outcome in ("begun", "revived") and found.generation is not None:
                log.info("reembed.started", work_id=str(work_id), generation_id=str(found.generation.id))
            return found
        return Reconciled("undecided")

    async def _settle(
        self, session: AsyncSession, work_id: UUID, choice: Choice, *, by_command: bool, forced: bool
    ) -> Reconciled:
        now = await generations_now(session, work_id)
        active, building = now.active, now.building
        if active is None:
            return Reconciled("no_index")
        is_right = building is not None and choice.is_that_of(building)
        if building is not None and is_right and (building.forced or not choice.is_that_of(active)):
            return Reconciled("building", building)
        if building is not None:
            await give_up(session, building, "cancelled", "Something else is wanted now.")
        if choice.is_that_of(active) and not forced:
            return Reconciled("up_to_date", active)
        if not forced:
            for retired in await list_retired(session, work_id):
                if choice.is_that_of(retired):
                    await revive(session, active, retired)
                    return Reconciled("revived", retired)
            if not by_command and (failed := await _failed_before(session, work_id, choice)) is not None:
                return Reconciled("failed_before", failed)
        return Reconciled("begun", await start_building(session, work_id, choice, active, forced=forced))

    async def _postpone(self, work_id: UUID, seconds: float | None) -> None:
        async with self._database.transaction(Reach.of(work_id)) as session:
            await self._looked(session, work_id, seconds)

    async def _looked(self, session: AsyncSession, work_id: UUID, again_s: float | None) -> None:
        when = None if again_s is None else datetime.now(UTC) + timedelta(seconds=again_s)
        await session.execute(
            update(Work)
            .where(Work.id == work_id)
            .values(reconcile_at=when, reconciled_under=self._environment)
            .execution_options(synchronize_session=False)
        )


async def mark_due(session: AsyncSession, *, work_id: UUID | None, organization_id: UUID) -> None:
    """Let a Work, or all of an organization, be looked at as soon as this commits, if they have an index."""
    mine = Work.organization_id == organization_id if work_id is None else Work.id == work_id
    await session.execute(
        update(Work)
        .where(mine, Work.reconcile_at.is_not(None))
        .values(reconcile_at=datetime.now(UTC))
        .execution_options(synchronize_session=False)
    )
    await enqueue(session, "reconcile_works", args={}, lock="reconcile", queueing_lock="reconcile", queue=INGEST)


async def _failed_before(session: AsyncSession, work_id: UUID, choice: Choice) -> IndexGeneration | None:
    """The newest generation, if it is what is wanted and could not be built: that is tried again by command only."""
    newest = await session.scalar(_LATEST, {"work": work_id})
    found = None if newest is None else await session.get(IndexGeneration, newest)
    return found if found is not None and found.state == "failed" and choice.is_that_of(found) else None


def environment_fingerprint(environment: EnvironmentChoice, registry: Registry) -> str:
    """What the environment says of choosing, as 64 hex digits; secrets are no part of it."""
    places: Mapping[str, str] = {
        plugin.manifest.id: fingerprint(plugin.manifest, environment.settings[plugin.manifest.id], plugin=plugin.cls)
        for plugin in registry.plugins()
        if plugin.manifest.id in environment.settings
    }
    facts = {
        "pins": [environment.store_pin, environment.provider_pin],
        "defaults": [environment.store_default, environment.provider_default],
        "wish": [environment.wish.mode, environment.wish.model, environment.wish.dimensions],
        "disabled": sorted(environment.disabled),
        "plugins": sorted(plugin.manifest.id for plugin in registry.plugins()),
        "places": places,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
