"""Errors of the index."""

from app.errors import Conflict, Invalid, NotFound


class GenerationNotFound(NotFound):
    """No such index generation."""

    code = "generation_not_found"


class WriteRefused(Conflict):
    """This build can't be written: its document is being deleted, or the generation takes no writes."""

    code = "write_refused"


class UnknownPluginNamed(Invalid):
    """No such plugin is installed."""

    code = "unknown_plugin"


class BrokenPluginNamed(Conflict):
    """The plugin is installed but can't be loaded."""

    code = "broken_plugin"


class ExtraMissing(Conflict):
    """The plugin's package is not installed."""

    code = "missing_extra"


class PluginDisabled(Conflict):
    """The plugin is disabled above; it can't be enabled or pinned here."""

    code = "plugin_disabled"


class StillPinned(Conflict):
    """The plugin is pinned: a pin is never bypassed, so it can't be disabled."""

    code = "plugin_pinned"


class LastVectorStore(Conflict):
    """Without this plugin no vector store could be chosen any more."""

    code = "last_vector_store"


class PluginInUse(Conflict):
    """An index still uses these settings."""

    code = "plugin_in_use"


class Unresolvable(Conflict):
    """What is pinned above can't be used, so this can't be checked."""

    code = "unusable_pin"


class ChangedMeanwhile(Conflict):
    """Somebody else changed this at the same time; read it again."""

    code = "changed_meanwhile"
