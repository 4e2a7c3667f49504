"""JSON shapes of knowledge bases."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from app.http.shapes import CleanText, Instant, Name, Omittable, Shape, clean_tree

Attributes = Annotated[dict[str, Any], AfterValidator(clean_tree)]


class Owner(Shape):
    """Who owns a knowledge base."""

    type: Literal["user", "team"]
    id: UUID


class KnowledgeBaseCreate(Shape):
    """A new knowledge base. Without `work_id` in the caller's default Work, without `owner` the caller's own."""

    name: Name
    description: Annotated[CleanText, Field(max_length=10_000)] = ""
    work_id: Omittable[UUID] = None
    owner: Omittable[Owner] = None
    attributes: Attributes = Field(default_factory=dict)


class KnowledgeBasePatch(Shape):
    """Changes to a knowledge base (JSON Merge Patch: null in `attributes` removes a key)."""

    name: Omittable[Name] = None
    description: Annotated[CleanText, Field(max_length=10_000)] | None = None
    attributes: Attributes | None = None


class DocumentCounts(Shape):
    """Documents by status."""

    queued: int = 0
    processing: int = 0
    ready: int = 0
    failed: int = 0
    deleting: int = 0


class KnowledgeBaseAnswer(Shape):
    """A knowledge base."""

    id: UUID
    work_id: UUID
    owner: Owner
    name: str
    description: str
    attributes: dict[str, Any]
    document_counts: DocumentCounts
    created_at: Instant
    updated_at: Instant


class KnowledgeBaseList(Shape):
    """A page of knowledge bases."""

    items: list[KnowledgeBaseAnswer]
    next_cursor: str | None


class KnowledgeBaseDeletion(Shape):
    """A deletion has been accepted: from now on nothing of it is found; the receipt tells when it is all removed."""

    receipt_id: UUID
