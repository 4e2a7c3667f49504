"""Language tags as files write them."""

import re

_TAG = re.compile(r"\s*([A-Za-z]{2})(?:[-_][A-Za-z0-9_-]+)?\s*\Z")


def iso_639_1(tag: str | None) -> str | None:
    """The two-letter code of a tag such as `de-AT` or `pt_BR`; None for anything else."""
    found = _TAG.match(tag or "")
    return found[1].lower() if found else None
