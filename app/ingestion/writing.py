"""Writing a build: vectors, the announced write to the store, go-live, and taking back what did not go live."""

import asyncio
import time
from array import array
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import Vector
from app.db.base import new_id
from app.db.engine import Bare, Database, Reach, Transaction
from app.documents import attempts, outbox
from app.documents.attempts import Attempt
from app.documents.models import Document, Span
from app.errors import AppError, Unavailable
from app.indexing import writes
from app.indexing.errors import WriteRefused
from app.indexing.going_live import BuildLost, Finished, Outcome, SpanRow, go_live
from app.indexing.models import Coordinates, IndexGeneration
from app.indexing.pruning import clear_prune
from app.indexing.routing import Routing, StorePlace
from app.ingestion.doubling import SecondWrite
from app.ingestion.embedding import embed_chunks
from app.ingestion.leases import renewed
from app.ingestion.preparing import Prepared
from app.ingestion.timing import StoreTimeout, Timing
from app.knowledge_bases.models import KnowledgeBase
from app.logs import get_logger
from app.storage.contract import BlobStore
from app.vector_stores.contract import VectorChunk, VectorStoreRefused

log = get_logger()
PROGRESS_INTERVAL_S = 1.0
NOTE_INTERVAL_S = 0.4


@dataclass
class TextBlob:
    """The extracted text on its way into storage. `pending_id`: its note, from when on it belongs to nothing yet."""

    key: str
    text: str
    pending_id: UUID | None = None
    is_stored: bool = False


