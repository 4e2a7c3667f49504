"""Bringing one live build into another generation: announced, written, stamped, or taken back."""

import asyncio
from array import array
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import Vector
from app.db.base import new_id
from app.db.engine import Bare, Database, Reach
from app.errors import AppError
from app.indexing import writes
from app.indexing.errors import WriteRefused
from app.indexing.models import IndexGeneration
from app.indexing.remaining import Live
from app.indexing.routing import Routing, StorePlace
from app.indexing.stamping import stamp
from app.ingestion.embedding import Embeddable, embed_chunks
from app.ingestion.leases import renewed
from app.ingestion.pieces import read_pieces
from app.ingestion.timing import StoreTimeout, Timing
from app.logs import get_logger
from app.vector_stores.contract import Space, VectorChunk, VectorStore, VectorStoreRefused

log = get_logger()
Copied = Literal["copied", "busy", "changed"]


@dataclass
class Copier:
    """Copies builds between generations. Holds no connection while a store or provider is waited for."""

    database: Database
    routing: Routing
    timing: Timing

    async def copy(self, document: Live, target: IndexGeneration, source: IndexGeneration | None) -> Copied:
        """Bring a document's live build into `target`; vectors come from `source` where it has the same space.

        `busy`: another writer is at it. `changed`: the document or the generation is no longer what it was.
        Raises: the errors of providers and stores.
        """
        async with self._transaction(target.work_id) as session:
            pieces = await read_pieces(session, document.document_id, document.build)
        if not pieces:
            return "changed"
        place = await self.routing.store(target)
        owner = new_id()
        if place is None:
            return await self._stamp(document, target, owner, len(pieces), announced=False)
        if not await self._announce(document, target, owner):  # before anything is paid for
            return "busy"
        outcome: Copied = "changed"
        is_known = True  # whether every call to the store has ended for certain
        try:
            async with renewed(
                self.database,
                target.work_id,
                document_id=document.document_id,
                build=document.build,
                owner=owner,
                lease_s=self.timing.lease_s,
            ):
                vectors = await self.vectors(document, target, source, pieces)
                is_known = False
                await self.write(document, target.work_id, place, pieces, vectors)
                is_known = True
                outcome = await self._stamp(document, target, owner, len(pieces), announced=True)
        except VectorStoreRefused:
            is_known = True
            raise
        finally:
            # A call that was cut off may still land: then the announcement stays, and the reaper deletes the build.
            if outcome != "copied" and is_known:
                await asyncio.shield(self.take_back(document, target, place, owner))
        return outcome

    async def write(
        self,
        document: Live,
        work_id: UUID,
        place: StorePlace,
        pieces: Sequence[Embeddable],
        vectors: Mapping[int, Vector] | None,
    ) -> None:
        """Write the chunks of a build in calls as large as the store allows. Raises: StoreTimeout, the store's."""
        limit = max(1, place.store.manifest.store.max_batch)
        chunks = [
            VectorChunk(
                knowledge_base_id=document.kb_id,
                chunk_index=piece.chunk_index,
                vector=None if vectors is None else vectors[piece.chunk_index],
                text=piece.embedded_text if vectors is None else None,
            )
            for piece in pieces
        ]
        for start in range(0, len(chunks), limit):
            part = chunks[start : start + limit]
            try:
                async with asyncio.timeout(self.timing.store_call_timeout_s):
                    await place.store.write_chunks(work_id, document.document_id, place.space, document.build, part)
            except TimeoutError as exc:
                raise StoreTimeout() from exc

    async def vectors(
        self,
        document: Live,
        target: IndexGeneration,
        source: IndexGeneration | None,
        pieces: Sequence[Embeddable],
    ) -> Mapping[int, Vector] | None:
        """A vector for each chunk; None where the store embeds by itself. A complete copy needs no provider."""
        if target.embedding_mode == "plugin":
            return None
        known = await self._stored(document, target, source, pieces)
        if len(known) == len({piece.content_sha256 for piece in pieces}):
            return {piece.chunk_index: known[piece.content_sha256] for piece in pieces}
        embedder = await self.routing.embedder(target)
        if embedder is None:
            return None

        async def progress(done: int) -> None:
            """Nobody follows a single document of a sweep."""

        return await embed_chunks(pieces, known, embedder, progress)

    async def _stored(
        self,
        document: Live,
        target: IndexGeneration,
        source: IndexGeneration | None,
        pieces: Sequence[Embeddable],
    ) -> dict[bytes, Vector]:
        """Vectors of this build in a generation with the same model, by content hash; what can't be had is embedded."""
        if source is None or not _same_vectors(source, target):
            return {}
        try:
            place = await self.routing.store(source)
            if place is None:
                return {}
            stored = await self._fetch(place.store, target.work_id, document, place.space)
        except (AppError, TimeoutError) as error:
            log.warning("reembed.vectors_not_copied", error=type(error).__name__)
            return {}
        return {
            piece.content_sha256: array("f", stored[piece.chunk_index])
            for piece in pieces
            if piece.chunk_index in stored
        }

    async def _fetch(self, store: VectorStore, work_id: UUID, document: Live, space: Space) -> Mapping[int, Vector]:
        async with asyncio.timeout(self.timing.store_call_timeout_s):
            return await store.fetch_vectors(work_id, document.document_id, space, document.build) or {}

    async def _announce(self, document: Live, target: IndexGeneration, owner: UUID) -> bool:
        """Announce the write, or take over from a writer that died: the same chunks are written again."""
        try:
            async with self._locked(target.work_id) as session:
                await writes.announce(
                    session,
                    target.work_id,
                    document_id=document.document_id,
                    generation_id=target.id,
                    build=document.build,
                    owner=owner,
                    lease_s=self.timing.lease_s,
                )
        except WriteRefused:
            async with self._transaction(target.work_id) as session:
                return await writes.take_over(
                    session,
                    document_id=document.document_id,
                    generation_id=target.id,
                    build=document.build,
                    owner=owner,
                    lease_s=self.timing.lease_s,
                )
        return True

    async def _stamp(
        self, document: Live, target: IndexGeneration, owner: UUID, chunks: int, *, announced: bool
    ) -> Copied:
        async with self._locked(target.work_id) as session:
            is_stamped = await stamp(
                session, document, target, owner=owner if announced else None, chunks=chunks, must_be_live=True
            )
        return "copied" if is_stamped else "changed"

    async def take_back(self, document: Live, target: IndexGeneration, place: StorePlace, owner: UUID) -> None:
        """Delete a build that was not stamped, then its announcement; what fails here the reaper does later."""
        try:
            async with self._transaction(target.work_id) as session:
                held = await writes.renew(
                    session,
                    document_id=document.document_id,
                    build=document.build,
                    owner=owner,
                    lease_s=self.timing.lease_s,
                )
            if not held:
                return  # it was stamped although the answer was lost, or somebody else has it
            async with asyncio.timeout(self.timing.store_call_timeout_s):
                await place.store.delete_build(target.work_id, document.document_id, place.space, document.build)
            async with self._transaction(target.work_id) as session:
                await writes.withdraw(
                    session,
                    document_id=document.document_id,
                    generation_id=target.id,
                    build=document.build,
                    owner=owner,
                )
        except (AppError, TimeoutError) as error:
            log.warning("index_write.left_to_the_reaper", error=type(error).__name__, build=document.build)

    def _locked(self, work_id: UUID) -> AbstractAsyncContextManager[Bare]:
        return self.database.bare(Reach.of(work_id), first=writes.shared_lock(work_id))

    def _transaction(self, work_id: UUID) -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(work_id))


def _same_vectors(one: IndexGeneration, other: IndexGeneration) -> bool:
    """Whether both were embedded by the same model at the same place: only then a vector of one is one of the other."""
    return (
        one.model_fingerprint is not None
        and one.provider_instance_id == other.provider_instance_id
        and one.model_fingerprint == other.model_fingerprint
        and one.dims == other.dims
        and one.embedding_mode == other.embedding_mode
    )
