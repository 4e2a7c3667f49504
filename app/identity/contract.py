"""What the middleware and the rooms need to know of identities; `tenancy` answers."""

from typing import Literal, Protocol
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncSession

from app.db.engine import Transaction
from app.identity.caller import Caller, WorkScope

ObjectKind = Literal["work", "knowledge_base", "document", "receipt", "generation"]


class Authenticator(Protocol):
    """Token → caller."""

    async def authenticate(self, token: str) -> Caller:
        """Raises: Unauthenticated for every reason alike."""
        ...


class Access(Protocol):
    """Who may enter which Work. Entering also lets the running transaction see that Work's rows."""

    async def enter_work(self, session: AsyncSession, caller: Caller, work_id: UUID) -> WorkScope:
        """Raises: WorkNotFound for a foreign Work and for an unknown one alike."""
        ...

    async def enter_default_work(self, session: AsyncSession, caller: Caller) -> WorkScope:
        """The Work used when the caller names none. Raises: Invalid when there is none."""
        ...

    async def find_work_of(
        self, session: Transaction, caller: Caller, kind: ObjectKind, object_id: UUID
    ) -> WorkScope | None:
        """Enter the Work that the object belongs to; None when it is unknown or out of the caller's reach."""
        ...

    async def enter_owned_works(self, session: AsyncSession, caller: Caller) -> list[WorkScope]:
        """Enter every Work in which the caller owns a knowledge base."""
        ...
