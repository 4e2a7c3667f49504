"""The lexical leg: postings out of Postgres, scored in a thread."""

from collections.abc import Sequence
from typing import Any, LiteralString
from uuid import UUID

import anyio.to_thread

from app.db.engine import Reach
from app.db.reading import Connection, ReadPool
from app.documents.lexical.postings import count_postings
from app.documents.lexical.queries import QueryTerms, analyze_query, phrase_matches
from app.documents.lexical.scoring import plan_terms, score
from app.search.fusion import Ref, Scored
from app.search.scoping import Allowed

LARGE_CHUNKS = 50_000  # from here on, very common terms are scored only for the documents of rarer ones
PHRASE_CANDIDATES = 200

_ROWS = (
    "select term, document_id, build, data from kb_terms"
    " where work_id = %(work)b and term = any(%(terms)b) and kb_id = any(%(kbs)b)"
)
_ONLY = " and document_id = any(%(documents)b)"
_COUNTS = (
    "select term, count(*), sum(octet_length(data)) from kb_terms"
    " where work_id = %(work)b and term = any(%(terms)b) and kb_id = any(%(kbs)b) group by term"
)


async def search_lexical(reads: ReadPool, allowed: Allowed, query: str, *, top_k: int) -> list[Scored]:
    """The best `top_k` chunks by BM25, best first; ties by ref. A query without a word finds nothing."""
    terms = await anyio.to_thread.run_sync(analyze_query, query, allowed.languages)
    if not terms.groups or not allowed.knowledge_base_ids or allowed.document_ids == ():
        return []
    async with reads.transaction(Reach.of(allowed.scope.work_id)) as connection:
        rows, counts = await _fetch(connection, allowed, terms)
    depth = max(top_k, PHRASE_CANDIDATES) if terms.phrases else top_k
    hits = await anyio.to_thread.run_sync(_score, terms, rows, counts, allowed, depth)
    if terms.phrases and hits:
        async with reads.transaction(Reach.of(allowed.scope.work_id)) as connection:
            hits = await _prefer_phrases(connection, hits, terms)
    return hits[:top_k]


def _score(
    terms: QueryTerms,
    rows: list[tuple[str, UUID, int, bytes]],
    counts: dict[str, int] | None,
    allowed: Allowed,
    top_k: int,
) -> list[Scored]:
    average = allowed.length / allowed.chunks if allowed.chunks else 1.0
    searched = allowed.chunks if allowed.document_ids is None else allowed.eligible
    found = score(terms, rows, n_chunks=max(searched, 1), average_length=average, top_k=top_k, posting_counts=counts)
    return [Scored(Ref(h.document, h.chunk_index, h.build), h.score) for h in found]


async def _fetch(
    connection: Connection, allowed: Allowed, terms: QueryTerms
) -> tuple[list[tuple[str, UUID, int, bytes]], dict[str, int] | None]:
    facts: dict[str, Any] = {
        "work": allowed.scope.work_id,
        "terms": list(terms.terms),
        "kbs": list(allowed.knowledge_base_ids),
        "documents": list(allowed.document_ids or ()),
    }
    narrowed = allowed.document_ids is not None
    if narrowed or allowed.chunks <= LARGE_CHUNKS:
        return await _rows(connection, _ROWS + (_ONLY if narrowed else ""), facts), None
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_COUNTS, facts)
        counts = {term: count_postings(int(size), int(rows)) for term, rows, size in await cursor.fetchall()}
    plan = plan_terms(terms, counts)
    rows = await _rows(connection, _ROWS, {**facts, "terms": list(plan.essential)})
    if plan.for_candidates:
        candidates = list({row[1] for row in rows})
        later = {**facts, "terms": list(plan.for_candidates), "documents": candidates}
        rows += await _rows(connection, _ROWS + _ONLY, later)
    return rows, counts


async def _rows(
    connection: Connection, statement: LiteralString, facts: dict[str, Any]
) -> list[tuple[str, UUID, int, bytes]]:
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(statement, facts)
        return [(row[0], row[1], row[2], row[3]) for row in await cursor.fetchall()]


async def _prefer_phrases(connection: Connection, hits: Sequence[Scored], terms: QueryTerms) -> list[Scored]:
    """Keep the chunks in which every quoted phrase stands; without any, all stay as they were."""
    refs = [h.ref for h in hits]
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(
            "select s.document_id, s.chunk_index, s.build, s.text from kb_spans s"
            " join unnest(%b::uuid[], %b::int[]) as w(document_id, chunk_index)"
            "   on w.document_id = s.document_id and w.chunk_index = s.chunk_index",
            ([r.document_id for r in refs], [r.chunk_index for r in refs]),
        )
        texts = {Ref(row[0], row[1], row[2]): row[3] for row in await cursor.fetchall()}
    matching = await anyio.to_thread.run_sync(_matching, texts, terms.phrases)
    return [h for h in hits if h.ref in matching] or list(hits)


def _matching(texts: dict[Ref, str], phrases: Sequence[str]) -> set[Ref]:
    return {ref for ref, text in texts.items() if all(phrase_matches(text, phrase) for phrase in phrases)}
