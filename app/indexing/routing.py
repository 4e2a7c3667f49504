"""From a generation to the store that holds it and the provider that embeds for it, whatever is pinned today."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from app.ai_providers.contract import EmbeddingModel, EmbeddingProvider
from app.errors import Misconfigured
from app.indexing.models import IndexGeneration
from app.vector_stores.contract import Space, VectorStore

StoreOf = Callable[[UUID, UUID], Awaitable[VectorStore]]  # (work, instance)
ProviderOf = Callable[[UUID, UUID], Awaitable[EmbeddingProvider]]


class ModelNotOffered(Misconfigured):
    """The provider no longer offers the model of this index."""

    code = "model_not_offered"


@dataclass(frozen=True)
class StorePlace:
    """A store and the space in it."""

    store: VectorStore
    space: Space


@dataclass(frozen=True)
class Embedder:
    """A provider with the model and width of one generation."""

    provider: EmbeddingProvider
    model: EmbeddingModel
    dims: int


class Routing:
    """Opens stores and providers by the instance recorded in a generation, and keeps them open."""

    def __init__(self, store_of: StoreOf, provider_of: ProviderOf) -> None:
        self._store_of = store_of
        self._provider_of = provider_of

    async def store(self, generation: IndexGeneration) -> StorePlace | None:
        """Where the generation's vectors are; None for a lexical one. Raises: Misconfigured, Unavailable."""
        if generation.store_instance_id is None:
            return None
        store = await self._store_of(generation.work_id, generation.store_instance_id)
        return StorePlace(store, space_of(generation))

    async def store_at(self, work_id: UUID, instance_id: UUID) -> VectorStore:
        """The store of an instance."""
        return await self._store_of(work_id, instance_id)

    async def embedder(self, generation: IndexGeneration) -> Embedder | None:
        """Who embeds for the generation; None when its store does, or it is lexical."""
        if generation.provider_instance_id is None or generation.embedding_model is None:
            return None
        provider = await self._provider_of(generation.work_id, generation.provider_instance_id)
        model = provider.find_model(generation.embedding_model)
        dims = generation.dims or 0
        if model is None:
            raise ModelNotOffered(
                f"'{generation.embedding_provider_id}' does not offer the model '{generation.embedding_model}'."
            )
        if generation.model_fingerprint != model.fingerprint(provider.manifest.id, dims):
            raise ModelNotOffered(
                f"The facts of '{model.name}' (prefixes or width) are not those this index was built with."
            )
        return Embedder(provider, model, dims)


def space_of(generation: IndexGeneration) -> Space:
    """The space that belongs to a generation and to no other."""
    return Space(generation.number, generation.model_fingerprint or "native", generation.dims or 0)
