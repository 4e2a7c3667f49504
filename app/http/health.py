"""Liveness, readiness and metrics: at the root, without a key, without a word about tenants."""

from collections.abc import Awaitable, Callable
from typing import Literal

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app.http.shapes import Shape

router = APIRouter(tags=["operation"])
PUBLIC_PATHS = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")


class Health(Shape):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Shape):
    """Whether requests will be served; `reasons` says why not, `notes` what is not as it should be."""

    status: Literal["ready", "not_ready"]
    reasons: list[str]
    notes: list[str]


ReadinessCheck = Callable[[], Awaitable[tuple[list[str], list[str]]]]


@router.get("/healthz", operation_id="get_health")
async def get_health() -> Health:
    """Liveness: looks at nothing outside the process."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="get_readiness",
    responses={503: {"model": Readiness, "description": "Requests would not be served"}},
)
async def get_readiness(request: Request, response: Response) -> Readiness:
    """Readiness: the database answers and its schema fits. Stores and providers only add notes."""
    check: ReadinessCheck = request.app.state.readiness
    reasons, notes = await check()
    if reasons:
        response.status_code = 503
        response.headers["Retry-After"] = "5"
    return Readiness(status="not_ready" if reasons else "ready", reasons=reasons, notes=notes)


@router.get(
    "/metrics",
    operation_id="get_metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def get_metrics() -> Response:
    """Prometheus metrics of this process."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
