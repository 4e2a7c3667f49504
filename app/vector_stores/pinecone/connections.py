"""The SDK's clients: one for the project, one per index, opened when first needed and within time limits."""

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.plugins.manifest import VectorStoreManifest, needs_extra
from app.vector_stores.contract import VectorStoreMisconfigured, VectorStoreUnavailable
from app.vector_stores.pinecone.failures import NotThere, translated
from app.vector_stores.pinecone.naming import IndexPlan
from app.vector_stores.pinecone.settings import PineconeSettings

READY_POLL_S = 0.5


class Connections:
    """Finds and makes indexes. The SDK's retries end with the time limit of the call they serve."""

    def __init__(self, settings: PineconeSettings, manifest: VectorStoreManifest) -> None:
        """Import the SDK; nothing connects. Raises: MissingExtra, VectorStoreRefused for settings it can't use."""
        with needs_extra(manifest):
            from pinecone import AsyncPinecone, RetryConfig
        logging.getLogger("pinecone").setLevel(logging.WARNING)  # it tells every call at INFO
        self._settings = settings
        with translated():
            self._project: Any = AsyncPinecone(
                api_key=settings.api_key.get_secret_value(),
                host=settings.api_url,
                timeout=settings.request_timeout_s,
                retry_config=RetryConfig(max_retries=0),
            )
        self._open: dict[str, Any] = {}
        self._dropped: list[Any] = []
        self._opening = asyncio.Lock()
        self._closed = False

    async def ping(self) -> None:
        """Ask the project for its indexes. Raises: the errors of the contract."""
        with self._answering():
            async for _ in self._project.indexes.list():
                break

    async def find(self, plan: IndexPlan) -> Any | None:
        """The client of an index; None when there is no such index."""
        known = self._open.get(plan.name)
        if known is not None:
            return known
        async with self._opening:
            try:
                return await self._opened(plan)
            except NotThere:
                return None

    async def ensure(self, plan: IndexPlan) -> Any:
        """The client of an index, which is made when it is not there.

        Raises: VectorStoreUnavailable while it is being set up; VectorStoreMisconfigured when it may not be made.
        """
        found = await self.find(plan)
        if found is not None:
            return found
        if not self._settings.create_indexes:
            raise VectorStoreMisconfigured(f"there is no index '{plan.name}' at Pinecone, and create_indexes is off")
        async with self._opening:
            await self._create(plan)
            deadline = time.monotonic() + self._settings.freshness_wait_s
            while True:
                try:
                    return await self._opened(plan)
                except (NotThere, VectorStoreUnavailable):
                    if time.monotonic() > deadline:
                        raise VectorStoreUnavailable(f"index '{plan.name}' is still being set up") from None
                await asyncio.sleep(READY_POLL_S)

    def drop(self, plan: IndexPlan) -> None:
        """Forget where an index is: its host did not answer, and it may have moved."""
        client = self._open.pop(plan.name, None)
        if client is not None:
            self._dropped.append(client)

    async def close(self) -> None:
        """Close every client; whoever asks afterwards is told so."""
        self._closed = True
        clients, self._open, self._dropped = [*self._open.values(), *self._dropped], {}, []
        for client in [*clients, self._project]:
            await client.close()

    async def _create(self, plan: IndexPlan) -> None:
        place = {"deployment_type": "managed", "cloud": self._settings.cloud, "region": self._settings.region}
        try:
            with self._answering():
                await self._project.indexes.create(name=plan.name, schema=plan.schema, deployment=place, timeout=-1)
        except VectorStoreUnavailable:
            await self._described(plan)  # somebody else was faster; or it really does not answer, and this says so

    async def _opened(self, plan: IndexPlan) -> Any:
        if (known := self._open.get(plan.name)) is not None:
            return known
        model = await self._described(plan)
        if model.status.state in ("InitializationFailed", "Terminating", "Disabled"):
            raise VectorStoreMisconfigured(f"index '{plan.name}' at Pinecone can't be used: it is being or was ended")
        if not model.status.ready or not model.host:
            raise VectorStoreUnavailable(f"index '{plan.name}' is still being set up")
        _check_schema(plan, model)
        with self._answering():
            client = await self._project.index(host=model.host)
        self._open[plan.name] = client
        return client

    async def _described(self, plan: IndexPlan) -> Any:
        with self._answering():
            return await self._project.indexes.describe(plan.name)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        if self._closed:
            raise VectorStoreUnavailable("this store has been closed")
        with translated():
            yield


def _check_schema(plan: IndexPlan, model: Any) -> None:
    """Refuse an index of this name that was made for something else."""
    for name, wanted in plan.schema["fields"].items():
        field = model.schema.fields.get(name)
        found = field if wanted["type"] == "dense_vector" else getattr(field, "embed", None)
        expected = wanted if wanted["type"] == "dense_vector" else wanted["embed"]
        facts = {key: value for key, value in expected.items() if key in ("dimension", "metric", "model")}
        differing = [key for key, value in facts.items() if getattr(found, key, None) != value]
        if found is None or differing:
            raise VectorStoreMisconfigured(
                f"index '{plan.name}' at Pinecone was made otherwise: field '{name}'"
                + (f" differs in {', '.join(differing)}" if found is not None else " is not there")
            )
