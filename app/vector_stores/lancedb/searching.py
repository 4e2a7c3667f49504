"""How a question is answered: by scan where few rows are eligible, else over the table's index; never short."""

from dataclasses import dataclass
from typing import Any

from app.vector_stores.base import Matrix, best_first
from app.vector_stores.contract import Ids, QueryHit
from app.vector_stores.lancedb.places import Place
from app.vector_stores.lancedb.rows import HIT_COLUMNS, hits_of
from app.vector_stores.lancedb.settings import LanceDbSettings

MARGIN = 4  # asked for beyond `top_k`, to see whether the last place is shared
WIDENING = 8


@dataclass(frozen=True)
class Question:
    """What is asked; `vector` is (dims,) float32 of unit length."""

    place: Place
    vector: Matrix
    top_k: int
    knowledge_base_ids: Ids | None
    document_ids: Ids | None
    eligible: int | None

    @property
    def can_match(self) -> bool:
        """Whether any restriction leaves something; an empty one means nothing, not everything."""
        return all(ids is None or len(ids) > 0 for ids in (self.knowledge_base_ids, self.document_ids))

    @property
    def condition(self) -> str | None:
        """The restrictions in SQL."""
        return self.place.where(document_ids=self.document_ids, knowledge_base_ids=self.knowledge_base_ids)


class Searcher:
    """Answers questions of one table."""

    def __init__(self, settings: LanceDbSettings) -> None:
        self._settings = settings

    async def answer(self, table: Any, question: Question) -> list[QueryHit]:
        """At most `top_k` hits, best first; fewer only when there are no more."""
        condition = question.condition
        by_index = not self._is_better_scanned(question)
        rows = await self._to_the_last_tie(table, question, condition, by_index=by_index)
        if by_index and rows.num_rows < question.top_k and await table.count_rows(condition) > rows.num_rows:
            rows = await self._to_the_last_tie(table, question, condition, by_index=False)
        return best_first(hits_of(rows))[: question.top_k]

    def _is_better_scanned(self, question: Question) -> bool:
        """An index looks near the question first; a part of the table may lie elsewhere."""
        if question.knowledge_base_ids is None and question.document_ids is None:
            return False
        limit = self._settings.exact_limit_rows(question.place.space.dims)
        return question.eligible is None or question.eligible <= limit

    async def _to_the_last_tie(self, table: Any, question: Question, condition: str | None, *, by_index: bool) -> Any:
        """The nearest `top_k` rows and all that share the last place, where LanceDB itself would cut by age."""
        limit = question.top_k + MARGIN
        while True:
            rows = await self._nearest(table, question, condition, limit=limit, by_index=by_index)
            if rows.num_rows < limit:
                return rows
            distances = rows.column("_distance")
            if distances[question.top_k - 1].as_py() < distances[limit - 1].as_py():
                return rows
            limit *= WIDENING

    async def _nearest(
        self, table: Any, question: Question, condition: str | None, *, limit: int, by_index: bool
    ) -> Any:
        query = table.query().nearest_to(question.vector).column("vector").distance_type("cosine")
        query = query.limit(limit).select(HIT_COLUMNS)
        if condition is not None:
            query = query.where(condition)  # before the search: that is LanceDB's default, and never to be changed
        if by_index:  # `maximum` 0 = as many more as it takes to find `limit` rows; first, as its default is 20
            query = query.maximum_nprobes(0).minimum_nprobes(self._settings.probes)
        else:
            query = query.bypass_vector_index()
        return await query.to_arrow()
