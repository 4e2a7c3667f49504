"""Secrets inside of values: taken out of URLs, and revealed where settings are sealed."""

import re
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from pydantic import SecretBytes, SecretStr

SECRET_PARAMETER: Final = re.compile(r"pass(word|phrase|wd)?|secret|token|(^|_|-)key$|^sig$", re.IGNORECASE)


def without_secrets(url: str) -> str:
    """A URL without password, secret query parameters, fragment and trailing slash; scheme and host in lower case.

    The user's name stays, and so does every other parameter: they may say which database it is.
    """
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    kept = [(key, value) for key, value in parse_qsl(parts.query, True) if not SECRET_PARAMETER.search(key)]
    netloc = user.partition(":")[0] + at + host.lower()
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), urlencode(sorted(kept)), ""))


def revealed(value: Any) -> Any:
    """The value with every secret in it revealed."""
    if isinstance(value, SecretStr | SecretBytes):
        plain = value.get_secret_value()
        return plain.decode() if isinstance(plain, bytes) else plain
    if isinstance(value, dict):
        return {key: revealed(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [revealed(item) for item in value]
    return value
