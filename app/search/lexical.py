"""The lexical leg: postings out of Postgres, scored with numpy."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import anyio.to_thread

from app.db.engine import Reach
from app.db.reading import Connection, ReadPool
from app.documents.lexical.postings import TermRows, count_postings
from app.documents.lexical.queries import QueryTerms, analyze_query, phrase_matches
from app.documents.lexical.scoring import plan_terms, score_joined
from app.search.fusion import Ref, Scored
from app.search.scoping import Allowed

MOST_POSTINGS = 1_000_000  # where a question could read more, very common words count only for rarer ones' documents
INLINE_CHARACTERS = 200  # analysed, and
INLINE_BYTES = 20_000  # scored, in less time than a thread takes to be woken
PHRASE_CANDIDATES = 200

# One row a term, its rows joined by column: neither the server nor we make a tuple for each of thousands of rows.
_JOINED = """
    select wanted.term, found.documents, found.builds, found.sizes, found.data
      from unnest(%(terms)b) as wanted(term)
     cross join lateral (
        select string_agg(uuid_send(t.document_id), ''::bytea) as documents,
               string_agg(int4send(t.build), ''::bytea) as builds,
               string_agg(int4send(octet_length(t.data)), ''::bytea) as sizes,
               string_agg(t.data, ''::bytea) as data
          from kb_terms t
         where t.work_id = %(work)b and t.term = wanted.term and t.kb_id = any(%(kbs)b)"""
_ONLY = " and t.document_id = any(%(documents)b)"
_END = ") as found where found.documents is not null"
_COUNTS = """
    select wanted.term, found.entries, found.bytes
      from unnest(%(terms)b) as wanted(term)
     cross join lateral (
        select count(*) as entries, sum(octet_length(t.data)) as bytes from kb_terms t
         where t.work_id = %(work)b and t.term = wanted.term and t.kb_id = any(%(kbs)b)) as found
     where found.entries > 0
"""


class TermMemory:
    """Rows of terms read lately, by Work, version of its index, knowledge bases and term; the oldest make room.

    Every change of a Work's terms raises its version in the same transaction, so what is remembered is never older than
    the version that a search has just seen; whether a hit may be shown is asked anew each time.
    """

    def __init__(self, max_bytes: int = 64_000_000) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._rows: OrderedDict[tuple[object, ...], TermRows] = OrderedDict()

    def recall(self, allowed: Allowed, term: str) -> TermRows | None:
        """The term's rows; without any where the term is known to be absent."""
        key = _key(allowed, term)
        found = self._rows.get(key)
        if found is not None:
            self._rows.move_to_end(key)
        return found

    def remember(self, allowed: Allowed, rows: TermRows) -> None:
        """Keep them, unless they alone would take an eighth of the room."""
        size = _size(rows)
        key = _key(allowed, rows.term)
        if size > self._max_bytes // 8 or key in self._rows:
            return
        self._rows[key] = rows
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= _size(self._rows.popitem(last=False)[1])


def _key(allowed: Allowed, term: str) -> tuple[object, ...]:
    return allowed.scope.work_id, allowed.index_version, allowed.knowledge_base_ids, term


def _size(rows: TermRows) -> int:
    key_and_objects = 600
    return key_and_objects + len(rows.documents) + len(rows.builds) + len(rows.sizes) + len(rows.data)


async def search_lexical(
    reads: ReadPool, allowed: Allowed, query: str, *, top_k: int, memory: TermMemory
) -> list[Scored]:
    """The best `top_k` chunks by BM25, best first; ties by ref. A query without a word finds nothing."""
    if len(query) <= INLINE_CHARACTERS:
        terms = analyze_query(query, allowed.languages)
    else:
        terms = await anyio.to_thread.run_sync(analyze_query, query, allowed.languages)
    if not terms.groups or not allowed.knowledge_base_ids or allowed.document_ids == ():
        return []
    rows, counts = await _fetch(reads, allowed, terms, memory)
    depth = max(top_k, PHRASE_CANDIDATES) if terms.phrases else top_k
    if sum(len(of_term.data) for of_term in rows) <= INLINE_BYTES:
        hits = _score(terms, rows, counts, allowed, depth)
    else:
        hits = await anyio.to_thread.run_sync(_score, terms, rows, counts, allowed, depth)
    if terms.phrases and hits:
        hits = await _prefer_phrases(reads, allowed, hits, terms)
    return hits[:top_k]


def _score(
    terms: QueryTerms, rows: Sequence[TermRows], counts: dict[str, int] | None, allowed: Allowed, top_k: int
) -> list[Scored]:
    average = allowed.length / allowed.chunks if allowed.chunks else 1.0
    searched = allowed.chunks if allowed.document_ids is None else allowed.eligible
    found = score_joined(
        terms, rows, n_chunks=max(searched, 1), average_length=average, top_k=top_k, posting_counts=counts
    )
    return [Scored(Ref(h.document, h.chunk_index, h.build), h.score) for h in found]


async def _fetch(
    reads: ReadPool, allowed: Allowed, terms: QueryTerms, memory: TermMemory
) -> tuple[list[TermRows], dict[str, int] | None]:
    facts: dict[str, Any] = {
        "work": allowed.scope.work_id,
        "terms": list(terms.terms),
        "kbs": list(allowed.knowledge_base_ids),
        "documents": list(allowed.document_ids or ()),
    }
    reach = Reach.of(allowed.scope.work_id)
    if allowed.document_ids is not None:
        return [TermRows(*row) for row in await reads.fetch(reach, _JOINED + _ONLY + _END, facts)], None
    if allowed.chunks * len(terms.groups) <= MOST_POSTINGS:
        return await _fetch_whole(reads, allowed, facts, memory), None
    async with reads.transaction(reach) as connection:  # the plan and what is read by it see one state
        return await _fetch_planned(connection, terms, facts)


async def _fetch_whole(reads: ReadPool, allowed: Allowed, facts: dict[str, Any], memory: TermMemory) -> list[TermRows]:
    known = {term: memory.recall(allowed, term) for term in facts["terms"]}
    found = [rows for rows in known.values() if rows is not None]
    unknown = [term for term, rows in known.items() if rows is None]
    if unknown:
        read = await reads.fetch(Reach.of(allowed.scope.work_id), _JOINED + _END, {**facts, "terms": unknown})
        fresh = {row[0]: TermRows(*row) for row in read}
        for term in unknown:
            rows = fresh.get(term) or TermRows(term, b"", b"", b"", b"")
            memory.remember(allowed, rows)
            found.append(rows)
    return found


async def _fetch_planned(
    connection: Connection, terms: QueryTerms, facts: dict[str, Any]
) -> tuple[list[TermRows], dict[str, int]]:
    async with connection.cursor(binary=True) as cursor:
        await cursor.execute(_COUNTS, facts)
        counts = {term: count_postings(int(size), int(rows)) for term, rows, size in await cursor.fetchall()}
        plan = plan_terms(terms, counts)
        await cursor.execute(_JOINED + _END, {**facts, "terms": list(plan.essential)})
        rows = [TermRows(*row) for row in await cursor.fetchall()]
        if plan.for_candidates:
            ids = {of_term.documents[at : at + 16] for of_term in rows for at in range(0, len(of_term.documents), 16)}
            later = {"terms": list(plan.for_candidates), "documents": [UUID(bytes=one) for one in ids]}
            await cursor.execute(_JOINED + _ONLY + _END, {**facts, **later})
            rows += [TermRows(*row) for row in await cursor.fetchall()]
    return rows, counts


async def _prefer_phrases(reads: ReadPool, allowed: Allowed, hits: Sequence[Scored], terms: QueryTerms) -> list[Scored]:
    """Keep the chunks in which every quoted phrase stands; without any, all stay as they were."""
    refs = [h.ref for h in hits]
    rows = await reads.fetch(
        Reach.of(allowed.scope.work_id),
        "select s.document_id, s.chunk_index, s.build, s.text from kb_spans s"
        " join unnest(%(documents)b::uuid[], %(indices)b::int[]) as w(document_id, chunk_index)"
        "   on w.document_id = s.document_id and w.chunk_index = s.chunk_index",
        {"documents": [r.document_id for r in refs], "indices": [r.chunk_index for r in refs]},
    )
    texts = {Ref(row[0], row[1], row[2]): row[3] for row in rows}
    matching = await anyio.to_thread.run_sync(_matching, texts, terms.phrases)
    return [h for h in hits if h.ref in matching] or list(hits)


def _matching(texts: dict[Ref, str], phrases: Sequence[str]) -> set[Ref]:
    return {ref for ref, text in texts.items() if all(phrase_matches(text, phrase) for phrase in phrases)}
