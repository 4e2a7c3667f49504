"""The worker process: the tasks, their queue, and the upkeep between."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

from app.ai_providers.packaged import PackagedTokenizer, build_model
from app.assembly import Assembly, direct_url, open_assembly
from app.errors import AppError
from app.extraction.contract import Limits
from app.extraction.sandbox import SandboxedExtractor
from app.ingestion.auditing import Auditor
from app.ingestion.checking import Checker
from app.ingestion.copying import Copier
from app.ingestion.forgetting import Forgetting
from app.ingestion.patience import Patience
from app.ingestion.pipeline import Pipeline
from app.ingestion.removing import Removal
from app.ingestion.sweeping import Sweep
from app.ingestion.tasks import tasks
from app.ingestion.timing import Timing
from app.ingestion.upkeep import Upkeep
from app.ingestion.writing import BuildWriter
from app.jobs.running import JobRunner, Pace
from app.logs import get_logger
from app.settings import Settings

log = get_logger()


async def run(settings: Settings) -> None:
    """Work until SIGTERM or SIGINT; running jobs are handed back to the queue."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    extractor = SandboxedExtractor(_limits(settings), processes=settings.worker_concurrency)
    model = await asyncio.to_thread(build_model, settings.model_location)
    try:
        async with open_assembly(settings, role="worker") as assembly:
            tokenizer = await asyncio.to_thread(PackagedTokenizer, model)
            await work(assembly, extractor, tokenizer, stop)
    finally:
        await extractor.close()


async def work(
    assembly: Assembly, extractor: SandboxedExtractor, tokenizer: PackagedTokenizer, stop: asyncio.Event
) -> None:
    """Run jobs and upkeep until `stop` is set."""
    settings = assembly.settings
    timing = _timing(settings)
    pipeline = Pipeline(
        database=assembly.database,
        storage=assembly.storage,
        extractor=extractor,
        tokenizer=tokenizer,
        writer=BuildWriter(assembly.database, assembly.storage, assembly.routing, timing, extractor.fingerprint),
        generations=assembly.generations,
        timing=timing,
        patience=Patience(settings.job_retry_wait_s),
    )
    forgetting = Forgetting(
        assembly.database, assembly.routing, settings.store_call_timeout_s, settings.job_retry_wait_s
    )
    upkeep = Upkeep(
        database=assembly.database,
        storage=assembly.storage,
        routing=assembly.routing,
        lease_s=settings.index_write_lease_s,
        store_call_timeout_s=settings.store_call_timeout_s,
        pending_upload_ttl_s=settings.pending_upload_ttl_s,
        stranded_after_s=settings.job_stalled_s * 2,
    )
    checker = checker_of(assembly)
    sweep = Sweep(
        assembly.database,
        checker.copier,
        checker.auditor,
        settings.job_retry_wait_s,
        at_once=settings.worker_concurrency,
    )
    removal = Removal(
        assembly.database,
        assembly.routing,
        settings.store_call_timeout_s,
        settings.job_retry_wait_s,
        settings.generation_grace_s,
    )
    reconciler = assembly.reconciler
    pace = Pace(
        settings.worker_concurrency, settings.job_heartbeat_s, settings.job_stalled_s, settings.sweep_concurrency
    )
    jobs = tasks(pipeline, forgetting, upkeep, sweep, removal, reconciler)
    runner = JobRunner(direct_url(settings), assembly.database, jobs, pace)
    every_s = settings.maintenance_interval_s
    rounds = [
        asyncio.create_task(_rounds(upkeep.run, every_s)),
        asyncio.create_task(_rounds(upkeep.maintain, every_s)),
        asyncio.create_task(_rounds(reconciler.run_due, every_s, first=reconciler.note_environment)),
        asyncio.create_task(_rounds(removal.start_due, every_s)),
        asyncio.create_task(_rounds(removal.wake_sweeps, every_s)),
        asyncio.create_task(_rounds(checker.run_due, every_s)),
    ]
    log.info("worker.started", concurrency=settings.worker_concurrency)
    try:
        await runner.run(stop)
    finally:
        for task in rounds:
            task.cancel()
        log.info("worker.stopped")


def checker_of(assembly: Assembly) -> Checker:
    """What compares the indexes with their stores."""
    timing = _timing(assembly.settings)
    auditor = Auditor(assembly.database, assembly.routing, timing)
    return Checker(assembly.database, auditor, Copier(assembly.database, assembly.routing, timing))


def _timing(settings: Settings) -> Timing:
    return Timing(
        lease_s=settings.index_write_lease_s,
        store_call_timeout_s=settings.store_call_timeout_s,
        retry_wait_s=settings.job_retry_wait_s,
        max_attempts=settings.job_max_attempts,
    )


async def _rounds(
    one_round: Callable[[], Awaitable[None]], interval_s: float, first: Callable[[], Awaitable[object]] | None = None
) -> None:
    """`first` is done before the first round that succeeds."""
    while True:
        try:
            if first is not None:
                await first()
                first = None
            await one_round()
        except AppError as error:
            log.warning("upkeep.failed", code=error.code)
        except Exception:  # else nobody would do these rounds until the process is started again
            log.exception("upkeep.crashed")
        await asyncio.sleep(interval_s)


def _limits(settings: Settings) -> Limits:
    return Limits(
        timeout_s=settings.extraction_timeout_s,
        memory_bytes=settings.extraction_memory_bytes,
        max_characters=settings.extraction_max_characters,
        max_inflated_bytes=settings.extraction_max_inflated_bytes,
    )
