"""What a choice is made of, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pydantic import BaseModel

from app.indexing.models import IndexGeneration
from app.plugins.embedding_choice import EmbeddingChoice, EmbeddingWish
from app.plugins.instances import Owner
from app.plugins.selection import Selection


@dataclass(frozen=True)
class EnvironmentChoice:
    """What the operator's environment says about stores, providers and models."""

    store_pin: str | None = None
    store_default: str | None = None
    provider_pin: str | None = None
    provider_default: str | None = None
    wish: EmbeddingWish = field(default_factory=EmbeddingWish)
    disabled: frozenset[str] = frozenset()
    settings: Mapping[str, BaseModel] = field(default_factory=dict)


@dataclass(frozen=True)
class Resolution:
    """Everything that the choice came to, with every look that led there.

    `stores_away` = stores that were passed over because they were slow or away at the moment of asking. `problem` =
    why no index can be made of it, where it is only explained.
    """

    store: Selection
    provider: Selection | None
    embedding: EmbeddingChoice | None
    stores_away: tuple[str, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Choice:
    """The columns of a new generation; the store None = a lexical one."""

    vector_store_id: str | None = None
    store_instance_id: UUID | None = None
    embedding_mode: str | None = None
    embedding_provider_id: str | None = None
    provider_instance_id: UUID | None = None
    embedding_model: str | None = None
    model_fingerprint: str | None = None
    dims: int | None = None
    passed_over: tuple[str, ...] = ()

    def is_that_of(self, generation: IndexGeneration) -> bool:
        """Whether a generation is what is chosen; which stores were away on the way to it makes no difference."""
        return (
            self.vector_store_id == generation.vector_store_id
            and self.store_instance_id == generation.store_instance_id
            and self.embedding_mode == generation.embedding_mode
            and self.embedding_provider_id == generation.embedding_provider_id
            and self.provider_instance_id == generation.provider_instance_id
            and self.model_fingerprint == generation.model_fingerprint
            and self.dims == generation.dims
        )


@dataclass(frozen=True)
class Configured:
    """A plugin's settings, who gave them, and whether an operator named its endpoints."""

    settings: BaseModel
    owner: Owner
    trusted: bool = True
