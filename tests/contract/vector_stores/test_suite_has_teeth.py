"""Every test of the suite bites: for each there is a store that breaks its promise, and that it catches."""

import inspect

import pytest
from hypothesis import settings

from app.errors import AppError
from app.vector_stores.contract import VectorStore
from app.vector_stores.memory import MemoryStore
from app.vector_stores.testing import Interruptible, VectorStoreContract
from tests.contract.vector_stores import broken_answers, broken_lives, broken_manners, broken_outages, broken_walls
from tests.contract.vector_stores.broken_outages import Switchable
from tests.contract.vector_stores.sabotage import BROKEN

SUITE = sorted(name for name in dir(VectorStoreContract) if name.startswith("test_"))
ROOMS = (broken_answers, broken_lives, broken_manners, broken_outages, broken_walls)  # importing them fills BROKEN
BITES = (AssertionError, AppError, OSError, pytest.fail.Exception)


class Suite(VectorStoreContract):
    """The suite over a kind of memory store, run by hand."""

    __test__ = False
    recovers_within_s = 0.3

    def __init__(self, kind: type[MemoryStore]) -> None:
        self.kind = kind

    async def build_store(self) -> VectorStore:
        return self.kind()

    async def build_unreachable_store(self) -> VectorStore | None:
        return self.kind() if getattr(self.kind, "can_be_away", False) else None

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        await store.close()
        return store if getattr(self.kind, "keeps_data", False) else None

    async def build_interruptible_store(self) -> Interruptible | None:
        store = self.kind()
        return Interruptible(store, store.go_away, store.come_back) if isinstance(store, Switchable) else None

    def life_settings(self) -> settings:
        return settings(super().life_settings(), derandomize=True)

    async def run(self, name: str) -> None:
        test = getattr(self, name)
        if "store" in inspect.signature(test).parameters:
            await test(await self.build_store())
        else:
            await test()


class Sound(Switchable):
    """Nothing is broken here."""

    keeps_data = True


@pytest.mark.parametrize(("kind", "name"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
async def test_the_suite_catches_the_broken_store(kind: type[MemoryStore], name: str) -> None:
    with pytest.raises(BITES):
        await Suite(kind).run(name)


@pytest.mark.parametrize("name", SUITE)
async def test_each_test_of_the_suite_lets_a_sound_store_pass(name: str) -> None:
    if "backend_that_is_away" in name:
        pytest.skip("the memory store has no backend to be away")
    await Suite(Sound).run(name)


@pytest.mark.parametrize("name", SUITE)
def test_each_test_of_the_suite_has_a_store_that_it_catches(name: str) -> None:
    assert name in {test for _, test in BROKEN}


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__.rsplit(".", 1)[-1])
def test_every_broken_store_is_registered(room: object) -> None:
    kinds = {kind for kind in vars(room).values() if inspect.isclass(kind) and issubclass(kind, MemoryStore)}
    helpers = {kind for kind in kinds if any(kind in other.__mro__[1:] for other in kinds)} | {MemoryStore}

    assert {kind for kind in kinds - helpers if kind.__module__ == room.__name__} <= {kind for kind, _ in BROKEN}  # type: ignore[attr-defined]
