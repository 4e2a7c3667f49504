"""Attributes and the filters over them: what is accepted, and what Postgres answers, value by value."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Column, Connection, Integer, MetaData, Table, create_engine, insert, select
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.pool import NullPool

from app.db.engine import sqlalchemy_url
from app.documents.attributes import (
    MAX_FILTER_DEPTH,
    MAX_FILTER_PARTS,
    Comparison,
    Filter,
    Group,
    check_attributes,
    check_filter,
    condition,
)
from tests.postgres import fresh_database
from tests.service import url_of

FILTER: TypeAdapter[Any] = TypeAdapter(Filter)
STORED = Table("stored", MetaData(), Column("id", Integer, primary_key=True), Column("attributes", JSONB))
VALUES: list[Any] = [
    "a",
    "b",
    "",
    "1",
    "true",
    "é",
    "～",
    "😀",
    1,
    1.0,
    1.5,
    -1,
    0,
    2**53 + 1,
    True,
    False,
    [],
    ["a"],
    ["a", "b"],
    ["1"],
]
SCALARS = [value for value in VALUES if not isinstance(value, list)]
ODD = [
    "k'; drop table stored; --",
    'k"',
    "k\\",
    "$.k ? (@ > 1)",
    "%(k)s",
    ":k",
    "{k}",
    "k.k",
    "钥匙",
    " ",
    "@",
    "strict $",
]
EQUALITY, ORDER = ("eq", "ne"), ("gt", "gte", "lt", "lte")


@pytest.fixture(scope="module")
def connection() -> Iterator[Connection]:
    url = url_of(conninfo_to_dict(fresh_database()))
    with create_engine(sqlalchemy_url(url), poolclass=NullPool).connect() as connection:
        STORED.create(connection)
        rows: list[dict[str, Any]] = [{"id": n, "attributes": {"k": value}} for n, value in enumerate(VALUES)]
        rows.append({"id": len(VALUES), "attributes": {}})
        rows.append({"id": len(VALUES) + 1, "attributes": {"other": "a", "K": "a"}})
        connection.execute(insert(STORED), rows)
        yield connection


def found(connection: Connection, wanted: Comparison | Group) -> list[int]:
    query = select(STORED.c.id).where(condition(wanted, STORED.c.attributes)).order_by(STORED.c.id)
    return list(connection.execute(query).scalars())


MISSING = object()


def kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    return "number" if isinstance(value, int | float) else type(value).__name__


def holds(there: object, operator: str, value: Any) -> bool:
    """What design says, in Python: two-valued, typed, on a list any element; strings by code point."""
    if operator in ("in", "nin"):
        return any(holds(there, "eq", item) for item in value) == (operator == "in")
    if operator in EQUALITY:
        same = value in there if isinstance(there, list) else kind(there) == kind(value) and there == value
        return bool(same) == (operator == "eq")
    if kind(there) != kind(value) or kind(value) not in ("str", "number"):
        return False
    left: Any = there
    return bool({"gt": left > value, "gte": left >= value, "lt": left < value, "lte": left <= value}[operator])


def expected(operator: str, value: object) -> list[int]:
    there = [*VALUES, MISSING, MISSING]
    return [n for n, one in enumerate(there) if holds(one, operator, value)]


@pytest.mark.parametrize("operator", [*EQUALITY, *ORDER])
def test_postgres_answers_as_designed_for_every_type(connection: Connection, operator: str) -> None:
    for value in SCALARS:
        if operator in ORDER and isinstance(value, bool):
            continue
        wanted = Comparison(type=operator, key="k", value=value)
        assert found(connection, wanted) == expected(operator, value), (operator, value)


@pytest.mark.parametrize("operator", ["in", "nin"])
@pytest.mark.parametrize("value", [[], ["a"], ["a", 1], [1.0], [True], ["1", 1, True], ["b", "x"], SCALARS])
def test_lists_of_values_are_any_of_them(connection: Connection, operator: str, value: list[Any]) -> None:
    wanted = Comparison(type=operator, key="k", value=value)

    assert found(connection, wanted) == expected(operator, value)


def test_negations_are_exact(connection: Connection) -> None:
    for value in SCALARS:
        for yes, no in (("eq", "ne"), ("in", "nin")):
            shaped = [value] if yes == "in" else value
            a = found(connection, Comparison(type=yes, key="k", value=shaped))
            b = found(connection, Comparison(type=no, key="k", value=shaped))
            assert sorted(a + b) == list(range(len(VALUES) + 2))


def test_groups_combine_and_empty_ones_hold_always_or_never(connection: Connection) -> None:
    a, one = Comparison(type="eq", key="k", value="a"), Comparison(type="eq", key="k", value=1)
    everything = list(range(len(VALUES) + 2))

    assert found(connection, Group(type="or", filters=[a, one])) == sorted({*expected("eq", "a"), *expected("eq", 1)})
    assert found(connection, Group(type="and", filters=[a, one])) == []
    assert found(connection, Group(type="and", filters=[])) == everything
    assert found(connection, Group(type="or", filters=[])) == []
    nested = Group(type="and", filters=[Group(type="or", filters=[a]), Group(type="and", filters=[])])
    assert found(connection, nested) == expected("eq", "a")


@pytest.mark.parametrize("odd", ODD)
def test_keys_and_values_are_never_syntax(connection: Connection, odd: str) -> None:
    with connection.begin_nested() as savepoint:
        connection.execute(insert(STORED), {"id": 999, "attributes": {odd: odd}})

        for operator in ("eq", "gte", "lte"):
            assert found(connection, Comparison(type=operator, key=odd, value=odd)) == [999]
        assert found(connection, Comparison(type="in", key=odd, value=[odd])) == [999]
        assert 999 not in found(connection, Comparison(type="gt", key=odd, value=odd))
        savepoint.rollback()


scalars = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=5),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(scalars, scalars, st.sampled_from([*EQUALITY, *ORDER]))
def test_postgres_and_the_design_agree_on_anything(
    connection: Connection, there: object, value: object, operator: str
) -> None:
    if operator in ORDER and isinstance(value, bool):
        return
    with connection.begin_nested() as savepoint:
        connection.execute(insert(STORED), {"id": 999, "attributes": {"k": there}})
        wanted = Comparison(type=operator, key="k", value=value)
        query = select(STORED.c.id).where(condition(wanted, STORED.c.attributes), STORED.c.id == 999)

        assert bool(connection.execute(query).scalars().all()) == holds(there, operator, value)
        savepoint.rollback()


@pytest.mark.parametrize(
    "value",
    [
        {"type": "eq", "key": "k", "value": None},
        {"type": "eq", "key": "k", "value": {"$gt": 1}},
        {"type": "eq", "key": "k", "value": ["a"]},
        {"type": "eq", "key": "k", "value": float("nan")},
        {"type": "eq", "key": "k", "value": float("inf")},
        {"type": "eq", "key": "k", "value": "a\x00"},
        {"type": "eq", "key": "k", "value": "\ud800"},
        {"type": "eq", "key": "k\x00", "value": "a"},
        {"type": "eq", "key": "", "value": "a"},
        {"type": "eq", "key": "k" * 256, "value": "a"},
        {"type": "gt", "key": "k", "value": True},
        {"type": "in", "key": "k", "value": "a"},
        {"type": "in", "key": "k", "value": [None]},
        {"type": "in", "key": "k", "value": [["a"]]},
        {"type": "in", "key": "k", "value": ["a"] * 1001},
        {"type": "like", "key": "k", "value": "a"},
        {"type": "eq", "key": "k", "value": "a", "flags": "i"},
        {"type": "and", "filters": "k"},
        {"type": "and", "filters": [{"type": "nothing"}]},
        {"type": "not", "filters": []},
        {"key": "k", "value": "a"},
        "k = 1",
    ],
)
def test_filters_that_are_none_are_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        FILTER.validate_python(value)


def nested(depth: int) -> dict[str, Any]:
    wanted: dict[str, Any] = {"type": "eq", "key": "k", "value": 1}
    for _ in range(depth - 1):
        wanted = {"type": "and", "filters": [wanted]}
    return wanted


def test_depth_and_number_of_parts_are_bounded() -> None:
    part = {"type": "eq", "key": "k", "value": 1}

    assert check_filter(FILTER.validate_python(nested(MAX_FILTER_DEPTH)))
    assert check_filter(FILTER.validate_python({"type": "or", "filters": [part] * (MAX_FILTER_PARTS - 1)}))
    with pytest.raises(ValueError, match="levels"):
        check_filter(FILTER.validate_python(nested(MAX_FILTER_DEPTH + 1)))
    with pytest.raises(ValueError, match="parts"):
        check_filter(FILTER.validate_python({"type": "or", "filters": [part] * MAX_FILTER_PARTS}))


@pytest.mark.parametrize("depth", [100, 250, 900])
def test_a_filter_of_absurd_depth_is_refused_and_not_a_crash(depth: int) -> None:
    with pytest.raises(ValueError, match=r"levels|depth|recursion|Recursion"):
        check_filter(FILTER.validate_python(nested(depth)))


@pytest.mark.parametrize(
    "value",
    [{}, {"a": "", "b": 1, "c": 1.5, "d": False, "e": [], "f": ["x", "y"]}, {"k" * 255: "v"}, {"ключ": "значение"}],
)
def test_attributes_of_the_four_types_are_kept_as_they_are(value: dict[str, Any]) -> None:
    assert check_attributes(value) == value


@pytest.mark.parametrize(
    "value",
    [
        {"": 1},
        {"k" * 256: 1},
        {"k": None},
        {"k": {}},
        {"k": [1]},
        {"k": [["a"]]},
        {"k": ["a", None]},
        {"k": float("nan")},
        {"k": float("-inf")},
        {"k": "a\x00b"},
        {"k": ["\ud83d"]},
        {"k\x00": 1},
        {"k": "x" * 65_536},
        {"k": 10**5000},
    ],
)
def test_other_attributes_are_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must|keys|list|bytes|digits"):
        check_attributes(value)
