"""What becomes of settings that a request gives for a plugin, beside those that are stored."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel

from app.errors import FieldFault, Invalid
from app.indexing.facts import PluginSay
from app.plugins.endpoints import EndpointGuard
from app.plugins.errors import InvalidPluginSettings, SealedSettingsUnreadable
from app.plugins.fields import kinds, plain
from app.plugins.registry import Plugin, parse_settings
from app.plugins.sealing import Sealer, fingerprint

Loc = tuple[str | int, ...]
SETTINGS: Final[Loc] = ("body", "settings")


class Settling:
    """Merges, validates, and looks at endpoints; `guard` None = private ones are allowed to everybody."""

    def __init__(self, sealer: Sealer, guard: EndpointGuard | None) -> None:
        self._sealer = sealer
        self._guard = guard

    async def settle(
        self, plugin: Plugin, present: PluginSay | None, given: Mapping[str, Any], *, is_operator: bool
    ) -> tuple[BaseModel, bool]:
        """The settings that come of what is given and what is stored, and whether an operator named the endpoints.

        Secrets that are not named stay, if the settings still name the same place: nobody can have a stored secret
        sent elsewhere. What only an operator sets stays as well, and a tenant may at most repeat it.
        """
        model = plugin.manifest.settings_model
        stored = self.stored(plugin, present)
        kind, values = kinds(model), dict(given)
        if not is_operator:
            _refuse_operator_fields(model, stored, given)
        secret = kind.secret if is_operator else kind.secret - kind.operator
        kept = [name for name in secret if name not in given and stored and getattr(stored, name)]
        stays = [*kept, *(() if is_operator else kind.operator)]
        if stored is not None:
            values.update({name: plain(stored, name) for name in stays if name not in given})
        settings = parsed(plugin, values)
        if stored is not None and kept and not _same_place(plugin, settings, stored):
            sentence = "give it again: the settings name another place, and a stored secret is not sent there"
            raise Invalid(sentence, faults=[FieldFault((*SETTINGS, name), sentence) for name in sorted(kept)])
        trusted = is_operator or (
            present is not None
            and present.trusted
            and stored is not None
            and _same(settings, stored, kind.endpoint | kind.operator)
        )
        if not trusted and self._guard is not None:
            faults = await self._guard.check_settings(plugin.cls, settings)
            if faults:
                placed = [FieldFault((*SETTINGS, *fault.loc), fault.msg) for fault in faults]
                raise Invalid("; ".join(f"{fault.loc[-1]}: {fault.msg}" for fault in placed), faults=placed)
        return settings, trusted

    def stored(self, plugin: Plugin, say: PluginSay | None) -> BaseModel | None:
        """The stored settings; None also where no key opens them or they no longer fit: they can be replaced."""
        if say is None or say.sealed_settings is None:
            return None
        try:
            return self._sealer.open(say.sealed_settings, plugin.manifest.settings_model)
        except SealedSettingsUnreadable:
            return None


def parsed(plugin: Plugin, values: Mapping[str, Any]) -> BaseModel:
    """Values as the plugin's settings. Raises: InvalidPluginSettings with the place of each fault in the body."""
    try:
        return parse_settings(plugin.manifest, values)
    except InvalidPluginSettings as error:
        faults = [FieldFault((*SETTINGS, *fault.loc), fault.msg) for fault in error.faults]
        raise InvalidPluginSettings(error.message, faults=faults) from None


def _refuse_operator_fields(model: type[BaseModel], stored: BaseModel | None, given: Mapping[str, Any]) -> None:
    faults = []
    for name in sorted(kinds(model).operator & set(given)):
        default = model.model_fields[name].get_default(call_default_factory=True, validated_data={})
        allowed = default if stored is None else plain(stored, name)
        if given[name] != allowed:
            faults.append(FieldFault((*SETTINGS, name), "only an operator sets this"))
    if faults:
        named = ", ".join(str(fault.loc[-1]) for fault in faults)
        raise Invalid(f"Only an operator sets: {named}.", faults=faults)


def _same_place(plugin: Plugin, one: BaseModel, other: BaseModel) -> bool:
    """Whether both lead to the same place, also where a plugin's author forgot that an endpoint is one."""
    places = {fingerprint(plugin.manifest, each, plugin=plugin.cls, place_only=True) for each in (one, other)}
    return len(places) == 1 and _same(one, other, kinds(type(one)).endpoint)


def _same(one: BaseModel, other: BaseModel, names: Collection[str]) -> bool:
    return all(plain(one, name) == plain(other, name) for name in names)
