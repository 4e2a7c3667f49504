"""Reading what was written: Pinecone shows writes and deletes later, and the store waits until it does.

A write's answer names its position in the namespace's log, a search's answer the position up to which it has read.
Where positions are missing, the store looks for the records themselves.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from app.vector_stores.contract import VectorStoreUnavailable
from app.vector_stores.pinecone.batching import Record
from app.vector_stores.pinecone.naming import BUILD, DOCUMENT, INDEX, Filter, by_page, of_chunks, of_document
from app.vector_stores.pinecone.records import IDS_PER_CALL, Found, Records

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
Judge = Callable[[str], bool]
MARK_KEPT_S = 300.0  # an index that is further behind than this is broken, not stale


class Freshness:
    """Waits for writes and deletes, and remembers them, so that no later search answers from before them."""

    def __init__(self, *, wait_s: float, stale_read_wait_s: float) -> None:
        self._wait_s = wait_s
        self._stale_read_wait_s = stale_read_wait_s
        self._marks: dict[str, tuple[int, float]] = {}

    async def written(self, records: Records, batches: list[list[Record]], positions: list[int | None]) -> None:
        """Return when a search finds what was written, and a listing has it. Raises: VectorStoreUnavailable.

        Or when it seems to have been there and to be gone: whoever wrote a newer build of the document may have pruned
        this one before anybody saw it.
        """
        target = _newest(positions)
        unlisted = by_page([record["_id"] for batch in batches for record in batch])

        async def is_found() -> bool:
            if target is not None:
                found = await records.search(records.plan.probe, top_k=1)
                reached = found.has_reached(target)
                if reached is not None:
                    return reached
            for batch in batches:
                found = await records.search(records.plan.probe, top_k=len(batch), matching=_exactly(batch))
                if len(found.matches) < len(batch):
                    return False
            return True

        async def is_listed() -> bool:
            # Each of them: where the build was written before, one that is listed says nothing about the others.
            for prefix, ids in list(unlisted.items()):
                if not ids <= {one async for one in records.ids(prefix)}:
                    return False
                del unlisted[prefix]
            return True

        async def is_superseded() -> bool:
            newer = of_document(batches[0][0][DOCUMENT], gte=batches[0][0][BUILD] + 1)
            return bool((await records.search(records.plan.probe, top_k=1, matching=newer)).matches)

        await self.until(is_found, "does not show what was written", unless=is_superseded)
        await self.until(is_listed, "does not list what was written", unless=is_superseded)
        self._mark(records, target)

    async def deleted(
        self, records: Records, position: int | None, doomed: Filter | None, prefix: str | None, is_doomed: Judge
    ) -> None:
        """Return when no search finds what was deleted and no listing has it.

        What was committed before the delete may have escaped it unseen: once listed, it is deleted by id.
        `doomed`, `prefix` and `is_doomed` name the same records, `None` = all. Raises: VectorStoreUnavailable.
        """
        target = position
        asked: set[str] = set()

        async def is_gone() -> bool:
            nonlocal target
            found = await records.search(records.plan.probe, top_k=1, matching=doomed)
            if found.has_reached(target) is False:
                return False
            left = [match.id for match in found.matches]
            left += [one async for one in records.ids(prefix) if is_doomed(one)]
            new = sorted(set(left) - asked)
            for start in range(0, len(new), IDS_PER_CALL):
                target = await records.delete(ids=new[start : start + IDS_PER_CALL])
            asked.update(new)
            return not left

        await self.until(is_gone, "still shows what was deleted")
        self._mark(records, target)

    async def fresh(self, namespace: str, ask: Callable[[], Awaitable[Found]]) -> Found:
        """An answer that is not older than what this process has written and deleted in the namespace.

        Raises: VectorStoreUnavailable when every answer within the patience for stale reads is.
        """
        target = self._target(namespace)
        deadline, pause = time.monotonic() + self._stale_read_wait_s, FIRST_PAUSE_S
        while True:
            found = await ask()
            if found.has_reached(target) is not False:
                return found
            if time.monotonic() + pause > deadline:
                raise VectorStoreUnavailable("Pinecone answers from before the last write or delete")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def forget(self, namespace: str) -> None:
        """The namespace is gone, and its log with it: positions begin anew."""
        self._marks.pop(namespace, None)

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, unless: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Ask until it holds; after a third of the patience also whether there is a reason why it never will.

        Raises: VectorStoreUnavailable after the patience for freshness.
        """
        began, pause = time.monotonic(), FIRST_PAUSE_S
        deadline, doubt = began + self._wait_s, began + self._wait_s / 3
        while not await holds():
            if unless is not None and time.monotonic() > doubt and await unless():
                return
            if time.monotonic() + pause > deadline:
                raise VectorStoreUnavailable(f"Pinecone {what} after {self._wait_s:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _mark(self, records: Records, position: int | None) -> None:
        if position is not None:
            self._marks[records.namespace] = (position, time.monotonic())

    def _target(self, namespace: str) -> int | None:
        mark = self._marks.get(namespace)
        if mark is None:
            return None
        position, since = mark
        if time.monotonic() - since > MARK_KEPT_S:
            del self._marks[namespace]
            return None
        return position


def _newest(positions: list[int | None]) -> int | None:
    known = [position for position in positions if position is not None]
    return max(known) if len(known) == len(positions) else None


def _exactly(batch: list[Record]) -> Filter:
    return of_chunks(batch[0][DOCUMENT], batch[0][BUILD], [record[INDEX] for record in batch])
