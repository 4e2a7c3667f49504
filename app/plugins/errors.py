"""Errors of the plugins room."""

from app.errors import Invalid, Misconfigured, NotFound


class UnknownPlugin(NotFound):
    """No such plugin is installed."""

    code = "unknown_plugin"


class BrokenPlugin(Misconfigured):
    """A plugin is installed but cannot be loaded."""

    code = "broken_plugin"


class DuplicatePlugin(Misconfigured):
    """Two installed plugins have the same id."""

    code = "duplicate_plugin"


class InvalidPluginSettings(Invalid):
    """The settings do not fit the plugin."""

    code = "invalid_plugin_settings"


class UnusablePin(Misconfigured):
    """A pinned plugin is unknown, broken, disabled or of another category; a pin is never bypassed."""

    code = "unusable_pin"


class SealedSettingsUnreadable(Misconfigured):
    """No key opens these sealed settings: a key is missing in KB_SECRET_KEYS, or the value was changed."""

    code = "sealed_settings_unreadable"


class VectorStoreNotConfigured(Misconfigured):
    """No vector store is configured or available: documents are found by words only."""

    code = "vector_store_not_configured"


class EmbeddingNotConfigured(Misconfigured):
    """No embedding provider is configured or available: documents are found by words only."""

    code = "embedding_not_configured"


class PluginNotConfigured(Misconfigured):
    """No plugin of this category is configured or available."""

    code = "plugin_not_configured"
