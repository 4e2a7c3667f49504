"""A random life against an exact model: every operation, in any order, alone and side by side."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from app.vector_stores.contract import BadVector, Space, VectorChunk, VectorStore
from app.vector_stores.testing.base import DIMS, ContractBase, a_space, scanned

# Few ids, so that operations meet. Documents two and three share a knowledge base.
DOCUMENTS = range(4)
BASE_OF = (0, 1, 1, 2)
BUILDS = st.integers(1, 4)
INDEXES = st.sets(st.integers(0, 9), max_size=6)
SUBSETS = st.none() | st.sets(st.sampled_from(DOCUMENTS))
SPACES = (a_space(1), a_space(2), a_space(3, dims=2 * DIMS))  # two of one width, one of another
PALETTE, QUESTIONS = 7, 3
LEAST_GAP = 0.02  # between the scores of two vectors of the palette: more than any store's rounding

Address = tuple[int, int]  # work, space
Key = tuple[int, int, int]  # document, build, chunk index
ADDRESSES = st.tuples(st.integers(0, 1), st.integers(0, len(SPACES) - 1))


@dataclass(frozen=True)
class Palette:
    """Vectors that a machine writes, questions that it asks, and the normalised score of each pair.

    No question has two vectors nearly as near as each other, so the right order is never a matter of rounding;
    the same vector twice is a tie.
    """

    vectors: list[list[float]]
    questions: list[list[float]]
    scores: np.ndarray[Any, Any]  # (questions, vectors) float64


def a_palette(dims: int) -> Palette:
    for seed in range(10_000):
        random = np.random.default_rng(seed)
        vectors, questions = random.normal(size=(PALETTE, dims)), random.normal(size=(QUESTIONS, dims))
        lengths = np.outer(np.linalg.norm(questions, axis=1), np.linalg.norm(vectors, axis=1))
        scores = (1 + questions @ vectors.T / lengths) / 2
        if np.diff(np.sort(scores, axis=1), axis=1).min() > LEAST_GAP:
            return Palette(vectors.tolist(), questions.tolist(), scores)
    raise AssertionError("no palette with gaps that wide")


@dataclass
class Model:
    """What ought to be stored: by address, which vector of the palette each chunk has."""

    chunks: dict[Address, dict[Key, int]] = field(default_factory=dict)

    def at(self, address: Address) -> dict[Key, int]:
        return self.chunks.setdefault(address, {})

    def drop(self, address: Address, unwanted: Callable[[int, int], bool]) -> None:
        shelf = self.at(address)
        for key in [key for key in shelf if unwanted(key[0], key[1])]:
            del shelf[key]


class Life(RuleBasedStateMachine):
    """Runs in a thread with an event loop of its own; every example has fresh Works in the one store."""

    store: VectorStore
    tolerance: float
    runner: "asyncio.Runner"

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.works = [uuid4(), uuid4()]
        self.documents = sorted(uuid4() for _ in DOCUMENTS)
        self.bases = [uuid4() for _ in range(max(BASE_OF) + 1)]

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(work)

    # What is done

    @initialize(address=ADDRESSES, document=st.sampled_from(DOCUMENTS))
    def begin(self, address: Address, document: int) -> None:
        self.wait(self.written(address, document, 2, {0, 1, 2}, 0))

    @rule(address=ADDRESSES, document=st.sampled_from(DOCUMENTS), build=BUILDS, indexes=INDEXES, shade=st.integers(0))
    def write(self, address: Address, document: int, build: int, indexes: set[int], shade: int) -> None:
        self.wait(self.written(address, document, build, indexes, shade))
        self.check(address)

    @rule(address=ADDRESSES, document=st.sampled_from(DOCUMENTS), build=BUILDS, indexes=INDEXES, shade=st.integers(0))
    def replace(self, address: Address, document: int, build: int, indexes: set[int], shade: int) -> None:
        chunks = self.intended(address, document, build, indexes, shade)
        work, space, ids = self.named(address, document)
        self.wait(self.store.upsert_chunks(work, ids, space, build, chunks))
        self.model.drop(address, lambda other, number: other == document and number < build)
        self.check(address)

    @rule(address=ADDRESSES, document=st.sampled_from(DOCUMENTS), build=BUILDS)
    def refuse_a_flawed_write(self, address: Address, document: int, build: int) -> None:
        work, space, ids = self.named(address, document)
        good, flawed = [1.0] * space.dims, [float("nan")] * space.dims
        chunks = [VectorChunk(self.base_of(document), at, vector) for at, vector in ((7, good), (8, flawed))]
        with pytest.raises(BadVector):
            self.wait(self.store.write_chunks(work, ids, space, build, chunks))
        self.check(address)

    @rule(
        address=ADDRESSES,
        document=st.sampled_from(DOCUMENTS),
        build=BUILDS,
        what=st.sampled_from(("older", "build", "document", "document", "space")),
    )
    def remove(self, address: Address, document: int, build: int, what: str) -> None:
        work, space, ids = self.named(address, document)
        if what == "older":
            self.wait(self.store.prune_chunks(work, ids, space, build))
            self.model.drop(address, lambda other, number: other == document and number < build)
        elif what == "build":
            self.wait(self.store.delete_build(work, ids, space, build))
            self.model.drop(address, lambda other, number: (other, number) == (document, build))
        elif what == "document":
            self.wait(self.store.delete_by_document(work, ids, space))
            self.model.drop(address, lambda other, number: other == document)
        else:
            self.wait(self.store.delete_by_work(work, space))
            self.model.drop(address, lambda *_: True)
        self.check(address)

    @rule(address=ADDRESSES)
    def maintain(self, address: Address) -> None:
        work, space, _ = self.named(address, 0)
        self.wait(self.store.maintain(work, space))

    @rule(
        address=ADDRESSES,
        wanted=st.dictionaries(st.sampled_from(DOCUMENTS), st.tuples(BUILDS, INDEXES), min_size=2),
        shade=st.integers(0),
        prune_too=st.booleans(),
    )
    def write_side_by_side(
        self, address: Address, wanted: dict[int, tuple[int, set[int]]], shade: int, prune_too: bool
    ) -> None:
        """Several documents at once, each by two writers, and the same documents in another Work."""
        elsewhere = (1 - address[0], address[1])
        space = SPACES[address[1]]
        tasks: list[Awaitable[Any]] = []
        for place in (address, elsewhere):
            for document, (build, indexes) in wanted.items():
                chunks = self.intended(place, document, build, indexes, shade)
                where, _, ids = self.named(place, document)
                tasks += [self.store.write_chunks(where, ids, space, build, chunks) for _ in range(2)]
                if prune_too:
                    tasks.append(self.store.prune_chunks(where, ids, space, build))
                    self.model.drop(place, lambda other, number, d=document, b=build: other == d and number < b)  # type: ignore[misc]

        async def together() -> None:
            await asyncio.gather(*tasks)

        self.wait(together())
        self.check(address)
        self.check(elsewhere)

    # What is asked

    @rule(
        address=ADDRESSES,
        question=st.integers(0, QUESTIONS - 1),
        top_k=st.sampled_from((1, 3, 8, 100)),
        documents=SUBSETS,
        bases=st.none() | st.sets(st.integers(0, max(BASE_OF))),
    )
    def ask(
        self, address: Address, question: int, top_k: int, documents: set[int] | None, bases: set[int] | None
    ) -> None:
        self.answer(address, question, top_k, documents, bases)

    @rule(address=ADDRESSES, document=st.sampled_from(DOCUMENTS), build=BUILDS)
    def fetch(self, address: Address, document: int, build: int) -> None:
        work, space, ids = self.named(address, document)
        fetched = self.wait(self.store.fetch_vectors(work, ids, space, build))
        if fetched is None:
            return
        shelf = self.model.at(address)
        expected = {
            index: shade for (other, number, index), shade in shelf.items() if (other, number) == (document, build)
        }
        assert set(fetched) == set(expected)
        for index, shade in expected.items():
            given, found = np.array(PALETTES[space.dims].vectors[shade]), np.array(fetched[index])
            cosine = given @ found / np.linalg.norm(given) / np.linalg.norm(found)
            assert cosine == pytest.approx(1.0, abs=self.tolerance)

    def check(self, address: Address) -> None:
        """The store tells of this space what the model holds."""
        work, space, _ = self.named(address, 0)
        expected: dict[tuple[UUID, int], int] = {}
        for document, build, _ in self.model.at(address):
            key = (self.documents[document], build)
            expected[key] = expected.get(key, 0) + 1
        assert self.wait(scanned(self.store, work, space)) == expected
        assert self.wait(self.store.count(work, space)) == sum(expected.values())
        self.answer(address, 0, 100, None, None)

    def answer(
        self, address: Address, question: int, top_k: int, documents: set[int] | None, bases: set[int] | None
    ) -> None:
        """The store answers as the model does, in the same order."""
        work, space, _ = self.named(address, 0)
        palette = PALETTES[space.dims]
        hits = self.wait(
            self.store.query_chunks(
                work,
                space,
                vector=palette.questions[question],
                top_k=top_k,
                document_ids=None if documents is None else [self.documents[at] for at in documents],
                knowledge_base_ids=None if bases is None else [self.bases[at] for at in bases],
            )
        )

        allowed = [
            (-palette.scores[question, shade], self.documents[document], index, build, self.base_of(document))
            for (document, build, index), shade in self.model.at(address).items()
            if (documents is None or document in documents) and (bases is None or BASE_OF[document] in bases)
        ]
        expected = sorted(allowed)[:top_k]
        found = [(h.chunk.document_id, h.chunk.chunk_index, h.chunk.build, h.chunk.knowledge_base_id) for h in hits]
        assert found == [chunk[1:] for chunk in expected]
        scores = [-score for score, *_ in expected]
        assert [hit.normalized_score for hit in hits] == pytest.approx(scores, abs=self.tolerance)

    def teardown(self) -> None:
        for work in range(len(self.works)):
            for at in range(len(SPACES)):
                self.check((work, at))
        for work_id in self.works:
            for space in SPACES:
                self.wait(self.store.delete_by_work(work_id, space))

    # Words

    def named(self, address: Address, document: int) -> tuple[UUID, Space, UUID]:
        return self.works[address[0]], SPACES[address[1]], self.documents[document]

    def base_of(self, document: int) -> UUID:
        return self.bases[BASE_OF[document]]

    def intended(self, address: Address, document: int, build: int, indexes: set[int], shade: int) -> list[VectorChunk]:
        """The chunks to write, noted in the model; one that is there is written with the vector that it has."""
        shelf, vectors = self.model.at(address), PALETTES[SPACES[address[1]].dims].vectors
        chunks = []
        for index in indexes:
            chosen = shelf.setdefault((document, build, index), (shade + index) % PALETTE)
            chunks.append(VectorChunk(self.base_of(document), index, vectors[chosen]))
        return chunks

    async def written(self, address: Address, document: int, build: int, indexes: set[int], shade: int) -> None:
        chunks = self.intended(address, document, build, indexes, shade)
        work, space, ids = self.named(address, document)
        result = await self.store.write_chunks(work, ids, space, build, chunks)
        assert result.written + result.skipped == len(chunks)


PALETTES = {dims: a_palette(dims) for dims in {space.dims for space in SPACES}}


class LifeAtRandomContract(ContractBase):
    """Hypothesis looks for a sequence of operations after which the store and the model disagree."""

    def life_settings(self) -> settings:
        """How Hypothesis looks. It does not shrink what it finds: on a real backend that takes many minutes."""
        return settings(
            max_examples=self.lives,
            stateful_step_count=self.steps_of_a_life,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )

    async def test_any_life_ends_as_the_exact_model_says(self) -> None:
        await asyncio.to_thread(self._live, self.life_settings())

    def _live(self, size: settings) -> None:
        # A thread and a loop of its own, because Hypothesis waits for each step; the store is built in that loop.
        with asyncio.Runner() as runner:
            store = runner.run(self.build_store())
            life = type("LifeOfOneStore", (Life,), {"store": store, "runner": runner, "tolerance": self.tolerance})
            try:
                run_state_machine_as_test(life, settings=size)
            finally:
                runner.run(store.close())
