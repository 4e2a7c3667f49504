"""Which plugin a new index generation of a Work uses, and why: the chain of rungs, over plain values.

A pin (operator, Work, organization) is final: it is used whether its plugin answers or not, and where it cannot be
used at all that is an error, never a fall to the next rung. Below the pins a plugin that does not answer is passed
over, but only for a first generation; afterwards nothing but configuration changes what is wanted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal, Protocol

from app.errors import Misconfigured
from app.plugins.errors import EmbeddingNotConfigured, PluginNotConfigured, UnusablePin, VectorStoreNotConfigured
from app.plugins.manifest import Category, PluginManifest

Rung = Literal[
    "operator_pin", "work_pin", "organization_pin", "environment_default", "manifest_default", "first_available", "none"
]
Outcome = Literal["chosen", "not_set", "skipped", "unavailable", "unusable"]

PINS: Final[tuple[Rung, ...]] = ("operator_pin", "work_pin", "organization_pin")
ONLY_WHEN_PINNED: Final = frozenset({"memory"})  # it forgets everything when its process ends
CAPABILITIES: Final[Mapping[Category, str]] = {"vector-store": "vector-store", "ai-provider": "embedding"}
NOT_CONFIGURED: Final[Mapping[Category, type[Misconfigured]]] = {
    "vector-store": VectorStoreNotConfigured,
    "ai-provider": EmbeddingNotConfigured,
}
DEFAULT_VARIABLES: Final[Mapping[Category, str]] = {
    "vector-store": "KB_VECTOR_STORE_DEFAULT_ID",
    "ai-provider": "KB_EMBEDDING_DEFAULT_ID",
}
PIN_VARIABLES: Final[Mapping[Category, str]] = {
    "vector-store": "KB_VECTOR_STORE_PROVIDER_ID",
    "ai-provider": "KB_EMBEDDING_PROVIDER_ID",
}


class AvailabilityFact(Protocol):
    """Whether a backend answers, and if not, a sentence without secrets."""

    @property
    def ok(self) -> bool:
        """True when it answered."""
        ...

    @property
    def reason(self) -> str | None:
        """Why it did not."""
        ...


@dataclass(frozen=True)
class Candidate:
    """A registered plugin, whether it is enabled for this Work, and whether the environment configures it.

    What the environment does not configure can only be pinned: below the pins the settings are the environment's.
    """

    manifest: PluginManifest
    enabled: bool = True
    configured: bool = True


@dataclass(frozen=True)
class RungLooked:
    """One look at one rung: which plugin stood there, what became of it, and why, in words."""

    rung: Rung
    candidate: str | None
    outcome: Outcome
    reason: str


@dataclass(frozen=True)
class Selection:
    """What the chain came to; `plugin_id` None = nothing is configured: a lexical generation."""

    category: Category
    plugin_id: str | None
    rung: Rung
    rungs: tuple[RungLooked, ...]

    @property
    def is_pinned(self) -> bool:
        """Whether a pin decided."""
        return self.rung in PINS

    @property
    def passed_over(self) -> tuple[str, ...]:
        """The plugins that were passed over because they did not answer; to be kept with the generation."""
        return tuple(looked.candidate for looked in self.rungs if looked.outcome == "unavailable" and looked.candidate)

    def require(self) -> str:
        """The plugin's id.

        Raises: VectorStoreNotConfigured, EmbeddingNotConfigured or PluginNotConfigured.
        """
        if self.plugin_id is None:
            raise NOT_CONFIGURED.get(self.category, PluginNotConfigured)
        return self.plugin_id

    def explain(self) -> dict[str, object]:
        """The whole record as plain JSON values."""
        return asdict(self) | {"rungs": [asdict(looked) for looked in self.rungs]}


def select(
    category: Category,
    *,
    candidates: Sequence[Candidate],
    operator_pin: str | None = None,
    work_pin: str | None = None,
    organization_pin: str | None = None,
    soft_default: str | None = None,
    availability: Mapping[str, AvailabilityFact | None] | None = None,
    first_generation: bool = True,
    passed_over: Collection[str] = (),
    broken: Mapping[str, str] | None = None,
) -> Selection:
    """Walk the rungs from the operator's pin down, until one decides; every look is recorded.

    `candidates`: the registered plugins in the registry's order; `broken`: why others could not be loaded, by id.
    `availability` is asked below the pins, and only for a first generation (or to lead out of a lexical one): then a
    plugin without a good answer is passed over. None = don't ask. `passed_over` = the `passed_over` of the selection
    behind the Work's active generation: for a later one those still count as away, so that the same configuration
    gives the same plugin although they have come back.
    Raises: UnusablePin when the deciding pin names an unknown, broken or disabled plugin; `facts` has the rungs.
    """
    if first_generation:
        chain = _Chain(category, candidates, broken or {}, availability=availability)
    else:
        chain = _Chain(category, candidates, broken or {}, passed_over=passed_over)
    pins = zip(PINS, (operator_pin, work_pin, organization_pin), strict=True)
    return chain.pinned(pins) or chain.soft(soft_default)


def check_at_start(
    category: Category,
    *,
    candidates: Sequence[Candidate],
    operator_pin: str | None = None,
    soft_default: str | None = None,
    broken: Mapping[str, str] | None = None,
) -> list[str]:
    """Refuse a start that could not select anything; return warnings, sentences for the log.

    What is *registered and enabled* counts, never what is available.
    Raises: UnusablePin for an operator pin to a plugin that cannot be used; Misconfigured when no vector store at all
    could be selected.
    """
    chain = _Chain(category, candidates, broken or {})
    if operator_pin is not None:
        chain.pinned([("operator_pin", operator_pin)])
        return []
    selectable = [one.manifest.id for one in candidates if chain.obstacle(one.manifest.id, pinned=False) is None]
    if category == "vector-store" and not selectable:
        raise Misconfigured(
            "no vector store can be selected: none is registered and enabled (KB_DISABLED_PLUGINS) besides 'memory'"
        )
    obstacle = chain.obstacle(soft_default, pinned=False) if soft_default else None
    variable = DEFAULT_VARIABLES.get(category, "the soft default")
    return [f"{variable} names '{soft_default}', which is passed over: {obstacle}"] if obstacle else []


class _Chain:
    """The walk itself: what was looked at so far, and the rules for one candidate."""

    def __init__(
        self,
        category: Category,
        candidates: Sequence[Candidate],
        broken: Mapping[str, str],
        *,
        availability: Mapping[str, AvailabilityFact | None] | None = None,
        passed_over: Collection[str] = (),
    ) -> None:
        self._category = category
        self._capability = CAPABILITIES.get(category, category)
        self._candidates = {candidate.manifest.id: candidate for candidate in candidates}
        self._availability = availability
        self._passed_over = passed_over
        self._broken = broken
        self._looked: list[RungLooked] = []

    def pinned(self, pins: Iterable[tuple[Rung, str | None]]) -> Selection | None:
        for rung, plugin_id in pins:
            if plugin_id is None:
                self._note(rung, None, "not_set", "no pin is set here")
                continue
            obstacle = self.obstacle(plugin_id, pinned=True)
            if obstacle is None:
                return self._chosen(rung, plugin_id, "it is pinned here, whether it is available or not")
            self._note(rung, plugin_id, "unusable", obstacle)
            setter = PIN_VARIABLES.get(self._category, "the operator pin") if rung == "operator_pin" else rung
            raise UnusablePin(
                f"{setter.replace('_pin', ' pin')} names '{plugin_id}': {obstacle}",
                rungs=[asdict(looked) for looked in self._looked],
            )
        return None

    def soft(self, soft_default: str | None) -> Selection:
        """The rungs below the pins."""
        if soft_default is None:
            self._note("environment_default", None, "not_set", "the environment names no default")
        for plugin_id in self._passing("environment_default", [soft_default] if soft_default else []):
            return self._chosen("environment_default", plugin_id, "it is the default of the environment")
        defaults = [
            plugin_id
            for plugin_id, candidate in self._candidates.items()
            if self._capability in candidate.manifest.default_for_capabilities
        ]
        if not defaults:
            self._note("manifest_default", None, "not_set", "no plugin declares itself the default")
        rest = [plugin_id for plugin_id in self._candidates if plugin_id not in defaults]
        for plugin_id in self._passing("manifest_default", defaults):
            return self._chosen("manifest_default", plugin_id, "its manifest declares it the default")
        for plugin_id in self._passing("first_available", rest):
            return self._chosen("first_available", plugin_id, "it is the first that is registered, enabled, available")
        self._note("none", None, "chosen", "no rung above gave a plugin")
        return Selection(self._category, None, "none", tuple(self._looked))

    def obstacle(self, plugin_id: str, *, pinned: bool) -> str | None:
        """Why a plugin cannot be selected at all, apart from its availability; None = it can."""
        candidate = self._candidates.get(plugin_id)
        if candidate is None:
            reason = self._broken.get(plugin_id)
            return f"it cannot be loaded: {reason}" if reason else "no such plugin is registered"
        manifest = candidate.manifest
        if manifest.category != self._category:
            return f"it is a plugin of category '{manifest.category}', not '{self._category}'"
        if self._category in CAPABILITIES and self._capability not in manifest.capabilities:
            return f"it lacks the capability '{self._capability}'"
        if not candidate.enabled:
            return "it is disabled"
        if pinned:
            return None
        if plugin_id in ONLY_WHEN_PINNED:
            return "it is only used when it is pinned"
        return None if candidate.configured else "the environment does not configure it"

    def _passing(self, rung: Rung, plugin_ids: Iterable[str]) -> Iterator[str]:
        """The plugins that can be selected on a rung below the pins; the others are noted with the reason."""
        for plugin_id in plugin_ids:
            candidate = self._candidates.get(plugin_id)
            if rung == "first_available" and candidate and candidate.manifest.category != self._category:
                continue  # another category's plugin was never in question here
            obstacle, away = self.obstacle(plugin_id, pinned=False), self._away(plugin_id)
            if obstacle is not None:
                self._note(rung, plugin_id, "skipped", obstacle)
            elif away is not None:
                self._note(rung, plugin_id, "unavailable", away)
            else:
                yield plugin_id

    def _away(self, plugin_id: str) -> str | None:
        if plugin_id in self._passed_over:
            return "it was away when the Work's first index was made, and nothing pins it since"
        if self._availability is None:
            return None
        fact = self._availability.get(plugin_id)
        if fact is None:
            return "it is not known to be available"
        return None if fact.ok else fact.reason or "it does not answer"

    def _note(self, rung: Rung, candidate: str | None, outcome: Outcome, reason: str) -> None:
        self._looked.append(RungLooked(rung, candidate, outcome, reason))

    def _chosen(self, rung: Rung, plugin_id: str, reason: str) -> Selection:
        self._note(rung, plugin_id, "chosen", reason)
        return Selection(self._category, plugin_id, rung, tuple(self._looked))
