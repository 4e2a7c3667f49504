"""Settings of the pgvector store."""

from typing import Literal

from psycopg import Error
from psycopg.conninfo import conninfo_to_dict
from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

IndexKind = Literal["hnsw", "ivfflat"]

LEAST_EXACT_ROWS = 1_000  # however wide the vectors are, a scan of so few rows is faster than any index
DIMS_OF_THRESHOLD = 384  # the width at which `hnsw_threshold_rows` is meant


class PgvectorSettings(BaseModel):
    """Where the vectors are kept, and when a Work gets an index of its own.

    `dsn`: a libpq connection string; `None` = the service's own database. It may contain a password, so `location`
    and not the field itself says where the data is. `direct_dsn`: the same database past a pooler, for migrations and
    index builds; `None` = there is no pooler.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    dsn: SecretStr | None = Field(default=None, json_schema_extra={"operator_only": True})
    direct_dsn: SecretStr | None = Field(default=None, json_schema_extra={"operator_only": True})
    pool_size: int = Field(default=8, ge=1, le=200, json_schema_extra={"operator_only": True})
    pool_wait_s: float = Field(default=5.0, gt=0, le=60)
    index: IndexKind = "hnsw"
    hnsw_threshold_rows: int = Field(default=10_000, ge=1)
    max_promoted: int = Field(default=200, ge=0, le=1_000, json_schema_extra={"operator_only": True})
    m: int = Field(default=16, ge=4, le=64)
    ef_construction: int = Field(default=200, ge=16, le=1_000)
    ef_search: int = Field(default=400, ge=40, le=1_000)
    search_timeout_s: float = Field(default=5.0, gt=0, le=600)
    write_timeout_s: float = Field(default=120.0, gt=0, le=3_600)
    maintenance_memory_mb: int = Field(default=1_024, ge=16, json_schema_extra={"operator_only": True})

    @field_validator("dsn", "direct_dsn")
    @classmethod
    def _is_a_connection_string(cls, dsn: SecretStr | None) -> SecretStr | None:
        if dsn is not None:
            try:
                conninfo_to_dict(dsn.get_secret_value())
            except Error:
                raise ValueError("not a Postgres connection string (postgresql://… or key=value pairs)") from None
        return dsn

    def location(self) -> dict[str, str]:
        """Where the data is, without secrets: host, port and database; empty for the service's own database.

        Rotating a user or a password does not change it.
        """
        if self.dsn is None:
            return {}
        parts = {key: str(value) for key, value in conninfo_to_dict(self.dsn.get_secret_value()).items() if value}
        host = parts.get("host") or parts.get("hostaddr") or parts.get("service") or "localhost"
        return {"host": host, "port": parts.get("port", "5432"), "dbname": parts.get("dbname", parts.get("user", ""))}

    def exact_limit_rows(self, dims: int) -> int:
        """Up to how many rows of this width a question is answered by an exact scan, whatever indexes exist."""
        scaled = self.hnsw_threshold_rows * DIMS_OF_THRESHOLD // dims
        return max(min(LEAST_EXACT_ROWS, self.hnsw_threshold_rows), scaled)
