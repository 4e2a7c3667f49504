"""Settings of the Qdrant store."""

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

IN_MEMORY = ":memory:"


class QdrantSettings(BaseModel):
    """Where Qdrant is, and how Works share it.

    Exactly one of `url` (a server; without a port it is 6333) and `path` (a directory that one process opens, or
    ":memory:" for tests). `tenancy`: `row_filter` keeps every Work in one collection a width, `collection` makes one
    for each space of each Work, which few hundred Works are too many for. `exact_below`: up to so many eligible
    chunks a question is compared with each of them instead of asking an index.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str | None = None
    api_key: SecretStr | None = None
    path: str | None = Field(default=None, min_length=1, json_schema_extra={"operator_only": True})
    collection_prefix: str = Field(default="kb", pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,47}$")
    tenancy: Literal["row_filter", "collection"] = "row_filter"
    store_content: bool = False
    exact_below: int = Field(default=5_000, ge=0)
    timeout_s: int = Field(default=30, ge=1, le=600)
    shard_number: int | None = Field(default=None, ge=1)
    replication_factor: int | None = Field(default=None, ge=1)

    @field_validator("url")
    @classmethod
    def _is_a_web_address(cls, url: str | None) -> str | None:
        if url is not None:
            try:
                parts = urlsplit(url)
                is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            except ValueError:
                is_whole = False
            if not is_whole or "@" in parts.netloc or parts.query:
                raise ValueError("not an http:// or https:// address of a server (a key belongs in api_key)")
        return url

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.url is None) == (self.path is None):
            raise ValueError("give either url or path")
        if self.api_key is not None and self.url is None:
            raise ValueError("api_key belongs to a url")
        return self
