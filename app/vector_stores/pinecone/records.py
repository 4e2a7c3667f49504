"""One namespace of one index: the calls that the store makes, with our errors; each record is one chunk."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from app.vector_stores.contract import VectorStoreUnavailable
from app.vector_stores.pinecone.batching import Record
from app.vector_stores.pinecone.failures import NotThere, translated
from app.vector_stores.pinecone.naming import Clause, Filter, IndexPlan

IDS_PER_PAGE = 100
IDS_PER_CALL = 1_000


@dataclass(frozen=True)
class Match:
    """A record that was found, its score and the fields that were asked for."""

    id: str
    score: float
    fields: dict[str, Any]


@dataclass(frozen=True)
class Found:
    """Matches, best first, and up to which log position the index had read; None = it did not say."""

    matches: list[Match]
    position: int | None

    def has_reached(self, target: int | None) -> bool | None:
        """Whether what was written at a log position had to be seen; None when nobody can know."""
        return None if target is None or self.position is None else self.position >= target


class Records:
    """A namespace. A write returns its position in the namespace's log, or None when the answer names none."""

    def __init__(self, plan: IndexPlan, index: Any, namespace: str, *, page_limit_s: float) -> None:
        self.plan = plan
        self._page_limit_s = page_limit_s
        self.namespace = namespace
        self._index = index
        self._documents = index.documents

    async def upsert(self, records: Sequence[Record]) -> int | None:
        """Write records, replacing those with the same ids."""
        with translated():
            answer = await self._documents.upsert(namespace=self.namespace, documents=records)
        if answer.upserted_count != len(records):
            raise VectorStoreUnavailable(f"Pinecone took {answer.upserted_count} of {len(records)} records")
        return _committed(answer)

    async def delete(
        self, *, ids: Sequence[str] | None = None, matching: Filter | None = None, everything: bool = False
    ) -> int | None:
        """Delete records: exactly one way of naming them. Raises: NotThere when the namespace does not exist."""
        with translated():
            answer = await self._documents.delete(
                namespace=self.namespace, ids=ids, filter=matching, delete_all=everything
            )
        return _committed(answer)

    async def search(
        self, clause: Clause, *, top_k: int, matching: Filter | None = None, fields: Sequence[str] = ()
    ) -> Found:
        """The best records; none where the namespace does not exist."""
        try:
            with translated():
                answer = await self._documents.search(
                    namespace=self.namespace,
                    score_by=[clause],
                    top_k=top_k,
                    filter=matching,
                    include_fields=list(fields),
                )
        except NotThere:
            return Found([], None)
        matches = [Match(one.id, float(one.score), {name: one.get(name) for name in fields}) for one in answer.matches]
        return Found(matches, answer.response_info.lsn_reconciled if answer.response_info else None)

    async def ids(self, prefix: str | None = None) -> AsyncIterator[str]:
        """Ids that begin with a prefix; none where the namespace does not exist. Each page has a time limit."""
        pages = self._documents.list(namespace=self.namespace, prefix=prefix, limit=IDS_PER_PAGE).pages()
        while True:
            try:
                with translated():
                    async with asyncio.timeout(self._page_limit_s):
                        page = await anext(pages, None)
            except NotThere:
                return
            except TimeoutError:
                raise VectorStoreUnavailable(f"Pinecone did not list within {self._page_limit_s:g} s") from None
            if page is None:
                return
            for one in page.items:
                yield one.id

    async def fetch(self, ids: Sequence[str], field: str) -> dict[str, Any]:
        """One field of each record that is there."""
        with translated():
            answer = await self._documents.fetch(namespace=self.namespace, ids=list(ids), include_fields=[field])
        return {key: one.get(field) for key, one in answer.documents.items()}

    async def drop(self) -> None:
        """Give the namespace back. Raises: NotThere when it does not exist."""
        with translated():
            await self._index.delete_namespace(name=self.namespace)

    async def exists(self) -> bool:
        """Whether the namespace is known."""
        try:
            with translated():
                await self._index.describe_namespace(name=self.namespace)
        except NotThere:
            return False
        return True


def _committed(answer: Any) -> int | None:
    position: int | None = answer.response_info.lsn_committed if answer.response_info else None
    return position
