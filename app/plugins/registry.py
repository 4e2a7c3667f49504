"""Which plugins are installed: found by entry point, loaded without a vendor's SDK, the broken ones told apart."""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any, Final, Self

from pydantic import BaseModel, ValidationError

from app.errors import FieldFault
from app.plugins.errors import BrokenPlugin, DuplicatePlugin, InvalidPluginSettings, UnknownPlugin
from app.plugins.manifest import Category, PluginManifest

GROUP: Final = "stackroom.plugins"


@dataclass(frozen=True)
class Plugin:
    """An installed plugin: `target` is "module:Class", `cls` that class."""

    manifest: PluginManifest
    target: str
    cls: type


@dataclass(frozen=True)
class Broken:
    """An entry point that gives no plugin, and why; `name` is the entry point's, usually the plugin's id."""

    name: str
    target: str
    reason: str


class Registry:
    """The installed plugins by id, in a stable order: the platform's own first, then by entry-point name."""

    def __init__(self, entries: Iterable[tuple[str, str]]) -> None:
        """Load plugins from (name, "module:Class") pairs, kept in their order.

        One that cannot be loaded is listed in `broken` and disturbs no other.
        Raises: DuplicatePlugin when two of them claim one id.
        """
        self._plugins: dict[str, Plugin] = {}
        broken: list[Broken] = []
        for name, target in dict.fromkeys(entries):
            found = _load(name, target)
            if isinstance(found, Broken):
                broken.append(found)
            elif (other := self._plugins.get(found.manifest.id)) is not None:
                raise DuplicatePlugin(
                    f"plugin id '{found.manifest.id}' is claimed by {other.target} and by {target}; uninstall one"
                )
            else:
                self._plugins[found.manifest.id] = found
        self.broken: tuple[Broken, ...] = tuple(broken)

    @classmethod
    def discover(cls) -> Self:
        """The plugins of every installed distribution that declares the group `stackroom.plugins`."""
        found = {(point.name, point.value.replace(" ", "")) for point in entry_points(group=GROUP)}
        return cls(sorted(found, key=lambda entry: (not entry[1].startswith("app."), entry)))

    def get(self, plugin_id: str) -> Plugin:
        """The plugin with this id.

        Raises: BrokenPlugin with the reason, UnknownPlugin with the known ids.
        """
        plugin = self._plugins.get(plugin_id)
        if plugin is not None:
            return plugin
        reason = self.broken_reasons().get(plugin_id)
        if reason is not None:
            raise BrokenPlugin(f"plugin '{plugin_id}' cannot be loaded: {reason}")
        known = ", ".join(self._plugins) or "none"
        raise UnknownPlugin(f"no plugin '{plugin_id}' is installed; installed are: {known}")

    def find(self, plugin_id: str) -> Plugin | None:
        """The plugin with this id, or None when it is unknown or broken."""
        return self._plugins.get(plugin_id)

    def plugins(self, category: Category | None = None) -> list[Plugin]:
        """All plugins, or those of one category, in the registry's order."""
        return [plugin for plugin in self._plugins.values() if category in (None, plugin.manifest.category)]

    def manifests(self, category: Category | None = None) -> list[PluginManifest]:
        """The manifests of all plugins, or of one category, in the registry's order."""
        return [plugin.manifest for plugin in self.plugins(category)]

    def broken_reasons(self) -> dict[str, str]:
        """Why each broken entry point gives no plugin, by its name."""
        return {entry.name: entry.reason for entry in self.broken}

    def parse_settings(self, plugin_id: str, values: Mapping[str, object]) -> BaseModel:
        """`values` as the plugin's settings model.

        Raises: InvalidPluginSettings with the faulty fields (their values, which may be secrets, are not quoted), and
        as `get`.
        """
        return parse_settings(self.get(plugin_id).manifest, values)

    def build(self, plugin_id: str, settings: BaseModel) -> Any:
        """A new instance of the plugin; its vendor's SDK is imported now. Building does not connect.

        Raises: MissingExtra, and as `get`.
        """
        return self.get(plugin_id).cls(settings)


def parse_settings(manifest: PluginManifest, values: Mapping[str, object]) -> BaseModel:
    """`values` as the settings model of a manifest.

    Raises: InvalidPluginSettings with the faulty fields; their values, which may be secrets, are not quoted.
    """
    try:
        return manifest.settings_model.model_validate(dict(values))
    except ValidationError as exc:
        faults = [
            FieldFault(loc=error["loc"], msg=error["msg"])
            for error in exc.errors(include_url=False, include_context=False, include_input=False)
        ]
    # Outside the `except`: the validation error quotes the values it refuses, and must not travel as a context.
    named = "; ".join(f"{'.'.join(str(part) for part in fault.loc) or 'settings'}: {fault.msg}" for fault in faults)
    raise InvalidPluginSettings(f"the settings do not fit plugin '{manifest.id}': {named}", faults=faults)


def _load(name: str, target: str) -> Plugin | Broken:
    module, _, path = target.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as exc:  # a stranger's module may raise anything while it is imported; the others must go on
        return Broken(name, target, f"{type(exc).__name__}: {exc}")
    manifest = getattr(found, "manifest", None)
    if not isinstance(found, type) or not isinstance(manifest, PluginManifest):
        return Broken(name, target, "it names no class with a `manifest`")
    for group in ("location_fields", "fact_fields"):
        missing = [field for field in getattr(manifest, group) if field not in manifest.settings_model.model_fields]
        if missing:
            return Broken(name, target, f"its {group} are not in its settings: {', '.join(missing)}")
    return Plugin(manifest, target, found)
