"""One attempt at a document, from bytes to a live build. Run twice, it ends the same."""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import ProviderUnavailable
from app.chunking.contract import ChunkSettings, Tokenizer
from app.db.engine import Database, Reach
from app.documents import attempts, outbox
from app.documents.attempts import Attempt
from app.errors import AppError, Misconfigured, Unavailable
from app.extraction.contract import Extractor
from app.indexing.generations import Generations
from app.indexing.going_live import read_indexes
from app.indexing.models import IndexGeneration
from app.ingestion.patience import Patience
from app.ingestion.preparing import Prepared, extract, prepare
from app.ingestion.timing import StoreTimeout, Timing
from app.ingestion.writing import BuildWriter, TextBlob
from app.jobs.queue import JobRetry
from app.logs import get_logger
from app.storage.contract import BlobStore
from app.vector_stores.contract import VectorStoreUnavailable

log = get_logger()
MAX_MOVES = 5


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
    writer: BuildWriter
    generations: Generations
    timing: Timing
    patience: Patience

    async def ingest(self, work_id: UUID, document_id: UUID) -> None:
        """Process the newest revision of a document.

        Raises: JobRetry: a part is away (no attempt is counted), or an unexpected fault leaves attempts to try.
        """
        async with self.database.bare(Reach.of(work_id)) as session:
            attempt = await attempts.begin_attempt(session, work_id, document_id, max_attempts=self.timing.max_attempts)
            if attempt is None:
                return
            settings = await self.generations.chunk_settings(session, work_id)
            active, beside = await read_indexes(session, work_id)
        try:
            await self._run(attempt, settings, active, beside)
        except (ProviderUnavailable, VectorStoreUnavailable, StoreTimeout) as error:
            await self._wait(attempt, error)
            raise JobRetry(self.patience.failed(error)) from error
        except Unavailable as error:
            await self._wait(attempt, error)
            raise JobRetry(error.retry_after_s or self.timing.retry_wait_s) from error
        except asyncio.CancelledError:  # the worker stops: the job goes back to the queue
            await asyncio.shield(self._hand_back(attempt))
            raise
        except AppError as error:
            await self._fail(attempt, error)
        except Exception as error:
            log.exception("document.attempt_crashed", document_id=str(document_id), attempt=attempt.number)
            await self._after_crash(attempt, error)
        finally:
            self.writer.forget_notes(attempt)

    async def _run(
        self,
        attempt: Attempt,
        settings: ChunkSettings,
        active: IndexGeneration | None,
        beside: IndexGeneration | None,
    ) -> None:
        self.patience.check()
        log.info("document.started", document_id=str(attempt.document_id), build=attempt.build)
        extracted = await extract(self.storage, self.extractor, attempt)
        await self.writer.note(attempt, stage="chunking", content_type=extracted.content_type)
        prepared = await prepare(extracted, settings, self.tokenizer)
        await self.writer.note(attempt, stage="embedding", chunks_total=len(prepared.chunks))
        text = TextBlob(outbox.text_key(attempt.work_id), extracted.text)
        try:
            await self._index(attempt, prepared, text, active, beside)
        except BaseException:
            await self._abandon(attempt, text)
            raise

    async def _index(
        self,
        attempt: Attempt,
        prepared: Prepared,
        text: TextBlob,
        active: IndexGeneration | None,
        beside: IndexGeneration | None,
    ) -> None:
        """Write to the active generation and go live there; if it changed meanwhile, do so in the new one."""
        for _ in range(MAX_MOVES):
            generation = active or await self.generations.ensure_active(attempt.work_id)
            outcome = await self.writer.write_and_go_live(attempt, generation, prepared, text, beside)
            active = beside = None
            if outcome == "live":
                self.writer.forget_notes(attempt)
                self.patience.succeeded()
                await self.writer.prune(attempt, generation)
                chunks = len(prepared.chunks)
                log.info("document.ingested", document_id=str(attempt.document_id), build=attempt.build, chunks=chunks)
                return
            if outcome in ("deleting", "superseded"):
                await self._abandon(attempt, text)
                log.info("document.attempt_ended", document_id=str(attempt.document_id), outcome=outcome)
                return
        raise WriteKeptMoving(retry_after_s=self.timing.retry_wait_s)

    async def _abandon(self, attempt: Attempt, text: TextBlob) -> None:
        if text.pending_id is not None:
            await outbox.abandon(self.database, attempt.work_id, text.pending_id, text.key)

    async def _wait(self, attempt: Attempt, error: AppError) -> None:
        """Waiting for a part that is away is no attempt and has no end."""
        log.info("document.waits", document_id=str(attempt.document_id), code=error.code)
        async with self._transaction(attempt.work_id) as session:
            await attempts.wait(session, attempt, code=error.code, message=error.message, counts=False)

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
