"""Embedding mode, model and dimensions of a Work: environment default, organization, Work, later wins; and why.

The provider is not chosen here: it follows the chain of `selection`. What the chosen provider cannot do is skipped in
favour of the next wish, at last the provider's own default, and the record says so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal, Protocol

from app.errors import FieldFault, Invalid

Mode = Literal["platform", "plugin", "auto"]
Level = Literal["work", "organization", "environment_default", "provider_default", "vector_store", "none"]
Setting = Literal["mode", "model", "dimensions"]
LEVELS: Final[tuple[Level, ...]] = ("work", "organization", "environment_default")


class ModelFacts(Protocol):
    """What a provider says about one of its models."""

    @property
    def name(self) -> str:
        """The model's name."""
        ...

    @property
    def dimensions(self) -> int:
        """Its own width."""
        ...

    @property
    def other_dimensions(self) -> bool:
        """Whether it can be asked for fewer dimensions than its own."""
        ...


class Offer(Protocol):
    """The models of the chosen provider."""

    @property
    def default_model(self) -> str | None:
        """The model used when nothing names one."""
        ...

    def find_model(self, name: str, /) -> ModelFacts | None:
        """Facts of one model; None = not offered."""
        ...


@dataclass(frozen=True)
class EmbeddingWish:
    """What one level says; None = nothing."""

    mode: Mode | None = None
    model: str | None = None
    dimensions: int | None = None


@dataclass(frozen=True)
class LevelLooked:
    """One look at one level: what it wished for a setting, what became of it, and why, in words."""

    setting: Setting
    level: Level
    value: str | int | None
    outcome: Literal["chosen", "skipped", "not_set"]
    reason: str


@dataclass(frozen=True)
class EmbeddingChoice:
    """What a new generation embeds with. In mode `plugin` the vector store does it: model and dimensions are None.

    Model None in mode `platform`: no provider, or one without a model to use: a lexical generation.
    """

    mode: Literal["platform", "plugin"]
    model: str | None
    dimensions: int | None
    levels: Mapping[Setting, Level]
    looked: tuple[LevelLooked, ...]

    def explain(self) -> dict[str, object]:
        """The whole record as plain JSON values."""
        return asdict(self)


def resolve_model(
    *,
    environment: EmbeddingWish = EmbeddingWish(),
    organization: EmbeddingWish = EmbeddingWish(),
    work: EmbeddingWish = EmbeddingWish(),
    provider: Offer | None,
    store_embeds_on_write: bool = False,
) -> EmbeddingChoice:
    """Resolve mode, model and dimensions, each by itself; `provider` = the chosen one's models, None = no provider."""
    wishes = dict(zip(LEVELS, (work, organization, environment), strict=True))
    record = _Record()
    mode = _mode(record, wishes, store_embeds_on_write)
    if mode == "plugin":
        for setting in ("model", "dimensions"):
            record.choose(setting, "vector_store", None, "the vector store embeds by itself")
        return EmbeddingChoice("plugin", None, None, record.levels, tuple(record.looked))
    model = _model(record, wishes, provider)
    dimensions = _dimensions(record, wishes, model)
    return EmbeddingChoice("platform", model.name if model else None, dimensions, record.levels, tuple(record.looked))


def refuse_unoffered(
    wish: EmbeddingWish, *, provider_id: str | None, provider: Offer | None, store_embeds_on_write: bool | None = None
) -> None:
    """Refuse settings that are made explicitly beside a provider (or store) which cannot follow them.

    Raises: Invalid with a fault for each field: `kb_embedding_mode`, `kb_embedding_model`, `kb_embedding_dimensions`.
    """
    faults = []
    if wish.mode == "plugin" and store_embeds_on_write is False:
        faults.append(FieldFault(("kb_embedding_mode",), "the vector store does not embed by itself"))
    name = wish.model or (provider.default_model if provider else None)
    model = provider.find_model(name) if provider and name else None
    if wish.model is not None and provider is not None and model is None:
        faults.append(FieldFault(("kb_embedding_model",), f"provider '{provider_id}' does not offer '{wish.model}'"))
    if wish.dimensions is not None and model is not None and not _can_give(model, wish.dimensions):
        faults.append(FieldFault(("kb_embedding_dimensions",), _cannot_give(model, wish.dimensions)))
    if faults:
        raise Invalid("; ".join(fault.msg for fault in faults), faults=faults)


