"""Stores and a provider for the tests of the choice: they answer or not, as a test says."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr

from app.ai_providers.contract import EmbeddingModel
from app.plugins.manifest import AiProviderManifest, VectorStoreManifest
from app.vector_stores.contract import Availability
from app.vector_stores.memory import MemoryStore

AWAY: set[str] = set()


class StoreSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = "https://one.example"
    api_key: SecretStr | None = None
    timeout_s: float = 5


class First(MemoryStore):
    manifest: ClassVar = VectorStoreManifest(
        id="first",
        name="First",
        settings_model=StoreSettings,
        location_fields=("url",),
        default_for_capabilities=("vector-store",),
    )

    def __init__(self, settings: StoreSettings) -> None:
        super().__init__()
        self.settings = settings

    async def is_available(self) -> Availability:
        is_away = self.manifest.id in AWAY
        return Availability(not is_away, "it is away" if is_away else None, temporary=is_away)


class Second(First):
    manifest: ClassVar = VectorStoreManifest(
        id="second", name="Second", settings_model=StoreSettings, location_fields=("url",)
    )


class ProviderSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    base_url: str = "https://one.example"
    api_key: SecretStr | None = None
    model: str = "m1"
    prefix: str = ""
    timeout_s: float = 5


class Provider:
    """Offers the model of its settings and `common`; 8 wide."""

    manifest: ClassVar = AiProviderManifest(
        id="provider",
        name="Provider",
        settings_model=ProviderSettings,
        location_fields=("base_url",),
        fact_fields=("model", "prefix"),
        default_for_capabilities=("embedding",),
    )

    def __init__(self, settings: ProviderSettings) -> None:
        self.settings = settings

    @property
    def default_model(self) -> str:
        return self.settings.model

    def embedding_models(self) -> Mapping[str, EmbeddingModel]:
        common = EmbeddingModel("common", 8, 512, 64, 10_000)
        own = replace(common, name=self.settings.model, document_prefix=self.settings.prefix)
        return {"common": common, self.settings.model: own}

    def find_model(self, name: str) -> EmbeddingModel | None:
        return self.embedding_models().get(name)

    async def create_embedding(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("choosing never embeds")

    async def close(self) -> None:
        return
