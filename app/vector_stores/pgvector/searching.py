"""How a question is answered: two SQL texts, chosen here and never left to the planner."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from app.vector_stores.base import Matrix, best_first, normalized_cosine
from app.vector_stores.contract import ChunkRef, Ids, QueryHit, Space
from app.vector_stores.pgvector import statements
from app.vector_stores.pgvector.binary import pack_halfvec, pack_uuids
from app.vector_stores.pgvector.catalogue import SpaceMemory, SpaceRow
from app.vector_stores.pgvector.connections import Connections, Knobs
from app.vector_stores.pgvector.settings import PgvectorSettings

MOST_EF_SEARCH = 1_000
MOST_FROM_INDEX = 1_000  # an index walk for more hits than this costs more than the scan it saves
MARGIN = 20  # what an index walk is asked for beyond `top_k`: its order is nearly right, and places may be shared
ROWS_PER_LIST = 1_000


@dataclass(frozen=True)
class Question:
    """What is asked; `vector` is (dims,) float32 of unit length."""

    work_id: UUID
    space: Space
    vector: Matrix
    top_k: int
    knowledge_base_ids: Ids | None
    document_ids: Ids | None

    @property
    def can_match(self) -> bool:
        """Whether any restriction leaves something; an empty one means nothing, not everything."""
        return all(ids is None or len(ids) > 0 for ids in (self.knowledge_base_ids, self.document_ids))

    @property
    def is_restricted(self) -> bool:
        """Whether only a part of the space is asked."""
        return self.knowledge_base_ids is not None or self.document_ids is not None

    @property
    def where(self) -> str:
        """The restrictions as the rest of a WHERE clause."""
        return statements.restriction(
            bases=self.knowledge_base_ids is not None, documents=self.document_ids is not None
        )

    def values(self) -> dict[str, object]:
        """What the statements bind."""
        values: dict[str, object] = {
            "work_id": self.work_id,
            "question": pack_halfvec(self.vector),
        }
        if self.knowledge_base_ids is not None:
            values["knowledge_base_ids"] = pack_uuids(self.knowledge_base_ids)
        if self.document_ids is not None:
            values["document_ids"] = pack_uuids(self.document_ids)
        return values


class Searcher:
    """Answers questions, remembering which spaces have an index."""

    def __init__(self, connections: Connections, settings: PgvectorSettings) -> None:
        self._connections, self._settings = connections, settings
        self._memory = SpaceMemory()

    def forget(self, work_id: UUID, space: Space) -> None:
        """The space has changed: look at the catalogue next time."""
        self._memory.forget(work_id, space)

    async def answer(self, question: Question, *, eligible: int | None) -> list[QueryHit]:
        """At most `top_k` hits, best first; fewer only when there are no more."""
        if not question.can_match:
            return []
        is_small = eligible is not None and eligible <= self._settings.exact_limit_rows(question.space.dims)
        remembered = self._memory.recall(question.work_id, question.space, whatever_its_age=is_small)
        row = remembered or await self._look_up(question)
        if row is None:
            return []
        hits = await self._answer_from(row, question, eligible)
        if not hits and remembered is not None:
            # The space may have been dropped and made again under another number since it was remembered.
            row = await self._look_up(question)
            if row is not None and row.space_no != remembered.space_no:
                return await self._answer_from(row, question, eligible)
        return hits

    async def _answer_from(self, row: SpaceRow, question: Question, eligible: int | None) -> list[QueryHit]:
        if await self._is_for_the_index(row, question, eligible):
            sql = statements.index_query(row.space_no, question.space.dims, question.where)
            wanted = question.top_k + MARGIN
            hits = await self._fetch(sql, question, wanted, index_knobs(self._settings, row, wanted))
            if _is_enough(hits, question.top_k, eligible):
                return hits[: question.top_k]
        sql = statements.exact_query(row.space_no, question.where)
        return await self._fetch(sql, question, question.top_k, Knobs())

    async def _is_for_the_index(self, row: SpaceRow, question: Question, eligible: int | None) -> bool:
        if not row.has_index or question.top_k > MOST_FROM_INDEX:
            return False
        limit = self._settings.exact_limit_rows(question.space.dims)
        if eligible is None and question.is_restricted:
            eligible = await self._count_up_to(limit + 1, row, question)
        return (row.row_count if eligible is None else eligible) > limit

    async def _fetch(self, sql: str, question: Question, wanted: int, knobs: Knobs) -> list[QueryHit]:
        values = {**question.values(), "top_k": wanted}
        rows = await self._connections.fetch(
            question.work_id, sql, values, timeout_s=self._settings.search_timeout_s, knobs=knobs
        )
        return best_first([_hit(*row) for row in rows])

    async def _look_up(self, question: Question) -> SpaceRow | None:
        values = {"work_id": question.work_id, "space_key": statements.space_key(question.space)}
        rows = await self._connections.fetch(
            question.work_id, statements.FIND_SPACE, values, timeout_s=self._settings.search_timeout_s
        )
        row = SpaceRow(*rows[0]) if rows else None
        if row is None:
            self._memory.forget(question.work_id, question.space)
        else:
            self._memory.remember(question.work_id, question.space, row)
        return row

    async def _count_up_to(self, most: int, row: SpaceRow, question: Question) -> int:
        sql, values = statements.bounded_count(row.space_no, question.where), {**question.values(), "most": most}

        rows = await self._connections.fetch(question.work_id, sql, values, timeout_s=self._settings.search_timeout_s)
        return int(rows[0][0])


def index_knobs(settings: PgvectorSettings, row: SpaceRow, wanted: int) -> Knobs:
    """What a transaction sets for a walk of the space's own index that is to find `wanted` rows."""
    if row.index_kind == "ivfflat":
        lists = ivfflat_lists(row.index_rows or 0)
        probes = min(lists, max(10, lists // 5))
        return Knobs(statements.USE_INDEX + statements.IVFFLAT_KNOBS, (("probes", str(probes)),))
    ef_search = min(MOST_EF_SEARCH, max(settings.ef_search, 4 * wanted))
    return Knobs(statements.USE_INDEX + statements.HNSW_KNOBS, (("ef_search", str(ef_search)),))


def ivfflat_lists(rows: int) -> int:
    """About a thousand rows a list; the fault to avoid is an index with more lists than its rows can fill."""
    return max(1, rows // ROWS_PER_LIST)


def _is_enough(hits: Sequence[QueryHit], top_k: int, eligible: int | None) -> bool:
    """Whether an index walk that asked for `top_k + MARGIN` may stand for the exact answer.

    Not when it is short, since an iterative scan may give up early; nor when so many hits share the last place that
    the margin doesn't show who comes first among them.
    """
    if len(hits) < (top_k if eligible is None else min(top_k, eligible)):
        return False
    return len(hits) < top_k + MARGIN or hits[top_k - 1].raw_score != hits[-1].raw_score


def _hit(knowledge_base_id: UUID, document_id: UUID, build: int, chunk_index: int, distance: float) -> QueryHit:
    ref = ChunkRef(knowledge_base_id, document_id, build, chunk_index)
    return QueryHit(ref, raw_score=distance, normalized_score=normalized_cosine(1.0 - distance))
