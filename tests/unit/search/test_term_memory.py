"""What the lexical leg remembers of terms, and for how long."""

from dataclasses import replace
from uuid import uuid4

import pytest

from app.documents.lexical.postings import TermRows
from app.identity.caller import WorkScope
from app.search.lexical import TermMemory
from app.search.scoping import Allowed

WORK, USER = uuid4(), uuid4()
ALLOWED = Allowed(
    scope=WorkScope(WORK, uuid4(), USER, False),
    knowledge_base_ids=(uuid4(), uuid4()),
    document_ids=None,
    chunks=10,
    length=100,
    eligible=10,
    generation=None,
    languages=frozenset([None]),
    max_results=None,
    index_version=3,
)


def rows(term: str, size: int = 5) -> TermRows:
    return TermRows(term, b"d" * 16, b"b" * 4, b"s" * 4, b"x" * size)


def test_a_term_is_remembered_and_its_absence_too() -> None:
    memory = TermMemory()
    absent = TermRows("absent", b"", b"", b"", b"")

    memory.remember(ALLOWED, rows("wing"))
    memory.remember(ALLOWED, absent)

    assert memory.recall(ALLOWED, "wing") == rows("wing")
    assert memory.recall(ALLOWED, "absent") == absent
    assert memory.recall(ALLOWED, "tail") is None


@pytest.mark.parametrize(
    "other",
    [
        replace(ALLOWED, index_version=4),
        replace(ALLOWED, scope=replace(ALLOWED.scope, work_id=uuid4())),
        replace(ALLOWED, knowledge_base_ids=ALLOWED.knowledge_base_ids[:1]),
    ],
    ids=["a newer version of the index", "another Work", "fewer knowledge bases"],
)
def test_nothing_is_remembered_for(other: Allowed) -> None:
    memory = TermMemory()
    memory.remember(ALLOWED, rows("wing"))

    assert memory.recall(other, "wing") is None


def test_the_least_lately_asked_makes_room_and_nothing_large_is_kept() -> None:
    memory = TermMemory(max_bytes=100_000)
    for n in range(20):
        memory.remember(ALLOWED, rows(f"t{n}", size=9_000))
        memory.recall(ALLOWED, "t0")
    memory.remember(ALLOWED, rows("large", size=20_000))

    assert memory.recall(ALLOWED, "t0") is not None
    assert memory.recall(ALLOWED, "t1") is None
    assert memory.recall(ALLOWED, "t19") is not None
    assert memory.recall(ALLOWED, "large") is None
