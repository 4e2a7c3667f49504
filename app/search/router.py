"""Doors of the search."""

from fastapi import APIRouter, Request

from app.identity.dependencies import CallerDep, needs
from app.search import schemas
from app.search.service import Answer, Hit, Question, Searcher

router = APIRouter(prefix="/v1", tags=["search"])
TOOL = "kb_search"


@router.post("/search", operation_id="search", dependencies=[needs("read")])
async def search(request: Request, caller: CallerDep, body: schemas.SearchRequest) -> schemas.SearchAnswer:
    """Search by meaning, by words, or both."""
    question = Question(
        query=body.query,
        work_id=body.work_id,
        knowledge_base_ids=None if body.knowledge_base_ids is None else tuple(body.knowledge_base_ids),
        document_ids=None if body.document_ids is None else tuple(body.document_ids),
        limit=body.limit,
        mode=body.mode,
        filter=body.filter,
        min_score=body.min_score,
        group_by=body.group_by,
    )
    answer = await _searcher(request).search(caller, question)
    generation = answer.generation
    return schemas.SearchAnswer(
        query=body.query,
        mode=body.mode,
        hits=[_hit(hit) for hit in answer.hits],
        legs=answer.legs,
        degraded=_degraded(answer),
        index=schemas.IndexAnswer(
            generation_id=None if generation is None else generation.id,
            vector_store_id=None if generation is None else generation.vector_store_id,
            embedding_model=None if generation is None else generation.embedding_model,
            dims=None if generation is None else generation.dims,
        ),
        took_ms=round(answer.took_ms, 2),
        timings={stage: round(took, 2) for stage, took in answer.timings.items()},
    )


@router.get("/tools", operation_id="list_tools", tags=["tools"], dependencies=[needs("read")])
async def list_tools() -> schemas.ToolList:
    """The `kb_search` function in the forms that chat APIs take."""
    parameters = schemas.ToolRequest.model_json_schema()
    said = "Search the knowledge bases that the person you speak with may use. Answers with passages and their places."
    return schemas.ToolList(
        openai=[{"type": "function", "function": {"name": TOOL, "description": said, "parameters": parameters}}],
        anthropic=[{"name": TOOL, "description": said, "input_schema": parameters}],
        mcp=[{"name": TOOL, "description": said, "inputSchema": parameters}],
    )


@router.post("/tools/kb_search", operation_id="kb_search", tags=["tools"], dependencies=[needs("read")])
async def kb_search(request: Request, caller: CallerDep, body: schemas.ToolRequest) -> schemas.ToolAnswer:
    """Search as a chat model's tool. An unknown channel restricts nothing more."""
    question = Question(
        query=body.query, knowledge_base_ids=None if body.kb_ids is None else tuple(body.kb_ids), limit=body.limit
    )
    answer = await _searcher(request).search(caller, question)
    results = [
        schemas.ToolResult(
            text=hit.chunk.text,
            document_id=hit.chunk.document_id,
            document_name=hit.chunk.document_name,
            knowledge_base_id=hit.chunk.knowledge_base_id,
            location=_location(hit),
            normalized_score=hit.normalized_score,
        )
        for hit in answer.hits
    ]
    return schemas.ToolAnswer(results=results, degraded=_degraded(answer))


def _searcher(request: Request) -> Searcher:
    searcher: Searcher = request.app.state.searcher
    return searcher


def _degraded(answer: Answer) -> list[schemas.Degraded]:
    return [schemas.Degraded(code=code, message=message) for code, message in answer.degraded]


def _location(hit: Hit) -> schemas.Location:
    chunk = hit.chunk
    return schemas.Location(start=chunk.start, end=chunk.end, page=chunk.page, heading_path=list(chunk.heading_path))


def _hit(hit: Hit) -> schemas.SearchHit:
    chunk = hit.chunk
    return schemas.SearchHit(
        document_id=chunk.document_id,
        document_name=chunk.document_name,
        knowledge_base_id=chunk.knowledge_base_id,
        chunk_index=chunk.chunk_index,
        text=chunk.text,
        score=hit.score,
        normalized_score=hit.normalized_score,
        confidence=hit.confidence,
        raw_score=hit.raw_score,
        ranks=schemas.Ranks(vector=hit.ranks.get("vector"), lexical=hit.ranks.get("lexical")),
        location=_location(hit),
        attributes=chunk.attributes,
    )