class _Record:
    """What was looked at so far, and which level decided each setting."""

    def __init__(self) -> None:
        self.looked: list[LevelLooked] = []
        self.levels: dict[Setting, Level] = {}

    def wished(self, setting: Setting, wishes: Mapping[Level, EmbeddingWish]) -> Iterator[tuple[Level, str | int]]:
        """The wishes for a setting, the deciding one first; levels without one are noted."""
        for level, wish in wishes.items():
            value: str | int | None = getattr(wish, setting)
            if value is None:
                self.looked.append(LevelLooked(setting, level, None, "not_set", "nothing is set here"))
            else:
                yield level, value

    def skip(self, setting: Setting, level: Level, value: str | int | None, reason: str) -> None:
        self.looked.append(LevelLooked(setting, level, value, "skipped", reason))

    def choose(self, setting: Setting, level: Level, value: str | int | None, reason: str) -> None:
        self.levels[setting] = level
        self.looked.append(LevelLooked(setting, level, value, "chosen", reason))


def _mode(record: _Record, wishes: Mapping[Level, EmbeddingWish], store_embeds: bool) -> Literal["platform", "plugin"]:
    automatic: Literal["platform", "plugin"] = "plugin" if store_embeds else "platform"
    why = f"the vector store {'embeds on write' if store_embeds else 'does not embed by itself'}"
    for level, value in record.wished("mode", wishes):
        if value == "plugin" and not store_embeds:
            record.skip("mode", level, value, why)
            continue
        record.choose(
            "mode", level, value, f"'auto' means '{automatic}': {why}" if value == "auto" else "it is set here"
        )
        return "plugin" if value == "plugin" else "platform" if value == "platform" else automatic
    record.choose("mode", "none", "auto", f"'auto' means '{automatic}': {why}")
    return automatic


def _model(record: _Record, wishes: Mapping[Level, EmbeddingWish], provider: Offer | None) -> ModelFacts | None:
    if provider is None:
        record.choose("model", "none", None, "no embedding provider is configured")
        return None
    for level, value in record.wished("model", wishes):
        model = provider.find_model(str(value))
        if model is not None:
            record.choose("model", level, value, "it is set here, and the provider offers it")
            return model
        record.skip("model", level, value, "the chosen provider does not offer it")
    name = provider.default_model
    model = provider.find_model(name) if name else None
    if model is not None:
        record.choose("model", "provider_default", model.name, "it is the provider's default")
    else:
        record.choose("model", "none", name, "the provider has no default model with known dimensions")
    return model


def _dimensions(record: _Record, wishes: Mapping[Level, EmbeddingWish], model: ModelFacts | None) -> int | None:
    if model is None:
        record.choose("dimensions", "none", None, "there is no model")
        return None
    for level, value in record.wished("dimensions", wishes):
        if _can_give(model, int(value)):
            record.choose("dimensions", level, value, "it is set here, and the model can give it")
            return int(value)
        record.skip("dimensions", level, value, _cannot_give(model, int(value)))
    record.choose("dimensions", "provider_default", model.dimensions, "it is the model's own width")
    return model.dimensions


def _can_give(model: ModelFacts, dimensions: int) -> bool:
    return dimensions == model.dimensions or (model.other_dimensions and 0 < dimensions < model.dimensions)


def _cannot_give(model: ModelFacts, dimensions: int) -> str:
    fewer = " or fewer" if model.other_dimensions else ""
    return f"model '{model.name}' gives {model.dimensions} dimensions{fewer}, not {dimensions}"
