"""JSON shapes of plugins, resolution and generations."""

import json
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field
from typing_extensions import TypeAliasType

from app.http.shapes import CleanText, Instant, Omittable, Shape, clean_tree

MAX_SETTINGS_BYTES = 65_536
EmbeddingMode = TypeAliasType("EmbeddingMode", Literal["platform", "plugin", "auto"])
PluginId = Annotated[CleanText, Field(min_length=1, max_length=63)]


def _bounded(value: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(value)) > MAX_SETTINGS_BYTES:
        raise ValueError(f"must have at most {MAX_SETTINGS_BYTES} bytes as JSON")
    return value


PluginSettings = Annotated[dict[str, Any], AfterValidator(clean_tree), AfterValidator(_bounded)]


class PluginAnswer(Shape):
    """An installed plugin, or one that can't be loaded (`reason` says why)."""

    id: str
    name: str
    version: str
    category: str
    distribution: str
    system_plugin: bool
    available: bool
    reason: str | None
    capabilities: dict[str, Any]
    settings_schema: dict[str, Any]
    extra: str | None
    tested_against: str


class PluginList(Shape):
    """Every plugin that is installed."""

    items: list[PluginAnswer]
    next_cursor: str | None


class RungAnswer(Shape):
    """One look at one rung of the selection chain."""

    rung: str
    candidate: str | None
    outcome: str
    reason: str


class SelectionAnswer(Shape):
    """What the chain came to, and every look that led there."""

    plugin_id: str | None
    rung: str
    rungs: list[RungAnswer]


class LevelAnswer(Shape):
    """One look at one level for mode, model or dimensions."""

    setting: str
    level: str
    value: str | int | None
    outcome: str
    reason: str


class ResolutionAnswer(Shape):
    """What index this Work should have now, and which one it has. `problem` = why none can be made of it."""

    vector_store: SelectionAnswer
    embedding_provider: SelectionAnswer | None
    embedding_mode: str | None
    embedding_model: str | None
    dims: int | None
    levels: list[LevelAnswer]
    problem: str | None
    active_generation_id: UUID | None


class GenerationAnswer(Shape):
    """One index generation of a Work."""

    id: UUID
    number: int
    state: str
    vector_store_id: str | None
    embedding_mode: str | None
    embedding_provider_id: str | None
    embedding_model: str | None
    dims: int | None
    documents_done: int
    documents_total: int
    documents_refused: int
    error: str | None
    created_at: Instant
    activated_at: Instant | None


class GenerationList(Shape):
    """A page of generations, newest first."""

    items: list[GenerationAnswer]
    next_cursor: str | None


class GenerationBuild(Shape):
    """Build the index that is wanted; `force`: a new one also where the active index is what is wanted."""

    force: bool = False


class GenerationActivate(Shape):
    """`allow_missing`: documents that were refused stay out of the index and are found by their words only."""

    allow_missing: bool = False


class GenerationProgress(GenerationAnswer):
    """A generation while it is built. `documents_per_s` over the last half minute, `seconds_left` after it."""

    documents_per_s: float | None
    seconds_left: float | None


class RefusalAnswer(Shape):
    """A document that the generation's provider or store refuses, and why."""

    document_id: UUID
    code: str
    message: str
    accepted: bool


class RefusalList(Shape):
    """A page of refused documents, by id."""

    items: list[RefusalAnswer]
    next_cursor: str | None


class ActivityAnswer(Shape):
    """Something that happened to a Work: ids, numbers, names of plugins and models."""

    id: UUID
    work_id: UUID
    kind: str
    facts: dict[str, Any]
    created_at: Instant


class ActivityList(Shape):
    """A page of what happened, newest first."""

    items: list[ActivityAnswer]
    next_cursor: str | None


class PluginPut(Shape):
    """What a Work or an organization says of a plugin.

    `settings` left out: the stored ones stay; null removes them. Secrets left out of `settings` stay, as long as the
    settings name the same place.
    """

    enabled: bool = True
    pinned: bool = False
    settings: PluginSettings | None = None


class PluginEntry(Shape):
    """A plugin as a Work or an organization sees it. Secrets are never shown; `secrets_set` names those there are.

    `enabled` and `pinned` are what is said here; `disabled_by` (`operator`, `organization` or `work`) decides.
    """

    plugin_id: str
    name: str
    category: str
    enabled: bool
    pinned: bool
    disabled_by: str | None
    settings: dict[str, Any] | None
    secrets_set: list[str]


class PluginEntryList(Shape):
    """Every plugin that is installed, or of which something is said here."""

    items: list[PluginEntry]
    next_cursor: str | None


class PluginCheck(Shape):
    """Settings to try, else those of the operator."""

    settings: Omittable[PluginSettings] = None


class PluginCheckAnswer(Shape):
    """Whether the plugin answers with these settings, and what it tells of itself."""

    available: bool
    reason: str | None
    facts: dict[str, Any]


class SettingsPatch(Shape):
    """Changes to the settings of a Work or an organization (JSON Merge Patch: null removes one)."""

    kb_vector_store_id: PluginId | None = None
    kb_embedding_provider_id: PluginId | None = None
    kb_embedding_mode: EmbeddingMode | None = None
    kb_embedding_model: Annotated[CleanText, Field(min_length=1, max_length=255)] | None = None
    kb_embedding_dimensions: Annotated[int, Field(ge=1, le=16_000, strict=True)] | None = None
    chunk_size_tokens: Annotated[int, Field(strict=True)] | None = None
    chunk_overlap_tokens: Annotated[int, Field(strict=True)] | None = None
    max_results: Annotated[int, Field(ge=1, le=100, strict=True)] | None = None


class TextSetting(Shape):
    """The effective value, the rung it came from, and what is set at this very level."""

    value: str | None
    rung: str
    own: str | None


class NumberSetting(Shape):
    """The effective value, the rung it came from, and what is set at this very level."""

    value: int | None
    rung: str
    own: int | None


class SettingsAnswer(Shape):
    """Every setting: what holds, which rung says so, and what is set here."""

    kb_vector_store_id: TextSetting
    kb_embedding_provider_id: TextSetting
    kb_embedding_mode: TextSetting
    kb_embedding_model: TextSetting
    kb_embedding_dimensions: NumberSetting
    chunk_size_tokens: NumberSetting
    chunk_overlap_tokens: NumberSetting
    max_results: NumberSetting
