"""Where the client commands find the service, and the key that they show it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from app.settings import Settings

DEFAULT_URL = "http://127.0.0.1:8000"
KEY_FILE = "first-api-key"


class ClientProblem(Exception):
    """Why a client command can't go on: one sentence for the person at the terminal, with the way out."""


@dataclass(frozen=True)
class Access:
    """How to reach the service. `source` says where the key was found."""

    url: str
    key: str = field(repr=False)
    source: str


def find_access(environment: Mapping[str, str] = os.environ) -> Access:
    """Address from KB_URL (default http://127.0.0.1:8000), key from KB_API_KEY, else from the data directory.

    Raises: ClientProblem when the address is none or no usable key is found.
    """
    url = (environment.get("KB_URL") or DEFAULT_URL).rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ClientProblem(f"KB_URL must look like {DEFAULT_URL}.")
    key = environment.get("KB_API_KEY", "").strip()
    if key:
        return Access(url, _checked(key, "KB_API_KEY"), "KB_API_KEY")
    path = first_key_path(environment)
    return Access(url, _checked(_read(path), str(path)), str(path))


def first_key_path(environment: Mapping[str, str] = os.environ) -> Path:
    """The file with the key that the first migration made; below KB_DATA_DIR or the default data directory."""
    data_dir = environment.get("KB_DATA_DIR") or Settings.model_fields["data_dir"].default
    return Path(data_dir) / KEY_FILE


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise ClientProblem(
            f"There is no API key: set KB_API_KEY, or start the service here first (`stackroom serve`), which writes "
            f"one to {path}. KB_DATA_DIR names another data directory."
        ) from None
    except (OSError, UnicodeDecodeError):
        raise ClientProblem(f"The API key in {path} can't be read by this user: set KB_API_KEY instead.") from None


def _checked(key: str, source: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ClientProblem(f"What stands in {source} is not an API key.")
    return key
