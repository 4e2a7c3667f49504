"""The readers' check: spans of live builds only, in knowledge bases that the scope may see now."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from app.db.engine import Reach
from app.db.reading import ReadPool
from app.search.fusion import Ref
from app.search.scoping import Allowed

# OFFSET 0 keeps the planner to one look-up by key for each chunk: it would rather read every document of the Work.
_LIVE = """
    select w.document_id, w.chunk_index, w.build, s.text, s.start, s."end", s.page, s.heading_path,
           d.name, d.kb_id, d.attributes
      from unnest(%(documents)b::uuid[], %(indices)b::int[], %(builds)b::int[]) as w(document_id, chunk_index, build)
     cross join lateral (
        select name, kb_id, attributes from kb_documents
         where id = w.document_id and live_build = w.build and deleting_at is null and work_id = %(work)b offset 0) d
     cross join lateral (
        select text, start, "end", page, heading_path from kb_spans
         where document_id = w.document_id and chunk_index = w.chunk_index and build = w.build and work_id = %(work)b
        offset 0) s
      join knowledge_bases k on k.id = d.kb_id and k.deleting_at is null
     where k.owner_type = 'user' and k.owner_id = %(user)b and k.id = any(%(kbs)b)
"""


@dataclass(frozen=True)
class LiveChunk:
    """A chunk that may be shown. Offsets are code points of the extracted text; `page` counts from 1."""

    document_id: UUID
    document_name: str
    knowledge_base_id: UUID
    chunk_index: int
    text: str
    start: int | None
    end: int | None
    page: int | None
    heading_path: tuple[str, ...]
    attributes: dict[str, Any]


async def fetch_live(reads: ReadPool, allowed: Allowed, refs: Sequence[Ref]) -> dict[Ref, LiveChunk]:
    """The chunks among `refs` that are live, of this Work, and in the allowed knowledge bases and documents."""
    rows = await reads.fetch(
        Reach.of(allowed.scope.work_id),
        _LIVE,
        {
            "documents": [r.document_id for r in refs],
            "indices": [r.chunk_index for r in refs],
            "builds": [r.build for r in refs],
            "work": allowed.scope.work_id,
            "user": allowed.scope.user_id,
            "kbs": list(allowed.knowledge_base_ids),
        },
    )
    narrowed = None if allowed.document_ids is None else frozenset(allowed.document_ids)
    return {
        Ref(row[0], row[1], row[2]): LiveChunk(
            document_id=row[0],
            chunk_index=row[1],
            text=row[3],
            start=row[4],
            end=row[5],
            page=row[6],
            heading_path=tuple(row[7]),
            document_name=row[8],
            knowledge_base_id=row[9],
            attributes=row[10],
        )
        for row in rows
        if narrowed is None or row[0] in narrowed
    }
