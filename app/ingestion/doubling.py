"""Writing a new build to two generations before it goes live, where a sweep can't catch up with the uploads."""

import asyncio
from dataclasses import dataclass
from uuid import UUID

from app.db.engine import Database, Transaction
from app.documents.attempts import Attempt
from app.errors import AppError
from app.indexing import writes
from app.indexing.errors import WriteRefused
from app.indexing.models import IndexGeneration
from app.indexing.remaining import Live
from app.indexing.routing import Routing
from app.indexing.stamping import stamp
from app.ingestion.copying import Copier
from app.ingestion.preparing import Prepared
from app.ingestion.timing import Timing
from app.logs import get_logger

log = get_logger()


@dataclass
class SecondWrite:
    """The write to the generation that is being built. What fails here is left to the sweep; the upload goes on."""

    database: Database
    routing: Routing
    timing: Timing
    generation: IndexGeneration
    owner: UUID
    is_announced: bool = False
    is_written: bool = False
    is_stamped: bool = False
    is_known: bool = True

    async def announce(self, session: Transaction, attempt: Attempt) -> None:
        """Announce it beside the first write, unless the generation is no longer being built."""
        if self.generation.store_instance_id is None:
            self.is_written = True  # a lexical generation needs its coordinates only
            return
        try:
            await writes.announce(
                session,
                attempt.work_id,
                document_id=attempt.document_id,
                generation_id=self.generation.id,
                build=attempt.build,
                owner=self.owner,
                lease_s=self.timing.lease_s,
            )
            self.is_announced = True
        except WriteRefused:
            pass

    async def write(self, attempt: Attempt, prepared: Prepared) -> None:
        """Embed and write the chunks; the lease is renewed by whoever calls."""
        if not self.is_announced:
            return
        copier = Copier(self.database, self.routing, self.timing)
        try:
            place = await self.routing.store(self.generation)
            if place is None:
                return
            vectors = await copier.vectors(_live(attempt), self.generation, None, prepared.chunks)
            self.is_known = False
            await copier.write(_live(attempt), attempt.work_id, place, prepared.chunks, vectors)
            self.is_written = self.is_known = True
        except (AppError, TimeoutError) as error:
            log.info("document.second_write_left_to_the_sweep", error=type(error).__name__)
        except Exception:  # whatever is wrong there, the document belongs to the active index first
            log.exception("document.second_write_crashed", document_id=str(attempt.document_id))

    async def stamp(self, session: Transaction, attempt: Attempt, chunks: int) -> None:
        """In the transaction that makes the build live: it is complete in the other generation too."""
        if self.is_written:
            owner = self.owner if self.is_announced else None
            self.is_stamped = await stamp(
                session, _live(attempt), self.generation, owner=owner, chunks=chunks, must_be_live=False
            )

    async def take_back(self, attempt: Attempt) -> None:
        """Delete what was not stamped; what can't be known or fails, the reaper does when the lease is over."""
        if not self.is_announced or not self.is_known:
            return
        place = await self.routing.store(self.generation)
        if place is not None:
            copier = Copier(self.database, self.routing, self.timing)
            try:
                await asyncio.shield(copier.take_back(_live(attempt), self.generation, place, self.owner))
            except (AppError, TimeoutError) as error:
                log.warning("index_write.left_to_the_reaper", error=type(error).__name__, build=attempt.build)


def _live(attempt: Attempt) -> Live:
    return Live(attempt.document_id, attempt.build, attempt.kb_id)
