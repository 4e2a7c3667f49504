"""Settings of plugin instances, sealed at rest, and the fingerprint that says where an instance is."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from pydantic import BaseModel, SecretBytes, SecretStr, ValidationError
from pydantic_core import to_jsonable_python

from app.errors import Misconfigured
from app.plugins.errors import SealedSettingsUnreadable
from app.plugins.manifest import PluginManifest
from app.plugins.secrets import revealed, without_secrets

S = TypeVar("S", bound=BaseModel)


class Sealer:
    """Seals settings with Fernet keys: the first encrypts, all of them decrypt, so that keys can be rotated.

    Neither keys nor plain values are ever logged or shown.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        """Take keys as `generate_key` makes them, the newest first.

        Raises: Misconfigured when there is none, or one is no key.
        """
        if not keys:
            raise Misconfigured("KB_SECRET_KEYS is empty: at least one key is needed to seal settings")
        fernets = []
        for number, key in enumerate(keys, start=1):
            try:
                fernets.append(Fernet(key.strip()))
            except ValueError:
                raise Misconfigured(
                    f"key {number} in KB_SECRET_KEYS is no sealing key: it must be 32 bytes in URL-safe base64"
                ) from None
        self._first, self._all = fernets[0], MultiFernet(fernets)

    @staticmethod
    def generate_key() -> str:
        """A new random key: 44 characters of URL-safe base64."""
        return Fernet.generate_key().decode()

    def seal(self, settings: BaseModel) -> bytes:
        """All fields of the settings, defaults and revealed secrets too, as encrypted JSON."""
        plain = to_jsonable_python(revealed(settings.model_dump(mode="python", by_alias=True)))
        return self._all.encrypt(json.dumps(plain, ensure_ascii=False).encode())

    def open(self, sealed: bytes, model: type[S]) -> S:
        """The settings that were sealed.

        Raises: SealedSettingsUnreadable when no key opens them, or they no longer fit the model.
        """
        try:
            values = json.loads(self._all.decrypt(sealed))
        except InvalidToken:
            raise SealedSettingsUnreadable from None
        try:
            return model.model_validate(values)
        except ValidationError as exc:
            fields = sorted({str(error["loc"][0]) for error in exc.errors() if error["loc"]})
        # Outside the `except`: the validation error quotes the values it refuses, and must not travel as a context.
        raise SealedSettingsUnreadable(f"the sealed settings no longer fit {model.__name__}: {', '.join(fields)}")

    def rotate(self, sealed: bytes) -> bytes:
        """The same settings sealed with the first key.

        Raises: SealedSettingsUnreadable when no key opens them.
        """
        try:
            return self._all.rotate(sealed)
        except InvalidToken:
            raise SealedSettingsUnreadable from None

    def is_current(self, sealed: bytes) -> bool:
        """Whether the first key alone opens them, so that older keys are not needed for them."""
        try:
            self._first.decrypt(sealed)
        except InvalidToken:
            return False
        return True


@runtime_checkable
class HasLocation(Protocol):
    """A plugin class that says itself where its instances are, where fields alone cannot (a DSN with a password)."""

    @classmethod
    def location(cls, settings: Any) -> Mapping[str, object]:
        """JSON values that differ exactly when the place differs; no secrets."""
        ...


def fingerprint(
    manifest: PluginManifest, settings: BaseModel, *, plugin: object = None, place_only: bool = False
) -> str:
    """Which instance of a plugin it is, as 32 hex digits: another place or other facts, another fingerprint.

    Only `location_fields` count, URLs without their passwords, secret parameters and trailing slashes (or, where the
    class `plugin` has a `location`, what that returns), and, unless `place_only`, the `fact_fields`. So rotating a
    secret changes nothing.
    Raises: Misconfigured when a location field is a secret that is no URL: such a plugin needs a `location`.
    """
    if isinstance(plugin, HasLocation):
        where = dict(plugin.location(settings))
    else:
        where = {name: _place(manifest, name, getattr(settings, name)) for name in manifest.location_fields}
    facts = {"plugin": manifest.id, "where": to_jsonable_python(where)}
    if manifest.fact_fields and not place_only:
        facts["facts"] = {name: to_jsonable_python(getattr(settings, name)) for name in manifest.fact_fields}
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _place(manifest: PluginManifest, name: str, value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _place(manifest, name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_place(manifest, name, item) for item in value]
    plain = to_jsonable_python(revealed(value))
    if isinstance(plain, str) and "://" in plain:
        return without_secrets(plain)
    if isinstance(value, SecretStr | SecretBytes):
        raise Misconfigured(f"plugin '{manifest.id}' names the secret '{name}' as its place; it needs a `location`")
    return plain


def with_facts(manifest: PluginManifest, settings: S, facts: S) -> S:
    """`settings` with the `fact_fields` of another: today's secrets, and what an older instance was made with."""
    return settings.model_copy(update={name: getattr(facts, name) for name in manifest.fact_fields})
