"""What a plugin author fills in, and the small words that the tests are written with."""

from collections.abc import AsyncIterator, Sequence
from uuid import UUID, uuid4

import numpy as np
import pytest
import pytest_asyncio

from app.vector_stores.contract import QueryHit, Space, Vector, VectorChunk, VectorStore

DIMS = 8


class ContractBase:
    """The hooks. Only `build_store` is needed; each of the others opens one more test."""

    pytestmark = pytest.mark.asyncio

    tolerance = 1e-3  # how far a normalised score may be from the exact one
    least_recall = 0.95  # of ten nearest neighbours, on average, where an index may be approximate
    recall_rows = 2_000  # chunks of the space in which recall is measured

    recovers_within_s = 10.0  # after a short absence of the backend

    # The size of the search for a life after which the store is wrong: smaller where every call is dear.
    lives = 40
    steps_of_a_life = 25

    async def build_store(self) -> VectorStore:
        """A store over a backend that answers."""
        raise NotImplementedError("build_store: return the store to be tested")

    async def build_unreachable_store(self) -> VectorStore | None:
        """A store whose backend does not answer; None where there is nothing to be away."""
        return None

    async def reopen_store(self, store: VectorStore) -> VectorStore | None:
        """Close the store and open its data again; None where data ends with the store."""
        return None

    @pytest_asyncio.fixture
    async def store(self) -> AsyncIterator[VectorStore]:
        """The store under test, closed afterwards."""
        store = await self.build_store()
        yield store
        await store.close()


def a_space(number: int = 1, *, model: str = "model", dims: int = DIMS) -> Space:
    return Space(number, model, dims)


def direction(axis: int, *, lean: float = 0.0, dims: int = DIMS) -> list[float]:
    """A vector along an axis, leaning towards the next one: the larger `lean`, the farther from the axis."""
    vector = [0.0] * dims
    vector[axis % dims] = 1.0
    vector[(axis + 1) % dims] = lean
    return vector


def random_vectors(count: int, *, seed: int = 1, dims: int = DIMS) -> list[list[float]]:
    rows: list[list[float]] = np.random.default_rng(seed).normal(size=(count, dims)).tolist()
    return rows


def clustered_vectors(count: int, *, seed: int = 1, dims: int = DIMS) -> list[list[float]]:
    """Vectors around twenty centres, the same ones for every seed, as texts of a few topics are."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(20, dims))
    rows: list[list[float]] = (centres[random.integers(0, 20, size=count)] + random.normal(size=(count, dims))).tolist()
    return rows


def chunks_of(vectors: Sequence[Vector], *, knowledge_base_id: UUID | None = None, first: int = 0) -> list[VectorChunk]:
    """One chunk a vector, numbered from `first`, in one knowledge base."""
    base = knowledge_base_id or uuid4()
    return [VectorChunk(base, first + at, vector) for at, vector in enumerate(vectors)]


def documents_of(hits: Sequence[QueryHit]) -> list[UUID]:
    return [hit.chunk.document_id for hit in hits]


async def scanned(store: VectorStore, work_id: UUID, space: Space) -> dict[tuple[UUID, int], int]:
    """(document, build) → chunks. Fails when a build comes twice."""
    found: dict[tuple[UUID, int], int] = {}
    async for item in store.scan_documents(work_id, space):
        assert (item.document_id, item.build) not in found, "a build was scanned twice"
        found[item.document_id, item.build] = item.chunks
    return found
