"""Settings, read from the environment (`KB_…`) by the composition roots and handed down as values."""

import json
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MIB = 1024 * 1024
POSTGRES_SCHEMES = ("postgresql://", "postgres://", "postgresql+psycopg://")


class Settings(BaseSettings):
    """Every setting, its default and its bounds. `.env.example` lists the same names (a test compares them)."""

    model_config = SettingsConfigDict(
        env_prefix="KB_", extra="ignore", frozen=True, hide_input_in_errors=True, env_ignore_empty=True
    )

    # --- where things are
    database_url: SecretStr | None = None
    database_direct_url: SecretStr | None = None
    data_dir: Path = Path("data")
    storage_url: str | None = None
    public_url: str | None = None

    # --- keys
    bootstrap_api_key: SecretStr | None = None
    secret_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()

    # --- database
    database_pool_size: int = Field(default=10, ge=1, le=200)
    database_max_overflow: int = Field(default=5, ge=0, le=200)
    database_pool_timeout_s: float = Field(default=5, gt=0, le=60)
    database_statement_timeout_s: float = Field(default=30, gt=0)
    database_wait_s: float = Field(default=60, ge=0)
    search_timeout_s: float = Field(default=5, gt=0)

    # --- plugins and models
    vector_store_provider_id: str | None = None
    vector_store_default_id: str | None = None
    embedding_provider_id: str | None = None
    embedding_default_id: str | None = None
    embedding_mode: Literal["platform", "plugin", "auto"] = "auto"
    embedding_model: str | None = None
    embedding_dimensions: int | None = Field(default=None, ge=1, le=16_000)
    embedding_threads: int = Field(default=0, ge=0, le=64)
    disabled_plugins: Annotated[tuple[str, ...], NoDecode] = ()
    allow_private_endpoints: bool = False
    query_embedding_timeout_s: float = Field(default=2, gt=0, le=60)
    model_dir: Path | None = None

    # --- chunks, search, limits
    chunk_size_tokens: int = 512
    chunk_overlap_tokens: int = 0
    max_results: int = Field(default=5, ge=1, le=100)
    knowledge_bases_enabled: bool = True
    fusion: Literal["score", "rrf"] = "score"
    max_upload_bytes: int = Field(default=100 * MIB, ge=1)
    max_json_bytes: int = Field(default=32 * MIB, ge=1024)
    min_free_disk_bytes: int = Field(default=1024 * MIB, ge=0)

    # --- extraction
    extraction_timeout_s: float = Field(default=60, gt=0)
    extraction_memory_bytes: int = Field(default=4096 * MIB, ge=64 * MIB)
    extraction_max_characters: int = Field(default=50_000_000, ge=1000)
    extraction_max_inflated_bytes: int = Field(default=512 * MIB, ge=MIB)

    # --- jobs
    worker_concurrency: int = Field(default=4, ge=1, le=64)
    sweep_concurrency: int = Field(default=2, ge=1, le=64)
    job_heartbeat_s: float = Field(default=10, gt=0)
    job_stalled_s: float = Field(default=30, gt=0)
    job_max_attempts: int = Field(default=3, ge=1, le=20)
    job_retry_wait_s: float = Field(default=10, gt=0)
    index_write_lease_s: float = Field(default=60, gt=0)
    store_call_timeout_s: float = Field(default=30, gt=0)
    pending_upload_ttl_s: float = Field(default=3600, gt=0)
    maintenance_interval_s: float = Field(default=30, gt=0)
    generation_grace_s: float = Field(default=86_400, ge=0)

    # --- http
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["json", "console"] = "json"

    # --- the openai plugin's usual names
    openai_api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    openai_base_url: str | None = Field(default=None, validation_alias="OPENAI_BASE_URL")

    @field_validator("cors_origins", "disabled_plugins", "secret_keys", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """Accept a JSON list or names separated by commas."""
        if not isinstance(value, str):
            return value
        text = value.strip()
        return (
            tuple(json.loads(text)) if text.startswith("[") else tuple(p.strip() for p in text.split(",") if p.strip())
        )

    @field_validator("database_url", "database_direct_url")
    @classmethod
    def _postgres(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(POSTGRES_SCHEMES):
            raise ValueError("must be a Postgres URL: postgresql://user:password@host:5432/database")
        return value

    @field_validator("bootstrap_api_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 32:
            raise ValueError("KB_BOOTSTRAP_API_KEY must have at least 32 characters")
        return value

    @field_validator("cors_origins")
    @classmethod
    def _explicit_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if "*" in value:
            raise ValueError("KB_CORS_ORIGINS must name its origins; * is refused because requests carry credentials")
        return value

    @model_validator(mode="after")
    def _timing(self) -> "Settings":
        if self.job_stalled_s <= self.job_heartbeat_s:
            raise ValueError("KB_JOB_STALLED_S must be greater than KB_JOB_HEARTBEAT_S")
        if self.store_call_timeout_s >= self.index_write_lease_s:
            raise ValueError("KB_STORE_CALL_TIMEOUT_S must be smaller than KB_INDEX_WRITE_LEASE_S")
        return self

    @cached_property
    def storage_location(self) -> str:
        """Where the blobs are: a URL that the object store understands."""
        return self.storage_url or (self.data_dir / "blobs").absolute().as_uri()

    @cached_property
    def model_location(self) -> Path:
        """Where the packaged model is built and read."""
        return self.model_dir or self.data_dir.absolute() / "model"
