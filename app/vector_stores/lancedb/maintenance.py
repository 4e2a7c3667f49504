"""Upkeep of a table: small files merged, old versions removed, indexes built for large tables and dropped for small."""

from datetime import timedelta
from typing import Any

from app.vector_stores.contract import Space
from app.vector_stores.lancedb.sdk import Sdk
from app.vector_stores.lancedb.settings import LanceDbSettings

VECTORS, DOCUMENTS = "vector_idx", "document_id_idx"
MOST_PARTS = 4  # each time rows are added to an index it gets a part more, and a search asks every part
OUTGROWN = 4  # lists chosen for so many times fewer rows are too long


class Maintenance:
    """What a table of a size needs."""

    def __init__(self, settings: LanceDbSettings) -> None:
        self._settings = settings

    async def maintain(self, sdk: Sdk, table: Any, space: Space) -> None:
        """Bring the table to what its size asks for. Nothing changes where nothing is to be done."""
        await self._index(sdk, table, space)
        # Readers and writers of the last `keep_versions_s` keep their files.
        await table.optimize(cleanup_older_than=timedelta(seconds=self._settings.keep_versions_s))

    async def _index(self, sdk: Sdk, table: Any, space: Space) -> None:
        rows = await table.count_rows()
        present = {index.name for index in await table.list_indices()}
        limit = self._settings.exact_limit_rows(space.dims)
        if rows > limit:
            if DOCUMENTS not in present:
                await table.create_index("document_id", config=sdk.index.BTree(), name=DOCUMENTS)
            if VECTORS not in present or await _is_worn(table, rows):
                kind = sdk.index.IvfFlat(distance_type="cosine", target_partition_size=self._settings.rows_per_list)
                await table.create_index("vector", config=kind, name=VECTORS, replace=True)
        elif rows < limit // 2:
            for name in present & {VECTORS, DOCUMENTS}:
                await table.drop_index(name)


async def _is_worn(table: Any, rows: int) -> bool:
    stats = await table.index_stats(VECTORS)
    if stats is None:
        return True
    return bool((stats.num_indices or 1) > MOST_PARTS or rows > OUTGROWN * max(stats.num_indexed_rows, 1))
