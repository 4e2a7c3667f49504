"""What people do with generations: look, build, activate, cancel, go back."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Database, Reach
from app.errors import Misconfigured, Unavailable
from app.identity.caller import Caller
from app.indexing.changing import Changer, Target, View
from app.indexing.choosing import Chooser
from app.indexing.errors import (
    GenerationIncomplete,
    GenerationNotFound,
    NotWantedAgain,
    PinnedByOperator,
    WrongState,
)
from app.indexing.facts import Level, PluginSay
from app.indexing.models import IndexGeneration, IndexRefusal
from app.indexing.pinning import with_say
from app.indexing.reconciling import Reconciler
from app.indexing.remaining import count_documents, count_remaining, list_refusals
from app.indexing.succession import enqueue_sweep, generations_now, give_up, revive
from app.indexing.writes import lock_work
from app.plugins.selection import PIN_VARIABLES
from app.tenancy.administering import administer_work, view_work

NAMED: Final = 100  # refused documents that an error lists


@dataclass
class GenerationCommands:
    """The use cases of the generation doors. Every id is authorised first."""

    database: Database
    changer: Changer
    chooser: Chooser
    reconciler: Reconciler

    async def get(self, caller: Caller, work_id: UUID, generation_id: UUID) -> IndexGeneration:
        """One generation. Raises: WorkNotFound, GenerationNotFound."""
        async with self._transaction(caller) as session:
            await view_work(session, caller, work_id)
            return await _found(session, work_id, generation_id)

    async def count_live(self, work_id: UUID) -> int:
        """How many documents of a Work that the caller may see are live."""
        async with self.database.transaction(Reach.of(work_id)) as session:
            return await count_documents(session, work_id)

    async def refusals(
        self, caller: Caller, work_id: UUID, generation_id: UUID, *, after: UUID | None, limit: int
    ) -> Sequence[IndexRefusal]:
        """Documents that the generation's provider or store refuses, by id. Raises: as `get`."""
        async with self._transaction(caller) as session:
            await administer_work(session, caller, work_id)
            await _found(session, work_id, generation_id)
            return await list_refusals(session, generation_id, after=after, limit=limit)

    async def build(self, caller: Caller, work_id: UUID, *, forced: bool) -> IndexGeneration:
        """Build what is wanted. Raises: as `Reconciler.build`, WorkNotFound, Forbidden."""
        async with self._transaction(caller) as session:
            await administer_work(session, caller, work_id)
        return await self.reconciler.build(work_id, forced=forced)

    async def activate(
        self, caller: Caller, work_id: UUID, generation_id: UUID, *, allow_missing: bool
    ) -> IndexGeneration:
        """Let a complete generation be verified and switched to, which a job does; `allow_missing` accepts the refused.

        Raises: GenerationIncomplete with what is missing, WrongState, WorkNotFound, GenerationNotFound, Forbidden.
        """
        async with self._transaction(caller) as session:
            await administer_work(session, caller, work_id)
            await lock_work(session, work_id, exclusive=True)
            found = await _found(session, work_id, generation_id)
            now = await generations_now(session, work_id)
            if found.state == "active":
                return found
            if found.state != "building" or now.active is None:
                raise WrongState(_wrong(found, "activated"), state=found.state)
            remaining = await count_remaining(session, work_id, found.id)
            refused = await list_refusals(session, found.id, accepted=False, limit=NAMED + 1)
            if remaining or (refused and not allow_missing):
                raise GenerationIncomplete(
                    _missing(remaining, refused),
                    remaining=remaining,
                    refused=[
                        {"document_id": str(one.document_id), "code": one.code, "message": one.message}
                        for one in refused[:NAMED]
                    ],
                )
            await session.execute(
                update(IndexRefusal)
                .where(IndexRefusal.generation_id == found.id)
                .values(accepted=True)
                .execution_options(synchronize_session=False)
            )
            await enqueue_sweep(session, found, previous=now.active.id)
            return found

    async def cancel(self, caller: Caller, work_id: UUID, generation_id: UUID) -> IndexGeneration:
        """Stop building; the active one stays. Raises: WrongState, WorkNotFound, GenerationNotFound, Forbidden."""
        async with self._transaction(caller) as session:
            await administer_work(session, caller, work_id)
            await lock_work(session, work_id, exclusive=True)
            found = await _found(session, work_id, generation_id)
            if found.state == "cancelled":
                return found
            if found.state != "building":
                raise WrongState(_wrong(found, "cancelled"), state=found.state)
            await give_up(session, found, "cancelled", "Cancelled by command.")
            return found

    async def roll_back(self, caller: Caller, work_id: UUID, generation_id: UUID) -> IndexGeneration:
        """Go back to a retired generation: it is built again where it lacks something, and what chose it is pinned.

        Raises: PinnedByOperator naming the variable, NotWantedAgain, WrongState, WorkNotFound, GenerationNotFound,
        Forbidden, ChangedMeanwhile.
        """
        target = await self.get(caller, work_id, generation_id)
        if target.state != "retired":
            raise WrongState(_wrong(target, "gone back to"), state=target.state)
        self._refuse_operator_pin(target)

        async def plan(view: View) -> Level:
            level = _pinned(view.own, target)
            await self._refuse_unreachable(view.with_own(level), target)
            return level

        async def before(session: AsyncSession) -> None:
            await lock_work(session, work_id, exclusive=True)

        async def also(session: AsyncSession) -> None:
            now = await generations_now(session, work_id)
            found = await _found(session, work_id, generation_id)
            if found.state != "retired" or now.active is None:
                raise WrongState(_wrong(found, "gone back to"), state=found.state)
            if now.building is not None:
                await give_up(session, now.building, "cancelled", "Another generation is gone back to.")
            await revive(session, now.active, found, forced=True)

        await self.changer.change(caller, Target(work_id, is_work=True), plan, before=before, also=also)
        return await self.get(caller, work_id, generation_id)

    def _refuse_operator_pin(self, target: IndexGeneration) -> None:
        environment = self.chooser.environment
        for category, pin, wanted in (
            ("vector-store", environment.store_pin, target.vector_store_id),
            ("ai-provider", environment.provider_pin, target.embedding_provider_id),
        ):
            if pin is not None and wanted is not None and pin != wanted:
                variable = PIN_VARIABLES["vector-store" if category == "vector-store" else "ai-provider"]
                raise PinnedByOperator(f"{variable} pins '{pin}' for everybody; this generation is in '{wanted}'.")

    async def _refuse_unreachable(self, view: View, target: IndexGeneration) -> None:
        """Pins say which plugins; whether that leads to just this generation is found out by choosing."""
        try:
            choice = await self.chooser.chosen(view.standing, target)
        except (Misconfigured, Unavailable) as error:
            raise NotWantedAgain(error.message) from None
        if not choice.is_that_of(target):
            raise NotWantedAgain(
                "Settings of its store or provider have changed since, or no pin can choose it; set them as they were"
                " and the index follows."
            )

    def _transaction(self, caller: Caller) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(organizations=[caller.organization_id]))


