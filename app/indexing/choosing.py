"""What index a Work should have: the selection chain over its pins, and the cascade of mode, model and width."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.ai_providers.contract import EmbeddingModel, EmbeddingProvider
from app.db.engine import Database, Reach
from app.errors import AppError
from app.indexing.facts import WorkFacts, work_facts
from app.plugins.instances import Instances, Owner
from app.plugins.manifest import Category, VectorStoreManifest
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
    mode: str = "auto"
    model: str | None = None
    dimensions: int | None = None
    disabled: frozenset[str] = frozenset()
    settings: Mapping[str, BaseModel] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One value that was looked at for mode, model or width, and what became of it."""

    value: str
    source: str
    candidate: object
    outcome: str
    reason: str


@dataclass(frozen=True)
class Resolution:
    """Everything that the choice came to, with every look that led there."""

    store: Selection
    provider: Selection | None
    mode: str | None
    model: str | None
    dims: int | None
    steps: tuple[Step, ...]


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
        """What a first generation of this Work would be. Raises: UnusablePin, Misconfigured."""
        async with self._database.transaction(Reach.of(work_id)) as session:
            facts = await work_facts(session, work_id)
            pins = await _pins(session, facts)
        store = self._select("vector-store", pins, await self._store_availability())
        if store.plugin_id is None:
            return Choice()
        store_plugin = self._registry.get(store.plugin_id)
        mode = self._mode(facts, store_plugin)[0]
        store_instance = await self._instance(facts, store_plugin, store, pins)
        if mode == "plugin":
            return Choice(store.plugin_id, store_instance, mode, dims=_native_dims(store_plugin))
        provider = self._select("ai-provider", pins, self._provider_availability())
        if provider.plugin_id is None:
            return Choice()
        provider_plugin = self._registry.get(provider.plugin_id)
        provider_instance = await self._instance(facts, provider_plugin, provider, pins)
        opened: EmbeddingProvider = await self._instances.open(work_id, provider_instance)
        model, dims, _ = self._model(facts, opened)
        return Choice(
            vector_store_id=store.plugin_id,
            store_instance_id=store_instance,
            embedding_mode=mode,
            embedding_provider_id=provider.plugin_id,
            provider_instance_id=provider_instance,
            embedding_model=model.name,
            model_fingerprint=model.fingerprint(provider.plugin_id, dims),
            dims=dims,
        )

    async def explain(self, work_id: UUID) -> Resolution:
        """The chain for this Work with every rung looked at; records nothing. Raises: as `choose`."""
        async with self._database.transaction(Reach.of(work_id)) as session:
            facts = await work_facts(session, work_id)
            pins = await _pins(session, facts)
        store = self._select("vector-store", pins, await self._store_availability())
        if store.plugin_id is None:
            return Resolution(store, None, None, None, None, ())
        store_plugin = self._registry.get(store.plugin_id)
        mode, steps = self._mode(facts, store_plugin)
        if mode == "plugin":
            return Resolution(store, None, mode, None, _native_dims(store_plugin), tuple(steps))
        provider = self._select("ai-provider", pins, self._provider_availability())
        if provider.plugin_id is None:
            return Resolution(store, provider, mode, None, None, tuple(steps))
        plugin = self._registry.get(provider.plugin_id)
        built: EmbeddingProvider = self._registry.build(plugin.manifest.id, self._settings(plugin, provider, pins)[0])
        try:
            model, dims, more = self._model(facts, built)
        finally:
            await built.close()
        return Resolution(store, provider, mode, model.name, dims, (*steps, *more))

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

    async def _store_availability(self) -> dict[str, AvailabilityFact | None]:
        """Ask every store that could be chosen without a pin; only a first generation depends on it."""
        found: dict[str, AvailabilityFact | None] = {}
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
            return Availability(False, "it did not answer in time")
        finally:
            await store.close()

    def _provider_availability(self) -> dict[str, AvailabilityFact | None]:
        """A provider counts as available when the environment configures it: asking would cost money."""
        return {
            plugin.manifest.id: Availability(plugin.manifest.id in self._environment.settings)
            for plugin in self._registry.plugins("ai-provider")
        }

    def _mode(self, facts: WorkFacts, store: Plugin) -> tuple[str, list[Step]]:
        steps = [Step("mode", source, value, "set", "") for source, value in self._cascade(facts, "kb_embedding_mode")]
        wanted = str(steps[-1].candidate) if steps else self._environment.mode
        manifest = store.manifest
        embeds = isinstance(manifest, VectorStoreManifest) and manifest.store.embeds_on_write
        if wanted == "auto":
            reason = "the store embeds on write" if embeds else "the store does not embed by itself"
            return ("plugin" if embeds else "platform"), [*steps, Step("mode", "auto", wanted, "resolved", reason)]
        return wanted, steps

    def _model(self, facts: WorkFacts, provider: EmbeddingProvider) -> tuple[EmbeddingModel, int, list[Step]]:
        """Work → organization → environment → the provider's default: the first that the provider offers."""
        steps: list[Step] = []
        wanted = [*reversed(self._cascade(facts, "kb_embedding_model"))]
        if self._environment.model is not None:
            wanted.append(("environment", self._environment.model))
        if provider.default_model is not None:
            wanted.append(("provider", provider.default_model))
        for source, name in wanted:
            model = provider.find_model(str(name))
            if model is None:
                reason = f"'{provider.manifest.id}' does not offer it"
                steps.append(Step("model", source, name, "skipped", reason))
                continue
            steps.append(Step("model", source, name, "chosen", ""))
            dims, more = self._dims(model)
            return model, dims, [*steps, *more]
        raise NoModel(f"'{provider.manifest.id}' has no default model: set KB_EMBEDDING_MODEL.")

    def _dims(self, model: EmbeddingModel) -> tuple[int, list[Step]]:
        wanted = self._environment.dimensions
        if wanted is None or wanted == model.dimensions:
            return model.dimensions, []
        if model.other_dimensions and wanted < model.dimensions:
            return wanted, [Step("dimensions", "environment", wanted, "chosen", "")]
        return model.dimensions, [Step("dimensions", "environment", wanted, "skipped", "the model has a fixed width")]

    @staticmethod
    def _cascade(facts: WorkFacts, key: str) -> list[tuple[str, Any]]:
        """(source, value) as set by the organization and the Work, in that order."""
        found = (("organization", facts.organization_settings.get(key)), ("work", facts.work_settings.get(key)))
        return [(source, value) for source, value in found if value is not None]


class NoModel(AppError):
    """The embedding provider has no default model and none is named."""

    code = "no_embedding_model"


async def _pins(session: AsyncSession, facts: WorkFacts) -> _Pins:
    work = await session.scalars(select(WorkPlugin).where(WorkPlugin.work_id == facts.work_id))
    organization = await session.scalars(
        select(OrganizationPlugin).where(OrganizationPlugin.organization_id == facts.organization_id)
    )
    return _Pins({row.plugin_id: row for row in work}, {row.plugin_id: row for row in organization})


def _pinned(rows: Mapping[str, Any], category: str) -> str | None:
    return next((row.plugin_id for row in rows.values() if row.pinned and row.category == category), None)


def _native_dims(plugin: Plugin) -> int | None:
    manifest = plugin.manifest
    return manifest.store.native_dimensions if isinstance(manifest, VectorStoreManifest) else None
