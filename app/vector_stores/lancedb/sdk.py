"""LanceDB's package, imported when a Work first needs it: that takes seconds, and threads that no fork survives."""

import asyncio
import importlib.util
import os
from dataclasses import dataclass
from functools import cache
from typing import Any

from app.plugins.manifest import PluginManifest, needs_extra


@dataclass(frozen=True)
class Sdk:
    """The modules we use. Untyped: this package is type-checked where they are not installed."""

    lancedb: Any
    index: Any
    arrow: Any


def ensure_installed(manifest: PluginManifest) -> None:
    """Look for the package without importing it. Raises: MissingExtra."""
    with needs_extra(manifest):
        if importlib.util.find_spec("lancedb") is None:
            raise ModuleNotFoundError("No module named 'lancedb'", name="lancedb")


async def load(manifest: PluginManifest) -> Sdk:
    """Import the package in a thread, once. Raises: MissingExtra."""
    with needs_extra(manifest):
        return await asyncio.to_thread(_imported)


@cache
def _imported() -> Sdk:
    os.environ.setdefault("LANCEDB_LOG", "error")  # its warnings go to stderr, past our log
    import lancedb
    import lancedb.index
    import pyarrow

    return Sdk(lancedb, lancedb.index, pyarrow)
