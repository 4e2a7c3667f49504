"""Who asks, and the proof that they may enter a Work."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from app.errors import Forbidden

Scope = Literal["read", "write", "admin", "operator"]
SCOPES: tuple[Scope, ...] = ("read", "write", "admin", "operator")
_IMPLIED: dict[str, frozenset[str]] = {
    "read": frozenset({"read"}),
    "write": frozenset({"read", "write"}),
    "admin": frozenset({"read", "write", "admin"}),
    "operator": frozenset({"read", "write", "admin", "operator"}),
}


@dataclass(frozen=True)
class Caller:
    """A resolved API key: the user it acts for, in one organization, maybe bound to one Work.

    `operator` manages every organization, but reads documents only in its own.
    """

    key_id: UUID
    user_id: UUID
    user_name: str
    organization_id: UUID
    role: Literal["owner", "admin", "member"]
    scopes: frozenset[str]
    key_work_id: UUID | None
    default_work_id: UUID | None

    def has(self, scope: Scope) -> bool:
        """Whether the key carries the scope, or one that implies it."""
        return any(scope in _IMPLIED.get(held, frozenset()) for held in self.scopes)

    def require(self, scope: Scope) -> None:
        """Raises: Forbidden."""
        if not self.has(scope):
            raise Forbidden(f"This key lacks the scope '{scope}'.")


@dataclass(frozen=True)
class WorkScope:
    """Permission to act in one Work, minted by `tenancy` alone; the only key that repositories accept."""

    work_id: UUID
    organization_id: UUID
    user_id: UUID
    can_write: bool

    def require_write(self) -> None:
        """Raises: Forbidden."""
        if not self.can_write:
            raise Forbidden("This key may not write.")
