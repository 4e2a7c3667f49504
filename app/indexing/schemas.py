"""JSON shapes of plugins, resolution and generations."""

from typing import Any
from uuid import UUID

from app.http.shapes import Instant, Shape


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
    """What a first index of this Work would be, and which one it has."""

    vector_store: SelectionAnswer
    embedding_provider: SelectionAnswer | None
    embedding_mode: str | None
    embedding_model: str | None
    dims: int | None
    levels: list[LevelAnswer]
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
