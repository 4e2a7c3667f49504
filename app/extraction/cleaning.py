"""The one place where extracted text enters the service: what may not be stored is taken out here."""

import re
from bisect import bisect_left
from dataclasses import replace
from typing import overload

from app.extraction.contract import DocumentTooLarge, Extracted, NoText

_FORBIDDEN = re.compile("[\x00\ud800-\udfff]|\\A\ufeff")


def clean(extracted: Extracted, *, max_characters: int) -> Extracted:
    """Remove U+0000, lone surrogates and a leading BOM, and nothing else; all offsets move along.

    Raises: NoText when nothing is left that a person could read, DocumentTooLarge beyond `max_characters`.
    """
    text = extracted.text
    facts = {
        name: _FORBIDDEN.sub("", fact) if isinstance(fact, str) else fact for name, fact in extracted.facts.items()
    }
    removed = [found.start() for found in _FORBIDDEN.finditer(text)]
    if removed:
        text = _FORBIDDEN.sub("", text)
    if len(text) > max_characters:
        raise DocumentTooLarge(f"The file holds more than {max_characters} characters of text.")
    if not any(character.isprintable() and not character.isspace() for character in text):
        raise NoText
    if not removed:
        return replace(extracted, facts=facts)

    @overload
    def moved(offset: int) -> int: ...
    @overload
    def moved(offset: None) -> None: ...
    def moved(offset: int | None) -> int | None:
        return None if offset is None else offset - bisect_left(removed, offset)

    marks = tuple(
        replace(
            mark,
            start=moved(mark.start),
            end=moved(mark.end),
            header_end=moved(mark.header_end),
            title=_FORBIDDEN.sub("", mark.title),
        )
        for mark in extracted.marks
    )
    return replace(
        extracted,
        text=text,
        facts=facts,
        marks=tuple(mark for mark in marks if mark.start < mark.end),
        page_starts=tuple(moved(start) for start in extracted.page_starts),
    )
