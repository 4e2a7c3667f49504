"""What index a Work should have: the selection chain over its pins, and the cascade of mode, model and width."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import EmbeddingProvider
from app.db.engine import Database, Reach
from app.errors import AppError, Misconfigured, Unavailable
from app.indexing.facts import WorkFacts, work_facts
from app.plugins.embedding_choice import EmbeddingChoice, EmbeddingWish, resolve_model
from app.plugins.instances import Instances, Owner
from app.plugins.manifest import Category, VectorStoreCapabilities, VectorStoreManifest
from app.plugins.pins import OrganizationPlugin, WorkPlugin
from app.plugins.registry import Plugin, Registry
from app.plugins.sealing import Sealer
from app.plugins.selection import AvailabilityFact, Candidate, Selection
from app.plugins.selection import select as walk
from app.vector_stores.contract import Availability

PROBE_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class EnvironmentChoice:
    """What the operator's environment says about stores, providers and models."""

    store_pin: str | None = None
    store_default: str | None = None
    provider_pin: str | None = None
    provider_default: str | None = None
    wish: EmbeddingWish = field(default_factory=EmbeddingWish)
    disabled: frozenset[str] = frozenset()
    settings: Mapping[str, BaseModel] = field(default_factory=dict)


@dataclass(frozen=True)
class Resolution:
    """Everything that the choice came to, with every look that led there.

    `stores_away` = stores that were passed over because they were slow or away at the moment of asking.
    """

    store: Selection
    provider: Selection | None
    embedding: EmbeddingChoice | None
    stores_away: tuple[str, ...] = ()


@dataclass(frozen=True)
class Choice:
    """The columns of a new generation; all None = a lexical one."""

    vector_store_id: str | None = None
    store_instance_id: UUID | None = None
    embedding_mode: str | None = None
    embedding_provider_id: str | None = None
    provider_instance_id: UUID | None = None
    embedding_model: str | None = None
    model_fingerprint: str | None = None
    dims: int | None = None


@dataclass(frozen=True)
class _Pins:
    """Rows of `work_plugins` and `organization_plugins` by plugin id."""

    work: Mapping[str, WorkPlugin]
    organization: Mapping[str, OrganizationPlugin]


