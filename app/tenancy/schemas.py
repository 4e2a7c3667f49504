"""JSON shapes of organizations, users, Works and API keys."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, Field
from typing_extensions import TypeAliasType

from app.http.shapes import Instant, Name, Omittable, Shape

OrganizationRole = TypeAliasType("OrganizationRole", Literal["owner", "admin", "member"])
KeyScope = TypeAliasType("KeyScope", Literal["read", "write", "admin", "operator"])


class OrganizationCreate(Shape):
    """A new organization."""

    name: Name


class OrganizationAnswer(Shape):
    """An organization."""

    id: UUID
    name: str
    created_at: Instant


class UserCreate(Shape):
    """A new user of an organization; `subject` is the name by which the chat product knows the person."""

    subject: Name
    name: Name
    role: OrganizationRole = "member"


class UserAnswer(Shape):
    """A user of an organization."""

    id: UUID
    organization_id: UUID
    subject: str
    name: str
    role: OrganizationRole
    created_at: Instant


class WorkCreate(Shape):
    """A new Work, in the caller's organization unless another is named."""

    organization_id: Omittable[UUID] = None
    name: Name


class WorkPatch(Shape):
    """Changes to a Work (JSON Merge Patch)."""

    name: Omittable[Name] = None


class WorkAnswer(Shape):
    """A Work."""

    id: UUID
    organization_id: UUID
    name: str
    created_at: Instant


def _distinct(value: list[str]) -> list[str]:
    return sorted(set(value))


class ApiKeyCreate(Shape):
    """A new API key. Without `user_id` it acts for the caller."""

    name: Name
    organization_id: Omittable[UUID] = None
    user_id: Omittable[UUID] = None
    work_id: Omittable[UUID] = None
    scopes: Annotated[list[KeyScope], Field(min_length=1), AfterValidator(_distinct)]
    expires_at: Omittable[AwareDatetime] = None


class ApiKeyAnswer(Shape):
    """An API key, without the key itself."""

    id: UUID
    name: str
    prefix: str
    organization_id: UUID
    user_id: UUID
    work_id: UUID | None
    scopes: list[str]
    expires_at: Instant | None
    revoked_at: Instant | None
    last_used_at: Instant | None
    created_at: Instant


class ApiKeyCreated(ApiKeyAnswer):
    """A new API key: `key` is shown this once."""

    key: str


class MeOrganization(Shape):
    """The caller's organization and role."""

    id: UUID
    name: str
    role: OrganizationRole


class MeUser(Shape):
    """The user that the caller's key acts for."""

    id: UUID
    name: str


class MeWork(Shape):
    """A Work that the caller may enter."""

    id: UUID
    name: str


class Me(Shape):
    """Who the caller is. `works` lists at most 200; `GET /v1/works` pages through all."""

    user: MeUser
    organization: MeOrganization
    works: list[MeWork]
    default_work_id: UUID | None
    scopes: list[str]


class WorkList(Shape):
    """A page of Works."""

    items: list[WorkAnswer]
    next_cursor: str | None


class ApiKeyList(Shape):
    """A page of API keys."""

    items: list[ApiKeyAnswer]
    next_cursor: str | None
