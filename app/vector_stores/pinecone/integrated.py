"""Pinecone with integrated embedding: the one case in which it gets the text of chunks, to embed and not to keep."""

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from app.plugins.manifest import VectorStoreManifest
from app.vector_stores.contract import BadVector, Space, Vector, VectorChunk, VectorStoreRefused
from app.vector_stores.pinecone import naming
from app.vector_stores.pinecone.batching import MAX_TEXT_RECORDS, Record, batches, text_records
from app.vector_stores.pinecone.naming import Clause, IndexPlan
from app.vector_stores.pinecone.settings import PineconeIntegratedSettings
from app.vector_stores.pinecone.store import CAPABILITIES, MAX_TOP_K, PineconeStore

MAX_BATCH = 5 * MAX_TEXT_RECORDS  # a call must end within its time limit, and embedding takes most of it


class PineconeIntegratedStore(PineconeStore):
    """A space of no width holds texts that Pinecone embeds; any other space is a vector space as everywhere.

    So a Work of this store may still have its vectors from the platform, and then no text leaves it.
    """

    manifest: ClassVar[VectorStoreManifest] = PineconeStore.manifest.model_copy(
        update={
            "id": "pinecone-integrated",
            "name": "Pinecone with integrated embedding",
            "settings_model": PineconeIntegratedSettings,
            "location_fields": (*PineconeStore.manifest.location_fields, "embed_model", "embed_dimensions"),
            "docs_url": "https://docs.pinecone.io/guides/search/integrated-embedding",
            "store": CAPABILITIES.model_copy(update={"embeds_on_write": True, "max_batch": MAX_BATCH}),
        }
    )

    def __init__(self, settings: PineconeIntegratedSettings) -> None:
        """Build the store without connecting. Raises: MissingExtra."""
        super().__init__(settings)
        self._text_plan = naming.text_index(settings.index_prefix, settings.embed_model, settings.embed_dimensions)

    def _plan(self, space: Space) -> IndexPlan:
        return super()._plan(space) if space.dims else self._text_plan

    async def _prepared(
        self, document_id: UUID, space: Space, build: int, chunks: Sequence[VectorChunk]
    ) -> list[list[Record]]:
        if space.dims:
            return await super()._prepared(document_id, space, build, chunks)
        records = text_records(document_id, build, chunks)
        return batches(records, max_records=MAX_TEXT_RECORDS, max_bytes=self._settings.batch_bytes)

    def _clause(self, space: Space, vector: Vector | None, text: str | None, top_k: int) -> Clause:
        if space.dims:
            return super()._clause(space, vector, text, top_k)
        if not 1 <= top_k <= MAX_TOP_K:
            raise VectorStoreRefused(f"top_k must be between 1 and {MAX_TOP_K}, not {top_k}")
        if vector is not None or text is None or not text.strip():
            raise BadVector("this space is asked with words, not with a vector: Pinecone embeds them")
        return naming.text_clause(text)