class Chooser:
    """Chooses, and records the instances that a choice names."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        sealer: Sealer,
        instances: Instances,
        environment: EnvironmentChoice,
    ) -> None:
        self._database = database
        self._registry = registry
        self._sealer = sealer
        self._instances = instances
        self._environment = environment

    async def choose(self, work_id: UUID) -> Choice:
        """What a first generation of this Work would be.

        Raises: UnusablePin, Misconfigured; NoStoreAnswers when a moment's silence would leave the Work without vectors.
        """
        facts, pins = await self._facts(work_id)
        found = await self._resolve(facts, pins)
        store_id, embedding = found.store.plugin_id, found.embedding
        if store_id is None and found.stores_away:
            raise NoStoreAnswers(f"No vector store answers at the moment: {', '.join(found.stores_away)}.")
        if store_id is None or embedding is None:
            return Choice()
        store_plugin = self._registry.get(store_id)
        if embedding.mode == "plugin":
            instance = await self._instance(facts, store_plugin, found.store, pins)
            return Choice(store_id, instance, "plugin", dims=_capabilities(store_plugin).native_dimensions)
        if found.provider is None or found.provider.plugin_id is None or embedding.model is None:
            return Choice()
        provider_plugin = self._registry.get(found.provider.plugin_id)
        provider_instance = await self._instance(facts, provider_plugin, found.provider, pins)
        provider: EmbeddingProvider = await self._instances.open(work_id, provider_instance)
        model, dims = provider.find_model(embedding.model), embedding.dimensions
        if model is None or dims is None:
            return Choice()
        if dims > _capabilities(store_plugin).max_dimensions:
            raise TooManyDimensions(
                f"'{store_id}' holds at most {_capabilities(store_plugin).max_dimensions} dimensions."
            )
        return Choice(
            vector_store_id=store_id,
            store_instance_id=await self._instance(facts, store_plugin, found.store, pins),
            embedding_mode=embedding.mode,
            embedding_provider_id=found.provider.plugin_id,
            provider_instance_id=provider_instance,
            embedding_model=model.name,
            model_fingerprint=model.fingerprint(found.provider.plugin_id, dims),
            dims=dims,
        )

    async def explain(self, work_id: UUID) -> Resolution:
        """The chain for this Work with every rung looked at; records nothing. Raises: as `choose`."""
        return await self._resolve(*await self._facts(work_id))

    async def _facts(self, work_id: UUID) -> tuple[WorkFacts, _Pins]:
        async with self._database.transaction(Reach.of(work_id)) as session:
            facts = await work_facts(session, work_id)
            return facts, await _pins(session, facts)

    async def _resolve(self, facts: WorkFacts, pins: _Pins) -> Resolution:
        answers = await self._store_availability()
        store = self._select("vector-store", pins, answers)
        if store.plugin_id is None:
            away = [plugin_id for plugin_id in dict.fromkeys(store.passed_over) if answers[plugin_id].temporary]
            return Resolution(store, None, None, tuple(away))
        provider = self._select("ai-provider", pins, self._provider_availability())
        opened: EmbeddingProvider | None = None
        if provider.plugin_id is not None:
            plugin = self._registry.get(provider.plugin_id)
            opened = self._instances.build(plugin, self._settings(plugin, provider, pins)[0])
        try:
            embedding = resolve_model(
                environment=self._environment.wish,
                organization=_wish(facts.organization_settings),
                work=_wish(facts.work_settings),
                provider=opened,
                store_embeds_on_write=_capabilities(self._registry.get(store.plugin_id)).embeds_on_write,
            )
        finally:
            if opened is not None:
                await opened.close()
        return Resolution(store, provider, embedding)

    async def availability_of(self, plugin: Plugin) -> tuple[bool, str | None]:
        """Whether a plugin answers with the environment's settings, and if not, why."""
        plugin_id = plugin.manifest.id
        if plugin_id in self._environment.disabled:
            return False, "it is disabled"
        if plugin.manifest.category == "vector-store":
            answer = await self._probe(plugin)
            return answer.ok, answer.reason
        configured = plugin_id in self._environment.settings
        return configured, None if configured else "the environment does not configure it"

    def _select(
        self, category: Category, pins: _Pins, availability: Mapping[str, AvailabilityFact | None]
    ) -> Selection:
        environment = self._environment
        is_store = category == "vector-store"
        return walk(
            category,
            candidates=[Candidate(p.manifest, self._is_enabled(p, pins)) for p in self._registry.plugins()],
            operator_pin=environment.store_pin if is_store else environment.provider_pin,
            work_pin=_pinned(pins.work, category),
            organization_pin=_pinned(pins.organization, category),
            soft_default=environment.store_default if is_store else environment.provider_default,
            availability=availability,
            broken=self._registry.broken_reasons(),
        )

    def _is_enabled(self, plugin: Plugin, pins: _Pins) -> bool:
        plugin_id = plugin.manifest.id
        rows = (pins.work.get(plugin_id), pins.organization.get(plugin_id))
        return plugin_id not in self._environment.disabled and all(row is None or row.enabled for row in rows)

    def _settings(self, plugin: Plugin, selection: Selection, pins: _Pins) -> tuple[BaseModel, str]:
        """Settings come from the rung that chose the plugin."""
        model = plugin.manifest.settings_model
        if selection.rung in ("work_pin", "organization_pin"):
            rung = "work" if selection.rung == "work_pin" else "organization"
            rows: Mapping[str, Any] = pins.work if rung == "work" else pins.organization
            sealed = rows[plugin.manifest.id].sealed_settings
            if sealed is not None:
                return self._sealer.open(sealed, model), rung
        return self._environment.settings.get(plugin.manifest.id) or model.model_validate({}), "environment"

    async def _instance(self, facts: WorkFacts, plugin: Plugin, selection: Selection, pins: _Pins) -> UUID:
        settings, rung = self._settings(plugin, selection, pins)
        owner = Owner("environment")
        if rung == "work":
            owner = Owner("work", facts.organization_id, facts.work_id)
        elif rung == "organization":
            owner = Owner("organization", facts.organization_id)
        reach = Reach.of(facts.work_id, organizations=[facts.organization_id])
        async with self._database.transaction(reach) as session:
            return await self._instances.ensure(session, plugin, settings, owner)

    async def _store_availability(self) -> dict[str, Availability]:
        """Ask every store that could be chosen without a pin; only a first generation depends on it."""
        found: dict[str, Availability] = {}
        for plugin in self._registry.plugins("vector-store"):
            if plugin.manifest.id in self._environment.disabled or plugin.manifest.id == "memory":
                continue
            found[plugin.manifest.id] = await self._probe(plugin)
        return found

    async def _probe(self, plugin: Plugin) -> Availability:
        settings = self._environment.settings.get(plugin.manifest.id)
        if settings is None:
            return Availability(False, "the environment does not configure it")
        try:
            store = self._instances.build(plugin, settings)
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

    def _provider_availability(self) -> dict[str, AvailabilityFact | None]:
        """A provider counts as available when the environment configures it: asking would cost money."""
        return {
            plugin.manifest.id: Availability(plugin.manifest.id in self._environment.settings)
            for plugin in self._registry.plugins("ai-provider")
        }


class NoStoreAnswers(Unavailable):
    """No vector store that could be chosen answers at the moment."""

    code = "vector_store_unavailable"


class TooManyDimensions(Misconfigured):
    """The embedding model has more dimensions than the vector store holds."""

    code = "too_many_dimensions"


async def _pins(session: AsyncSession, facts: WorkFacts) -> _Pins:
    work = await session.scalars(select(WorkPlugin).where(WorkPlugin.work_id == facts.work_id))
    organization = await session.scalars(
        select(OrganizationPlugin).where(OrganizationPlugin.organization_id == facts.organization_id)
    )
    return _Pins({row.plugin_id: row for row in work}, {row.plugin_id: row for row in organization})


def _pinned(rows: Mapping[str, Any], category: str) -> str | None:
    return next((row.plugin_id for row in rows.values() if row.pinned and row.category == category), None)


def _wish(settings: Mapping[str, Any]) -> EmbeddingWish:
    return EmbeddingWish(
        mode=settings.get("kb_embedding_mode"),
        model=settings.get("kb_embedding_model"),
        dimensions=settings.get("kb_embedding_dimensions"),
    )


def _capabilities(plugin: Plugin) -> VectorStoreCapabilities:
    manifest = plugin.manifest
    return manifest.store if isinstance(manifest, VectorStoreManifest) else VectorStoreCapabilities()
