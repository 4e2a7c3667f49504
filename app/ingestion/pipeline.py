"""One attempt at a document, from bytes to a live build. Run twice, it ends the same."""

import asyncio
from array import array
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import Vector
from app.chunking.contract import Tokenizer
from app.db.base import new_id
from app.db.engine import Database, Reach
from app.documents import attempts, outbox
from app.documents.attempts import Attempt
from app.documents.models import Document, Span
from app.errors import AppError, Misconfigured, Unavailable
from app.extraction.contract import Extractor
from app.indexing import writes
from app.indexing.errors import WriteRefused
from app.indexing.generations import Generations
from app.indexing.going_live import Finished, Outcome, SpanRow, go_live
from app.indexing.models import Coordinates, IndexGeneration
from app.indexing.pruning import clear_prune
from app.indexing.routing import Routing, StorePlace
from app.ingestion.embedding import embed_chunks
from app.ingestion.leases import renewed
from app.ingestion.preparing import Prepared, extract, prepare
from app.jobs.queue import JobRetry
from app.logs import get_logger
from app.storage.contract import BlobStore
from app.vector_stores.contract import VectorChunk

log = get_logger()
MAX_MOVES = 5
PROGRESS_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Timing:
    """Limits of an attempt, in seconds and attempts."""

    lease_s: float
    store_call_timeout_s: float
    retry_wait_s: float
    max_attempts: int


@dataclass(frozen=True)
class _Text:
    """The extracted text as a blob that nothing owns yet."""

    key: str
    pending_id: UUID


class StoreTimeout(Unavailable):
    """The vector store did not finish a write in time."""

    code = "vector_store_timeout"


class WriteKeptMoving(Unavailable):
    """The index was replaced again and again while this document was written; it is tried again."""

    code = "index_moving"


