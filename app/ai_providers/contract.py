"""The contract between the service and an AI provider: optional abilities, asked by capability."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

from app.errors import AppError, Misconfigured, Unavailable
from app.plugins.manifest import AiProviderManifest

Vector = Sequence[float]  # providers return `array("f")`, rows L2-normalised
Role = Literal["query", "document"]


class ProviderUnavailable(Unavailable):
    """The AI provider does not answer. Transient: 429, 5xx, timeout, no connection."""

    code = "provider_unavailable"


class ProviderMisconfigured(Misconfigured):
    """The AI provider refuses our key, quota or model. Permanent until an operator acts."""

    code = "provider_misconfigured"


class ProviderRefused(AppError):
    """The AI provider refuses this input for good."""

    code = "provider_refused"


class BadEmbedding(AppError):
    """The AI provider's answer has missing vectors, a wrong width or values that are not finite."""

    code = "bad_embedding"


@dataclass(frozen=True)
class EmbeddingModel:
    """Facts about one embedding model. `calibration` = mean cosine of unrelated texts; None = not calibrated."""

    name: str
    dimensions: int
    max_input_tokens: int
    max_batch_inputs: int
    max_batch_tokens: int
    query_prefix: str = ""
    document_prefix: str = ""
    fusion_weight: float = 0.6
    calibration: float | None = None
    other_dimensions: bool = False  # the model can be asked for fewer dimensions than its own
    query_input_type: str = ""
    document_input_type: str = ""

    def fingerprint(self, provider_id: str, dimensions: int) -> str:
        """Identity of the vector space: provider, model, dimensions, prefixes or input types. 16 hex digits."""
        facts = [provider_id, self.name, str(dimensions), self.query_prefix, self.document_prefix]
        if self.query_input_type or self.document_input_type:
            facts += [self.query_input_type, self.document_input_type]
        return hashlib.sha256("\x1f".join(facts).encode()).hexdigest()[:16]


@runtime_checkable
class EmbeddingProvider(Protocol):
    """An AI provider with the capability `embedding`. Building one does not connect."""

    manifest: ClassVar[AiProviderManifest]

    @property
    def default_model(self) -> str | None:
        """The model used when nothing names one; None when the operator must name it."""
        ...

    def embedding_models(self) -> Mapping[str, EmbeddingModel]:
        """The models this provider offers, by name, with overrides of its settings applied."""
        ...

    def find_model(self, name: str) -> EmbeddingModel | None:
        """Facts of one model; an unlisted name may be answered from settings; None = not offered."""
        ...

    async def create_embedding(
        self, texts: Sequence[str], *, role: Role, model: str, dimensions: int | None = None
    ) -> list[Vector]:
        """One vector per text, in order: `dimensions` wide, finite, L2-normalised.

        A text longer than the model's input is the normalised, length-weighted mean of its windows, never cut
        silently. Prefixes are added here. Role `query` never waits behind role `document`.
        Raises: ProviderUnavailable, ProviderMisconfigured, ProviderRefused, BadEmbedding.
        """
        ...

    async def check(self) -> dict[str, object]:
        """Embed one word; report model, width, latency and URL, without secrets."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
