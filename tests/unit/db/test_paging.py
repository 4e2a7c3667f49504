"""Cursors: what goes in comes out, and nothing else is accepted."""

import base64
import json
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import column

from app.db.paging import Cursor, CursorMalformed, after, paginate

KINDS = (datetime, UUID, int, str)


def forged(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@given(
    st.datetimes(timezones=st.just(UTC)),
    st.uuids(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=100),
)
def test_a_cursor_survives_the_journey_to_the_client_and_back(moment: datetime, id_: UUID, n: int, name: str) -> None:
    cursor = Cursor((moment, id_, n, name))

    assert Cursor.decode(cursor.encode(), KINDS) == cursor


def test_a_cursor_needs_no_escaping_in_a_url() -> None:
    text = Cursor((datetime.now(UTC), "ÿ?&/+ ")).encode()

    assert all(c.isascii() and (c.isalnum() or c in "-_") for c in text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!!",
        "ä",
        "a",
        "AAAA",
        "A" * 5000,
        forged({}),
        forged([1]),
        forged([[[]]]),
        forged(["not a time"]),
        forged(["2026-01-01T00:00:00"]),
        forged([True]),
        forged([None]),
        "W" * 4000,
    ],
)
def test_what_is_no_cursor_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(CursorMalformed) as caught:
        Cursor.decode(text, (datetime,))

    assert caught.value.faults[0].loc == ("query", "cursor")


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
def test_a_cursor_cannot_carry_text_that_postgres_refuses(name: str) -> None:
    with pytest.raises(CursorMalformed):
        Cursor.decode(forged([name]), (str,))


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 1.5, True, "1"])
def test_a_cursor_cannot_carry_a_number_that_postgres_refuses(number: object) -> None:
    with pytest.raises(CursorMalformed):
        Cursor.decode(forged([number]), (int,))


def test_a_cursor_of_another_list_is_refused() -> None:
    with pytest.raises(CursorMalformed):
        Cursor.decode(Cursor((uuid4(),)).encode(), (datetime, UUID))


def test_a_full_page_with_more_behind_it_ends_in_a_cursor() -> None:
    page, cursor = paginate(["a", "b", "c"], 2, key=lambda item: (item,))

    assert page == ["a", "b"]
    assert cursor == Cursor(("b",)).encode()


def test_the_last_page_has_no_cursor() -> None:
    assert paginate(["a", "b"], 2, key=lambda item: (item,)) == (["a", "b"], None)


def test_an_empty_list_is_an_empty_page() -> None:
    assert paginate([], 2, key=lambda item: (str(item),)) == ([], None)


@pytest.mark.parametrize(("descending", "operator"), [(False, ">"), (True, "<")])
def test_the_condition_compares_the_whole_key_at_once(descending: bool, operator: str) -> None:
    condition = after(Cursor((1, "b")), column("n"), column("name"), descending=descending)

    assert f"(n, name) {operator} (" in str(condition)
