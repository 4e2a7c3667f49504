"""Background entry points: names as they stand in the queue, arguments as ids."""

from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

from app.indexing.reconciling import Reconciler
from app.ingestion.forgetting import Forgetting
from app.ingestion.pipeline import Pipeline
from app.ingestion.removing import Removal
from app.ingestion.sweeping import Sweep
from app.ingestion.upkeep import Upkeep

Task = Callable[..., Awaitable[None]]


def tasks(
    pipeline: Pipeline,
    forgetting: Forgetting,
    upkeep: Upkeep,
    sweep: Sweep,
    removal: Removal,
    reconciler: Reconciler,
) -> Mapping[str, Task]:
    """Every task of this room by name."""

    async def ingest_document(*, work_id: str, document_id: str) -> None:
        await pipeline.ingest(UUID(work_id), UUID(document_id))

    async def forget_document(*, work_id: str, document_id: str, receipt_id: str) -> None:
        await forgetting.forget_document(UUID(work_id), UUID(document_id), UUID(receipt_id))

    async def forget_knowledge_base(*, work_id: str, knowledge_base_id: str, receipt_id: str) -> None:
        await forgetting.forget_knowledge_base(UUID(work_id), UUID(knowledge_base_id), UUID(receipt_id))

    async def kb_reembed_work(*, work_id: str, previous: str, new: str) -> None:
        await sweep.run(UUID(work_id), UUID(new))

    async def forget_generation(*, work_id: str, generation_id: str, receipt_id: str) -> None:
        await removal.forget_generation(UUID(work_id), UUID(generation_id), UUID(receipt_id))

    async def reconcile_works() -> None:
        await reconciler.run_due()

    async def run_upkeep() -> None:
        await upkeep.run()

    return {
        "ingest_document": ingest_document,
        "forget_document": forget_document,
        "forget_knowledge_base": forget_knowledge_base,
        "forget_generation": forget_generation,
        "kb_reembed_work": kb_reembed_work,
        "reconcile_works": reconcile_works,
        "run_upkeep": run_upkeep,
    }
