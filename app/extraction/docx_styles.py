"""What a Word paragraph is: heading, list item or plain, from its own properties and its style's."""

import re
from dataclasses import dataclass

from lxml import etree

from app.extraction.docx_inline import attribute, child, local
from app.extraction.ooxml import Package

_HEADING_NAME = re.compile(r"(?:heading|überschrift|titre|título|titolo|заголовок|标题|見出し)\s*([1-9])\Z", re.I)
_LIST_NAME = re.compile(r"list (?:bullet|number)(?: (\d))?\Z", re.I)
_BODY_LEVEL = 9  # outline level that means "body text"
_MAX_ANCESTORS = 20


@dataclass(frozen=True)
class ParagraphStyle:
    """`heading_level` 1 to 6, 0 = no heading; `list_depth` 0 = outermost, None = no list item."""

    heading_level: int = 0
    list_depth: int | None = None


class Styles:
    """The style sheet of a document."""

    def __init__(self, package: Package) -> None:
        root = package.related("styles")
        self._styles = {
            attribute(style, "styleId") or "": style
            for style in (root if root is not None else ())
            if local(style) == "style"
        }
        self._known: dict[str, ParagraphStyle] = {}

    def of(self, paragraph: etree._Element) -> ParagraphStyle:
        """What the paragraph is; its own properties go before its style's."""
        properties = child(paragraph, "pPr")
        named = self._named(attribute(child(properties, "pStyle"), "val") or "")
        own_level = _outline_level(properties)
        level = named.heading_level if own_level is None else own_level
        numbering = child(properties, "numPr")
        depth = named.list_depth if numbering is None else _list_depth(numbering)
        return ParagraphStyle(level, depth)

    def _named(self, style_id: str) -> ParagraphStyle:
        if style_id not in self._known:
            self._known[style_id] = self._resolved(style_id)
        return self._known[style_id]

    def _resolved(self, style_id: str) -> ParagraphStyle:
        """Follow the styles that this one is based on; the nearest answer counts."""
        level: int | None = None
        depth: int | None = None
        current = style_id
        for _ in range(_MAX_ANCESTORS):
            style = self._styles.get(current)
            if style is None:
                break
            name = attribute(child(style, "name"), "val") or ""
            properties = child(style, "pPr")
            level = _first(level, _named_level(name), _outline_level(properties))
            depth = _first(depth, _named_depth(name), _list_depth(child(properties, "numPr")))
            current = attribute(child(style, "basedOn"), "val") or ""
        return ParagraphStyle(level or 0, depth)


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _named_level(name: str) -> int | None:
    if name.lower() == "title":
        return 1
    found = _HEADING_NAME.match(name)
    return min(int(found[1]), 6) if found else None


def _named_depth(name: str) -> int | None:
    found = _LIST_NAME.match(name)
    return int(found[1] or 1) - 1 if found else None


def _outline_level(properties: etree._Element | None) -> int | None:
    """Heading level by outline; 0 when the outline says body text, None when it says nothing."""
    value = attribute(child(properties, "outlineLvl"), "val")
    if value is None or not value.isascii() or not value.isdigit():
        return None
    return min(int(value) + 1, 6) if int(value) < _BODY_LEVEL else 0


def _list_depth(numbering: etree._Element | None) -> int | None:
    if numbering is None or attribute(child(numbering, "numId"), "val") in (None, "0"):
        return None
    depth = attribute(child(numbering, "ilvl"), "val") or "0"
    return min(int(depth), 8) if depth.isascii() and depth.isdigit() else 0
