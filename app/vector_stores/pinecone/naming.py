"""Names of indexes and namespaces, ids of records, and the one filter that finds them."""

import hashlib
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.vector_stores.contract import Ids, Space

VECTOR_FIELD = "embedding"
TEXT_FIELD = "text"
BASE, DOCUMENT, BUILD, INDEX = "knowledge_base_id", "document_id", "build", "chunk_index"
Filter = dict[str, Any]
Clause = dict[str, Any]


@dataclass(frozen=True)
class IndexPlan:
    """An index of ours: its name, what it is made with, and a question that any record answers."""

    name: str
    schema: dict[str, Any]
    probe: Clause


def vector_index(prefix: str, dims: int) -> IndexPlan:
    """The index of all vectors of one width."""
    field = {"type": "dense_vector", "dimension": dims, "metric": "cosine"}
    probe = vector_clause([1.0] + [0.0] * (dims - 1))
    return IndexPlan(f"{prefix}-{dims}", {"fields": {VECTOR_FIELD: field}}, probe)


def text_index(prefix: str, model: str, dims: int | None) -> IndexPlan:
    """The index whose text is embedded by a hosted model, and not kept."""
    digest = hashlib.sha256(f"{model}/{dims}".encode()).hexdigest()[:12]
    embed: dict[str, Any] = {"model": model, "metric": "cosine"}
    if dims is not None:
        embed["dimension"] = dims
    field = {"type": "string", "embed": embed, "store_text": False}
    return IndexPlan(f"{prefix}-text-{digest}", {"fields": {TEXT_FIELD: field}}, text_clause("a"))


def vector_clause(values: list[float]) -> Clause:
    """Score by the cosine with a vector."""
    return {"type": "dense_vector", "field": VECTOR_FIELD, "values": values}


def text_clause(text: str) -> Clause:
    """Score by the cosine with the embedding of a text."""
    return {"type": "embed", "field": TEXT_FIELD, "query": text}


def namespace(work_id: UUID, space: Space) -> str:
    """The namespace of a Work's space. The space's key may hold any character, so its hash stands for it."""
    return f"{work_id}.{space.number}.{hashlib.sha256(space.key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def record_id(document_id: UUID, build: int, chunk_index: int) -> str:
    """The id of a chunk inside its namespace."""
    return f"{build_prefix(document_id, build)}{chunk_index:06d}"


def document_prefix(document_id: UUID) -> str:
    """What the ids of a document's chunks begin with, and no others."""
    return f"{document_id}#"


def build_prefix(document_id: UUID, build: int) -> str:
    """What the ids of a build's chunks begin with, and no others."""
    return f"{document_id}#{build:08d}#"


def parsed_id(value: str) -> tuple[UUID, int, int] | None:
    """(document, build, chunk index) of a record's id; None for one that is not ours."""
    try:
        document, build, index = value.split("#")
        return UUID(document), int(build), int(index)
    except ValueError:
        return None


def by_page(ids: list[str]) -> dict[str, set[str]]:
    """Ids of records by a prefix under which at most a hundred can be listed: a page."""
    pages: dict[str, set[str]] = {}
    for one in ids:
        pages.setdefault(one[:-2], set()).add(one)
    return pages


def metadata(knowledge_base_id: UUID, document_id: UUID, build: int, chunk_index: int) -> dict[str, Any]:
    """What is kept beside a vector: what is filtered on, and nothing else."""
    return {BASE: str(knowledge_base_id), DOCUMENT: str(document_id), BUILD: build, INDEX: chunk_index}


def among(**any_of: Ids | None) -> Filter | None:
    """Records whose fields are among the given ids; None = no restriction at all. Never called with an empty set."""
    wanted: list[Filter] = [{field: {"$in": [str(i) for i in ids]}} for field, ids in any_of.items() if ids is not None]
    if len(wanted) > 1:
        return {"$and": wanted}
    return wanted[0] if wanted else None


def of_document(document_id: UUID | str, **build: Any) -> Filter:
    """A document's records; `build` restricts the builds: `eq=3`, `lt=3`."""
    wanted: list[Filter] = [{DOCUMENT: {"$eq": str(document_id)}}]
    wanted += [{BUILD: {f"${operator}": value}} for operator, value in build.items()]
    return wanted[0] if len(wanted) == 1 else {"$and": wanted}


def of_chunks(document_id: UUID | str, build: int, chunk_indexes: list[int]) -> Filter:
    """Certain chunks of a build."""
    return {"$and": [{DOCUMENT: {"$eq": str(document_id)}}, {BUILD: {"$eq": build}}, {INDEX: {"$in": chunk_indexes}}]}
