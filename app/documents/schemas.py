"""JSON shapes of documents."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from app.documents.attributes import Attributes
from app.documents.models import Document
from app.http.shapes import CleanText, Instant, Name, Omittable, Shape

DocumentStatus = TypeAliasType("DocumentStatus", Literal["queued", "processing", "ready", "failed", "deleting"])
DocumentStage = TypeAliasType("DocumentStage", Literal["extracting", "chunking", "embedding", "storing"])
ExternalId = Annotated[CleanText, Field(min_length=1, max_length=1024)]
TEXT_TYPES = ("text/plain", "text/markdown", "text/html")


class TextUpload(Shape):
    """A document given as text."""

    name: Name
    text: CleanText
    attributes: Omittable[Attributes] = None
    external_id: Omittable[ExternalId] = None
    content_type: Literal["text/plain", "text/markdown", "text/html"] = "text/plain"


class DocumentPatch(Shape):
    """Changes to a document (JSON Merge Patch: null in `attributes` removes a key)."""

    name: Omittable[Name] = None
    attributes: dict[str, Any] | None = None


class Progress(Shape):
    """Chunks embedded and stored, of those that the present attempt has found (0 before chunking)."""

    chunks_done: int
    chunks_total: int


class DocumentError(Shape):
    """Why a document failed or waits; `retryable` = it is worth trying again (or will be tried by itself)."""

    code: str
    message: str
    retryable: bool


class DocumentWarning(Shape):
    """Something that the uploader should know although the document is usable."""

    code: str
    message: str


class DocumentAnswer(Shape):
    """A document. `terminal` = nothing more happens by itself; `searchable` = a live build answers searches."""

    id: UUID
    knowledge_base_id: UUID
    external_id: str | None
    name: str
    content_type: str
    size_bytes: int
    sha256: str
    revision: int
    live_revision: int | None
    status: DocumentStatus
    stage: DocumentStage | None
    terminal: bool
    searchable: bool
    attempt: int
    progress: Progress
    chunk_count: int
    token_count: int
    language: str | None
    error: DocumentError | None
    warnings: list[DocumentWarning]
    attributes: dict[str, Any]
    created_at: Instant
    updated_at: Instant


class DocumentList(Shape):
    """A page of documents."""

    items: list[DocumentAnswer]
    next_cursor: str | None


class DocumentText(Shape):
    """The extracted text of the live revision."""

    document_id: UUID
    revision: int
    text: str


class ChunkAnswer(Shape):
    """A chunk of the live build; `start` and `end` are code points of the extracted text."""

    chunk_index: int
    text: str
    start: int | None
    end: int | None
    page: int | None
    heading_path: list[str]
    token_count: int


class ChunkList(Shape):
    """A page of chunks, in the order of the text."""

    items: list[ChunkAnswer]
    next_cursor: str | None


class StoreRemaining(Shape):
    """How many chunks are still to be removed from a store; -1 = not counted yet."""

    vector_store_id: str
    remaining: int


class DeletionState(Shape):
    """How far a deletion has come; closed = nothing remains anywhere."""

    state: Literal["open", "closed"]
    stores: list[StoreRemaining]


class DeletionAccepted(Shape):
    """The deletion has been accepted: from now on the document is not found in any way."""

    receipt_id: UUID


def document_answer(row: Document) -> DocumentAnswer:
    """The JSON shape of a document's row."""
    error = None
    if row.error_code is not None:
        error = DocumentError(
            code=row.error_code, message=row.error_message or row.error_code, retryable=row.error_retryable
        )
    return DocumentAnswer(
        id=row.id,
        knowledge_base_id=row.kb_id,
        external_id=row.external_id,
        name=row.name,
        content_type=row.content_type,
        size_bytes=row.size_bytes,
        sha256=row.sha256.hex(),
        revision=row.revision,
        live_revision=row.live_revision,
        status=row.status,
        stage=row.stage,
        terminal=row.status in ("ready", "failed"),
        searchable=row.live_build is not None,
        attempt=row.attempts,
        progress=Progress(chunks_done=row.chunks_done, chunks_total=row.chunks_total),
        chunk_count=row.chunk_count,
        token_count=row.token_count,
        language=row.language,
        error=error,
        warnings=[DocumentWarning.model_validate(w) for w in row.warnings],
        attributes=row.attributes,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def rendered(row: Document) -> dict[str, Any]:
    """The JSON of a document's row, as stored beside an Idempotency-Key."""
    answer: dict[str, Any] = document_answer(row).model_dump(mode="json")
    return answer
