"""Attributes of documents, and filters over them: evaluated in Postgres alone, every value bound."""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from sqlalchemy import ColumnElement, Text, and_, bindparam, cast, false, func, literal, not_, or_, true
from sqlalchemy.dialects.postgresql import JSONB, JSONPATH

from app.http.shapes import CleanText, Shape, clean, clean_tree

MAX_ATTRIBUTE_BYTES = 64 * 1024
MAX_FILTER_DEPTH = 8
MAX_FILTER_PARTS = 200
Scalar = str | bool | int | float


def check_attributes(value: Mapping[str, Any]) -> dict[str, Any]:
    """String, number, boolean or list of strings under keys of 1 to 255 characters; at most 64 KiB as JSON."""
    for key, inner in value.items():
        if not 1 <= len(key) <= 255:
            raise ValueError("keys have 1 to 255 characters")
        if isinstance(inner, list):
            if not all(isinstance(item, str) for item in inner):
                raise ValueError(f"'{key[:40]}': a list may hold strings only")
        elif not isinstance(inner, str | bool | int | float):
            raise ValueError(f"'{key[:40]}' must be a string, number, boolean or list of strings")
        if isinstance(inner, float) and not math.isfinite(inner):
            raise ValueError(f"'{key[:40]}' must be finite")
    clean_tree(dict(value))
    if len(json.dumps(value).encode()) > MAX_ATTRIBUTE_BYTES:
        raise ValueError(f"attributes may have at most {MAX_ATTRIBUTE_BYTES} bytes")
    return dict(value)


Attributes = Annotated[dict[str, Any], AfterValidator(check_attributes)]


def _scalar(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise ValueError("must be a string, a finite number or a boolean")


class FilterComparison(Shape):
    """One comparison with an attribute; a missing key or another type satisfies none but `ne` and `nin`."""

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
    key: Annotated[CleanText, Field(min_length=1, max_length=255)]
    value: Any

    @model_validator(mode="after")
    def _fits(self) -> "FilterComparison":
        if self.type in ("in", "nin"):
            if not isinstance(self.value, list) or len(self.value) > 1000:
                raise ValueError("value must be a list of at most 1000 values")
            for item in self.value:
                _scalar(item)
        else:
            _scalar(self.value)
            if self.type not in ("eq", "ne") and isinstance(self.value, bool):
                raise ValueError("booleans have no order")
        return self


class FilterGroup(Shape):
    """Filters combined by `and` or `or`; an empty `and` holds always, an empty `or` never."""

    type: Literal["and", "or"]
    filters: Annotated[list["Filter"], Field(max_length=MAX_FILTER_PARTS)]


Filter = Annotated[FilterComparison | FilterGroup, Field(discriminator="type")]
FilterGroup.model_rebuild()


def check_filter(wanted: "FilterComparison | FilterGroup") -> "FilterComparison | FilterGroup":
    """Bound depth and number of parts."""
    parts = 0
    level: list[FilterComparison | FilterGroup] = [wanted]
    depth = 0
    while level:
        depth += 1
        parts += len(level)
        if depth > MAX_FILTER_DEPTH or parts > MAX_FILTER_PARTS:
            raise ValueError(f"a filter has at most {MAX_FILTER_DEPTH} levels and {MAX_FILTER_PARTS} parts")
        level = [inner for part in level if isinstance(part, FilterGroup) for inner in part.filters]
    return wanted


def condition(wanted: "FilterComparison | FilterGroup", attributes: ColumnElement[Any]) -> ColumnElement[bool]:
    """The SQL of a filter over a JSONB column that is never null: two-valued."""
    if isinstance(wanted, FilterGroup):
        parts = [condition(part, attributes) for part in wanted.filters]
        return and_(true(), *parts) if wanted.type == "and" else or_(false(), *parts)
    if wanted.type in ("eq", "ne"):
        same = _equals(attributes, wanted.key, wanted.value)
        return same if wanted.type == "eq" else not_(same)
    if wanted.type in ("in", "nin"):
        among = or_(false(), *(_equals(attributes, wanted.key, item) for item in wanted.value))
        return among if wanted.type == "in" else not_(among)
    return _ordered(attributes, wanted.key, wanted.type, wanted.value)


def _equals(attributes: ColumnElement[Any], key: str, value: Scalar) -> ColumnElement[bool]:
    same = attributes.op("@>", is_comparison=True)(_json({key: value}))
    if isinstance(value, str):
        return or_(same, attributes.op("@>", is_comparison=True)(_json({key: [value]})))
    return same


_OPERATORS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def _ordered(attributes: ColumnElement[Any], key: str, kind: str, value: Scalar) -> ColumnElement[bool]:
    path = f"strict $ ? (@ {_OPERATORS[kind]} $v)"
    found = func.jsonb_path_exists(
        attributes.op("->")(cast(bindparam(None, key, type_=Text), Text)),
        cast(literal(path), JSONPATH),
        _json({"v": value}),
        true(),
    )
    return func.coalesce(found, false())


def _json(value: Any) -> ColumnElement[Any]:
    return cast(bindparam(None, value, type_=JSONB), JSONB)
