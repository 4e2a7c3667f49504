"""Errors of the index."""

from app.errors import Conflict, NotFound


class GenerationNotFound(NotFound):
    """No such index generation."""

    code = "generation_not_found"


class WriteRefused(Conflict):
    """This build can't be written: its document is being deleted, or the generation takes no writes."""

    code = "write_refused"
