"""What index a Work should have: the selection chain over its pins, and the cascade of mode, model and width."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from app.ai_providers.contract import EmbeddingProvider
from app.db.engine import Database, Reach
from app.errors import AppError, Misconfigured, Unavailable
from app.indexing.choices import Choice, Configured, EnvironmentChoice, Resolution
from app.indexing.facts import Level, Standing, work_standing
from app.indexing.models import IndexGeneration
from app.indexing.probing import Probes
from app.plugins.embedding_choice import EmbeddingChoice, EmbeddingWish, refuse_unoffered, resolve_model
from app.plugins.errors import InvalidPluginSettings, UnusablePin
from app.plugins.fields import endpoints
from app.plugins.instances import Instances, Owner
from app.plugins.manifest import Category, VectorStoreCapabilities, VectorStoreManifest
from app.plugins.registry import Plugin, Registry, parse_settings
from app.plugins.sealing import Sealer
from app.plugins.selection import AvailabilityFact, Candidate, RungLooked, Selection
from app.plugins.selection import select as walk


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
        self.environment = environment
        self.probes = Probes(registry, instances, environment.settings, environment.disabled)

    async def choose(self, work_id: UUID) -> Choice:
        """What a first generation of this Work would be. As `wanted` for a Work without an index."""
        return await self.wanted(work_id, None)

    async def wanted(self, work_id: UUID, active: IndexGeneration | None) -> Choice:
        """What index the Work should have now, `active` being the one it has.

        Which stores answer counts only where there are no vectors yet: without an index, or with a lexical one.
        Behind an index with vectors nothing but configuration changes what is wanted: what was passed over for it
        stays passed over, and a pinned plugin is wanted whether it answers or not.
        Raises: UnusablePin, Misconfigured; NoStoreAnswers when a moment's silence would leave the Work without vectors.
        """
        standing = await self.standing(work_id)
        found = await self._answered(standing, active)
        if found.store.plugin_id is None and found.stores_away:
            raise NoStoreAnswers(f"No vector store answers at the moment: {', '.join(found.stores_away)}.")
        choice = await self._choice(standing, found, active)
        return replace(choice, passed_over=tuple(dict.fromkeys(found.store.passed_over)))

    async def chosen(self, standing: Standing, generation: IndexGeneration) -> Choice:
        """What index would be wanted if `standing` were said of a Work that had `generation`.

        Raises: UnusablePin, Misconfigured.
        """
        return await self._choice(standing, await self.resolve(standing, generation), generation)

    async def explain(self, work_id: UUID, active: IndexGeneration | None = None) -> Resolution:
        """The choice for this Work with everything that was looked at; records nothing.

        What can't be chosen is told by `problem`, not raised.
        """
        return await self.explained(await self.standing(work_id), active, asks=not _has_vectors(active))

    async def explained(self, standing: Standing, active: IndexGeneration | None, *, asks: bool = False) -> Resolution:
        """The same for what is said, or would be said; `asks` = whether the stores are asked if they answer."""
        try:
            store, away = await self._store(standing, active, asks=asks)
        except UnusablePin as unusable:
            return Resolution(_unusable("vector-store", unusable), None, None, problem=unusable.message)
        try:
            return replace(await self._resolved(standing, store), stores_away=away)
        except UnusablePin as unusable:
            return Resolution(store, _unusable("ai-provider", unusable), None, away, unusable.message)
        except Misconfigured as error:
            return Resolution(store, None, None, away, error.message)

    async def standing(self, work_id: UUID) -> Standing:
        """What is said for a Work."""
        async with self._database.transaction(Reach.of(work_id)) as session:
            return await work_standing(session, work_id)

    async def resolve(self, standing: Standing, active: IndexGeneration | None) -> Resolution:
        """The choice by configuration alone. Raises: UnusablePin, Misconfigured."""
        store, _ = await self._store(standing, active, asks=False)
        return await self._resolved(standing, store)

    async def refuse_unoffered(self, standing: Standing, found: Resolution, wish: EmbeddingWish) -> None:
        """Refuse settings that the chosen store or provider can't follow. Raises: Invalid with a fault per field."""
        store = None if found.store.plugin_id is None else capabilities(self._registry.get(found.store.plugin_id))
        embeds = None if store is None else store.embeds_on_write
        if found.provider is None or found.provider.plugin_id is None:
            refuse_unoffered(wish, provider_id=None, provider=None, store_embeds_on_write=embeds)
            return
        async with self._opened(standing, found.provider) as provider:
            refuse_unoffered(
                wish, provider_id=found.provider.plugin_id, provider=provider, store_embeds_on_write=embeds
            )

    def most_dimensions(self, store_id: str | None) -> int | None:
        """The widest vectors that a store holds."""
        return None if store_id is None else capabilities(self._registry.get(store_id)).max_dimensions

    def configured(self, standing: Standing, plugin: Plugin, selection: Selection) -> Configured:
        """The settings of the rung that chose the plugin, all from one place: endpoint and credential belong together.

        A pin without settings takes those of the next level above that has some, at last the environment's.
        Raises: SettingsMissing.
        """
        model = plugin.manifest.settings_model
        levels: list[tuple[Level, Owner]] = []
        if selection.rung == "work_pin":
            levels.append((standing.work, Owner("work", standing.organization_id, standing.work_id)))
        if selection.rung in ("work_pin", "organization_pin"):
            levels.append((standing.organization, Owner("organization", standing.organization_id)))
        for level, owner in levels:
            say = level.plugins.get(plugin.manifest.id)
            if say is not None and say.sealed_settings is not None:
                return Configured(self._sealer.open(say.sealed_settings, model), owner, say.trusted)
        present = self.environment.settings.get(plugin.manifest.id)
        if present is None:
            try:
                present = parse_settings(plugin.manifest, {})
            except InvalidPluginSettings as error:
                raise SettingsMissing(f"'{plugin.manifest.id}' has no settings here: {error.message}") from None
            if selection.rung != "operator_pin" and any(endpoints(present)):  # a default may lie in our own network
                raise SettingsMissing(f"'{plugin.manifest.id}' has no settings here, and its endpoint has to be named.")
        return Configured(present, Owner("environment"))

    async def _answered(self, standing: Standing, active: IndexGeneration | None) -> Resolution:
        """The choice; without vectors yet the stores are asked whether they answer."""
        store, away = await self._store(standing, active, asks=not _has_vectors(active))
        return replace(await self._resolved(standing, store), stores_away=away)

    async def _store(
        self, standing: Standing, active: IndexGeneration | None, *, asks: bool
    ) -> tuple[Selection, tuple[str, ...]]:
        """The chosen store, and those that were slow or away at this moment where that left none."""
        if not asks:
            passed_over = () if active is None else active.passed_over or ()
            return self._select("vector-store", standing, first_generation=False, passed_over=passed_over), ()
        answers = await self.probes.stores()
        store = self._select("vector-store", standing, availability=answers)
        looked = dict.fromkeys(store.passed_over if store.plugin_id is None else ())
        return store, tuple(one for one in looked if one in answers and answers[one].temporary)

    async def _resolved(self, standing: Standing, store: Selection) -> Resolution:
        if store.plugin_id is None:
            return Resolution(store, None, None)
        embeds = capabilities(self._registry.get(store.plugin_id)).embeds_on_write
        alone = self._embedding(standing, None, embeds)
        if alone.mode == "plugin":  # no provider is chosen, opened or asked
            return Resolution(store, None, alone)
        provider = self._select("ai-provider", standing, first_generation=False)
        if provider.plugin_id is None:
            return Resolution(store, provider, alone)
        async with self._opened(standing, provider) as opened:
            return Resolution(store, provider, self._embedding(standing, opened, embeds))

    def _embedding(self, standing: Standing, provider: EmbeddingProvider | None, embeds: bool) -> EmbeddingChoice:
        return resolve_model(
            environment=self.environment.wish,
            organization=wish_of(standing.organization.settings),
            work=wish_of(standing.work.settings),
            provider=provider,
            store_embeds_on_write=embeds,
        )

    @asynccontextmanager
    async def _opened(self, standing: Standing, selection: Selection) -> AsyncIterator[EmbeddingProvider]:
        plugin = self._registry.get(selection.require())
        found = self.configured(standing, plugin, selection)
        provider: EmbeddingProvider = self._instances.build(plugin, found.settings, trusted=found.trusted)
        try:
            yield provider
        finally:
            await provider.close()

    def _select(
        self,
        category: Category,
        standing: Standing,
        *,
        availability: Mapping[str, AvailabilityFact | None] | None = None,
        first_generation: bool = True,
        passed_over: "tuple[str, ...] | list[str]" = (),
    ) -> Selection:
        environment = self.environment
        is_store = category == "vector-store"
        return walk(
            category,
            candidates=[self._candidate(plugin, standing) for plugin in self._registry.plugins()],
            operator_pin=environment.store_pin if is_store else environment.provider_pin,
            work_pin=standing.work.pin(category),
            organization_pin=standing.organization.pin(category),
            soft_default=environment.store_default if is_store else environment.provider_default,
            availability=availability,
            first_generation=first_generation,
            passed_over=passed_over,
            broken=self._registry.broken_reasons(),
        )

    def _candidate(self, plugin: Plugin, standing: Standing) -> Candidate:
        plugin_id = plugin.manifest.id
        says = (standing.work.plugins.get(plugin_id), standing.organization.plugins.get(plugin_id))
        enabled = plugin_id not in self.environment.disabled and all(say is None or say.enabled for say in says)
        return Candidate(plugin.manifest, enabled, plugin_id in self.environment.settings)

    async def _choice(self, standing: Standing, found: Resolution, active: IndexGeneration | None) -> Choice:
        store_id, embedding = found.store.plugin_id, found.embedding
        if store_id is None or embedding is None:
            return Choice()
        store_plugin = self._registry.get(store_id)
        if embedding.mode == "plugin":
            instance = await self._instance(standing, store_plugin, found.store)
            return Choice(store_id, instance, "plugin", dims=capabilities(store_plugin).native_dimensions)
        if found.provider is None or found.provider.plugin_id is None or embedding.model is None:
            return Choice()
        async with self._opened(standing, found.provider) as provider:
            model, dims = provider.find_model(embedding.model), embedding.dimensions
        if model is None or dims is None:
            return Choice()
        if dims > capabilities(store_plugin).max_dimensions:
            raise TooManyDimensions(
                f"'{store_id}' holds at most {capabilities(store_plugin).max_dimensions} dimensions."
            )
        fingerprint = model.fingerprint(found.provider.plugin_id, dims)
        return Choice(
            vector_store_id=store_id,
            store_instance_id=await self._instance(standing, store_plugin, found.store),
            embedding_mode=embedding.mode,
            embedding_provider_id=found.provider.plugin_id,
            provider_instance_id=await self._provider_instance(standing, found.provider, fingerprint, active),
            embedding_model=model.name,
            model_fingerprint=fingerprint,
            dims=dims,
        )

    async def _provider_instance(
        self, standing: Standing, selection: Selection, fingerprint: str, active: IndexGeneration | None
    ) -> UUID:
        """The active index keeps its instance where another would give the same vectors from the same place."""
        plugin = self._registry.get(selection.require())
        found = await self._instance(standing, plugin, selection)
        if active is None or active.provider_instance_id in (None, found) or active.model_fingerprint != fingerprint:
            return found
        async with self._database.transaction(_reach(standing)) as session:
            same = await self._instances.are_at_one_place(session, plugin, found, active.provider_instance_id)
        return active.provider_instance_id if same else found

    async def _instance(self, standing: Standing, plugin: Plugin, selection: Selection) -> UUID:
        found = self.configured(standing, plugin, selection)
        async with self._database.transaction(_reach(standing)) as session:
            return await self._instances.ensure(session, plugin, found.settings, found.owner, trusted=found.trusted)


