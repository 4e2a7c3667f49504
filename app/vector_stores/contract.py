"""The contract between the service and a vector store: five minutes' reading for a plugin author.

A store sees vectors and ids; never text unless it embeds on write, never topics, people, attributes or HTTP.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable
from uuid import UUID, uuid5

from app.errors import AppError, Invalid, Misconfigured, Unavailable
from app.plugins.manifest import MissingExtra, VectorStoreManifest, needs_extra

__all__ = ["MissingExtra", "needs_extra"]

Vector = Sequence[float]  # the service hands `array("f")`: numpy reads it without a copy
Ids = Collection[UUID]

CHUNK_NAMESPACE = UUID("5f6ac0de-93a5-5d3c-9b1e-7c6f5b1a9e42")


class VectorStoreUnavailable(Unavailable):
    """The vector store does not answer."""

    code = "vector_store_unavailable"


class VectorStoreMisconfigured(Misconfigured):
    """The vector store refuses our settings or credentials."""

    code = "vector_store_misconfigured"


class VectorStoreRefused(AppError):
    """The vector store refuses this write for good."""

    code = "vector_store_refused"


class BadVector(Invalid):
    """A vector has the wrong width, is not finite, or is zero."""

    code = "bad_vector"


@dataclass(frozen=True)
class Space:
    """One vector space: belongs to exactly one index generation of one Work; never shared, never reused.

    `number` is the generation's number in its Work; `dims` the width of every vector.
    """

    number: int
    model_fingerprint: str
    dims: int

    @property
    def key(self) -> str:
        """A stable text form, for containers, fields and derived ids."""
        return f"{self.number}-{self.model_fingerprint}-{self.dims}"


@dataclass(frozen=True)
class ChunkRef:
    """The identity of a stored chunk inside a Work and space."""

    knowledge_base_id: UUID
    document_id: UUID
    build: int
    chunk_index: int


@dataclass(frozen=True)
class VectorChunk:
    """A chunk to be stored. `vector` is None only for stores that embed on write; they get `text`."""

    knowledge_base_id: UUID
    chunk_index: int
    vector: Vector | None = None
    text: str | None = None


@dataclass(frozen=True)
class UpsertResult:
    """How many chunks were written and how many existed already."""

    written: int
    skipped: int = 0


@dataclass(frozen=True)
class QueryHit:
    """One hit. `raw_score` is the backend's own number; `normalized_score` in [0, 1] = (1 + cosine) / 2."""

    chunk: ChunkRef
    raw_score: float
    normalized_score: float


@dataclass(frozen=True)
class DocumentBuild:
    """What a scan finds: a build of a document and how many of its chunks are stored."""

    document_id: UUID
    build: int
    chunks: int


@dataclass(frozen=True)
class Availability:
    """Whether a backend answers, and if not, a sentence without secrets.

    `temporary` = it was slow or away: asking again later may give another answer.
    """

    ok: bool
    reason: str | None = None
    facts: dict[str, object] = field(default_factory=dict)
    temporary: bool = False


def chunk_uuid(work_id: UUID, space: Space, document_id: UUID, build: int, chunk_index: int) -> UUID:
    """The one id of a chunk, for backends that want a single one: UUIDv5 of exactly its identity."""
    return uuid5(CHUNK_NAMESPACE, f"{work_id}/{space.key}/{document_id}/{build}/{chunk_index}")


@runtime_checkable
class VectorStore(Protocol):
    """A vector store. Every method is async, idempotent, and raises the errors of this module only.

    Building one does not connect; `close` may be called at any time and more than once.
    """

    manifest: ClassVar[VectorStoreManifest]

    async def write_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """These chunks of this build exist; repeating it changes nothing; other builds stay.

        Raises: BadVector before anything is written, VectorStoreUnavailable, VectorStoreRefused.
        """
        ...

    async def prune_chunks(self, work_id: UUID, document_id: UUID, space: Space, before_build: int) -> None:
        """Chunks of this document with `build < before_build` are gone; newer ones stay."""
        ...

    async def delete_build(self, work_id: UUID, document_id: UUID, space: Space, build: int) -> None:
        """That build is gone, nothing else."""
        ...

    async def upsert_chunks(
        self, work_id: UUID, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> UpsertResult:
        """Replace, never append: write, then prune what is older."""
        ...

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
        """At most `top_k` hits, best first, ties ordered by (document_id, chunk_index, build).

        Only this Work, this space, these knowledge bases and documents (`None` = no restriction, empty = nothing).
        `top_k` hits whenever that many eligible chunks exist. `eligible` = how many live chunks the restriction
        leaves: a hint for the plan. `text` only for stores that embed on write.
        """
        ...

    async def delete_by_document(self, work_id: UUID, document_id: UUID, space: Space) -> None:
        """Gone from every later query when it returns; deleting nothing is success."""
        ...

    async def delete_by_work(self, work_id: UUID, space: Space) -> None:
        """The whole space of the Work is gone from every later query when it returns."""
        ...

    async def count(self, work_id: UUID, space: Space, document_id: UUID | None = None) -> int:
        """How many chunks are stored, of any build."""
        ...

    def scan_documents(self, work_id: UUID, space: Space) -> AsyncIterator[DocumentBuild]:
        """Every (document, build) stored in the space, each once."""
        ...

    async def fetch_vectors(
        self, work_id: UUID, document_id: UUID, space: Space, build: int
    ) -> dict[int, Vector] | None:
        """Vectors by chunk index, for a copy to another store; `None` when the backend can't give them."""
        ...

    def normalize(self, raw: float) -> float:
        """The backend's score as (1 + cosine) / 2, in [0, 1]."""
        ...

    async def maintain(self, work_id: UUID, space: Space) -> None:
        """Build, rebuild or drop indexes, compact. Called by a job, never by a request."""
        ...

    async def is_available(self) -> Availability:
        """One cheap round trip; never raises."""
        ...

    async def close(self) -> None:
        """Let go of connections and files."""
        ...
