"""A pipeline on real parts: Postgres, disk, sandbox, tokenizer, provider over HTTP; only the store can be held."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.openai import OpenAiProvider
from app.ai_providers.packaged import PackagedTokenizer, open_model
from app.chunking.contract import ChunkSettings
from app.db.engine import Database, Reach, make_engine
from app.documents import outbox
from app.documents.models import Document, Revision
from app.documents.service import mark_deleting
from app.documents.starting import begin_again
from app.extraction.contract import Limits
from app.extraction.sandbox import SandboxedExtractor
from app.indexing.choosing import Chooser, EnvironmentChoice
from app.indexing.generations import Generations
from app.indexing.going_live import find_active
from app.indexing.routing import Routing, space_of
from app.ingestion.forgetting import Forgetting
from app.ingestion.patience import Patience
from app.ingestion.pipeline import Pipeline
from app.ingestion.upkeep import Upkeep
from app.ingestion.writing import BuildWriter, Timing
from app.knowledge_bases.models import KnowledgeBase
from app.plugins.instances import Instances
from app.plugins.registry import Registry
from app.plugins.sealing import Sealer
from app.storage.blobs import open_blob_store
from app.storage.contract import BlobStore
from app.tenancy.models import Organization, User, Work
from app.vector_stores.contract import Space, UpsertResult, VectorChunk
from app.vector_stores.memory import MemoryStore
from tests.model import packaged_model
from tests.service import platform_database
from tests.unit.ai_providers.openai_server import EmbeddingServer

WIDTH = 16
TIMING = Timing(lease_s=1.0, store_call_timeout_s=0.8, retry_wait_s=0.1, max_attempts=3)


class BarrierStore(MemoryStore):
    """The memory store, whose writes can be held before or after they happen."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.before: asyncio.Event | None = None
        self.after: asyncio.Event | None = None
        self.watch: list[Any] = []

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        for look in self.watch:
            look()
        if self.before is not None:
            gate, self.before = self.before, None
            self.reached.set()
            await gate.wait()
        written = await super().write_chunks(work_id, document_id, space, build, chunks)
        if self.after is not None:
            gate, self.after = self.after, None
            self.reached.set()
            await gate.wait()
        return written


@dataclass
class Bench:
    """Everything a test moves by hand."""

    database: Database
    storage: BlobStore
    store: BarrierStore
    provider: EmbeddingServer
    pipeline: Pipeline
    forgetting: Forgetting
    upkeep: Upkeep
    routing: Routing
    work_id: UUID = field(default_factory=uuid4)
    chooser_of: Any = None  # an environment → who chooses under it
    environment: Any = None
    kb_id: UUID = field(default_factory=uuid4)
    user_id: UUID = field(default_factory=uuid4)

    def session(self) -> Any:
        return self.database.transaction(Reach.of(self.work_id))

    async def found(self) -> None:
        """The tenant's rows."""
        organization = uuid4()
        async with self.database.transaction(Reach.of(self.work_id, organizations=[organization])) as session:
            session.add(Organization(id=organization, name="O", settings={}))
            await session.flush()
            session.add(User(id=self.user_id, organization_id=organization, subject="s", name="n"))
            session.add(Work(id=self.work_id, organization_id=organization, name="W", settings={}))
            await session.flush()
            session.add(
                KnowledgeBase(
                    id=self.kb_id,
                    work_id=self.work_id,
                    owner_type="user",
                    owner_id=self.user_id,
                    name="kb",
                    attributes={},
                )
            )

    async def upload(self, words: str, document_id: UUID | None = None) -> UUID:
        """A new document, or a new revision of one; its job is left in the queue, tests run it by hand."""
        key = outbox.original_key(self.work_id)
        written = await self.storage.write_bytes(key, words.encode())
        async with self.session() as session:
            if document_id is None:
                document = Document(
                    work_id=self.work_id, kb_id=self.kb_id, name="d", content_type="text/plain",
                    size_bytes=written.size_bytes, sha256=bytes.fromhex(written.sha256), attributes={}, revision=1,
                    build=0, attempts=0, status="queued", warnings=[], error_retryable=False,
                    external_id=str(uuid4()),
                )  # fmt: skip
                session.add(document)
                await session.flush()
            else:
                document = await session.get_one(Document, document_id)
                document.revision += 1
                document.sha256 = bytes.fromhex(written.sha256)
            session.add(
                Revision(
                    document_id=document.id, revision=document.revision, work_id=self.work_id, sha256=document.sha256,
                    size_bytes=written.size_bytes, name="d.txt", declared_type="text/plain", storage_key=key,
                )
            )  # fmt: skip
            await begin_again(session, document)
            return document.id

    async def ingest(self, document_id: UUID) -> None:
        await self.pipeline.ingest(self.work_id, document_id)

    async def delete(self, document_id: UUID) -> UUID:
        async with self.session() as session:
            query = select(Document).where(Document.id == document_id).with_for_update()
            document = (await session.scalars(query)).one()
            return await mark_deleting(session, document, owner=("user", self.user_id), requested_by=None)

    async def row(self, document_id: UUID) -> Document | None:
        async with self.session() as session:
            return await session.get(Document, document_id)

    async def live_builds(self) -> set[tuple[UUID, int, int]]:
        async with self.session() as session:
            rows = await session.execute(
                select(Document.id, Document.live_build, Document.chunk_count).where(Document.live_build.is_not(None))
            )
            return {(row[0], row[1], row[2]) for row in rows}

    async def stored_builds(self) -> set[tuple[UUID, int, int]]:
        async with self.session() as session:
            generation = await find_active(session, self.work_id)
        if generation is None:
            return set()
        scan = self.store.scan_documents(self.work_id, space_of(generation))
        return {(found.document_id, found.build, found.chunks) async for found in scan}

    async def texts(self, document_id: UUID) -> list[str]:
        async with self.session() as session:
            rows = await session.execute(
                text("select text from kb_spans where document_id = :d order by chunk_index"), {"d": document_id}
            )
            return [row[0] for row in rows]

    async def announced(self) -> int:
        async with self.session() as session:
            return int(await session.scalar(text("select count(*) from index_writes")) or 0)

    async def consistent(self) -> bool:
        """The store holds the live builds and nothing else, and no write is announced any more."""
        return await self.stored_builds() == await self.live_builds() and await self.announced() == 0


