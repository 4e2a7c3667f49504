"""The two ways to a Qdrant: the asynchronous client of a server, or the library's local mode in a thread of its own."""

import asyncio
import importlib
import importlib.util
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol, TypeVar

import httpx

from app.vector_stores.contract import VectorStoreUnavailable
from app.vector_stores.qdrant.errors import translated
from app.vector_stores.qdrant.settings import IN_MEMORY, QdrantSettings

SDK = "qdrant_client"
CONNECTIONS = httpx.Limits(max_connections=100, max_keepalive_connections=20)  # the SDK keeps none to localhost
CLOSED = "this vector store has been closed"
T = TypeVar("T")


class Engine(Protocol):
    """Calls of the client by name. Nothing is imported, connected or opened before the first one.

    A stand-in that carries the calls to the process which has opened the directory fits here as well.
    """

    is_local: bool

    @property
    def is_open(self) -> bool:
        """Whether the client is there."""
        ...

    async def open(self) -> None:
        """Import the SDK and make the client.

        Raises: VectorStoreUnavailable, VectorStoreMisconfigured.
        """
        ...

    async def call(self, method: str, **arguments: Any) -> Any:
        """The answer of one method of the client.

        Raises: VectorStoreUnavailable, VectorStoreMisconfigured, VectorStoreRefused.
        """
        ...

    async def close(self) -> None:
        """Let go of connections and files; nothing opens again afterwards."""
        ...


def require_sdk() -> None:
    """Fail when the SDK is not installed, without importing it: that takes seconds, and is done in a thread later.

    Raises: ImportError.
    """
    if importlib.util.find_spec(SDK) is None:
        raise ImportError(f"No module named '{SDK}'", name=SDK)


def engine_of(settings: QdrantSettings) -> Engine:
    """The way that the settings name."""
    return RemoteEngine(settings) if settings.path is None else LocalEngine(settings.path)


class RemoteEngine:
    """A server over HTTP."""

    is_local = False

    def __init__(self, settings: QdrantSettings) -> None:
        self._settings = settings
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def is_open(self) -> bool:
        """See `Engine.is_open`."""
        return self._client is not None and not self._closed

    async def open(self) -> None:
        """See `Engine.open`."""
        if self.is_open:
            return
        async with self._opening:
            if self._closed:
                raise VectorStoreUnavailable(CLOSED)
            if self._client is None:
                await asyncio.to_thread(importlib.import_module, SDK)
                with translated():
                    self._client = self._new_client()

    async def call(self, method: str, **arguments: Any) -> Any:
        """See `Engine.call`."""
        if not self.is_open:
            await self.open()
        with translated():
            return await getattr(self._client, method)(**arguments)

    async def close(self) -> None:
        """See `Engine.close`."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with translated():
                await client.close()

    def _new_client(self) -> Any:
        from qdrant_client import AsyncQdrantClient

        key = self._settings.api_key
        with warnings.catch_warnings():
            # A key over plain http is a matter between the operator and the network.
            warnings.simplefilter("ignore", UserWarning)
            return AsyncQdrantClient(
                url=self._settings.url,
                api_key=None if key is None else key.get_secret_value(),
                timeout=self._settings.timeout_s,
                limits=CONNECTIONS,
                check_compatibility=False,  # it would connect while it is built
            )


class LocalEngine:
    """The library's local mode: synchronous, computing and writing in the one thread that ever touches it.

    Its asynchronous client would do the same work in the event loop (1.2 s for 5,000 points, qdrant-client 1.20).
    """

    is_local = True

    def __init__(self, path: str) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="qdrant")
        self._client: Any = None  # touched in the thread only
        self._closed = False

    @property
    def is_open(self) -> bool:
        """See `Engine.is_open`."""
        return self._client is not None and not self._closed

    async def open(self) -> None:
        """See `Engine.open`."""
        if not self.is_open:
            await self._in_thread(self._opened)

    async def call(self, method: str, **arguments: Any) -> Any:
        """See `Engine.call`."""
        return await self._in_thread(partial(self._ask, method, arguments))

    async def close(self) -> None:
        """See `Engine.close`."""
        if not self._closed:
            self._closed = True
            with translated():
                await asyncio.get_running_loop().run_in_executor(self._thread, self._shut)
            self._thread.shutdown(wait=False)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        if self._closed:
            raise VectorStoreUnavailable(CLOSED)
        with translated():
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _ask(self, method: str, arguments: dict[str, Any]) -> Any:
        return getattr(self._opened(), method)(**arguments)

    def _opened(self) -> Any:
        if self._client is None:
            from qdrant_client import QdrantClient

            self._client = QdrantClient(IN_MEMORY) if self._path == IN_MEMORY else QdrantClient(path=self._path)
        return self._client

    def _shut(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
