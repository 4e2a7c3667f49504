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


class GenerationBuilding(Conflict):
    """Another generation of this Work is being built."""

    code = "generation_building"


class UpToDate(Conflict):
    """The active index is the one that is wanted; there is nothing to build."""

    code = "up_to_date"


class NoIndexYet(Conflict):
    """The Work has no index yet; its first document makes one."""

    code = "no_index_yet"


class GenerationIncomplete(Conflict):
    """Documents are missing from this generation, so it can't be activated."""

    code = "generation_incomplete"


class WrongState(Conflict):
    """The generation is not in a state in which that can be done."""

    code = "wrong_state"


class PinnedByOperator(Conflict):
    """The operator's environment pins another store or provider."""

    code = "pinned_by_operator"


class NotWantedAgain(Conflict):
    """What this generation was made with is no longer what the settings can choose."""

    code = "not_reproducible"
