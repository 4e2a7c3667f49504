"""Putting jobs into the queue, in the transaction that makes them necessary."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import procrastinate
from procrastinate.exceptions import AlreadyEnqueued
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.driver import driver_connection

# Deletes have a queue and a worker of their own, never behind ingestion; so have sweeps, which take long.
INGEST, FORGET, SWEEP = "ingest", "forget", "sweep"


class JobRetry(Exception):
    """Raised by a task: run me again after `delay_s`. It is not counted: who counts attempts does so itself."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"again in {delay_s} s")
        self.delay_s = delay_s


class _NoPool(procrastinate.PsycopgConnector):
    """A connector that is never opened: every statement runs on the connection it is given."""


_enqueuing = procrastinate.App(connector=_NoPool())


async def enqueue(
    session: AsyncSession,
    task: str,
    *,
    args: Mapping[str, str],
    lock: str,
    queueing_lock: str,
    queue: str,
    priority: int = 0,
    delay_s: float = 0,
    is_first: bool = False,
) -> bool:
    """Enqueue a job; it exists when the session's transaction commits, and not otherwise.

    `args` are ids only. Jobs of one `lock` run one after the other. False: a job with this `queueing_lock` waits
    already and will do the work; the transaction stays usable. `is_first`: the caller knows that none can wait, since
    the thing itself is new; that saves the savepoint.
    """
    await session.flush()
    options: dict[str, Any] = {"lock": lock, "queueing_lock": queueing_lock, "queue": queue, "priority": priority}
    if delay_s > 0:
        options["schedule_at"] = datetime.now(UTC) + timedelta(seconds=delay_s)
    connection = await driver_connection(session)
    deferrer = _enqueuing.configure_task(task, allow_unknown=True, connection=connection, **options)
    if is_first:
        await deferrer.defer_async(**args)
        return True
    try:
        async with connection.transaction():  # a savepoint
            await deferrer.defer_async(**args)
    except AlreadyEnqueued:
        return False
    return True
