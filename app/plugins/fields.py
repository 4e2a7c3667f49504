"""What each field of a plugin's settings is: a secret, something that only an operator sets, or an endpoint."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from app.plugins.secrets import SECRET_PARAMETER, revealed, without_secrets

PATH_NAME: Final = re.compile(r"(^|_)(path|dir|directory|folder|file|filename|socket)$")
ENDPOINT_NAME: Final = re.compile(r"(^|_)(url|uri|endpoint|host|hosts|address|dsn|server)$")


@dataclass(frozen=True)
class FieldKinds:
    """Names of fields. A field that is neither may be set and read by every administrator."""

    secret: frozenset[str]
    operator: frozenset[str]
    endpoint: frozenset[str]


@lru_cache
def kinds(model: type[BaseModel]) -> FieldKinds:
    """Sort the fields of a settings model.

    Secret: its type holds a `SecretStr` or `SecretBytes`. Only for operators: `json_schema_extra={"operator_only":
    True}`, a `Path`, or a name that reads as one. Endpoint: `json_schema_extra={"endpoint": True}`, or a name that
    reads as one, unless only operators set it: what an author forgot to mark falls on the safe side.
    """
    fields = model.model_fields
    operator = {name for name, field in fields.items() if _is_marked(field, "operator_only") or _is_path(name, field)}
    endpoint = {
        name for name, field in fields.items() if _is_marked(field, "endpoint") or ENDPOINT_NAME.search(name)
    } - operator
    secret = {name for name, field in fields.items() if _holds(field.annotation, (SecretStr, SecretBytes))}
    return FieldKinds(frozenset(secret), frozenset(operator), frozenset(endpoint))


def shown(settings: BaseModel) -> tuple[dict[str, Any], list[str]]:
    """The settings without any secret, as JSON values, and the names of the secrets that are set."""
    secret = kinds(type(settings)).secret
    values = settings.model_dump(mode="json", exclude=set(secret))
    return {name: _harmless(value) for name, value in values.items()}, [
        name for name in type(settings).model_fields if name in secret and getattr(settings, name)
    ]


def plain(settings: BaseModel, name: str) -> Any:
    """One field as a JSON value, secrets revealed."""
    return to_jsonable_python(revealed(getattr(settings, name)))


def endpoints(settings: BaseModel) -> Iterator[tuple[str, str]]:
    """Every endpoint that the settings name, defaults too, by field."""
    for name in sorted(kinds(type(settings)).endpoint):
        value = plain(settings, name)
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                yield name, str(one)


def _harmless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _harmless(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_harmless(item) for item in value]
    if not isinstance(value, str) or "://" not in value:
        return value
    parts = urlsplit(value)
    hides = parts.password or any(SECRET_PARAMETER.search(key) for key, _ in parse_qsl(parts.query, True))
    return without_secrets(value) if hides else value


def _is_marked(field: FieldInfo, mark: str) -> bool:
    extra = field.json_schema_extra
    return isinstance(extra, Mapping) and extra.get(mark) is True


def _is_path(name: str, field: FieldInfo) -> bool:
    return PATH_NAME.search(name) is not None or _holds(field.annotation, (Path,))


def _holds(annotation: Any, wanted: tuple[type, ...]) -> bool:
    if isinstance(annotation, type) and issubclass(annotation, wanted):
        return True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_holds(field.annotation, wanted) for field in annotation.model_fields.values())
    return any(_holds(part, wanted) for part in get_args(annotation))
