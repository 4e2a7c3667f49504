"""Parts of an Office Open XML package and the relationships between them."""

import posixpath
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote

from lxml import etree

from app.extraction.archive import Archive
from app.extraction.contract import Corrupt, DocumentTooLarge

_MAIN_FALLBACK = "word/document.xml"


@dataclass(frozen=True)
class Part:
    """A part's name in the archive and its declared type."""

    name: str
    content_type: str


class Package:
    """A Word package. Raises on opening: Corrupt when its main part is missing or no XML."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._defaults, self._overrides = self._content_types()
        root = self._relationships("")
        self._main_name = next((target for kind, target in root.values() if kind == "officeDocument"), _MAIN_FALLBACK)
        if self._main_name not in archive.names:
            raise Corrupt("The file is damaged: its main part is missing.")
        self.main = parse(archive.read(self._main_name))
        core = next((target for kind, target in root.values() if kind == "core-properties"), None)
        self.core_properties = parse(archive.read(core)) if core in archive.names else None
        self._related = self._relationships(self._main_name)

    def related(self, kind: str) -> etree._Element | None:
        """The root of the first part that the main part names as its `kind` (`styles`, `footnotes`, …)."""
        return next(iter(self.all_related(kind)), None)

    def all_related(self, kind: str) -> list[etree._Element]:
        """The roots of all parts that the main part names as its `kind`, in the order of their names."""
        names = sorted({target for found, target in self._related.values() if found == kind})
        return [parse(self._archive.read(name)) for name in names if name in self._archive.names]

    def target(self, relationship_id: str) -> Part | None:
        """The part behind a relationship of the main part."""
        _, name = self._related.get(relationship_id, ("", ""))
        if name not in self._archive.names:
            return None
        extension = posixpath.splitext(name)[1].lstrip(".").lower()
        return Part(name, self._overrides.get(name) or self._defaults.get(extension, ""))

    def read(self, part: Part) -> bytes:
        """The bytes of a part."""
        return self._archive.read(part.name)

    def _content_types(self) -> tuple[dict[str, str], dict[str, str]]:
        defaults: dict[str, str] = {}
        overrides: dict[str, str] = {}
        if "[Content_Types].xml" in self._archive.names:
            for element in parse(self._archive.read("[Content_Types].xml")):
                content_type = element.get("ContentType") or ""
                if extension := element.get("Extension"):
                    defaults[extension.lower()] = content_type
                elif name := element.get("PartName"):
                    overrides[name.lstrip("/")] = content_type
        return defaults, overrides

    def _relationships(self, source: str) -> dict[str, tuple[str, str]]:
        """Id → (last word of the type, name of the target part); targets outside the package are left out."""
        folder, name = posixpath.split(source)
        path = posixpath.join(folder, "_rels", f"{name}.rels")
        found: dict[str, tuple[str, str]] = {}
        if path not in self._archive.names:
            return found
        for element in parse(self._archive.read(path)):
            target = unquote(element.get("Target") or "")
            if element.get("TargetMode") != "External" and target:
                kind = (element.get("Type") or "").rpartition("/")[2]
                name = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
                found[element.get("Id") or ""] = (kind, name)
        return found


def parse(data: bytes) -> etree._Element:
    """Parse XML that may be hostile: no entities, no network.

    Raises: Corrupt; DocumentTooLarge where the parser's own limits are met (nesting, size of one text).
    """
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as exc:
        _refuse(parser.error_log, exc)
    if any(isinstance(node, etree._Entity) for node in root.iter(etree.Entity)):
        raise Corrupt("The file is damaged: one of its parts refers to entities, which is not allowed.")
    return root


def _refuse(log: "etree._ListErrorLog", cause: etree.XMLSyntaxError) -> NoReturn:
    found = {entry.type for entry in log}
    if etree.ErrorTypes.ERR_NO_MEMORY in found:
        raise MemoryError from cause
    if found & _LIMIT_ERRORS:
        raise DocumentTooLarge("The file is nested too deeply or holds too long a text in one place.") from cause
    raise Corrupt("The file is damaged: one of its parts is not well-formed XML.") from cause


_LIMIT_ERRORS = frozenset({etree.ErrorTypes.ERR_RESOURCE_LIMIT, etree.ErrorTypes.ERR_NAME_TOO_LONG})
