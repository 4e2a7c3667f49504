"""Base of every JSON shape at the doors, and the text types that refuse what cannot be stored."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetJsonSchemaHandler, PlainSerializer, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

Item = TypeVar("Item")


class Shape(BaseModel):
    """A request or answer: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, json_schema_serialization_defaults_required=True)


def never_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of something that is there or not: what is left of `schema` when null is taken away."""
    kept = [option for option in schema.get("anyOf", []) if option.get("type") != "null"]
    if not kept:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return {**rest, **(kept[0] if len(kept) == 1 else {"anyOf": kept})}


def clean(value: str) -> str:
    """Refuse NUL and lone surrogates: neither can be stored."""
    if "\x00" in value:
        raise ValueError("must not contain NUL (U+0000)")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain a lone surrogate") from None
    return value


def _named(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def clean_tree(value: Any) -> Any:
    """Apply `clean` to every string of a JSON value."""
    if isinstance(value, str):
        clean(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            clean(key)
            clean_tree(inner)
    elif isinstance(value, list):
        for inner in value:
            clean_tree(inner)
    return value


class _NeverNull:
    """Describes a field as one that is there or not."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return never_null(handler(schema))


def _utc(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


# An input that may be left out. Null is taken for that too, but clients are not offered it: it means nothing more.
Omittable = Annotated[Item | None, _NeverNull()]
CleanText = Annotated[str, AfterValidator(clean)]
Name = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(clean), AfterValidator(_named)]
Instant = Annotated[
    datetime,
    PlainSerializer(_utc, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class Page(Shape, Generic[Item]):
    """A page of a list; `next_cursor` is null at the end."""

    items: list[Item]
    next_cursor: str | None


class Problem(BaseModel):
    """Every error's shape (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str
    errors: list["ProblemFault"] = Field(default_factory=list)


class ProblemFault(BaseModel):
    """One fault of an input."""

    loc: list[str | int]
    msg: str
