"""Whether plugins answer: asked of stores for a Work's first index, for lists of plugins, and to try settings."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel

from app.errors import AppError
from app.plugins.instances import Instances
from app.plugins.registry import Plugin, Registry
from app.plugins.selection import ONLY_WHEN_PINNED
from app.vector_stores.contract import Availability

PROBE_TIMEOUT_S = 2.0
CHECK_TIMEOUT_S = 10.0


class Probes:
    """Asks plugins with the environment's settings, or with those that somebody tries."""

    def __init__(
        self,
        registry: Registry,
        instances: Instances,
        environment: Mapping[str, BaseModel],
        disabled: Collection[str],
    ) -> None:
        self._registry = registry
        self._instances = instances
        self._environment = environment
        self._disabled = disabled

    async def stores(self) -> dict[str, Availability]:
        """Ask every store that could be chosen without a pin; only a first generation depends on it."""
        asked = [
            plugin
            for plugin in self._registry.plugins("vector-store")
            if plugin.manifest.id not in self._disabled
            and plugin.manifest.id not in ONLY_WHEN_PINNED
            and plugin.manifest.id in self._environment
        ]
        answers = await asyncio.gather(*(self._store(plugin) for plugin in asked))
        return {plugin.manifest.id: answer for plugin, answer in zip(asked, answers, strict=True)}

    async def of_environment(self, plugin: Plugin) -> Availability:
        """Whether a plugin answers with the environment's settings. Providers aren't asked: that would cost money."""
        if plugin.manifest.id in self._disabled:
            return Availability(False, "it is disabled")
        if plugin.manifest.id not in self._environment:
            return Availability(False, "the environment does not configure it")
        return await self._store(plugin) if plugin.manifest.category == "vector-store" else Availability(True)

    async def try_out(self, plugin: Plugin, settings: BaseModel, *, trusted: bool) -> Availability:
        """Whether a plugin answers with these settings; a provider embeds one word.

        Raises: MissingExtra, EndpointsNotChecked, and what a plugin raises while it is built.
        """
        built = self._instances.build(plugin, settings, trusted=trusted)
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                return await _ask(plugin, built)
        except TimeoutError:
            return Availability(False, "it did not answer in time", temporary=True)
        except AppError as error:
            return Availability(False, error.message)
        finally:
            await built.close()

    async def _store(self, plugin: Plugin) -> Availability:
        try:
            store = self._instances.build(plugin, self._environment[plugin.manifest.id])
        except AppError as error:
            return Availability(False, error.message)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                answer: Availability = await store.is_available()
                return answer
        except TimeoutError:
            return Availability(False, "it did not answer in time", temporary=True)
        finally:
            await store.close()


async def _ask(plugin: Plugin, built: Any) -> Availability:
    if plugin.manifest.category == "vector-store":
        answer: Availability = await built.is_available()
        return answer
    return Availability(True, None, dict(await built.check()))