class NoStoreAnswers(Unavailable):
    """No vector store that could be chosen answers at the moment."""

    code = "vector_store_unavailable"


class TooManyDimensions(Misconfigured):
    """The embedding model has more dimensions than the vector store holds."""

    code = "too_many_dimensions"


class SettingsMissing(Misconfigured):
    """A plugin is chosen that needs settings, and none are given."""

    code = "plugin_settings_missing"


def wish_of(settings: Mapping[str, Any]) -> EmbeddingWish:
    """What a level's settings say of embedding."""
    return EmbeddingWish(
        mode=settings.get("kb_embedding_mode"),
        model=settings.get("kb_embedding_model"),
        dimensions=settings.get("kb_embedding_dimensions"),
    )


def capabilities(plugin: Plugin) -> VectorStoreCapabilities:
    """What a vector store can do; of another plugin: nothing special."""
    manifest = plugin.manifest
    return manifest.store if isinstance(manifest, VectorStoreManifest) else VectorStoreCapabilities()


def _has_vectors(active: IndexGeneration | None) -> bool:
    return active is not None and active.vector_store_id is not None


def _reach(standing: Standing) -> Reach:
    works = () if standing.work_id is None else (standing.work_id,)
    return Reach.of(*works, organizations=[standing.organization_id])


def _unusable(category: Category, error: AppError) -> Selection:
    """The looks of a chain that ended at an unusable pin."""
    found = error.facts.get("rungs")
    looked = tuple(RungLooked(**dict(rung)) for rung in found) if isinstance(found, list) else ()
    return Selection(category, None, looked[-1].rung if looked else "none", looked)
