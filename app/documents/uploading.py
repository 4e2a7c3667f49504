"""Accepting a document: authorise, store the bytes, then row and job in one transaction. Nothing is parsed here."""

from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.db.base import new_id
from app.db.engine import Database, Reach
from app.documents import idempotency, outbox, repository
from app.documents.adding import add_document
from app.documents.errors import DocumentNotFound, SameBytesElsewhere, UploadLost
from app.documents.idempotency import FirstAnswer, Ticket
from app.documents.models import Document, Revision
from app.documents.starting import begin_again, begin_first
from app.errors import StorageFull
from app.identity.caller import Caller, WorkScope
from app.identity.contract import Access
from app.knowledge_bases import service as knowledge_bases
from app.storage.contract import BlobStore

Render = Callable[[Document], dict[str, Any]]


@dataclass(frozen=True)
class Place:
    """An authorised place for an upload: a knowledge base, or one document of it whose bytes are replaced."""

    scope: WorkScope
    kb_id: UUID
    document_id: UUID | None = None
    name: str = ""
    file_name: str = ""


@dataclass(frozen=True)
class Stored:
    """Bytes that are safe in storage and belong to nothing yet."""

    pending_id: UUID
    key: str
    size_bytes: int
    sha256: bytes


@dataclass(frozen=True)
class Fields:
    """What came with the bytes. `file_name` is what the extractor goes by, `name` what people see."""

    name: str
    file_name: str
    declared_type: str | None
    external_id: str | None = None
    attributes: dict[str, Any] | None = None


@dataclass(frozen=True)
class Accepted:
    """The answer to an upload: 202 for work to come, 200 for a document that existed with these bytes."""

    status_code: int
    body: dict[str, Any]


