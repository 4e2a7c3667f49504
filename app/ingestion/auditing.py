"""Comparing a space with its coordinates: what is missing, what nobody names, and mending both.

The store is scanned first and the coordinates and announced writes are read afterwards. So what is written meanwhile
is never taken for a leftover: whoever writes has announced it before.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.base import new_id
from app.db.engine import Database, Reach
from app.documents.models import Document
from app.errors import AppError, Unavailable
from app.indexing import writes
from app.indexing.models import Coordinates, IndexGeneration, IndexWrite
from app.indexing.routing import Routing, StorePlace
from app.ingestion.timing import Timing
from app.logs import get_logger

log = get_logger()
PROBE = "index"


class NoAnswer(Unavailable):
    """The vector store holds the chunks, but a search over them finds nothing."""

    code = "index_does_not_answer"


@dataclass(frozen=True)
class Finding:
    """A build that is not as its coordinates say. `expected` None = nobody names it; `found` = chunks in the store."""

    document_id: UUID
    build: int
    expected: int | None
    found: int


Findings = dict[tuple[UUID, int], Finding]


@dataclass
class Audit:
    """What a comparison found, by document and build."""

    documents: int = 0
    chunks: int = 0
    missing: Findings = field(default_factory=dict)
    leftovers: Findings = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether the space holds just what it should."""
        return not self.missing and not self.leftovers

    def also_in(self, other: "Audit") -> "Audit":
        """Only what both found."""
        return replace(
            self,
            missing={key: one for key, one in self.missing.items() if key in other.missing},
            leftovers={key: one for key, one in self.leftovers.items() if key in other.leftovers},
        )


@dataclass
class Auditor:
    """Compares spaces and mends them. Holds no connection while a store is waited for."""

    database: Database
    routing: Routing
    timing: Timing

    async def audit(self, generation: IndexGeneration) -> Audit:
        """Compare a generation's space with its coordinates. Raises: the errors of stores.

        What a writer was just replacing looks wrong for a moment: only what is so twice is a finding.
        """
        found = await self._compare(generation)
        if found.is_clean:
            return found
        again = await self._compare(generation)
        return again.also_in(found)

    async def _compare(self, generation: IndexGeneration) -> Audit:
        found = Audit()
        place = await self.routing.store(generation)
        if place is None:
            return found
        stored: dict[tuple[UUID, int], int] = {}
        async for one in place.store.scan_documents(generation.work_id, place.space):
            stored[one.document_id, one.build] = one.chunks
            found.chunks += one.chunks
        named, announced = await self._read(generation)
        found.documents = len(named)
        for document_id, (build, chunks, _, is_deleting) in named.items():
            have = stored.pop((document_id, build), 0)
            if have != chunks and not is_deleting and (document_id, build) not in announced:
                found.missing[document_id, build] = Finding(document_id, build, chunks, have)
        for (document_id, build), chunks in stored.items():
            known = named.get(document_id)
            is_pruned_soon = known is not None and known[2] and build < known[0]
            if (document_id, build) not in announced and not is_pruned_soon:
                found.leftovers[document_id, build] = Finding(document_id, build, None, chunks)
        return found

    async def _read(
        self, generation: IndexGeneration
    ) -> tuple[dict[UUID, tuple[int, int, bool, bool]], set[tuple[UUID, int]]]:
        """Coordinates (build, chunks, whether older builds are still to be pruned, whether the document is going), and
        announced writes.
        """
        coordinates = (
            select(
                Coordinates.document_id,
                Coordinates.build,
                Coordinates.chunk_count,
                Coordinates.prune_pending,
                Document.deleting_at.is_not(None),
            )
            .join(Document, Document.id == Coordinates.document_id)
            .where(Coordinates.generation_id == generation.id)
        )
        writing = select(IndexWrite.document_id, IndexWrite.build).where(IndexWrite.generation_id == generation.id)
        async with self._transaction(generation.work_id) as session:
            named = {row[0]: (row[1], row[2], row[3], row[4]) for row in await session.execute(coordinates)}
            announced = {(row[0], row[1]) for row in await session.execute(writing)}
        return named, announced

    async def verify(self, generation: IndexGeneration) -> bool:
        """Whether a generation that lacks no document really holds them all, and answers; what is wrong is taken out.

        What was stamped and is not there is forgotten, so the sweep brings it again; leftovers are deleted.
        Raises: NoAnswer, the errors of stores and providers.
        """
        found = await self.audit(generation)
        if found.is_clean:
            await self._probe(generation, found)
            return True
        log.warning(
            "reembed.verify_found",
            generation_id=str(generation.id),
            missing=len(found.missing),
            leftovers=len(found.leftovers),
        )
        await self._forget(generation, found.missing)
        present = {key: one for key, one in found.missing.items() if one.found}
        await self.delete_leftovers(generation, {**present, **found.leftovers})
        return False

    async def _probe(self, generation: IndexGeneration, found: Audit) -> None:
        """Ask the space once as a search would."""
        place = await self.routing.store(generation)
        if place is None or not found.chunks:
            return
        embedder = await self.routing.embedder(generation)
        vector = None
        if embedder is not None:
            [vector] = await embedder.provider.create_embedding(
                [PROBE], role="query", model=embedder.model.name, dimensions=embedder.dims
            )
        async with asyncio.timeout(self.timing.store_call_timeout_s):
            hits = await place.store.query_chunks(
                generation.work_id,
                place.space,
                vector=vector,
                text=PROBE if vector is None else None,
                top_k=1,
                eligible=found.chunks,
            )
        if not hits and vector is not None:
            raise NoAnswer()

    async def _forget(self, generation: IndexGeneration, missing: Findings) -> None:
        """Remove coordinates that promise more than there is, unless they have changed since."""
        async with self._transaction(generation.work_id) as session:
            for one in missing.values():
                await session.execute(
                    delete(Coordinates).where(
                        Coordinates.work_id == generation.work_id,
                        Coordinates.document_id == one.document_id,
                        Coordinates.generation_id == generation.id,
                        Coordinates.build == one.build,
                    )
                )

    async def delete_leftovers(self, generation: IndexGeneration, leftovers: Findings) -> int:
        """Delete builds that nobody names, each as a writer does: announced first, looked at again. How many."""
        place = await self.routing.store(generation)
        if place is None:
            return 0
        gone = 0
        for one in leftovers.values():
            try:
                gone += await self._delete(generation, place, one)
            except (AppError, TimeoutError) as error:
                log.warning("audit.leftover_stays", document_id=str(one.document_id), error=type(error).__name__)
        return gone

    async def _delete(self, generation: IndexGeneration, place: StorePlace, one: Finding) -> bool:
        owner, work_id = new_id(), generation.work_id
        async with self._transaction(work_id) as session:
            is_ours = await writes.announce_deletion(
                session,
                work_id,
                document_id=one.document_id,
                generation_id=generation.id,
                build=one.build,
                owner=owner,
                lease_s=self.timing.lease_s,
            )
        if is_ours is False:
            return False
        async with asyncio.timeout(self.timing.store_call_timeout_s):
            await place.store.delete_build(work_id, one.document_id, place.space, one.build)
        if is_ours:
            async with self._transaction(work_id) as session:
                await writes.withdraw(
                    session,
                    document_id=one.document_id,
                    generation_id=generation.id,
                    build=one.build,
                    owner=owner,
                )
        return True

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))