@dataclass
class Pipeline:
    """The use case of ingestion. No connection is held while bytes, a provider or a store are waited for."""

    database: Database
    storage: BlobStore
    extractor: Extractor
    tokenizer: Tokenizer
    routing: Routing
    generations: Generations
    timing: Timing

    async def ingest(self, work_id: UUID, document_id: UUID) -> None:
        """Process the newest revision of a document.

        Raises: JobRetry: a part is away (no attempt is counted), or an unexpected fault leaves attempts to try.
        """
        async with self._transaction(work_id) as session:
            attempt = await attempts.begin_attempt(session, work_id, document_id, max_attempts=self.timing.max_attempts)
        if attempt is None:
            return
        try:
            await self._run(attempt)
        except Unavailable as error:
            await self._wait(attempt, error, counts=False)
            raise JobRetry(error.retry_after_s or self.timing.retry_wait_s) from error
        except asyncio.CancelledError:  # the worker stops: the job goes back to the queue
            await asyncio.shield(self._hand_back(attempt))
            raise
        except AppError as error:
            await self._fail(attempt, error)
        except Exception as error:
            log.exception("document.attempt_crashed", document_id=str(document_id), attempt=attempt.number)
            await self._after_crash(attempt, error)

    async def _run(self, attempt: Attempt) -> None:
        log.info("document.started", document_id=str(attempt.document_id), build=attempt.build)
        extracted = await extract(self.storage, self.extractor, attempt)
        await self._note(attempt, stage="chunking", content_type=extracted.content_type)
        settings = await self.generations.chunk_settings(attempt.work_id)
        prepared = await prepare(extracted, settings, self.tokenizer)
        await self._note(attempt, stage="embedding", chunks_total=len(prepared.chunks))
        text = await self._store_text(attempt, extracted.text)
        try:
            await self._index(attempt, prepared, text)
        except BaseException:
            await outbox.abandon(self.database, attempt.work_id, text.pending_id, text.key)
            raise

    async def _index(self, attempt: Attempt, prepared: Prepared, text: _Text) -> None:
        """Write to the active generation and go live there; if it changed meanwhile, do so in the new one."""
        for _ in range(MAX_MOVES):
            generation = await self.generations.ensure_active(attempt.work_id)
            outcome = await self._write_and_go_live(attempt, generation, prepared, text)
            if outcome == "live":
                await self._prune(attempt, generation)
                chunks = len(prepared.chunks)
                log.info("document.ingested", document_id=str(attempt.document_id), build=attempt.build, chunks=chunks)
                return
            if outcome in ("deleting", "superseded"):
                await outbox.abandon(self.database, attempt.work_id, text.pending_id, text.key)
                log.info("document.attempt_ended", document_id=str(attempt.document_id), outcome=outcome)
                return
        raise WriteKeptMoving(retry_after_s=self.timing.retry_wait_s)

    async def _write_and_go_live(
        self, attempt: Attempt, generation: IndexGeneration, prepared: Prepared, text: _Text
    ) -> Outcome:
        owner = new_id()
        place = await self.routing.store(generation)
        if place is None:
            return await self._go_live(attempt, generation, owner, prepared, text)
        vectors = await self._vectors(attempt, generation, place, prepared)
        await self._note(attempt, stage="storing")
        try:
            async with self._transaction(attempt.work_id) as session:
                await writes.announce(
                    session,
                    attempt.work_id,
                    document_id=attempt.document_id,
                    generation_id=generation.id,
                    build=attempt.build,
                    owner=owner,
                    lease_s=self.timing.lease_s,
                )
        except WriteRefused:
            return await self._refused(attempt)
        outcome: Outcome = "lost"
        try:
            async with renewed(
                self.database,
                attempt.work_id,
                document_id=attempt.document_id,
                build=attempt.build,
                owner=owner,
                lease_s=self.timing.lease_s,
            ):
                await self._write(attempt, place, prepared, vectors)
                outcome = await self._go_live(attempt, generation, owner, prepared, text)
        finally:
            if outcome != "live":
                await asyncio.shield(self._take_back(attempt, generation, place, owner))
        return outcome

    async def _refused(self, attempt: Attempt) -> Outcome:
        """Why an announcement was refused: the document goes, or only its generation."""
        async with self._transaction(attempt.work_id) as session:
            row = await session.execute(
                select(Document.deleting_at, Document.live_build).where(Document.id == attempt.document_id)
            )
            found = row.one_or_none()
        if found is None or found.deleting_at is not None:
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
        self, attempt: Attempt, generation: IndexGeneration, owner: UUID, prepared: Prepared, text: _Text
    ) -> Outcome:
        finished = _finished(prepared, text, self.extractor.fingerprint)
        async with self._transaction(attempt.work_id) as session:
            return await go_live(session, attempt, generation.id, owner, finished)

    async def _take_back(self, attempt: Attempt, generation: IndexGeneration, place: StorePlace, owner: UUID) -> None:
        """Delete a build that did not go live, then its announcement; what fails here the reaper does later."""
        try:
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

    async def _prune(self, attempt: Attempt, generation: IndexGeneration) -> None:
        """Remove older builds from the store; `prune_pending` stays until it has worked."""
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
                await self._note(attempt, chunks_done=done)

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

    async def _store_text(self, attempt: Attempt, text: str) -> _Text:
        key = outbox.text_key(attempt.work_id)
        async with self._transaction(attempt.work_id) as session:
            pending_id = await outbox.add_pending(session, attempt.work_id, key)
        async with outbox.kept_alive(self.database, attempt.work_id, pending_id):
            await self.storage.write_bytes(key, text.encode())
        return _Text(key, pending_id)

    async def _note(self, attempt: Attempt, **values: object) -> None:
        async with self._transaction(attempt.work_id) as session:
            await attempts.note(session, attempt, **values)

    async def _wait(self, attempt: Attempt, error: AppError, *, counts: bool) -> None:
        log.warning("document.waits", document_id=str(attempt.document_id), code=error.code)
        async with self._transaction(attempt.work_id) as session:
            await attempts.wait(session, attempt, code=error.code, message=error.message, counts=counts)

    async def _hand_back(self, attempt: Attempt) -> None:
        async with self._transaction(attempt.work_id) as session:
            await attempts.hand_back(session, attempt)

    async def _fail(self, attempt: Attempt, error: AppError) -> None:
        if isinstance(error, Misconfigured):
            log.error("document.failed", document_id=str(attempt.document_id), code=error.code)
        else:
            log.info("document.failed", document_id=str(attempt.document_id), code=error.code)
        async with self._transaction(attempt.work_id) as session:
            await attempts.fail(session, attempt, code=error.code, message=error.message)

    async def _after_crash(self, attempt: Attempt, error: Exception) -> None:
        """An unexpected fault counts as an attempt; after the last the document is failed."""
        if attempt.number >= self.timing.max_attempts:
            await self._fail(attempt, AppError("Processing failed for a reason that only the log tells."))
            return
        async with self._transaction(attempt.work_id) as session:
            await attempts.wait(
                session, attempt, code="internal", message="Processing failed; it is tried again.", counts=True
            )
        raise JobRetry(self.timing.retry_wait_s * attempt.number) from error

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))


def _finished(prepared: Prepared, text: _Text, extractor_fingerprint: str) -> Finished:
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
