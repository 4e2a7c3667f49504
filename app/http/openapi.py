"""The API description: what FastAPI derives, made plain for client generators."""

from collections.abc import Collection, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

PROBLEM = {
    "description": "Problem (RFC 9457)",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


def install(app: FastAPI, public_paths: Collection[str], schemas: Mapping[str, Any]) -> None:
    """Replace the application's description by the plain one, made once. `schemas`: those no route declares."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(
                title=app.title,
                version=app.version,
                openapi_version="3.1.0",
                description=app.description,
                routes=app.routes,
            )
            app.openapi_schema = _plain(found, public_paths)
            app.openapi_schema["components"]["schemas"].update(schemas)
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]


def _plain(description: dict[str, Any], public_paths: Collection[str]) -> dict[str, Any]:
    components = description.setdefault("components", {})
    components["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer", "description": "An API key."}}
    description["security"] = [{"bearer": []}]
    for path, operations in description["paths"].items():
        for operation in operations.values():
            if path in public_paths:
                operation["security"] = []
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = PROBLEM
            for parameter in operation.get("parameters", []):
                parameter["schema"] = _never_null(parameter["schema"])
    return description


def _never_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is there or not; it is never null."""
    kept = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if len(kept) != 1:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **kept[0]}
