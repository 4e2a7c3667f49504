"""The API description: what FastAPI derives, made plain for readers and for client generators."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from app.http.shapes import never_null

Json = dict[str, Any]

PROBLEMS = {
    400: ("BadRequest", "The request could not be read."),
    401: ("Unauthenticated", "No valid API key came with the request."),
    403: ("Forbidden", "The key may not do that."),
    404: ("NotFound", "There is no such object, or the caller may not know of it."),
    409: ("Conflict", "The request disagrees with the present state."),
    413: ("TooLarge", "The body is larger than allowed."),
    422: ("InvalidInput", "The input is not valid; `errors` says where."),
    503: ("Unavailable", "A part that is needed does not answer at the moment; try again after `Retry-After`."),
    507: ("StorageFull", "There is not enough free disk."),
}
_OTHER = ("UnexpectedProblem", "Any other problem.")
_HEADERS = {
    401: {"WWW-Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}}},
    409: {"Retry-After": {"description": "Seconds, where waiting helps.", "schema": {"type": "integer"}}},
    503: {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}},
}
_FIRST_CLAUSE = re.compile(r"^(.+?)(?:[.:;]\s|\.?$)", re.DOTALL)


@dataclass(frozen=True)
class About:
    """What the description says beyond the routes.

    `scopes`: the scope a key needs, by operation id; an operation without one needs no key. `schemas`: those that no
    route declares. `tags`: name and description, in the order of reading. `servers`: where the service is reached.
    """

    scopes: Mapping[str, str]
    tags: Mapping[str, str]
    schemas: Mapping[str, Any] = field(default_factory=dict)
    servers: Sequence[str] = ()


def problems(*statuses: int) -> dict[int | str, Json]:
    """Statuses of a route, for its `responses`, beyond those that follow from its key, parameters and body."""
    return {status: {"description": PROBLEMS[status][1]} for status in statuses}


def install(app: FastAPI, about: About) -> None:
    """Replace the application's description by the plain one, made once."""

    def described() -> Json:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version="3.1.0",
                description=app.description,
                license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
                tags=[{"name": name, "description": text} for name, text in about.tags.items()],
                servers=[{"url": url} for url in about.servers],
                routes=app.routes,
            )
            app.openapi_schema = _plain(found, about)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _plain(description: Json, about: About) -> Json:
    components = description.setdefault("components", {})
    components["schemas"] = dict(sorted({**components["schemas"], **about.schemas}.items()))
    components["responses"] = {name: _problem(text, status) for status, (name, text) in PROBLEMS.items()}
    components["responses"][_OTHER[0]] = _problem(_OTHER[1], None)
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "description": "An API key."}}
    description["security"] = [{"bearer": []}]
    for operations in description["paths"].values():
        for operation in operations.values():
            scope = about.scopes.get(operation["operationId"])
            _say(operation, scope)
            _answer_problems(operation, scope)
            for parameter in operation.get("parameters", []):
                parameter["schema"] = never_null(parameter["schema"])
    return description


def _problem(text: str, status: int | None) -> Json:
    said: Json = {
        "description": text,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    return {**said, "headers": _HEADERS[status]} if status in _HEADERS else said


def _say(operation: Json, scope: str | None) -> None:
    """A summary that reads, and the scope: in `security` for tools, in words for people."""
    text = operation.pop("description", "").strip()
    found = _FIRST_CLAUSE.match(text)
    if found:
        operation["summary"] = found[1]
    more = "" if text.rstrip(".") == operation["summary"] else text
    if scope is None:
        operation["security"] = []
    else:
        operation["security"] = [{"bearer": [scope]}]
        more = f"{more}\n\nNeeds a key with the scope `{scope}`.".strip()
    if more:
        operation["description"] = more


def _answer_problems(operation: Json, scope: str | None) -> None:
    """Name every problem the operation may answer with; what it declares in another shape stays."""
    answers = operation["responses"]
    parameters, has_body = operation.get("parameters", []), "requestBody" in operation
    statuses = {int(status) for status in answers if status.isdigit() and int(status) >= 400}
    statuses |= {401, 403, 503} if scope is not None else set()
    statuses |= {404} if any(parameter["in"] == "path" for parameter in parameters) else set()
    statuses |= {413} if has_body else set()
    statuses |= {422} if parameters or has_body else set()
    for status in statuses:
        if "content" not in answers.get(str(status), {}) or status == 422:
            answers[str(status)] = {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"}
    answers["default"] = {"$ref": f"#/components/responses/{_OTHER[0]}"}
    for status, said in answers.items():
        if said.get("description") == "Successful Response":
            said["description"] = HTTPStatus(int(status)).phrase
    operation["responses"] = {status: answers[status] for status in sorted(answers)}
