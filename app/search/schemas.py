"""JSON shapes of searches."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field

from app.documents.attributes import Filter, check_filter
from app.http.shapes import CleanText, Shape

Ids = Annotated[list[UUID], Field(max_length=1000)]


def _asked(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


Query = Annotated[CleanText, Field(min_length=1, max_length=10_000), AfterValidator(_asked)]


class SearchRequest(Shape):
    """A question. `min_score` compares with `confidence`, not with `score`."""

    query: Query
    work_id: UUID | None = None
    knowledge_base_ids: Ids | None = None
    document_ids: Ids | None = None
    limit: Annotated[int, Field(ge=1, le=100)] | None = None
    mode: Literal["hybrid", "vector", "lexical"] = "hybrid"
    filter: Annotated[Filter, AfterValidator(check_filter)] | None = None
    min_score: Annotated[float, Field(ge=0, le=1)] | None = None
    group_by: Literal["chunk", "document"] = "chunk"


class Ranks(Shape):
    """The place of the hit in each leg, from 1; null = not among that leg's best."""

    vector: int | None
    lexical: int | None


class Location(Shape):
    """Where the text stands: code points of the extracted text, the page from 1, the headings above it."""

    start: int | None
    end: int | None
    page: int | None
    heading_path: list[str]


class SearchHit(Shape):
    """One hit. `score` orders the list; the next three are null for a hit found by words only."""

    document_id: UUID
    document_name: str
    knowledge_base_id: UUID
    chunk_index: int
    text: str
    score: float
    normalized_score: float | None
    confidence: float | None
    raw_score: float | None
    ranks: Ranks
    location: Location
    attributes: dict[str, Any]


class Degraded(Shape):
    """Something that made the answer less than asked for."""

    code: str
    message: str


class IndexAnswer(Shape):
    """Which index answered; everything is null while the Work has none."""

    generation_id: UUID | None
    vector_store_id: str | None
    embedding_model: str | None
    dims: int | None


class SearchAnswer(Shape):
    """Hits, best first."""

    query: str
    mode: Literal["hybrid", "vector", "lexical"]
    hits: list[SearchHit]
    legs: list[str]
    degraded: list[Degraded]
    index: IndexAnswer
    took_ms: float
    timings: dict[str, float]


class ToolList(Shape):
    """The tools of a chat model, in the forms of three interfaces."""

    openai: list[dict[str, Any]]
    anthropic: list[dict[str, Any]]
    mcp: list[dict[str, Any]]


class ToolRequest(Shape):
    """A call of the `kb_search` tool."""

    query: Query
    kb_ids: Ids | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 5
    channel_id: Annotated[CleanText, Field(min_length=1, max_length=255)] | None = None


class ToolResult(Shape):
    """One result of the tool."""

    text: str
    document_id: UUID
    document_name: str
    knowledge_base_id: UUID
    location: Location
    normalized_score: float | None


class ToolAnswer(Shape):
    """What the tool found."""

    results: list[ToolResult]
    degraded: list[Degraded]
