"""Plugins of an outside package, for the real service: a store that embeds by itself, servers, and unusable ones.

`installed(directory)` writes what an installer would write, so that a process with the directory on its path finds
them by entry point.
"""

import re
import sqlite3
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import httpx
from pydantic import BaseModel, ConfigDict, SecretStr

from app.plugins.endpoints import EndpointGuard, GuardedTransport
from app.plugins.manifest import VectorStoreCapabilities, VectorStoreManifest, needs_extra
from app.vector_stores.base import BaseVectorStore, best_first
from app.vector_stores.contract import (
    Availability,
    ChunkRef,
    DocumentBuild,
    Ids,
    QueryHit,
    Space,
    UpsertResult,
    Vector,
    VectorChunk,
)
from app.vector_stores.memory import MemoryStore

ENTRIES = {
    "embedding-double": "tests.api.double_plugins:EmbeddingDouble",
    "server-double": "tests.api.double_plugins:ServerDouble",
    "unchecked-double": "tests.api.double_plugins:UncheckedDouble",
    "sdk-double": "tests.api.double_plugins:SdkDouble",
    "off-double": "tests.api.double_plugins:OffDouble",
    "broken-double": "tests.unit.plugins.broken_plugin:Nothing",
}


def installed(directory: Path) -> str:
    """The directory, as an entry of PYTHONPATH."""
    about = directory / "stackroom_doubles-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stackroom-doubles\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in ENTRIES.items()]
    (about / "entry_points.txt").write_text("[stackroom.plugins]\n" + "\n".join(lines) + "\n")
    return str(directory)


class FileSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str


class EmbeddingDouble(BaseVectorStore):
    """Embeds on write: a row per chunk with its text, in a file that all processes share; words are its model."""

    manifest: ClassVar = VectorStoreManifest(
        id="embedding-double",
        name="Embeds by itself",
        distribution="registry",
        settings_model=FileSettings,
        location_fields=("path",),
        store=VectorStoreCapabilities(embeds_on_write=True),
    )

    def __init__(self, settings: FileSettings) -> None:
        self._path = settings.path

    def _rows(self, statement: str, values: Sequence[Any] = (), many: Sequence[Sequence[Any]] = ()) -> list[Any]:
        connection = sqlite3.connect(self._path, timeout=10)
        try:
            with connection:
                connection.execute(
                    "create table if not exists chunks (work, space, document, build int, kb, chunk int, text,"
                    " primary key (work, space, document, build, chunk))"
                )
                if many:
                    return list(connection.executemany(statement, many))
                return connection.execute(statement, values).fetchall()
        finally:
            connection.close()

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        assert all(chunk.vector is None and chunk.text is not None for chunk in chunks), "it embeds by itself"
        rows = [
            (str(work_id), space.key, str(document_id), build, str(c.knowledge_base_id), c.chunk_index, c.text)
            for c in chunks
        ]
        self._rows("insert or ignore into chunks values (?, ?, ?, ?, ?, ?, ?)", many=rows)
        return UpsertResult(len(rows))

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        self._delete(work_id, space, "document = ? and build < ?", str(document_id), before_build)

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        self._delete(work_id, space, "document = ? and build = ?", str(document_id), build)

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        self._delete(work_id, space, "document = ?", str(document_id))

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        self._delete(work_id, space, "true")

    def _delete(self, work_id: UUID, space: Space, condition: str, *values: Any) -> None:
        self._rows(
            f"delete from chunks where work = ? and space = ? and {condition}", (str(work_id), space.key, *values)
        )

    async def query_chunks(
        self,
        work_id: UUID,
        space: Space,
        *,
        vector: Vector | None = None,
        text: str | None = None,
        top_k: int,
        knowledge_base_ids: Ids | None = None,
        document_ids: Ids | None = None,
        eligible: int | None = None,
    ) -> list[QueryHit]:
        assert vector is None, "it embeds by itself"
        assert text is not None
        asked = _words(text)
        hits = []
        for document, build, kb, chunk, written in self._rows(
            "select document, build, kb, chunk, text from chunks where work = ? and space = ?",
            (str(work_id), space.key),
        ):
            if knowledge_base_ids is not None and UUID(kb) not in knowledge_base_ids:
                continue
            if document_ids is not None and UUID(document) not in document_ids:
                continue
            shared = len(asked & _words(written)) / max(1, len(asked))
            hits.append(QueryHit(ChunkRef(UUID(kb), UUID(document), build, chunk), shared, self.normalize(shared)))
        return best_first(hits)[:top_k]

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        rows = self._rows("select document from chunks where work = ? and space = ?", (str(work_id), space.key))
        return sum(document_id is None or row[0] == str(document_id) for row in rows)

    async def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        for document, build, chunks in self._rows(
            "select document, build, count(*) from chunks where work = ? and space = ? group by 1, 2",
            (str(work_id), space.key),
        ):
            yield DocumentBuild(UUID(document), build, chunks)

    async def is_available(self) -> Availability:
        return Availability(True)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


class ServerSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str
    api_key: SecretStr | None = None
    timeout_s: float = 5.0


class ServerDouble(MemoryStore):
    """Reached by URL; checks where it connects, and holds 48 dimensions."""

    manifest: ClassVar = VectorStoreManifest(
        id="server-double",
        name="A server",
        distribution="registry",
        settings_model=ServerSettings,
        location_fields=("url",),
        store=VectorStoreCapabilities(max_dimensions=48),
    )

    def __init__(self, settings: ServerSettings, guard: EndpointGuard | None = None) -> None:
        super().__init__()
        inner = httpx.AsyncHTTPTransport()
        self._url = settings.url
        self._client = httpx.AsyncClient(
            transport=inner if guard is None else GuardedTransport(guard, inner),  # type: ignore[arg-type]
            timeout=settings.timeout_s,
        )

    @classmethod
    def build_guarded(cls, settings: ServerSettings, guard: EndpointGuard) -> "ServerDouble":
        return cls(settings, guard)

    async def is_available(self) -> Availability:
        try:
            answer = await self._client.get(self._url)
        except httpx.HTTPError as exc:
            return Availability(False, f"no answer ({type(exc).__name__})")
        return Availability(True, facts={"status": answer.status_code})

    async def close(self) -> None:
        await self._client.aclose()


class UncheckedDouble(MemoryStore):
    """Reached by URL, through a client that can't be told where not to connect."""

    manifest: ClassVar = VectorStoreManifest(
        id="unchecked-double",
        name="An unchecked server",
        distribution="registry",
        settings_model=ServerSettings,
        location_fields=("url",),
    )


class SdkDouble(MemoryStore):
    """Its vendor's package is not installed."""

    manifest: ClassVar = VectorStoreManifest(
        id="sdk-double", name="Without its SDK", distribution="registry", extra="sdk-double"
    )

    def __init__(self, settings: Any = None) -> None:
        with needs_extra(self.manifest):
            import no_such_vendor_sdk  # noqa: F401
        super().__init__()


class OffDouble(MemoryStore):
    """The operator disables it."""

    manifest: ClassVar = VectorStoreManifest(id="off-double", name="Switched off", distribution="registry")
