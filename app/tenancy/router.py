"""Doors of the tenants: `/v1/me`, organizations, users, Works and API keys."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from app.db.paging import FIRST_ID, after_key, paginate
from app.http.openapi import problems
from app.http.session import SessionDep
from app.http.shapes import Shape
from app.identity.dependencies import CallerDep, needs
from app.tenancy import schemas, service
from app.tenancy.administering import view_work
from app.tenancy.models import ApiKey, Work

router = APIRouter(prefix="/v1")


class PageQuery(Shape):
    """Place of a list."""

    limit: Annotated[int, Query(ge=1, le=200)] = 50
    cursor: Annotated[str, Query(max_length=2048)] | None = None


@router.get("/me", operation_id="get_me", tags=["me"], dependencies=[needs("read")])
async def get_me(session: SessionDep, caller: CallerDep) -> schemas.Me:
    """Who the caller is, and where they may go."""
    organization = await service.get_organization(session, caller.organization_id)
    works = await service.list_works(session, caller, after=None, limit=200)
    return schemas.Me(
        user=schemas.MeUser(id=caller.user_id, name=caller.user_name),
        organization=schemas.MeOrganization(id=organization.id, name=organization.name, role=caller.role),
        works=[schemas.MeWork(id=w.id, name=w.name) for w in works],
        default_work_id=caller.default_work_id,
        scopes=sorted(caller.scopes),
    )


@router.post(
    "/organizations",
    operation_id="create_organization",
    status_code=201,
    tags=["organizations"],
    dependencies=[needs("operator")],
)
async def create_organization(
    session: SessionDep, caller: CallerDep, body: schemas.OrganizationCreate
) -> schemas.OrganizationAnswer:
    """Create an organization (operators only)."""
    made = await service.create_organization(session, caller, name=body.name)
    return schemas.OrganizationAnswer(id=made.id, name=made.name, created_at=made.created_at)


@router.post(
    "/organizations/{organization_id}/users",
    operation_id="create_user",
    status_code=201,
    responses=problems(409),
    tags=["organizations"],
    dependencies=[needs("admin")],
)
async def create_user(
    session: SessionDep, caller: CallerDep, organization_id: UUID, body: schemas.UserCreate
) -> schemas.UserAnswer:
    """Create a user of an organization."""
    user = await service.create_user(
        session, caller, organization_id=organization_id, subject=body.subject, name=body.name, role=body.role
    )
    return schemas.UserAnswer(
        id=user.id,
        organization_id=organization_id,
        subject=user.subject,
        name=user.name,
        role=body.role,
        created_at=user.created_at,
    )


@router.post(
    "/works",
    operation_id="create_work",
    status_code=201,
    responses=problems(404),
    tags=["works"],
    dependencies=[needs("admin")],
)
async def create_work(session: SessionDep, caller: CallerDep, body: schemas.WorkCreate) -> schemas.WorkAnswer:
    """Create a Work."""
    return _work(await service.create_work(session, caller, organization_id=body.organization_id, name=body.name))


@router.get("/works", operation_id="list_works", tags=["works"], dependencies=[needs("read")])
async def list_works(session: SessionDep, caller: CallerDep, query: Annotated[PageQuery, Query()]) -> schemas.WorkList:
    """List the Works that the caller may enter."""
    after = after_key(query.cursor, UUID, FIRST_ID)
    works = await service.list_works(session, caller, after=after, limit=query.limit + 1)
    items, next_cursor = paginate(works, query.limit, lambda work: (work.id,))
    return schemas.WorkList(items=[_work(w) for w in items], next_cursor=next_cursor)


@router.get("/works/{work_id}", operation_id="get_work", tags=["works"], dependencies=[needs("read")])
async def get_work(session: SessionDep, caller: CallerDep, work_id: UUID) -> schemas.WorkAnswer:
    """One Work by its id."""
    return _work(await view_work(session, caller, work_id))


@router.patch("/works/{work_id}", operation_id="change_work", tags=["works"], dependencies=[needs("admin")])
async def change_work(
    session: SessionDep, caller: CallerDep, work_id: UUID, body: schemas.WorkPatch
) -> schemas.WorkAnswer:
    """Change the name of a Work."""
    return _work(await service.rename_work(session, caller, work_id, body.name))


@router.post(
    "/api-keys",
    operation_id="create_api_key",
    status_code=201,
    responses=problems(404),
    tags=["api-keys"],
    dependencies=[needs("write")],
)
async def create_api_key(session: SessionDep, caller: CallerDep, body: schemas.ApiKeyCreate) -> schemas.ApiKeyCreated:
    """Create an API key; the answer is the only place where the key is ever shown."""
    wanted = service.NewKey(
        name=body.name,
        organization_id=body.organization_id,
        user_id=body.user_id,
        work_id=body.work_id,
        scopes=body.scopes,
        expires_at=body.expires_at,
    )
    row, key = await service.create_api_key(session, caller, wanted)
    return schemas.ApiKeyCreated(**_api_key(row).model_dump(), key=key)


@router.get("/api-keys", operation_id="list_api_keys", tags=["api-keys"], dependencies=[needs("read")])
async def list_api_keys(
    session: SessionDep, caller: CallerDep, query: Annotated[PageQuery, Query()]
) -> schemas.ApiKeyList:
    """List the caller's API keys; administrators see the organization's."""
    after = after_key(query.cursor, UUID, FIRST_ID)
    rows = await service.list_api_keys(session, caller, after=after, limit=query.limit + 1)
    items, next_cursor = paginate(rows, query.limit, lambda row: (row.id,))
    return schemas.ApiKeyList(items=[_api_key(r) for r in items], next_cursor=next_cursor)


@router.delete(
    "/api-keys/{api_key_id}",
    operation_id="revoke_api_key",
    status_code=204,
    tags=["api-keys"],
    dependencies=[needs("write")],
)
async def revoke_api_key(session: SessionDep, caller: CallerDep, api_key_id: UUID) -> None:
    """Revoke an API key; it is refused from the next request on."""
    await service.revoke_api_key(session, caller, api_key_id)


def _work(work: Work) -> schemas.WorkAnswer:
    return schemas.WorkAnswer(
        id=work.id, organization_id=work.organization_id, name=work.name, created_at=work.created_at
    )


def _api_key(row: ApiKey) -> schemas.ApiKeyAnswer:
    return schemas.ApiKeyAnswer(
        id=row.id,
        name=row.name,
        prefix=row.prefix,
        organization_id=row.organization_id,
        user_id=row.user_id,
        work_id=row.work_id,
        scopes=list(row.scopes),
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
        created_at=row.created_at,
    )
