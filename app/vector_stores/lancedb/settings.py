"""Settings of the LanceDB store."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

CLOUD_SCHEMES = ("s3://", "gs://", "az://")
OUR_OPTIONS = ("endpoint", "aws_endpoint", "region", "aws_region", "allow_http", "aws_allow_http")

DIMS_OF_THRESHOLD = 384  # the width at which `index_after_rows` is meant
LEAST_EXACT_ROWS = 1_000

# What LanceDB waits for object storage by default (180 s, ten tries) is longer than anyone here waits for a store.
PATIENCE = {"connect_timeout": "5s", "timeout": "30s", "client_max_retries": "3", "client_retry_timeout": "15"}


class LanceDbSettings(BaseModel):
    """Where the tables are, and when they are indexed and tidied.

    `path`: an absolute directory on a local file system, shared by every process of the service; `None` without a
    `uri` = `lancedb/` in the data directory. `uri`: `s3://bucket/prefix` (or gs://, az://) instead, with
    `storage_options` as LanceDB names them (`aws_access_key_id`, `aws_secret_access_key`, `aws_session_token`, …),
    all of them secrets. `keep_versions_s`: how long files stay that only older versions of a table need; longer than
    anyone reads one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    path: Path | None = Field(default=None, json_schema_extra={"operator_only": True})
    uri: str | None = None
    endpoint: str | None = None
    region: str | None = None
    # Some of the names are addresses of servers (endpoints, proxies, token services), under more aliases than we know.
    storage_options: dict[str, SecretStr] = Field(default_factory=dict, json_schema_extra={"operator_only": True})
    index_after_rows: int = Field(default=20_000, ge=1)
    rows_per_list: int = Field(default=8_192, ge=16, le=1_000_000)
    probes: int = Field(default=20, ge=1, le=1_000)
    keep_versions_s: float = Field(default=600.0, ge=10, le=604_800)
    cache_mb: int = Field(default=256, ge=16, le=65_536)
    search_timeout_s: float = Field(default=5.0, gt=0, le=600)
    write_timeout_s: float = Field(default=60.0, gt=0, le=3_600)
    maintenance_timeout_s: float = Field(default=900.0, gt=0, le=86_400)

    @field_validator("storage_options", mode="before")
    @classmethod
    def _from_json(cls, value: object) -> object:
        """The environment can only say it as JSON."""
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value)
        except ValueError:
            raise ValueError("not a JSON object of option names and strings") from None

    @field_validator("path")
    @classmethod
    def _is_absolute(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError("must be an absolute directory, since every process has to mean the same one")
        return path

    @field_validator("uri")
    @classmethod
    def _is_object_storage(cls, uri: str | None) -> str | None:
        if uri is None:
            return None
        if not uri.startswith(CLOUD_SCHEMES) or uri.endswith("://"):
            raise ValueError("must be s3://bucket/prefix, gs://bucket/prefix or az://container/prefix")
        if any(sign in uri for sign in "@?#\\\0"):
            raise ValueError("must name a bucket and a prefix only; credentials belong in storage_options")
        return uri.rstrip("/")

    @field_validator("endpoint")
    @classmethod
    def _is_http(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ValueError("must be http://host:port or https://host:port")
        return endpoint

    @model_validator(mode="after")
    def _one_place(self) -> "LanceDbSettings":
        if self.path is not None and self.uri is not None:
            raise ValueError("path and uri are two places: set one")
        if self.uri is None and (self.endpoint or self.region or self.storage_options):
            raise ValueError("endpoint, region and storage_options belong to a uri")
        taken = sorted(name for name in self.storage_options if name.lower() in OUR_OPTIONS)
        if taken:
            raise ValueError(f"{', '.join(taken)}: has a field of its own")
        return self

    def options(self) -> dict[str, str]:
        """What LanceDB is told about object storage, secrets revealed: never to be logged or shown."""
        options = dict(PATIENCE)
        if self.endpoint is not None:
            options["endpoint"] = self.endpoint
            options["allow_http"] = str(self.endpoint.startswith("http://")).lower()
        if self.region is not None:
            options["region"] = self.region
        return options | {name: secret.get_secret_value() for name, secret in self.storage_options.items()}

    def exact_limit_rows(self, dims: int) -> int:
        """Up to how many rows of this width a table is scanned, and not indexed."""
        scaled = self.index_after_rows * DIMS_OF_THRESHOLD // dims
        return max(min(LEAST_EXACT_ROWS, self.index_after_rows), scaled)
