"""The API process: routers, middleware, lifespan."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from app import __version__, logs
from app.assembly import Assembly, open_assembly, readiness
from app.documents.router import router as documents_router
from app.documents.schemas import rendered
from app.documents.upload_router import SCHEMAS as UPLOAD_SCHEMAS
from app.documents.upload_router import router as upload_router
from app.documents.uploading import Uploader
from app.errors import AppError
from app.http import health, openapi, problems
from app.http.request_context import RequestContextMiddleware
from app.identity.dependencies import routes_without_rule, scopes_by_operation
from app.identity.middleware import AuthenticationMiddleware
from app.indexing.generations_router import router as generations_router
from app.indexing.plugins_router import router as plugins_router
from app.indexing.router import router as indexing_router
from app.indexing.settings_router import router as settings_router
from app.knowledge_bases.router import router as knowledge_bases_router
from app.logs import get_logger
from app.search.router import router as search_router
from app.search.scoping import Scoping
from app.search.service import Searcher
from app.search.vector import QueryEmbedder, VectorSearcher
from app.settings import Settings
from app.tenancy.router import router as tenancy_router

log = get_logger()
# Asked in this order for each request: the search first, which is asked most often and has the least time.
ROUTERS: tuple[APIRouter, ...] = (
    search_router,
    health.router,
    tenancy_router,
    knowledge_bases_router,
    upload_router,
    documents_router,
    indexing_router,
    generations_router,
    plugins_router,
    settings_router,
)
DESCRIPTION = (
    "Documents in, searches out. Send `Authorization: Bearer <API key>`. Errors are `application/problem+json`;"
    " lists are paged by an opaque cursor. Every answer carries `X-Request-Id`."
)
TAGS = {
    "me": "Who the caller is.",
    "knowledge-bases": "Named containers of documents.",
    "documents": "Upload, follow, read and delete documents.",
    "search": "Find the places that answer a question.",
    "tools": "The same search as a tool of a chat model.",
    "works": "Tenant workspaces: the unit of isolation, each with an index of its own.",
    "organizations": "Customers and their people.",
    "api-keys": "Keys, and what they may do.",
    "plugins": "Vector stores and providers that are installed.",
    "operation": "Health and metrics, at the root and without a key.",
}


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application; connections are opened by its lifespan. Refuses to be built with an unguarded route."""
    settings = settings or Settings()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        logs.configure(level=settings.log_level, form=settings.log_format)
        async with open_assembly(settings, role="api") as assembly:
            _fill(app, settings, assembly)
            warming = asyncio.create_task(_warm(assembly))
            yield
            warming.cancel()

    app = FastAPI(
        title="Stackroom",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        responses={"default": {"model": problems.Problem}},
    )
    for router in ROUTERS:
        app.include_router(router)
    unguarded = routes_without_rule(app, health.PUBLIC_PATHS)
    if unguarded:
        raise RuntimeError(f"routes without a declared rule: {', '.join(unguarded)}")
    problems.install(app)
    about = openapi.About(
        scopes=scopes_by_operation(app),
        tags=TAGS,
        schemas=UPLOAD_SCHEMAS,
        servers=[settings.public_url] if settings.public_url else [],
    )
    openapi.install(app, about)
    _add_middleware(app, settings)
    return app


async def _warm(assembly: Assembly) -> None:
    """Load the packaged model before the first question needs it; readiness does not wait for it."""
    while (await readiness(assembly))[0]:  # noqa: ASYNC110 - a database tells nobody that it came back
        await asyncio.sleep(0.2)
    try:
        for provider in await assembly.instances.open_chosen_by_environment("local"):
            await provider.create_embedding(["warm"], role="query", model=provider.default_model)
    except AppError as error:
        log.warning("model.not_warmed", code=error.code)


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """Outermost last: request id and CORS wrap even the answer of a refused key."""
    app.add_middleware(
        AuthenticationMiddleware,
        authenticator=lambda: app.state.authenticator,
        answer=problems.answer,
        public_paths=health.PUBLIC_PATHS,
        max_json_bytes=settings.max_json_bytes,
    )
    app.add_middleware(RequestContextMiddleware)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "X-Request-Id"],
            expose_headers=["Location", "Retry-After", "X-Request-Id"],
            max_age=600,
        )


def _fill(app: FastAPI, settings: Settings, assembly: Assembly) -> None:
    state = app.state
    state.database = assembly.database
    state.authenticator = assembly.authenticator
    state.access = assembly.access
    state.document_counter = assembly.document_counter
    state.storage = assembly.storage
    state.registry = assembly.registry
    state.chooser = assembly.chooser
    state.pinning = assembly.pinning
    state.generation_commands = assembly.generation_commands
    state.tenant_settings = assembly.tenant_settings
    state.uploader = Uploader(
        database=assembly.database,
        access=assembly.access,
        storage=assembly.storage,
        max_upload_bytes=settings.max_upload_bytes,
        min_free_disk_bytes=settings.min_free_disk_bytes,
        render=rendered,
    )
    state.searcher = _searcher(settings, assembly)
    state.readiness = lambda: readiness(assembly)


def _searcher(settings: Settings, assembly: Assembly) -> Searcher:
    queries = QueryEmbedder(timeout_s=settings.query_embedding_timeout_s)
    return Searcher(
        reads=assembly.reads,
        scoping=Scoping(assembly.database, assembly.reads, assembly.access),
        vectors=VectorSearcher(assembly.routing, queries, timeout_s=settings.search_timeout_s),
        default_limit=settings.max_results,
        fusion=settings.fusion,
    )
