"""What keeps Works apart in LanceDB: the name of a table, and conditions that are never a caller's text."""

from pathlib import Path
from uuid import UUID, uuid4

import pytest

from app.vector_stores.contract import Space, VectorStoreRefused
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.lancedb.places import Place
from app.vector_stores.testing.base import a_space, chunks_of, direction
from app.vector_stores.testing.isolation import HOSTILE

DOCUMENT, OTHER = UUID(int=1), UUID(int=0xAB)


class PlainText(str):
    """A string that looks like an id to whoever only asks for `hex`."""

    @property
    def hex(self) -> str:
        return self


def a_place() -> Place:
    return Place(uuid4(), a_space())


def test_a_condition_is_made_of_uuids_and_integers() -> None:
    where = a_place().where(document_ids=[DOCUMENT, OTHER], knowledge_base_ids=[OTHER], build=3, before_build=5)

    assert where == (
        f"document_id IN (X'{DOCUMENT.hex}', X'{OTHER.hex}') AND knowledge_base_id IN (X'{OTHER.hex}')"
        " AND build = 3 AND build < 5"
    )


def test_no_restriction_is_none_and_an_empty_one_meets_nothing() -> None:
    assert a_place().where() is None
    assert a_place().where(document_ids=[]) == "false"
    assert str(a_place().where(document_ids=[DOCUMENT], knowledge_base_ids=[])).endswith(" AND false")


@pytest.mark.parametrize("text", [*HOSTILE, "X'00' OR true", str(DOCUMENT), DOCUMENT.hex])
def test_text_is_never_an_id(text: str) -> None:
    for impostor in (text, PlainText(text), text.encode("utf-8", "replace")):
        for name in ("document_ids", "knowledge_base_ids"):
            with pytest.raises(VectorStoreRefused):
                a_place().where(**{name: [DOCUMENT, impostor]})  # type: ignore[arg-type]
        with pytest.raises(VectorStoreRefused):
            a_place().where(build=impostor)  # type: ignore[arg-type]
        with pytest.raises(VectorStoreRefused):
            a_place().where(before_build=impostor)  # type: ignore[arg-type]
        with pytest.raises(VectorStoreRefused):
            _ = Place(impostor, a_space()).table  # type: ignore[arg-type]


@pytest.mark.parametrize("number", [True, 1.0, 2**63, -(2**63) - 1, None])
def test_only_a_64_bit_integer_is_a_number(number: object) -> None:
    if number is None:
        assert a_place().where(build=None) is None
        return
    with pytest.raises(VectorStoreRefused):
        a_place().where(build=number)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [*HOSTILE, "\ud800", "Ünïcode", "x" * 5_000])
def test_a_tables_name_is_plain_whatever_the_model_is_called(model: str) -> None:
    name = Place(uuid4(), Space(1, model, 8)).table

    assert name.isascii()
    assert name.replace("_", "").isalnum()
    assert name == name.lower()
    assert len(name) < 100


def test_every_work_and_every_part_of_a_space_gives_another_table() -> None:
    works = [uuid4() for _ in range(5)]
    spaces = [Space(1, "m", 8), Space(2, "m", 8), Space(1, "M", 8), Space(1, "m", 16), Space(11, "m", 8)]

    assert len({Place(work, space).table for work in works for space in spaces}) == 25


async def test_hostile_ids_are_refused_by_every_call_and_harm_nothing(tmp_path: Path) -> None:
    store, work, document, space = LanceDbStore(LanceDbSettings(path=tmp_path)), uuid4(), uuid4(), a_space()
    await store.write_chunks(work, document, space, 1, chunks_of([direction(0)] * 3))
    evil = "x' OR '1'='1"

    for call in (
        store.delete_by_document(work, evil, space),  # type: ignore[arg-type]
        store.delete_build(work, document, space, "1 OR true"),  # type: ignore[arg-type]
        store.prune_chunks(work, document, space, "2) OR (true"),  # type: ignore[arg-type]
        store.count(work, space, evil),  # type: ignore[arg-type]
        store.query_chunks(work, space, vector=direction(0), top_k=1, document_ids=[evil]),  # type: ignore[list-item]
        store.query_chunks(work, space, vector=direction(0), top_k=1, knowledge_base_ids=[evil]),  # type: ignore[list-item]
        store.delete_by_work("../../x", space),  # type: ignore[arg-type]
    ):
        with pytest.raises(VectorStoreRefused):
            await call

    assert await store.count(work, space) == 3
    await store.close()
