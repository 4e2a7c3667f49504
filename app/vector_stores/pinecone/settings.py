"""Settings of the two Pinecone plugins."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

MAX_REQUEST_BYTES = 2_000_000  # the API says 2 MB; the smaller reading of it
LEAST_BATCH_BYTES = 300_000  # room for one vector of the widest kind

_HEADER_VALUE = re.compile(r"[\x21-\x7e]+")


class PineconeSettings(BaseModel):
    """Which project, where its indexes are, and how long to wait for them.

    The store makes the index `{index_prefix}-{dims}` when the first vector of a width is written, unless
    `create_indexes` is off. Which project it is in only the key says, and a key may be rotated: so `project` is a
    label of the operator's, to be changed together with a key of *another* project.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    api_key: SecretStr = Field(min_length=1)
    project: str = Field(default="", max_length=100)
    index_prefix: str = Field(default="stackroom", pattern=r"^[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?$")
    api_url: str = Field(
        default="https://api.pinecone.io", pattern=r"^https?://[^\s/@]+/?$", json_schema_extra={"operator_only": True}
    )
    create_indexes: bool = True
    cloud: Literal["aws", "gcp", "azure"] = "aws"
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]{1,40}$")
    batch_bytes: int = Field(default=1_500_000, ge=LEAST_BATCH_BYTES, le=MAX_REQUEST_BYTES)
    request_timeout_s: float = Field(default=10.0, gt=0, le=120)
    call_timeout_s: float = Field(default=25.0, gt=0, le=600)
    freshness_wait_s: float = Field(default=15.0, gt=0, le=300)
    stale_read_wait_s: float = Field(default=1.0, ge=0, le=60)

    @field_validator("api_key")
    @classmethod
    def _is_a_header_value(cls, key: SecretStr) -> SecretStr:
        if not _HEADER_VALUE.fullmatch(key.get_secret_value()):
            raise ValueError("not a key: it has blanks, line ends or characters outside ASCII")
        return key


class PineconeIntegratedSettings(PineconeSettings):
    """The same, and the hosted model that embeds the text of chunks; `None` for a width = the model's own."""

    embed_model: str = Field(default="llama-text-embed-v2", pattern=r"^[A-Za-z0-9._-]{1,100}$")
    embed_dimensions: int | None = Field(default=None, ge=1, le=20_000)
