"""One use case, one transaction: it opens at the door and commits before the answer leaves."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Database, Reach


async def open_session(request: Request) -> AsyncIterator[AsyncSession]:
    """A transaction that sees the caller's organization; a room widens it to the Work it has authorised."""
    database: Database = request.app.state.database
    caller = request.scope.get("state", {}).get("caller")
    organizations = () if caller is None else (caller.organization_id,)
    async with database.transaction(Reach.of(organizations=organizations)) as session:
        yield session


# "function": commit happens before the response starts, so a 201 is a promise kept.
SessionDep = Annotated[AsyncSession, Depends(open_session, scope="function")]