async def _found(session: AsyncSession, work_id: UUID, generation_id: UUID) -> IndexGeneration:
    query = (
        select(IndexGeneration)
        .where(IndexGeneration.id == generation_id, IndexGeneration.work_id == work_id)
        .execution_options(populate_existing=True)
    )
    found = (await session.scalars(query)).one_or_none()
    if found is None:
        raise GenerationNotFound()
    return found


def _pinned(level: Level, target: IndexGeneration) -> Level:
    """The Work's word that leads to the generation: store and provider as pins, mode, model and width as settings."""
    pins = {"vector-store": target.vector_store_id, "ai-provider": target.embedding_provider_id}
    for category, plugin_id in pins.items():
        if plugin_id is not None:
            present = level.plugins.get(plugin_id) or PluginSay(plugin_id, category)
            level = with_say(level, replace(present, enabled=True, pinned=True))
    settings = dict(level.settings)
    for name, value in (
        ("kb_embedding_mode", target.embedding_mode),
        ("kb_embedding_model", target.embedding_model),
        ("kb_embedding_dimensions", target.dims if target.embedding_model is not None else None),
    ):
        if value is None:
            settings.pop(name, None)
        else:
            settings[name] = value
    return replace(level, settings=settings)


def _wrong(found: IndexGeneration, wish: str) -> str:
    hints = {
        ("retired", "activated"): " Go back to it with …/rollback.",
        ("failed", "activated"): " Build it again with POST …/generations.",
        ("active", "gone back to"): " It is the one that answers searches now.",
    }
    return f"A generation that is {found.state} can't be {wish}.{hints.get((found.state, wish), '')}"


def _missing(remaining: int, refused: Sequence[IndexRefusal]) -> str:
    said = []
    if remaining:
        said.append(f"{remaining} documents are still to be brought into it")
    if refused:
        number = f"more than {NAMED}" if len(refused) > NAMED else str(len(refused))
        said.append(f"{number} documents were refused (accept that with allow_missing)")
    return f"{' and '.join(said)}."