@pytest.fixture(scope="session")
async def extractor() -> AsyncIterator[SandboxedExtractor]:
    made = SandboxedExtractor(Limits(timeout_s=20), processes=2)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def tokenizer() -> PackagedTokenizer:
    return PackagedTokenizer(open_model(packaged_model()))


@pytest.fixture
async def bench(tmp_path: Path, extractor: SandboxedExtractor, tokenizer: PackagedTokenizer) -> AsyncIterator[Bench]:
    store = BarrierStore()
    database = Database(make_engine(platform_database()))
    storage = open_blob_store(tmp_path.as_uri())
    registry = Registry(
        [("memory", "app.vector_stores.memory:MemoryStore"), ("openai", "app.ai_providers.openai:OpenAiProvider")]
    )
    async with EmbeddingServer(width=WIDTH) as server:
        settings = {
            "memory": registry.parse_settings("memory", {}),
            "openai": registry.parse_settings(
                "openai", {"base_url": server.url, "api_key": "sk-test", "model": "m", "dimensions": WIDTH}
            ),
        }
        environment = EnvironmentChoice(store_pin="memory", provider_pin="openai", settings=settings)
        sealer = Sealer([Sealer.generate_key()])

        def build(plugin: Any, values: Any) -> Any:
            return store if plugin.manifest.id == "memory" else OpenAiProvider(values)

        instances = Instances(database, registry, sealer, settings, build)
        routing = Routing(instances.open, instances.open)
        generations = Generations(
            database, Chooser(database, registry, sealer, instances, environment), ChunkSettings()
        )
        writer = BuildWriter(database, storage, routing, TIMING, extractor.fingerprint)
        pipeline = Pipeline(database, storage, extractor, tokenizer, writer, generations, TIMING, Patience(0.01))
        forgetting = Forgetting(database, routing, TIMING.store_call_timeout_s, 0.05)
        upkeep = Upkeep(database, storage, routing, 1.0, 0.8, 0.0, 0.0)
        made = Bench(database, storage, store, server, pipeline, forgetting, upkeep, routing)
        await made.found()
        made.chooser_of = lambda wanted: Chooser(database, registry, sealer, instances, wanted)
        made.environment = environment
        yield made
        await instances.close()
    await storage.close()
    await database.close()


async def count(session: AsyncSession, table: str) -> int:
    return int(await session.scalar(text(f"select count(*) from {table}")) or 0)
