"""What tests of sweeps share: a Work whose model or store changes, its sweep run by hand, and searches meanwhile."""

import asyncio
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import select, text

from app.indexing.models import IndexGeneration
from app.indexing.reconciling import Reconciled, Reconciler
from app.indexing.routing import space_of
from app.ingestion.auditing import Auditor
from app.ingestion.copying import Copier
from app.ingestion.removing import Removal
from app.ingestion.sweeping import Sweep
from app.jobs.queue import JobRetry
from app.plugins.registry import Registry
from tests.integration.ingestion.conftest import TIMING, WIDTH, Bench


@dataclass
class Changing:
    """The parts of a sweep over a bench."""

    bench: Bench
    sweep: Sweep
    removal: Removal
    auditor: Auditor

    @classmethod
    def of(cls, bench: Bench) -> "Changing":
        copier = Copier(bench.database, bench.routing, TIMING)
        auditor = Auditor(bench.database, bench.routing, TIMING)
        sweep = Sweep(bench.database, copier, auditor, 0.05)
        removal = Removal(bench.database, bench.routing, TIMING.store_call_timeout_s, 0.05, grace_s=0.0)
        return cls(bench, sweep, removal, auditor)

    def under(self, **openai: Any) -> Reconciler:
        """A reconciler in an environment with other settings of the provider, such as `model="n"`."""
        environment = self.bench.environment
        registry = Registry([("openai", "app.ai_providers.openai:OpenAiProvider")])
        values = {"base_url": self.bench.provider.url, "api_key": "sk-test", "model": "m", "dimensions": WIDTH}
        settings = {**environment.settings, "openai": registry.parse_settings("openai", {**values, **openai})}
        chooser = self.bench.chooser_of(replace(environment, settings=settings))
        return Reconciler(self.bench.database, chooser, f"environment {sorted(openai.items())}")

    async def want(self, **openai: Any) -> Reconciled:
        return await self.under(**openai).reconcile(self.bench.work_id)

    async def run(self, generation: IndexGeneration | None) -> None:
        """The sweep's job, until it does not ask to be run again."""
        assert generation is not None
        for _ in range(200):
            try:
                await self.sweep.run(self.bench.work_id, generation.id)
            except JobRetry as again:
                await asyncio.sleep(min(again.delay_s, 0.05))
            else:
                return
        raise AssertionError("the sweep never ends")

    async def forget(self, generation: IndexGeneration) -> None:
        """The removal's job, likewise."""
        async with self.bench.session() as session:
            receipt_id = await session.scalar(
                text("select id from deletion_receipts where object_id = :id"), {"id": generation.id}
            )
        assert receipt_id is not None
        for _ in range(200):
            try:
                await self.removal.forget_generation(self.bench.work_id, generation.id, receipt_id)
            except JobRetry as again:
                await asyncio.sleep(min(again.delay_s, 0.05))
            else:
                return
        raise AssertionError("the removal never ends")

    async def states(self) -> dict[int, str]:
        async with self.bench.session() as session:
            rows = await session.execute(select(IndexGeneration.number, IndexGeneration.state))
            return {row[0]: row[1] for row in rows}

    async def generation(self, number: int) -> IndexGeneration:
        async with self.bench.session() as session:
            found = await session.scalar(select(IndexGeneration).where(IndexGeneration.number == number))
        assert found is not None
        return found

    async def stored(self, number: int) -> dict[UUID, tuple[int, int]]:
        """Document → (build, chunks) in the space of a generation."""
        space = space_of(await self.generation(number))
        scan = self.bench.store.scan_documents(self.bench.work_id, space)
        return {found.document_id: (found.build, found.chunks) async for found in scan}

    async def activity(self) -> list[str]:
        async with self.bench.session() as session:
            return list(await session.scalars(text("select kind from activity_entries order by id")))

    def embedded(self) -> int:
        """How many texts the provider has been asked for as documents so far."""
        return sum(
            len(request.inputs) for request in self.bench.provider.requests if request.path.endswith("embeddings")
        )