@dataclass
class BuildWriter:
    """Writes one build to one generation and makes it live there."""

    database: Database
    storage: BlobStore
    routing: Routing
    timing: Timing
    extractor_fingerprint: str
    _noted: dict[tuple[UUID, int], float] = field(default_factory=dict)
    _unwritten: dict[tuple[UUID, int], dict[str, Any]] = field(default_factory=dict)
    _later: dict[tuple[UUID, int], "asyncio.Task[None]"] = field(default_factory=dict)

    async def write_and_go_live(
        self,
        attempt: Attempt,
        generation: IndexGeneration,
        prepared: Prepared,
        text: TextBlob,
        beside: IndexGeneration | None = None,
    ) -> Outcome:
        """Announce, write, go live; what did not go live is deleted again, at the latest by the reaper.

        `beside`: a generation being built that takes new documents before they go live in the active one.
        Raises: the errors of providers and stores.
        """
        owner = new_id()
        place = await self.routing.store(generation)
        if place is None:
            async with self._transaction(attempt.work_id) as session:
                await self._note_text(session, attempt, text)
            await self._store_text(attempt, text)
            return await self._go_live(attempt, generation, owner, prepared, text)
        vectors = await self._vectors(attempt, generation, place, prepared)
        await self.note(attempt, stage="storing")
        noted = text.pending_id
        second = None if beside is None else SecondWrite(self.database, self.routing, self.timing, beside, owner)
        try:
            async with self._locked(attempt.work_id) as session:
                await self._note_text(session, attempt, text)
                await writes.announce(
                    session,
                    attempt.work_id,
                    document_id=attempt.document_id,
                    generation_id=generation.id,
                    build=attempt.build,
                    owner=owner,
                    lease_s=self.timing.lease_s,
                )
                if second is not None:
                    await second.announce(session, attempt)
        except WriteRefused:
            text.pending_id = noted
            return await self._refused(attempt)
        outcome: Outcome = "lost"
        is_known = True  # whether every call to the store has ended for certain
        try:
            async with renewed(
                self.database,
                attempt.work_id,
                document_id=attempt.document_id,
                build=attempt.build,
                owner=owner,
                lease_s=self.timing.lease_s,
            ):
                await self._store_text(attempt, text)
                is_known = False
                await self._write(attempt, place, prepared, vectors)
                is_known = True
                if second is not None:
                    await second.write(attempt, prepared)
                outcome = await self._go_live(attempt, generation, owner, prepared, text, second)
        except VectorStoreRefused:
            is_known = True
            raise
        finally:
            # A call that ran into our time limit, or was cut off, may still land: then the announcement stays, and
            # the reaper deletes the build when the lease is over.
            if second is not None and not (outcome == "live" and second.is_stamped):
                await asyncio.shield(second.take_back(attempt))
            if outcome != "live" and is_known:
                await asyncio.shield(self._take_back(attempt, generation, place, owner))
        return outcome

    async def _note_text(self, session: Transaction, attempt: Attempt, text: TextBlob) -> None:
        if text.pending_id is None:
            text.pending_id = await outbox.add_pending(session, attempt.work_id, text.key)

    async def _store_text(self, attempt: Attempt, text: TextBlob) -> None:
        if text.is_stored or text.pending_id is None:
            return
        async with outbox.kept_alive(self.database, attempt.work_id, text.pending_id):
            await self.storage.write_bytes(text.key, text.text.encode())
        text.is_stored = True

    async def _refused(self, attempt: Attempt) -> Outcome:
        """Why an announcement was refused: the document or its place goes, or only the generation."""
        async with self._transaction(attempt.work_id) as session:
            row = await session.execute(
                select(
                    Document.live_build, func.coalesce(Document.deleting_at, KnowledgeBase.deleting_at).label("going")
                )
                .join(KnowledgeBase, KnowledgeBase.id == Document.kb_id)
                .where(Document.id == attempt.document_id)
            )
            found = row.one_or_none()
        if found is None or found.going is not None:
            return "deleting"
        return "superseded" if (found.live_build or 0) >= attempt.build else "moved"

    async def _write(
        self, attempt: Attempt, place: StorePlace, prepared: Prepared, vectors: Mapping[int, Vector] | None
    ) -> None:
        limit = max(1, place.store.manifest.store.max_batch)
        chunks = [
            VectorChunk(
                knowledge_base_id=attempt.kb_id,
                chunk_index=c.chunk_index,
                vector=None if vectors is None else vectors[c.chunk_index],
                text=c.embedded_text if vectors is None else None,
            )
            for c in prepared.chunks
        ]
        for start in range(0, len(chunks), limit):
            try:
                async with asyncio.timeout(self.timing.store_call_timeout_s):
                    await place.store.write_chunks(
                        attempt.work_id,
                        attempt.document_id,
                        place.space,
                        attempt.build,
                        chunks[start : start + limit],
                    )
            except TimeoutError as exc:
                raise StoreTimeout() from exc

    async def _go_live(
        self,
        attempt: Attempt,
        generation: IndexGeneration,
        owner: UUID,
        prepared: Prepared,
        text: TextBlob,
        second: SecondWrite | None = None,
    ) -> Outcome:
        finished = _finished(prepared, text, self.extractor_fingerprint)
        try:
            async with self._locked(attempt.work_id) as session:
                outcome = await go_live(session, attempt, generation.id, owner, finished)
                if outcome == "live" and second is not None:
                    await second.stamp(session, attempt, len(prepared.chunks))
            return outcome
        except BuildLost:
            return "lost"

    async def _take_back(self, attempt: Attempt, generation: IndexGeneration, place: StorePlace, owner: UUID) -> None:
        """Delete a build that did not go live, then its announcement; what fails here the reaper does later."""
        try:
            if not await self._still_announced(attempt, owner):
                return  # it went live although the answer of its commit was lost, or the reaper has it
            async with asyncio.timeout(self.timing.store_call_timeout_s):
                await place.store.delete_build(attempt.work_id, attempt.document_id, place.space, attempt.build)
            async with self._transaction(attempt.work_id) as session:
                await writes.withdraw(
                    session,
                    document_id=attempt.document_id,
                    generation_id=generation.id,
                    build=attempt.build,
                    owner=owner,
                )
        except (AppError, TimeoutError) as error:
            log.warning("index_write.left_to_the_reaper", error=type(error).__name__, build=attempt.build)

    async def _still_announced(self, attempt: Attempt, owner: UUID) -> bool:
        async with self._transaction(attempt.work_id) as session:
            return await writes.renew(
                session,
                document_id=attempt.document_id,
                build=attempt.build,
                owner=owner,
                lease_s=self.timing.lease_s,
            )

    async def prune(self, attempt: Attempt, generation: IndexGeneration) -> None:
        """Remove older builds from the store; `prune_pending` stays until it has worked."""
        if attempt.build == 1:
            return
        place = await self.routing.store(generation)
        if place is None:
            return
        try:
            async with asyncio.timeout(self.timing.store_call_timeout_s):
                await place.store.prune_chunks(attempt.work_id, attempt.document_id, place.space, attempt.build)
            async with self._transaction(attempt.work_id) as session:
                await clear_prune(session, attempt.document_id, generation.id, attempt.build)
        except (AppError, TimeoutError) as error:
            log.warning("prune.later", error=type(error).__name__, document_id=str(attempt.document_id))

    async def _vectors(
        self, attempt: Attempt, generation: IndexGeneration, place: StorePlace, prepared: Prepared
    ) -> Mapping[int, Vector] | None:
        """None when the store embeds by itself."""
        embedder = await self.routing.embedder(generation)
        if embedder is None:
            return None
        known = await self._known_vectors(attempt, generation, place)
        last = 0.0

        async def progress(done: int) -> None:
            nonlocal last
            now = asyncio.get_running_loop().time()
            if now - last >= PROGRESS_INTERVAL_S:
                last = now
                await self.note(attempt, chunks_done=done)

        return await embed_chunks(prepared.chunks, known, embedder, progress)

    async def _known_vectors(
        self, attempt: Attempt, generation: IndexGeneration, place: StorePlace
    ) -> dict[bytes, Vector]:
        """Vectors of the live build in the same space, by content hash: unchanged chunks are not bought again."""
        if attempt.live_build is None:
            return {}
        async with self._transaction(attempt.work_id) as session:
            build = await session.scalar(
                select(Coordinates.build).where(
                    Coordinates.work_id == attempt.work_id,
                    Coordinates.document_id == attempt.document_id,
                    Coordinates.generation_id == generation.id,
                )
            )
            rows = await session.execute(
                select(Span.chunk_index, Span.content_sha256).where(
                    Span.document_id == attempt.document_id, Span.build == build
                )
            )
            digests = {row[0]: row[1] for row in rows}
        if build is None or not digests:
            return {}
        async with asyncio.timeout(self.timing.store_call_timeout_s):
            stored = await place.store.fetch_vectors(attempt.work_id, attempt.document_id, place.space, build)
        return {digests[i]: array("f", v) for i, v in (stored or {}).items() if i in digests}

    async def note(self, attempt: Attempt, **values: Any) -> None:
        """Write stage or progress, if no newer attempt has begun; not more often than somebody could read it.

        What comes too soon is written a moment later, unless the attempt has ended by then.
        """
        unwritten = self._unwritten.setdefault(attempt.key, {})
        unwritten.update(values)
        wait_s = self._noted.get(attempt.key, attempt.started) + NOTE_INTERVAL_S - time.monotonic()
        if wait_s <= 0:
            await self._write_note(attempt)
        elif attempt.key not in self._later:
            self._later[attempt.key] = asyncio.create_task(self._note_later(attempt, wait_s))

    async def _note_later(self, attempt: Attempt, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        try:
            await self._write_note(attempt)
        except Unavailable as error:
            log.warning("document.note_lost", code=error.code)
        finally:
            self._later.pop(attempt.key, None)

    async def _write_note(self, attempt: Attempt) -> None:
        self._noted[attempt.key] = time.monotonic()
        values = self._unwritten.pop(attempt.key, {})
        if values:
            async with self.database.bare(Reach.of(attempt.work_id)) as session:
                await attempts.note(session, attempt, **values)

    def forget_notes(self, attempt: Attempt) -> None:
        """The attempt has ended: its last state is written by what ended it."""
        later = self._later.pop(attempt.key, None)
        if later is not None:
            later.cancel()
        self._noted.pop(attempt.key, None)
        self._unwritten.pop(attempt.key, None)

    def _locked(self, work_id: UUID) -> AbstractAsyncContextManager[Bare]:
        return self.database.bare(Reach.of(work_id), first=writes.shared_lock(work_id))

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))


def _finished(prepared: Prepared, text: TextBlob, extractor_fingerprint: str) -> Finished:
    if text.pending_id is None:
        raise ValueError("the text has not been stored")
    extracted = prepared.extracted
    return Finished(
        spans=[
            SpanRow(
                chunk_index=c.chunk_index,
                start=c.start,
                end=c.end,
                page=c.page,
                heading_path=c.heading_path,
                token_count=c.token_count,
                context=c.context,
                content_sha256=c.content_sha256,
                text=c.text,
            )
            for c in prepared.chunks
        ],
        terms=prepared.terms,
        lexical_length=prepared.lexical_length,
        text_key=text.key,
        text_pending_id=text.pending_id,
        content_type=extracted.content_type,
        characters=len(extracted.text),
        pages=len(extracted.page_starts) or None,
        language=prepared.language,
        extractor_fingerprint=extractor_fingerprint,
        chunking_fingerprint=prepared.chunking_fingerprint,
        analyzer_fingerprint=prepared.analyzer_fingerprint,
        warnings=[{"code": w.code, "message": w.message} for w in extracted.warnings],
    )
