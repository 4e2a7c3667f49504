"""Settings of the `openai` provider, its model table, and how the two give a model's facts."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Final, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from app.ai_providers.contract import EmbeddingModel, Role

OPENAI_URL: Final = "https://api.openai.com/v1"
DEFAULT_MODEL: Final = "text-embedding-3-small"
MAX_BATCH_INPUTS, MAX_BATCH_TOKENS, MAX_INPUT_TOKENS = 2_048, 250_000, 8_191

# Source: https://platform.openai.com/docs/guides/embeddings. Not calibrated: no mean cosine of ours for them.
MODELS: Final = {
    name: EmbeddingModel(
        name=name,
        dimensions=dimensions,
        max_input_tokens=MAX_INPUT_TOKENS,
        max_batch_inputs=MAX_BATCH_INPUTS,
        max_batch_tokens=MAX_BATCH_TOKENS,
        other_dimensions=other_dimensions,
    )
    for name, dimensions, other_dimensions in (
        ("text-embedding-3-small", 1536, True),
        ("text-embedding-3-large", 3072, True),
        ("text-embedding-ada-002", 1536, False),
    )
}

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]


@dataclass(frozen=True)
class Endpoint:
    """A base URL taken apart: `url` without query, slash or `/embeddings` at its end; `shown` may stand in messages."""

    url: str
    query: dict[str, str]

    @property
    def shown(self) -> str:
        """The URL for people. It has neither query nor credentials."""
        return self.url


def parse_endpoint(base_url: str) -> Endpoint:
    """Take a base URL as it is written: no `/v1` is added, nothing is doubled.

    The query (Azure's `api-version`) is set apart; the whole address of the embedding route is understood too.
    Raises: ValueError when it is no http(s) URL, or holds user name or password.
    """
    parts = urlsplit(base_url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an http or https URL with a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user name or password: use api_key or extra_headers")
    _ = parts.port  # raises ValueError when it is no port
    path = parts.path.rstrip("/").removesuffix("/embeddings").rstrip("/")
    return Endpoint(
        url=urlunsplit((parts.scheme, parts.netloc.lower(), path, "", "")),
        query=dict(parse_qsl(parts.query, keep_blank_values=True)),
    )


class OpenAiSettings(BaseModel):
    """Where the service is, how it wants to be asked, and facts about its model.

    `dimensions` and the other facts describe `model`, or every model when none is named; batch limits and
    `max_input_tokens` hold for every model, since they are the server's. `calibration` = mean cosine of unrelated
    texts.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, protected_namespaces=())

    api_key: SecretStr | None = None
    base_url: str = OPENAI_URL
    organization: str | None = None
    extra_headers: dict[str, SecretStr] = Field(default_factory=dict)
    extra_query: dict[str, SecretStr] = Field(default_factory=dict)
    model: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    dimensions: Count | None = None
    other_dimensions: bool | None = None  # True: the model is asked for `dimensions`; None: as the table says, else no
    max_batch_inputs: Count = MAX_BATCH_INPUTS
    max_batch_tokens: Count = MAX_BATCH_TOKENS
    max_input_tokens: Count | None = None
    query_prefix: str | None = None
    document_prefix: str | None = None
    query_input_type: str | None = None
    document_input_type: str | None = None
    timeout_s: Seconds = 60.0  # one request, role document; retries included a batch may take three times as long
    query_timeout_s: Seconds = 2.0  # role query, retries included
    max_parallel_requests: Annotated[int, Field(ge=1, le=64)] = 4  # role document
    calibration: Annotated[float, Field(ge=-1, lt=1)] | None = None
    fusion_weight: Annotated[float, Field(ge=0, le=1)] | None = None

    @field_validator("base_url")
    @classmethod
    def _is_an_endpoint(cls, value: str) -> str:
        parse_endpoint(value)
        return value

    @field_validator("api_key", "organization", mode="after")
    @classmethod
    def _is_a_header_value(cls, value: SecretStr | str | None) -> SecretStr | str | None:
        if value is None:
            return None
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        clean = _header_value(text)
        return (SecretStr(clean) if isinstance(value, SecretStr) else clean) if clean else None

    @model_validator(mode="after")
    def _dimensions_fit(self) -> Self:
        known = MODELS.get(self.model or "")
        if known and self.dimensions and not _can_give(known, self.dimensions):
            raise ValueError(f"model '{known.name}' cannot give {self.dimensions} dimensions")
        return self

    @field_validator("extra_headers")
    @classmethod
    def _are_headers(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, content in value.items():
            if not name or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
                raise ValueError("header names consist of letters, digits, '-' and '_'")
            _header_value(content.get_secret_value())
        return value

    @cached_property
    def endpoint(self) -> Endpoint:
        """The base URL, taken apart."""
        return parse_endpoint(self.base_url)

    @property
    def default_model(self) -> str | None:
        """`model`, else OpenAI's small one at OpenAI's own address, else None."""
        return self.model or (DEFAULT_MODEL if self.endpoint.url == OPENAI_URL else None)

    def headers(self) -> dict[str, str]:
        """The headers that carry our identity, secrets revealed; extra ones win."""
        named = {name: content.get_secret_value().strip() for name, content in self.extra_headers.items()}
        given = {name.lower() for name in named}
        if self.api_key and "authorization" not in given:
            named["Authorization"] = f"Bearer {self.api_key.get_secret_value()}"
        if self.organization and "openai-organization" not in given:
            named["OpenAI-Organization"] = self.organization
        return named

    def query(self) -> dict[str, str]:
        """The extra query parameters, secrets revealed."""
        return {name: content.get_secret_value() for name, content in self.extra_query.items()}

    def input_type(self, role: Role) -> str | None:
        """The `input_type` sent for a role, for services that know that parameter."""
        return self.query_input_type if role == "query" else self.document_input_type

    def find_model(self, name: str) -> EmbeddingModel | None:
        """Facts of one model, from table and settings; None when its dimensions are known to neither."""
        described = name == self.model or self.model is None
        known = MODELS.get(name)
        if known is None:
            if not (described and self.dimensions and name):
                return None
            known = EmbeddingModel(name, self.dimensions, MAX_INPUT_TOKENS, MAX_BATCH_INPUTS, MAX_BATCH_TOKENS)
        known = replace(
            known,
            max_batch_inputs=self.max_batch_inputs,
            max_batch_tokens=self.max_batch_tokens,
            max_input_tokens=self.max_input_tokens or known.max_input_tokens,
        )
        return replace(known, **self._facts(known)) if described else known

    def _facts(self, known: EmbeddingModel) -> dict[str, Any]:
        facts = {
            "dimensions": self.dimensions if _can_give(known, self.dimensions) else None,
            "other_dimensions": self.other_dimensions,
            "query_prefix": self.query_prefix,
            "document_prefix": self.document_prefix,
            "query_input_type": self.query_input_type,
            "document_input_type": self.document_input_type,
            "calibration": self.calibration,
            "fusion_weight": self.fusion_weight,
        }
        return {name: value for name, value in facts.items() if value is not None}


def _can_give(known: EmbeddingModel, dimensions: int | None) -> bool:
    if dimensions is None:
        return False
    return dimensions == known.dimensions or (known.other_dimensions and dimensions < known.dimensions)


def _header_value(text: str) -> str:
    clean = text.strip()
    if not clean.isascii() or not clean.isprintable():
        raise ValueError("must be printable ASCII on one line")
    return clean
