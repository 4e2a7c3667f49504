"""How one index generation follows another: every change of state, in a transaction that holds `W` exclusively."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal
from uuid import UUID

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.activity.entries import note_entry
from app.activity.receipts import find_receipt, open_receipt
from app.db.base import new_id
from app.indexing.choices import Choice
from app.indexing.models import IndexGeneration, IndexRefusal
from app.indexing.remaining import count_documents, count_remaining, list_refusals, next_remaining
from app.jobs.queue import FORGET, SWEEP, enqueue
from app.tenancy.versions import raise_index_version

NOT_EMBEDDED: Final = {
    "code": "not_embedded",
    "message": "The embedding provider or the vector store refuses this document; it is found by its words only.",
}
Flip = Literal["flipped", "remaining", "refused", "gone"]
_MARK = text(
    "update kb_documents d set warnings = d.warnings || cast(:warning as jsonb) from index_refusals r"
    " where r.generation_id = :new and r.document_id = d.id and r.build = d.live_build"
    "   and not d.warnings @> cast(:warning as jsonb)"
)
_UNMARK = text(
    "update kb_documents d set warnings = (select coalesce(jsonb_agg(w), '[]') from jsonb_array_elements(d.warnings) w"
    " where w ->> 'code' <> 'not_embedded') from index_refusals r"
    " where r.generation_id = :old and r.document_id = d.id"
)


@dataclass(frozen=True)
class Standing:
    """The generations of a Work that matter now."""

    active: IndexGeneration | None
    building: IndexGeneration | None


async def generations_now(session: AsyncSession, work_id: UUID) -> Standing:
    """The active generation and the one being built, as they are in the database now."""
    query = (
        select(IndexGeneration)
        .where(IndexGeneration.work_id == work_id, IndexGeneration.state.in_(("active", "building")))
        .execution_options(populate_existing=True)
    )
    found = {row.state: row for row in await session.scalars(query)}
    return Standing(found.get("active"), found.get("building"))


async def add_generation(
    session: AsyncSession, work_id: UUID, choice: Choice, *, state: Literal["active", "building"], forced: bool = False
) -> IndexGeneration:
    """A new generation with the next number."""
    newest = await session.scalar(select(func.max(IndexGeneration.number)).where(IndexGeneration.work_id == work_id))
    now = datetime.now(UTC)
    made = IndexGeneration(
        id=new_id(),
        work_id=work_id,
        number=(newest or 0) + 1,
        state=state,
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
        forced=forced,
        dual_writes=False,
        created_at=now,
        activated_at=now if state == "active" else None,
    )
    session.add(made)
    await session.flush()
    return made


async def start_building(
    session: AsyncSession, work_id: UUID, choice: Choice, active: IndexGeneration, *, forced: bool = False
) -> IndexGeneration:
    """A generation beside the active one, and its sweep."""
    made = await add_generation(session, work_id, choice, state="building", forced=forced)
    await _started(session, active, made)
    return made


async def revive(
    session: AsyncSession, active: IndexGeneration, retired: IndexGeneration, *, forced: bool = False
) -> None:
    """Build a retired generation again: it lacks only what has changed since."""
    retired.state, retired.retired_at, retired.error, retired.forced = "building", None, None, forced
    await session.flush()
    await _started(session, active, retired)


async def _started(session: AsyncSession, active: IndexGeneration, new: IndexGeneration) -> None:
    new.documents_total = await count_documents(session, new.work_id)
    new.documents_done = new.documents_total - await count_remaining(session, new.work_id, new.id)
    await session.flush()
    await note_entry(session, new.work_id, "KB_REEMBED_STARTED", _facts(new, previous=str(active.id)))
    await enqueue_sweep(session, new, previous=active.id)


async def enqueue_sweep(session: AsyncSession, new: IndexGeneration, *, previous: UUID, delay_s: float = 0) -> None:
    """The job that fills a generation; one for each Work at a time."""
    await enqueue(
        session,
        "kb_reembed_work",
        args={"work_id": str(new.work_id), "previous": str(previous), "new": str(new.id)},
        lock=f"sweep:{new.work_id}",
        queueing_lock=f"sweep:{new.id}",
        queue=SWEEP,
        delay_s=delay_s,
    )


async def give_up(
    session: AsyncSession, building: IndexGeneration, state: Literal["cancelled", "failed"], reason: str | None
) -> None:
    """End a generation that is being built; the active one is untouched. Its space is emptied by a job.

    One that was active before and is cancelled is retired again: it can still be gone back to.
    """
    building.error, building.dual_writes = reason, False
    if state == "cancelled" and building.activated_at is not None:
        building.state, building.retired_at = "retired", datetime.now(UTC)
        await session.flush()
        return
    building.state = state
    await session.flush()
    if state == "failed":
        await note_entry(session, building.work_id, "KB_REEMBED_FAILED", _facts(building, error=reason))
    await enqueue_removal(session, building)


async def start_removal(session: AsyncSession, retired: IndexGeneration) -> None:
    """A retired generation goes for good; from here on it can't be revived."""
    retired.state = "removing"
    await session.flush()
    await enqueue_removal(session, retired)


