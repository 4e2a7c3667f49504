"""API keys: making and hashing. A key is 256 random bits, so one SHA-256 is enough to store it safely."""

import hashlib
import secrets

PREFIX = "srk_"


def new_key() -> str:
    """A new API key."""
    return PREFIX + secrets.token_urlsafe(32)


def hash_key(key: str) -> bytes:
    """What is stored and looked up: 32 bytes."""
    return hashlib.sha256(key.encode()).digest()


def visible_prefix(key: str) -> str:
    """The first characters, by which a person recognises a key."""
    return key[:10]
