"""The packaged provider `local`: multilingual-e5-small, computed in this process, without key or network."""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from app.ai_providers.contract import EmbeddingModel, ProviderMisconfigured, ProviderUnavailable, Role, Vector
from app.ai_providers.packaged import build_model
from app.ai_providers.packaged.encoder import DIMENSIONS, MAX_TOKENS, Encoder
from app.ai_providers.packaged.files import MODEL_NAME
from app.plugins.manifest import AiProviderManifest

QUERY_THREADS = 2
DOCUMENT_NICENESS = 5

E5_SMALL = EmbeddingModel(
    name=MODEL_NAME,
    dimensions=DIMENSIONS,
    max_input_tokens=MAX_TOKENS,
    max_batch_inputs=64,
    max_batch_tokens=32_768,
    query_prefix="query: ",
    document_prefix="passage: ",
    fusion_weight=0.6,
    calibration=0.82,
)


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalSettings(BaseModel):
    """Where the built model is, and how many documents' texts are embedded side by side (default: one per core)."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    model_dir: Path | None = None
    threads: int = Field(default_factory=_count_cores, ge=1, le=256, json_schema_extra={"operator_only": True})


class LocalProvider:
    """Embeds in threads of this process; the model is loaded, and if need be built, on first use.

    Queries have threads of their own, and documents give way to them: a search never queues behind an import.
    """

    manifest: ClassVar[AiProviderManifest] = AiProviderManifest(
        id="local",
        name="Packaged model (multilingual-e5-small)",
        default_for_capabilities=("embedding",),
        system_plugin=True,
        settings_model=LocalSettings,
    )

    def __init__(self, settings: LocalSettings) -> None:
        self._settings = settings
        self._encoder: Encoder | None = None
        self._loading = threading.Lock()
        self._is_closed = False
        self._pools: dict[Role, ThreadPoolExecutor] = {
            "query": ThreadPoolExecutor(QUERY_THREADS, "local-query"),
            "document": ThreadPoolExecutor(settings.threads, "local-document", initializer=_give_way),
        }

    @property
    def default_model(self) -> str:
        """The one packaged model."""
        return E5_SMALL.name

    def embedding_models(self) -> Mapping[str, EmbeddingModel]:
        """The packaged model by its name."""
        return {E5_SMALL.name: E5_SMALL}

    def find_model(self, name: str) -> EmbeddingModel | None:
        """The packaged model if that is its name."""
        return self.embedding_models().get(name)

    async def create_embedding(
        self, texts: Sequence[str], *, role: Role, model: str, dimensions: int | None = None
    ) -> list[Vector]:
        """One vector per text, in order: `array("f")`, 384 wide, L2-normalised, independent of the other texts.

        Cancelling drops the texts that have not begun. Raises: ProviderMisconfigured for another model or width, or
        when the model is absent and has no source; ProviderUnavailable when its directory cannot be written, or after
        `close`; BadEmbedding.
        """
        known = self.find_model(model)
        if known is None or dimensions not in (None, known.dimensions):
            raise ProviderMisconfigured(
                f"local offers {E5_SMALL.name} with {E5_SMALL.dimensions} dimensions, not {model} with {dimensions}"
            )
        if self._is_closed:
            raise ProviderUnavailable("the local provider is closed")
        prefix = known.query_prefix if role == "query" else known.document_prefix
        loop = asyncio.get_running_loop()
        jobs = [loop.run_in_executor(self._pools[role], self._embed, text, prefix) for text in texts]
        try:
            return list(await asyncio.gather(*jobs))
        finally:
            for job in jobs:
                job.cancel()

    async def check(self) -> dict[str, object]:
        """Embed one word; the answer names model, width, latency in milliseconds and the model's directory."""
        await self.create_embedding(["ready"], role="query", model=E5_SMALL.name)  # loading is no part of the latency
        begun = time.perf_counter()
        (vector,) = await self.create_embedding(["ready"], role="query", model=E5_SMALL.name)
        return {
            "model": E5_SMALL.name,
            "dimensions": len(vector),
            "latency_ms": round((time.perf_counter() - begun) * 1000, 1),
            "model_dir": str(self._settings.model_dir),
            "url": None,
        }

    async def close(self) -> None:
        """Drop waiting texts, wait for those being computed, end the threads and let the model go."""
        self._is_closed = True
        for pool in self._pools.values():
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)
        self._encoder = None

    def _embed(self, text: str, prefix: str) -> Vector:
        encoder = self._encoder or self._load()
        return encoder.embed(text, prefix)

    def _load(self) -> Encoder:
        with self._loading:
            if self._encoder is None:
                if self._settings.model_dir is None:
                    raise ProviderMisconfigured("local: the setting model_dir is missing")
                try:
                    files = build_model(self._settings.model_dir)
                except OSError as exc:
                    raise ProviderUnavailable(f"the packaged model cannot be built: {exc}") from exc
                self._encoder = Encoder.load(files)
            return self._encoder


def _give_way() -> None:
    """Lower the priority of the calling thread, where the system has one per thread."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), DOCUMENT_NICENESS)
