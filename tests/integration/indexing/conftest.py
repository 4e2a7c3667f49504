"""A Work with a document and a generation, as rows; nothing behind them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypedDict
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Database, Reach, make_engine
from app.documents.models import Document
from app.indexing.models import IndexGeneration
from app.knowledge_bases.models import KnowledgeBase
from app.plugins import pins
from app.tenancy.models import Organization, User, Work
from tests.service import platform_database

TABLES = (pins.PluginInstance,)  # a generation refers to them, so their module has to be there


class Key(TypedDict):
    """The first two parts of an announcement's key."""

    document_id: UUID
    generation_id: UUID


@dataclass
class Desk:
    """The rows of one Work and a way to open transactions in it."""

    database: Database
    work_id: UUID = field(default_factory=uuid4)
    kb_id: UUID = field(default_factory=uuid4)
    document_id: UUID = field(default_factory=uuid4)
    generation_id: UUID = field(default_factory=uuid4)

    def session(self, *, first: str = "") -> AbstractAsyncContextManager[AsyncSession]:
        return self.database.transaction(Reach.of(self.work_id), first=first)

    def key(self) -> Key:
        return {"document_id": self.document_id, "generation_id": self.generation_id}

    async def set_state(self, state: str) -> None:
        async with self.session() as session:
            await session.execute(
                text("update index_generations set state = :s where id = :i"), {"s": state, "i": self.generation_id}
            )

    async def found(self) -> None:
        """Insert the rows."""
        organization, user = uuid4(), uuid4()
        async with self.database.transaction(Reach.of(self.work_id, organizations=[organization])) as session:
            session.add(Organization(id=organization, name="O", settings={}))
            await session.flush()
            session.add(User(id=user, organization_id=organization, subject="s", name="n"))
            session.add(Work(id=self.work_id, organization_id=organization, name="W", settings={}))
            await session.flush()
            session.add(
                KnowledgeBase(
                    id=self.kb_id, work_id=self.work_id, owner_type="user", owner_id=user, name="kb", attributes={}
                )
            )
            session.add(IndexGeneration(id=self.generation_id, work_id=self.work_id, number=1, state="active"))
            await session.flush()
            session.add(
                Document(
                    id=self.document_id,
                    work_id=self.work_id,
                    kb_id=self.kb_id,
                    name="d",
                    content_type="text/plain",
                    size_bytes=1,
                    sha256=b"\0" * 32,
                    attributes={},
                    revision=1,
                    build=0,
                    attempts=0,
                    status="queued",
                    warnings=[],
                    error_retryable=False,
                )
            )


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    database = Database(make_engine(platform_database()))
    made = Desk(database)
    await made.found()
    yield made
    await database.close()
