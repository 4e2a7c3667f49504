"""What a Work or an organization says of single plugins: enabled, pinned, settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from app.errors import AppError, FieldFault, Forbidden, Invalid, Misconfigured
from app.identity.caller import Caller
from app.indexing.changing import Changer, Target, View
from app.indexing.choices import Resolution
from app.indexing.choosing import Chooser, wish_of
from app.indexing.errors import (
    BrokenPluginNamed,
    ExtraMissing,
    LastVectorStore,
    PluginDisabled,
    StillPinned,
    UnknownPluginNamed,
    Unresolvable,
)
from app.indexing.facts import Level, PluginSay
from app.indexing.settling import SETTINGS, Loc, Settling, parsed
from app.plugins.embedding_choice import EmbeddingWish
from app.plugins.errors import UnknownPlugin
from app.plugins.fields import shown
from app.plugins.instances import EndpointsNotChecked, Instances
from app.plugins.manifest import Category, MissingExtra
from app.plugins.registry import Plugin, Registry
from app.plugins.sealing import Sealer
from app.plugins.selection import CAPABILITIES, ONLY_WHEN_PINNED, Selection
from app.tenancy.administering import is_administrator
from app.vector_stores.contract import Availability

DisabledBy = Literal["operator", "organization", "work"]
PINNED: Final[Loc] = ("body", "pinned")


class Kept:
    """Stands for settings that are not named: the stored ones stay."""


KEPT: Final = Kept()


@dataclass(frozen=True)
class Wanted:
    """What a plugin's entry is to say. `settings`: None removes what is stored."""

    enabled: bool
    pinned: bool
    settings: Mapping[str, Any] | Kept | None = KEPT


@dataclass(frozen=True)
class Entry:
    """A plugin as a Work or an organization sees it. `disabled_by` = who has the last word against it."""

    plugin_id: str
    name: str
    category: str
    enabled: bool
    pinned: bool
    disabled_by: DisabledBy | None
    settings: dict[str, Any] | None
    secrets_set: list[str]