@dataclass
class Uploader:
    """The use case of an upload. Holds no connection while bytes are on their way."""

    database: Database
    access: Access
    storage: BlobStore
    max_upload_bytes: int
    min_free_disk_bytes: int
    render: Render = field(repr=False)

    async def authorise(self, caller: Caller, kb_id: UUID) -> Place:
        """Raises: KnowledgeBaseNotFound, Forbidden, StorageFull."""
        async with self.database.bare(Reach.of(organizations=[caller.organization_id])) as session:
            scope = await knowledge_bases.authorise(session, caller, self.access, kb_id)
            scope.require_write()
        await self._check_space()
        return Place(scope, kb_id)

    async def authorise_replacement(self, caller: Caller, document_id: UUID) -> Place:
        """Raises: DocumentNotFound, Forbidden, StorageFull."""
        async with self.database.transaction(Reach.of(organizations=[caller.organization_id])) as session:
            scope = await self.access.find_work_of(session, caller, "document", document_id)
            found = None if scope is None else await repository.find(session, scope, document_id)
            if scope is None or found is None:
                raise DocumentNotFound()
            scope.require_write()
            revision = await repository.get_revision(session, document_id, found.revision)
        await self._check_space()
        file_name = found.name if revision is None else revision.name
        return Place(scope, found.kb_id, document_id, name=found.name, file_name=file_name)

    @staticmethod
    def replacement(place: Place, declared_type: str | None) -> Fields:
        """The fields of a replacement: names stay, the type is the new bytes'."""
        return Fields(name=place.name, file_name=place.file_name, declared_type=declared_type)

    async def _check_space(self) -> None:
        free = await self.storage.free_bytes()
        if free is not None and free < self.min_free_disk_bytes:
            raise StorageFull("The disk is nearly full; uploads are refused until space is freed. Searches go on.")

    async def begin(self, place: Place, route: str, key: str | None) -> Ticket | None:
        """Claim an Idempotency-Key before anything is read. Raises: IdempotencyRunning."""
        if key is None:
            return None
        async with self.database.transaction(Reach.of(place.scope.work_id)) as session:
            return await idempotency.claim(session, place.scope, route, key)

    @asynccontextmanager
    async def giving_up(self, place: Place, ticket: Ticket | None) -> AsyncIterator[None]:
        """Keep the key while the block runs, and free it when it fails, so that the request can be sent again."""
        try:
            async with AsyncExitStack() as stack:
                if ticket is not None and ticket.owner is not None:
                    await stack.enter_async_context(idempotency.kept_alive(self.database, ticket))
                yield
        except BaseException:
            if ticket is not None:
                await idempotency.release(self.database, place.scope, ticket)
            raise

    async def store(self, place: Place, stream: AsyncIterable[bytes]) -> Stored:
        """Stream the bytes into storage. Raises: TooLarge with nothing left behind, StorageFull."""
        work_id = place.scope.work_id
        key = outbox.original_key(work_id)
        async with self.database.bare(Reach.of(work_id)) as session:
            pending_id = await outbox.add_pending(session, work_id, key)
        try:
            async with outbox.kept_alive(self.database, work_id, pending_id):
                written = await self.storage.write(key, stream, max_bytes=self.max_upload_bytes)
        except BaseException:
            await outbox.abandon(self.database, work_id, pending_id, key)
            raise
        return Stored(pending_id, key, written.size_bytes, bytes.fromhex(written.sha256))

    async def discard(self, place: Place, stored: Stored) -> None:
        """Give up stored bytes."""
        await outbox.abandon(self.database, place.scope.work_id, stored.pending_id, stored.key)

    async def accept(
        self, caller: Caller, place: Place, stored: Stored, fields: Fields, ticket: Ticket | None
    ) -> Accepted:
        """Row, job and removal of the pending note in one transaction.

        Raises: KnowledgeBaseNotFound, DocumentNotFound, SameBytesElsewhere, UploadLost, IdempotencyMismatch.
        """
        try:
            async with self.database.transaction(
                Reach.of(place.scope.work_id, organizations=[caller.organization_id])
            ) as session:
                if ticket is not None:
                    first = await idempotency.find_first(session, ticket, _fingerprint(place, stored, fields))
                    if first is not None:
                        await self._superfluous(session, place, stored)
                        return Accepted(first.status_code, first.body)
                return await self._accept(session, caller, place, stored, fields, ticket)
        except BaseException:
            await self.discard(place, stored)
            raise

    async def _accept(
        self,
        session: AsyncSession,
        caller: Caller,
        place: Place,
        stored: Stored,
        fields: Fields,
        ticket: Ticket | None,
    ) -> Accepted:
        await knowledge_bases.authorise(session, caller, self.access, place.kb_id, lock=True)
        document, is_new = await self._find_or_add(session, caller, place, stored, fields)
        status_code = 202 if is_new else await self._again(session, place, document, stored, fields)
        accepted = Accepted(status_code, self.render(document))
        if ticket is not None:
            answer = FirstAnswer(accepted.status_code, accepted.body)
            await idempotency.complete(session, ticket, _fingerprint(place, stored, fields), answer)
        return accepted

    async def _find_or_add(
        self, session: AsyncSession, caller: Caller, place: Place, stored: Stored, fields: Fields
    ) -> tuple[Document, bool]:
        """The document these bytes belong to, locked, and whether it is new."""
        if place.document_id is not None:
            found = await repository.find(session, place.scope, place.document_id, lock=True)
            if found is None:
                raise DocumentNotFound()
            return found, False
        added = await self._add(session, caller, place, stored, fields)
        if added is not None:
            return added, True
        twin = await repository.find_twin(session, place.kb_id, external_id=fields.external_id, sha256=stored.sha256)
        if twin is None:  # it was there a moment ago, and is being deleted now
            raise UploadLost(retry_after_s=1)
        return twin, False

    async def _add(
        self, session: AsyncSession, caller: Caller, place: Place, stored: Stored, fields: Fields
    ) -> Document | None:
        """A new document with its job; None when there is one with this external id or these bytes."""
        now = datetime.now(UTC)
        document = Document(
            id=new_id(),
            work_id=place.scope.work_id,
            kb_id=place.kb_id,
            external_id=fields.external_id,
            name=fields.name,
            content_type=fields.declared_type or "application/octet-stream",
            size_bytes=stored.size_bytes,
            sha256=stored.sha256,
            attributes=fields.attributes or {},
            revision=1,
            build=0,
            attempts=0,
            status="queued",
            warnings=[],
            error_retryable=False,
            chunks_done=0,
            chunks_total=0,
            chunk_count=0,
            token_count=0,
            created_by=caller.user_id,
            created_at=now,
            updated_at=now,
        )
        is_new = await add_document(
            session,
            document,
            file_name=fields.file_name,
            declared_type=fields.declared_type,
            storage_key=stored.key,
            pending_id=stored.pending_id,
        )
        if not is_new:
            return None
        await begin_first(session, document.work_id, document.id)
        return document

    async def _again(
        self, session: AsyncSession, place: Place, document: Document, stored: Stored, fields: Fields
    ) -> int:
        """Bytes for a document that exists: the same ones change nothing, others are a new revision."""
        if document.sha256 == stored.sha256:
            await self._superfluous(session, place, stored)
            if document.status == "failed":
                await begin_again(session, document)
                await session.flush()
                return 202
            return 200
        if place.document_id is not None:
            other = await repository.find_same_bytes(session, document.kb_id, stored.sha256, other_than=document.id)
            if other is not None:
                raise SameBytesElsewhere(document_id=str(other))
        document.revision += 1
        document.sha256, document.size_bytes = stored.sha256, stored.size_bytes
        document.name = fields.name
        if fields.declared_type is not None:
            document.content_type = fields.declared_type
        if fields.attributes is not None:
            document.attributes = fields.attributes
        await self._add_revision(session, document, stored, fields)
        await begin_again(session, document)
        await session.flush()
        return 202

    async def _add_revision(self, session: AsyncSession, document: Document, stored: Stored, fields: Fields) -> None:
        if not await outbox.adopt_pending(session, stored.pending_id):
            raise UploadLost(retry_after_s=1)
        session.add(
            Revision(
                document_id=document.id,
                revision=document.revision,
                work_id=document.work_id,
                sha256=stored.sha256,
                size_bytes=stored.size_bytes,
                name=fields.file_name,
                declared_type=fields.declared_type,
                storage_key=stored.key,
            )
        )
        await session.flush()

    async def _superfluous(self, session: AsyncSession, place: Place, stored: Stored) -> None:
        if await outbox.adopt_pending(session, stored.pending_id):
            await outbox.drop_blobs(session, place.scope.work_id, [stored.key])


def _fingerprint(place: Place, stored: Stored, fields: Fields) -> bytes:
    return idempotency.fingerprint(
        [
            str(place.kb_id),
            str(place.document_id),
            stored.sha256.hex(),
            fields.name,
            fields.external_id,
            fields.attributes,
        ]
    )
