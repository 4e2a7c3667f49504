"""The collections: made when something is first written, with an index on every field that is filtered on."""

import asyncio
from contextlib import suppress
from uuid import UUID

from app.vector_stores.contract import Space, VectorStoreMisconfigured
from app.vector_stores.qdrant.engines import Engine
from app.vector_stores.qdrant.errors import CollectionExists
from app.vector_stores.qdrant.points import Place, space_name
from app.vector_stores.qdrant.settings import QdrantSettings

GRAPH_LINKS = 16


class Collections:
    """Which collection a space lies in, and that it is there."""

    def __init__(self, engine: Engine, settings: QdrantSettings) -> None:
        self._engine, self._settings = engine, settings
        self._ready: set[str] = set()
        self._making = asyncio.Lock()

    @property
    def are_shared(self) -> bool:
        """Whether Works share a collection, or each space has one of its own."""
        return self._settings.tenancy == "row_filter"

    def place(self, work_id: UUID, space: Space) -> Place:
        """The collection of this space: one a width for everybody, or its own."""
        prefix = self._settings.collection_prefix
        own = f"{prefix}_{work_id.hex}_{space_name(space)}"
        return Place(work_id, space, f"{prefix}_{space.dims}" if self.are_shared else own)

    async def ensure(self, place: Place) -> None:
        """The collection exists, with its indexes.

        Raises: VectorStoreMisconfigured when there is one by this name that is not ours.
        """
        if place.collection in self._ready:
            return
        async with self._making:
            if place.collection not in self._ready:
                await self._make(place)
                self._ready.add(place.collection)

    def forget(self, place: Place) -> None:
        """Look again before the next write: the collection has been removed."""
        self._ready.discard(place.collection)

    async def _make(self, place: Place) -> None:
        await self._engine.open()
        from qdrant_client import models

        name, dims = place.collection, place.space.dims
        if not await self._engine.call("collection_exists", collection_name=name):
            # In a shared collection each Work gets a graph of its own, so that no large one starves a small one.
            graph = models.HnswConfigDiff(m=0, payload_m=GRAPH_LINKS) if self.are_shared else None
            # The same number for our unit vectors; but local mode's cosine would normalise its stored vectors anew in
            # every search, and so answer the same question with scores a little different each time.
            distance = models.Distance.DOT if self._engine.is_local else models.Distance.COSINE
            with suppress(CollectionExists):
                await self._engine.call(
                    "create_collection",
                    collection_name=name,
                    vectors_config=models.VectorParams(size=dims, distance=distance),
                    hnsw_config=graph,
                    shard_number=self._settings.shard_number,
                    replication_factor=self._settings.replication_factor,
                )
        found = await self._engine.call("get_collection", collection_name=name)
        vectors = found.config.params.vectors
        if not isinstance(vectors, models.VectorParams) or vectors.size != dims:
            raise VectorStoreMisconfigured(f"Qdrant has a collection '{name}' that was not made by this service")
        if self._engine.is_local:
            return  # local mode scans: it knows no indexes
        for field, schema in _indexes().items():
            if field not in (found.payload_schema or {}):
                await self._engine.call(
                    "create_payload_index", collection_name=name, field_name=field, field_schema=schema, wait=True
                )


def _indexes() -> "dict[str, object]":
    """An index for each field that any filter names, those of deletions included: strict servers ask for them."""
    from qdrant_client import models

    plain = {"type": models.UuidIndexType.UUID, "enable_hnsw": False}
    return {
        "work_id": models.UuidIndexParams(type=models.UuidIndexType.UUID, is_tenant=True),
        "space": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, enable_hnsw=False),
        "knowledge_base_id": models.UuidIndexParams.model_validate(plain),
        "document_id": models.UuidIndexParams.model_validate(plain),
        "build": models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, enable_hnsw=False),
    }
