"""What a plugin says about itself: pure data, readable without importing a vendor's SDK."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.errors import Misconfigured

Category = Literal["vector-store", "ai-provider", "content-extractor", "object-store"]
TenancyShape = Literal["collection", "namespace", "row_filter"]


class MissingExtra(Misconfigured):
    """A plugin's package is not installed."""

    code = "missing_extra"


class NoSettings(BaseModel):
    """Settings of a plugin that has none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PluginManifest(BaseModel):
    """Identity and defaults of a plugin.

    `settings_model` is a Pydantic model with `extra="forbid"`; its secrets are `SecretStr`. Fields listed in
    `location_fields` say *where* the plugin's data is, those in `fact_fields` *what* it is (a model's facts):
    changing one of either makes a new instance, and the old one keeps its own; changing another does not.
    `json_schema_extra` marks what only an operator sets (`{"operator_only": True}`) and what is an endpoint
    (`{"endpoint": True}`), see `app.plugins.fields`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z][a-z0-9_-]{0,62}$")
    name: str
    version: str = "1"
    category: Category
    capabilities: tuple[str, ...] = ()
    default_for_capabilities: tuple[str, ...] = ()
    distribution: Literal["core", "registry"] = "core"
    system_plugin: bool = False
    extra: str | None = None
    settings_model: type[BaseModel] = NoSettings
    location_fields: tuple[str, ...] = ()
    fact_fields: tuple[str, ...] = ()
    selectable_in_form: bool = False
    docs_url: str | None = None
    tested_against: Literal["real", "double"] = "real"


class VectorStoreCapabilities(BaseModel):
    """What a vector store can do, and the limits that the service respects.

    `native_dimensions` 0 = managed by the backend; `None` for a limit = no limit. A `single_process` store is opened
    by one process at a time; `single_process_with` names settings that make it so when they are given (a path).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    supports_metadata_filter: bool = True
    supports_hybrid_search: bool = False
    supports_namespaces: bool = False
    supports_delete: bool = True
    native_dimensions: int = 0
    embeds_on_write: bool = False
    namespace_per_work: TenancyShape = "row_filter"
    max_top_k: int = 10_000
    max_batch: int = 1_000
    max_request_bytes: int | None = None
    max_filter_ids: int | None = None
    max_dimensions: int = 16_000
    max_works: int | None = None
    single_process: bool = False
    single_process_with: tuple[str, ...] = ()

    def is_single_process(self, settings: BaseModel) -> bool:
        """Whether a store with these settings is opened by one process at a time."""
        return self.single_process or any(getattr(settings, name) is not None for name in self.single_process_with)


class VectorStoreManifest(PluginManifest):
    """A manifest of category `vector-store`."""

    category: Category = "vector-store"
    capabilities: tuple[str, ...] = ("vector-store",)
    store: VectorStoreCapabilities = VectorStoreCapabilities()


class AiProviderManifest(PluginManifest):
    """A manifest of category `ai-provider`; `capabilities` among `embedding`, `chat`, `rerank`."""

    category: Category = "ai-provider"
    capabilities: tuple[str, ...] = ("embedding",)


@contextmanager
def needs_extra(manifest: PluginManifest) -> Iterator[None]:
    """Turn a failed import inside the block into `MissingExtra`, naming the extra to install."""
    try:
        yield
    except ImportError as exc:
        wanted = f"stackroom[{manifest.extra}]" if manifest.extra else (exc.name or manifest.id)
        raise MissingExtra(f"'{exc.name}' is not installed; this plugin needs: pip install '{wanted}'") from exc
