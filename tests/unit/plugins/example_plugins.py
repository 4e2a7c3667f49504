"""Plugins for the tests of this room: classes with a manifest, as an outside author would write them."""

from collections.abc import Mapping
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, SecretStr

from app.plugins.manifest import AiProviderManifest, PluginManifest, VectorStoreManifest


class ServerSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = "http://localhost:6333"
    api_key: SecretStr | None = None
    timeout_s: float = 5.0


class DsnSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    dsn: SecretStr


class ServerStore:
    manifest: ClassVar = VectorStoreManifest(
        id="server", name="A server", settings_model=ServerSettings, location_fields=("url",)
    )

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings


class SameIdStore:
    manifest: ClassVar = VectorStoreManifest(id="server", name="Another server")


class DsnStore:
    manifest: ClassVar = VectorStoreManifest(
        id="dsn", name="By DSN", settings_model=DsnSettings, location_fields=("dsn",)
    )


class LocatedStore:
    manifest: ClassVar = VectorStoreManifest(
        id="located", name="Says where it is", settings_model=DsnSettings, location_fields=("dsn",)
    )

    @classmethod
    def location(cls, settings: DsnSettings) -> Mapping[str, object]:
        words = dict(part.split("=") for part in settings.dsn.get_secret_value().split())
        return {"host": words["host"], "dbname": words["dbname"]}


class WordyProvider:
    manifest: ClassVar = AiProviderManifest(id="wordy", name="Wordy")


class AskingNonsense:
    manifest: ClassVar = PluginManifest(id="nonsense", name="N", category="object-store", location_fields=("nowhere",))


class WithoutManifest:
    pass


not_a_class = ServerStore(ServerSettings())
