"""The settings of a Work or an organization: effective values with the rung they come from, and their changes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from app.chunking.contract import ChunkSettings
from app.chunking.settings import fitting, validate_settings
from app.errors import FieldFault, Invalid
from app.identity.caller import Caller
from app.indexing.changing import Changer, Target, View
from app.indexing.choices import Resolution
from app.indexing.choosing import Chooser, wish_of
from app.indexing.facts import Level, PluginSay
from app.indexing.pinning import WISHES, Pinning, with_say
from app.indexing.settling import Loc
from app.plugins.embedding_choice import EmbeddingWish, Setting
from app.plugins.manifest import Category

PINS: Final[Mapping[str, Category]] = {
    "kb_vector_store_id": "vector-store",
    "kb_embedding_provider_id": "ai-provider",
}
CHUNKS: Final = ("chunk_size_tokens", "chunk_overlap_tokens")
RUNGS: Final[Mapping[str, str]] = {"work_pin": "work", "organization_pin": "organization"}


@dataclass(frozen=True)
class Value:
    """An effective value, the rung it came from, and what is set at this very level."""

    value: str | int | None
    rung: str
    own: str | int | None


@dataclass(frozen=True)
class Defaults:
    """What the environment says where nobody else does."""

    chunks: ChunkSettings
    max_results: int


class TenantSettings:
    """The use cases of the settings doors."""

    def __init__(self, changer: Changer, chooser: Chooser, pinning: Pinning, defaults: Defaults) -> None:
        self._changer = changer
        self._chooser = chooser
        self._pinning = pinning
        self._defaults = defaults

    async def get(self, caller: Caller, target: Target) -> dict[str, Value]:
        """Every setting by its name. Raises: as `Changer.look`."""
        return await self._values(await self._changer.look(caller, target))

    async def change(self, caller: Caller, target: Target, patch: Mapping[str, Any]) -> dict[str, Value]:
        """Apply a merge patch: null removes. Raises: as `Pinning.put`."""

        async def plan(view: View) -> Level:
            level = self._patched(view.own, patch)
            after = view.with_own(level)
            await self._refuse(after, patch)
            return level

        return await self._values(await self._changer.change(caller, target, plan))

    def _patched(self, level: Level, patch: Mapping[str, Any]) -> Level:
        settings = dict(level.settings)
        for name, value in patch.items():
            if name in PINS:
                level = self._pinned(level, name, value)
            elif value is None:
                settings.pop(name, None)
            else:
                settings[name] = value
        return replace(level, settings=settings)

    def _pinned(self, level: Level, name: str, plugin_id: str | None) -> Level:
        if plugin_id is None:
            unpinned = {
                one: replace(say, pinned=False) if say.category == PINS[name] else say
                for one, say in level.plugins.items()
            }
            said = {one: say for one, say in unpinned.items() if say != PluginSay(one, say.category)}
            return replace(level, plugins=said)
        plugin = self._pinning.named(plugin_id, ("body", name), PINS[name])
        present = level.plugins.get(plugin_id) or PluginSay(plugin_id, plugin.manifest.category)
        return with_say(level, replace(present, pinned=True))

    async def _refuse(self, after: View, patch: Mapping[str, Any]) -> None:
        for name in PINS:
            if patch.get(name) is not None:
                plugin = self._pinning.named(patch[name], ("body", name), PINS[name])
                await self._pinning.refuse_unusable(after, plugin, ("body", name))
        if any(name in patch for name in CHUNKS):
            _refuse_chunks(merged_chunks(after, self._defaults.chunks))
        asked = [name for name in (*WISHES, *PINS) if name in patch]
        if asked:
            own = wish_of(after.own.settings)
            moved = any(name in patch for name in PINS)
            wish = EmbeddingWish(
                mode=own.mode if moved or "kb_embedding_mode" in patch else None,
                model=own.model if moved or "kb_embedding_model" in patch else None,
                dimensions=own.dimensions if moved or "kb_embedding_dimensions" in patch else None,
            )
            await self._pinning.refuse_choice(after, wish, _places(patch))

    async def _values(self, view: View) -> dict[str, Value]:
        found = await self._chooser.explained(view.standing, view.active)
        values = {"kb_vector_store_id": _selected(view, found, "kb_vector_store_id")}
        values["kb_embedding_provider_id"] = _selected(view, found, "kb_embedding_provider_id")
        for name, setting in _CHOSEN.items():
            value, level = _chosen(found, setting)
            values[name] = Value(value, level, view.own.settings.get(name))
        defaults = {**dict(zip(CHUNKS, self._default_chunks(), strict=True)), "max_results": self._defaults.max_results}
        for name, default in defaults.items():
            values[name] = _merged(view, name, default)
        chunks = fitting(*merged_chunks(view, self._defaults.chunks))
        values["chunk_overlap_tokens"] = replace(values["chunk_overlap_tokens"], value=chunks.overlap_tokens)
        return values

    def _default_chunks(self) -> tuple[int, int]:
        return self._defaults.chunks.size_tokens, self._defaults.chunks.overlap_tokens


_CHOSEN: Final[Mapping[str, Setting]] = {
    "kb_embedding_mode": "mode",
    "kb_embedding_model": "model",
    "kb_embedding_dimensions": "dimensions",
}


def merged_chunks(view: View, default: ChunkSettings) -> tuple[int, int]:
    """Size and overlap as the levels say them: environment default, organization, Work, later wins."""
    said = {**view.standing.organization.settings, **view.standing.work.settings}
    return said.get(CHUNKS[0], default.size_tokens), said.get(CHUNKS[1], default.overlap_tokens)


def _refuse_chunks(sizes: tuple[int, int]) -> None:
    try:
        validate_settings(*sizes)
    except Invalid as error:
        raise Invalid(error.message, faults=[FieldFault(("body", *f.loc), f.msg) for f in error.faults]) from None


def _places(patch: Mapping[str, Any]) -> dict[str, Loc]:
    """Where to point for a setting that does not fit: at itself if it was sent, else at what was sent beside it."""
    sent = next(name for name in (*reversed(WISHES), *reversed(tuple(PINS))) if name in patch)
    return {name: ("body", name if name in patch else sent) for name in WISHES}


def _selected(view: View, found: Resolution, name: str) -> Value:
    own = view.own.pin(PINS[name])
    selection = found.store if name == "kb_vector_store_id" else found.provider
    if selection is None:
        embeds = found.embedding is not None and found.embedding.mode == "plugin"
        return Value(None, "vector_store" if embeds else "none", own)
    return Value(selection.plugin_id, RUNGS.get(selection.rung, selection.rung), own)


def _chosen(found: Resolution, setting: Setting) -> tuple[str | int | None, str]:
    embedding = found.embedding
    if embedding is None:
        return None, "none"
    value = {"mode": embedding.mode, "model": embedding.model, "dimensions": embedding.dimensions}[setting]
    return value, embedding.levels.get(setting, "none")


def _merged(view: View, name: str, default: int) -> Value:
    own = view.own.settings.get(name)
    for level, rung in ((view.standing.work, "work"), (view.standing.organization, "organization")):
        if name in level.settings:
            return Value(level.settings[name], rung, own)
    return Value(default, "environment_default", own)
