"""FastAPI dependencies: the caller of a request, and the rule that every route must declare.

All are asynchronous though none waits: FastAPI would run each of them in a thread otherwise, for every request.
"""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute

from app.errors import Unauthenticated
from app.identity.caller import Caller, Scope
from app.identity.contract import Access


async def current_caller(request: Request) -> Caller:
    """The caller that the middleware found. Raises: Unauthenticated."""
    caller = request.scope.get("state", {}).get("caller")
    if not isinstance(caller, Caller):
        raise Unauthenticated()
    return caller


CallerDep = Annotated[Caller, Depends(current_caller)]


async def current_access(request: Request) -> Access:
    """Who may enter which Work, as answered by the tenants' room."""
    access: Access = request.app.state.access
    return access


AccessDep = Annotated[Access, Depends(current_access)]


class Rule:
    """A declared rule: the scope a key needs. As a dependency it also enforces it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    async def __call__(self, caller: CallerDep) -> None:
        """Raises: Forbidden."""
        caller.require(self.scope)


def needs(scope: Scope) -> Any:
    """The rule of a route: `@router.get(…, dependencies=[needs("read")])`."""
    return Depends(Rule(scope))


def routes_without_rule(app: FastAPI, public_paths: Iterable[str]) -> list[str]:
    """Routes that declare no rule and are not public; an application with any refuses to be built."""
    public = set(public_paths)
    return [
        f"{sorted(route.methods or ())} {route.path}"
        for route in all_routes(app)
        if route.path not in public and not any(isinstance(d.dependency, Rule) for d in route.dependencies)
    ]


def scopes_by_operation(app: FastAPI) -> dict[str, Scope]:
    """The scope that each operation's rule asks for, by operation id; public ones are absent."""
    rules = ((route, d.dependency) for route in all_routes(app) for d in route.dependencies)
    return {str(route.operation_id): rule.scope for route, rule in rules if isinstance(rule, Rule)}


def all_routes(app: FastAPI) -> list[APIRoute]:
    """Every route of the application, those of included routers among them."""
    return [route for route in _walk(app.routes) if isinstance(route, APIRoute)]


def _walk(routes: Iterable[Any]) -> Iterable[Any]:
    for route in routes:
        yield route
        inner = getattr(route, "original_router", None)
        yield from _walk(inner.routes if inner is not None else [])