class Pinning:
    """The use cases of the plugin doors."""

    def __init__(
        self, changer: Changer, registry: Registry, sealer: Sealer, instances: Instances, chooser: Chooser
    ) -> None:
        self._changer = changer
        self._registry = registry
        self._sealer = sealer
        self._instances = instances
        self._chooser = chooser
        self._settling = Settling(sealer, instances.guard)

    async def list_entries(self, caller: Caller, target: Target) -> list[Entry]:
        """Every installed plugin, and what is still said of others. Raises: as `Changer.look`."""
        view = await self._changer.look(caller, target)
        ids = dict.fromkeys([*(plugin.manifest.id for plugin in self._registry.plugins()), *view.own.plugins])
        return [self._entry(view, plugin_id) for plugin_id in ids]

    async def get_entry(self, caller: Caller, target: Target, plugin_id: str) -> Entry:
        """Raises: UnknownPlugin, and as `Changer.look`."""
        view = await self._changer.look(caller, target)
        if self._registry.find(plugin_id) is None and plugin_id not in view.own.plugins:
            raise UnknownPlugin()
        return self._entry(view, plugin_id)

    async def put(self, caller: Caller, target: Target, plugin_id: str, wanted: Wanted) -> Entry:
        """Store what is wanted. Raises: the errors of `errors`, Invalid with the place of each fault."""

        async def plan(view: View) -> Level:
            plugin = self.named(plugin_id, ("path", "plugin_id"))
            level = await self._with_entry(caller, view, plugin, wanted)
            after = view.with_own(level)
            await self._refuse_disabling(after, plugin, wanted)
            if wanted.pinned:
                await self.refuse_unusable(after, plugin, PINNED)
                await self.refuse_choice(after, wish_of(level.settings), dict.fromkeys(WISHES, PINNED))
            return level

        return self._entry(await self._changer.change(caller, target, plan), plugin_id)

    async def remove(self, caller: Caller, target: Target, plugin_id: str) -> None:
        """Say nothing of the plugin any more; its own settings go too. Raises: PluginInUse."""

        async def plan(view: View) -> Level:
            plugins = {one: say for one, say in view.own.plugins.items() if one != plugin_id}
            return replace(view.own, plugins=plugins)

        await self._changer.change(caller, target, plan, forget=plugin_id)

    async def check(self, caller: Caller, plugin_id: str, settings: Mapping[str, Any] | None) -> Availability:
        """Whether a plugin answers with these settings, else with the operator's; nothing is stored.

        Raises: Forbidden, UnknownPlugin, Invalid, ExtraMissing, BrokenPluginNamed.
        """
        if not is_administrator(caller):
            raise Forbidden("Only an administrator of the organization may do that.")
        if self._registry.find(plugin_id) is None and plugin_id not in self._registry.broken_reasons():
            raise UnknownPlugin(f"no plugin '{plugin_id}' is installed")
        plugin = self.named(plugin_id, ("path", "plugin_id"))
        if settings is None:
            present = self._chooser.environment.settings.get(plugin_id)
            found, trusted = present or parsed(plugin, {}), present is not None
        else:
            found, trusted = await self._settling.settle(plugin, None, settings, is_operator=caller.has("operator"))
        try:
            return await self._chooser.probes.try_out(plugin, found, trusted=trusted)
        except MissingExtra as missing:
            raise ExtraMissing(missing.message) from None
        except EndpointsNotChecked as error:
            raise Invalid(error.message, faults=[FieldFault(SETTINGS, error.message)]) from None

    def named(self, plugin_id: str, loc: Loc, category: Category | None = None) -> Plugin:
        """The plugin that a request names. Raises: UnknownPluginNamed, BrokenPluginNamed, Invalid."""
        plugin = self._registry.find(plugin_id)
        if plugin is None:
            reason = self._registry.broken_reasons().get(plugin_id)
            if reason is not None:
                raise BrokenPluginNamed(f"plugin '{plugin_id}' can't be loaded: {reason}")
            known = ", ".join(one.manifest.id for one in self._registry.plugins(category)) or "none"
            sentence = f"no plugin '{plugin_id}' is installed; installed are: {known}"
            raise UnknownPluginNamed(sentence, faults=[FieldFault(loc, sentence)])
        manifest = plugin.manifest
        ability = CAPABILITIES.get(category or manifest.category)
        if manifest.category != (category or manifest.category) or (category and ability not in manifest.capabilities):
            sentence = f"plugin '{plugin_id}' is of category '{manifest.category}' and can't be used here"
            raise Invalid(sentence, faults=[FieldFault(loc, sentence)])
        return plugin

    async def refuse_unusable(self, view: View, plugin: Plugin, loc: Loc) -> None:
        """Refuse a pin that could not be followed, by building the plugin as it would be built; that connects nowhere.

        Raises: PluginDisabled, ExtraMissing, Invalid.
        """
        manifest = plugin.manifest
        disabled_by = self._disabled_by(view, manifest.id)
        if disabled_by is not None:
            raise PluginDisabled(_disabled(manifest.id, disabled_by))
        try:
            rung = self._own_pin(view, manifest.category, manifest.id)
            found = self._chooser.configured(view.standing, plugin, rung)
            built = self._instances.build(plugin, found.settings, trusted=found.trusted)
        except MissingExtra as missing:
            raise ExtraMissing(missing.message) from None
        except AppError as error:
            raise Invalid(error.message, faults=[FieldFault(loc, error.message)]) from None
        except Exception as error:  # a stranger's constructor may raise anything
            sentence = f"plugin '{manifest.id}' can't be built with these settings ({type(error).__name__})"
            raise Invalid(sentence, faults=[FieldFault(loc, sentence)]) from None
        await built.close()

    async def refuse_choice(self, view: View, wish: EmbeddingWish, places: Mapping[str, Loc]) -> None:
        """Refuse a mode, model or width that the store or provider which is then chosen can't follow.

        `places`: where to point for each `kb_embedding_…`. Raises: Invalid, Unresolvable.
        """
        try:
            found = await self._chooser.resolve(view.standing, view.active)
            await self._chooser.refuse_unoffered(view.standing, found, wish)
        except Misconfigured as error:
            raise Unresolvable(error.message) from None
        except Invalid as error:
            raise Invalid(error.message, faults=[_moved(fault, places) for fault in error.faults]) from None
        sentence = self._too_wide(found)
        if sentence is not None:
            loc = places.get("kb_embedding_dimensions", SETTINGS)
            raise Invalid(sentence, faults=[FieldFault(loc, sentence)])

    def _too_wide(self, found: Resolution) -> str | None:
        most = self._chooser.most_dimensions(found.store.plugin_id)
        width = None if found.embedding is None else found.embedding.dimensions
        if most is None or width is None or width <= most:
            return None
        return f"'{found.store.plugin_id}' holds at most {most} dimensions, not {width}"

    async def _with_entry(self, caller: Caller, view: View, plugin: Plugin, wanted: Wanted) -> Level:
        manifest = plugin.manifest
        present = view.own.plugins.get(manifest.id) or PluginSay(manifest.id, manifest.category)
        sealed, trusted = present.sealed_settings, present.trusted
        if wanted.settings is None:
            sealed, trusted = None, False
        elif not isinstance(wanted.settings, Kept):
            settings, trusted = await self._settling.settle(
                plugin, present, wanted.settings, is_operator=caller.has("operator")
            )
            sealed = self._sealer.seal(settings)
        say = PluginSay(manifest.id, manifest.category, wanted.enabled, wanted.pinned, sealed, trusted)
        return with_say(view.own, say)

    async def _refuse_disabling(self, after: View, plugin: Plugin, wanted: Wanted) -> None:
        manifest, standing = plugin.manifest, after.standing
        if wanted.enabled:
            above = self._disabled_by(after, manifest.id)
            if above is not None:
                raise PluginDisabled(_disabled(manifest.id, above))
            return
        if wanted.pinned:
            sentence = "a plugin is pinned or disabled, not both"
            raise Invalid(sentence, faults=[FieldFault(PINNED, sentence)])
        environment = self._chooser.environment
        if manifest.id in (environment.store_pin, environment.provider_pin):
            raise StillPinned(f"The operator pins '{manifest.id}' for everybody; it can't be disabled here.")
        if standing.work_id is not None and standing.organization.pin(manifest.category) == manifest.id:
            raise StillPinned(f"The organization pins '{manifest.id}'; a Work can't disable it.")
        if standing.work_id is None:
            works = await self._changer.works_that_pin(standing.organization_id, manifest.id)
            if works:
                raise StillPinned(f"'{manifest.id}' is pinned by {works} of the organization's Works.", works=works)
        if manifest.category == "vector-store" and not self._has_store(after):
            raise LastVectorStore()

    def _has_store(self, view: View) -> bool:
        """Whether the start's rule still holds here: at least one store that can be chosen."""
        levels = (view.standing.work, view.standing.organization)
        if self._chooser.environment.store_pin or any(level.pin("vector-store") for level in levels):
            return True
        stores = [plugin.manifest.id for plugin in self._registry.plugins("vector-store")]
        usable = [one for one in stores if one in self._chooser.environment.settings and one not in ONLY_WHEN_PINNED]
        return any(self._disabled_by(view, one) is None for one in usable)

    def _disabled_by(self, view: View, plugin_id: str) -> DisabledBy | None:
        if plugin_id in self._chooser.environment.disabled:
            return "operator"
        for name, level in (("organization", view.standing.organization), ("work", view.standing.work)):
            say = level.plugins.get(plugin_id)
            if say is not None and not say.enabled:
                return "organization" if name == "organization" else "work"
        return None

    def _own_pin(self, view: View, category: Category, plugin_id: str) -> Selection:
        return Selection(category, plugin_id, "organization_pin" if view.standing.work_id is None else "work_pin", ())

    def _entry(self, view: View, plugin_id: str) -> Entry:
        plugin, say = self._registry.find(plugin_id), view.own.plugins.get(plugin_id)
        settings: dict[str, Any] | None = None
        secrets: Sequence[str] = ()
        stored = None if plugin is None else self._settling.stored(plugin, say)
        if stored is not None:
            settings, secrets = shown(stored)
        category = plugin.manifest.category if plugin else say.category if say else ""
        return Entry(
            plugin_id=plugin_id,
            name=plugin.manifest.name if plugin else plugin_id,
            category=category,
            enabled=say is None or say.enabled,
            pinned=say is not None and say.pinned,
            disabled_by=self._disabled_by(view, plugin_id),
            settings=settings,
            secrets_set=list(secrets),
        )


WISHES: Final = ("kb_embedding_mode", "kb_embedding_model", "kb_embedding_dimensions")


def with_say(level: Level, say: PluginSay) -> Level:
    """The level with another word on one plugin; a pin moves from the plugin of that category that had it."""
    plugins = {
        one: replace(other, pinned=False) if say.pinned and other.category == say.category else other
        for one, other in level.plugins.items()
    }
    return replace(level, plugins={**plugins, say.plugin_id: say})


def _disabled(plugin_id: str, disabled_by: DisabledBy) -> str:
    if disabled_by == "operator":
        return f"KB_DISABLED_PLUGINS disables '{plugin_id}': it can't be enabled or pinned here."
    return f"'{plugin_id}' is disabled by the {disabled_by}: it can't be enabled or pinned here."


def _moved(fault: FieldFault, places: Mapping[str, Loc]) -> FieldFault:
    return FieldFault(places.get(str(fault.loc[-1]), ("body", *fault.loc)), fault.msg)
