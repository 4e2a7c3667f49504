"""What one Word paragraph says: its visible text, and the notes and text boxes that hang on it.

Elements are known by their local names: transitional and strict documents differ only in namespaces.
"""

from dataclasses import dataclass, field

from lxml import etree

_LITERALS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_UNSEEN = frozenset(
    {"rPr", "pPr", "instrText", "delText", "delInstrText", "del", "moveFrom", "rt", "sdtPr", "softHyphen"}
)
_REFERENCES = {"footnoteReference": "footnote", "endnoteReference": "endnote", "commentReference": "comment"}
_OFF = frozenset({"0", "false", "off"})


@dataclass
class Inline:
    """`references` are (kind of note, its id); `boxes` are elements that hold blocks."""

    parts: list[str] = field(default_factory=list)
    references: list[tuple[str, str]] = field(default_factory=list)
    boxes: list[etree._Element] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The paragraph's visible text."""
        return "".join(self.parts)


def paragraph_content(paragraph: etree._Element) -> Inline:
    """Read a paragraph."""
    content = Inline()
    _read(paragraph, content)
    return content


def local(element: etree._Element) -> str:
    """An element's name without namespace; "" for comments and processing instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def child(parent: etree._Element | None, name: str) -> etree._Element | None:
    """The first child of that local name."""
    return next((element for element in parent if local(element) == name), None) if parent is not None else None


def attribute(element: etree._Element | None, name: str) -> str | None:
    """The attribute of that local name, whatever its namespace."""
    if element is None:
        return None
    return next((str(value) for key, value in element.items() if str(key).rpartition("}")[2] == name), None)


def _read(parent: etree._Element, content: Inline) -> None:
    for element in parent:
        name = local(element)
        if name == "t":
            content.parts.append(element.text or "")
        elif name in _LITERALS:
            content.parts.append(_LITERALS[name])
        elif name in _REFERENCES:
            content.references.append((_REFERENCES[name], attribute(element, "id") or ""))
        elif name == "txbxContent":
            content.boxes.append(element)
        elif name == "AlternateContent":
            _read_alternative(element, content)
        elif not (name in _UNSEEN or (name == "r" and _is_hidden(element))):
            _read(element, content)


def _read_alternative(element: etree._Element, content: Inline) -> None:
    """The same thing written for new and old programs: the first that says anything."""
    for alternative in element:
        found = Inline()
        _read(alternative, found)
        if found.boxes or found.text.strip():
            content.parts += found.parts
            content.references += found.references
            content.boxes += found.boxes
            return


def _is_hidden(run: etree._Element) -> bool:
    mark = child(child(run, "rPr"), "vanish")
    return mark is not None and attribute(mark, "val") not in _OFF