async def enqueue_removal(session: AsyncSession, generation: IndexGeneration) -> None:
    """A receipt, open until the space is empty, and the job that empties it."""
    known = await find_receipt(session, generation.work_id, generation.id)
    receipt_id = None if known is None or known.closed_at is not None else known.id
    if receipt_id is None:
        receipt_id = await open_receipt(
            session,
            generation.work_id,
            kind="generation",
            object_id=generation.id,
            knowledge_base_id=None,
            owner=("work", generation.work_id),
            requested_by=None,
        )
    await enqueue(
        session,
        "forget_generation",
        args={
            "work_id": str(generation.work_id),
            "generation_id": str(generation.id),
            "receipt_id": str(receipt_id),
        },
        lock=f"forget:{generation.id}",
        queueing_lock=f"forget:{generation.id}",
        queue=FORGET,
    )


async def flip(session: AsyncSession, work_id: UUID, generation_id: UUID) -> Flip:
    """Make a complete generation the active one, and retire the one before it.

    `W` is held exclusively, so no build goes live meanwhile: what is complete now is complete when this commits.
    """
    now = await generations_now(session, work_id)
    new, old = now.building, now.active
    if new is None or new.id != generation_id or old is None:
        return "gone"
    if await next_remaining(session, work_id, new.id, after=None, limit=1):
        return "remaining"
    if await list_refusals(session, new.id, accepted=False, limit=1):
        return "refused"
    old.state, old.retired_at = "retired", datetime.now(UTC)
    await session.flush()
    refused = await session.scalar(
        select(func.count()).select_from(IndexRefusal).where(IndexRefusal.generation_id == new.id)
    )
    new.state, new.activated_at, new.error, new.dual_writes = "active", datetime.now(UTC), None, False
    new.documents_total = await count_documents(session, work_id)
    new.documents_refused = refused or 0
    new.documents_done = new.documents_total - new.documents_refused
    await session.flush()
    await session.execute(_UNMARK, {"old": old.id})
    await session.execute(_MARK, {"new": new.id, "warning": json.dumps([NOT_EMBEDDED])})
    await note_entry(session, work_id, "KB_REEMBED_COMPLETED", _facts(new, previous=str(old.id)))
    await raise_index_version(session, work_id)
    return "flipped"


async def set_progress(session: AsyncSession, generation_id: UUID, **values: Any) -> None:
    """Write counters or what is waited for, while the generation is being built."""
    await session.execute(
        update(IndexGeneration)
        .where(IndexGeneration.id == generation_id, IndexGeneration.state == "building")
        .values(**values)
        .execution_options(synchronize_session=False)
    )


async def list_retired(session: AsyncSession, work_id: UUID) -> Sequence[IndexGeneration]:
    """Generations that can still be revived, newest first."""
    query = select(IndexGeneration).where(IndexGeneration.work_id == work_id, IndexGeneration.state == "retired")
    return (await session.scalars(query.order_by(IndexGeneration.number.desc()))).all()


def _facts(generation: IndexGeneration, **more: object) -> dict[str, object]:
    return {
        "generation_id": str(generation.id),
        "number": generation.number,
        "vector_store_id": generation.vector_store_id,
        "embedding_model": generation.embedding_model,
        "dims": generation.dims,
        "documents_total": generation.documents_total,
        "documents_done": generation.documents_done,
        "documents_refused": generation.documents_refused,
        **more,
    }
