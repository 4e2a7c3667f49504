"""Jupyter notebooks as Markdown: prose as it is, code and text outputs in fences."""

import json
import re
from collections.abc import Iterator
from typing import Any

from app.extraction.contract import Corrupt, Extracted
from app.extraction.languages import iso_639_1

CONTENT_TYPE = "application/x-ipynb+json"

_FENCE = re.compile(r"^\s*(`{3,})", re.M)
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def read_notebook(source: str) -> Extracted:
    """Cells and their text outputs in order (nbformat 3 and 4); pictures and HTML outputs are left out.

    Raises: Corrupt when it is no notebook.
    """
    try:
        notebook = json.loads(source)
    except (ValueError, RecursionError) as exc:
        raise Corrupt("The file is damaged: it is not a notebook.") from exc
    if not isinstance(notebook, dict) or not isinstance(cells := _cells(notebook), list):
        raise Corrupt("The file is damaged: it is not a notebook.")
    metadata = _mapping(notebook.get("metadata"))
    programming = _mapping(metadata.get("kernelspec")).get("language") or _mapping(metadata.get("language_info")).get(
        "name"
    )
    blocks = [block for cell in cells for block in _blocks(_mapping(cell), str(programming or ""))]
    language = metadata.get("language")
    return Extracted(
        "\n\n".join(blocks),
        CONTENT_TYPE,
        markdown=True,
        language=iso_639_1(language) if isinstance(language, str) else None,
    )


def _cells(notebook: dict[str, Any]) -> object:
    if "cells" in notebook:
        return notebook["cells"]
    sheets = notebook.get("worksheets")  # nbformat 3
    return [cell for sheet in sheets for cell in _mapping(sheet).get("cells", ())] if isinstance(sheets, list) else None


def _blocks(cell: dict[str, Any], programming: str) -> Iterator[str]:
    text = _text(cell.get("source", cell.get("input"))).strip("\n")
    kind = cell.get("cell_type")
    if kind == "code":
        if text.strip():
            yield _fenced(text, programming)
        outputs = cell.get("outputs")
        for output in outputs if isinstance(outputs, list) else ():
            shown = _TERMINAL_CODES.sub("", _output(_mapping(output))).strip("\n")
            if shown.strip():
                yield _fenced(shown, "")
    elif kind == "heading":
        level = cell.get("level")
        yield "#" * (level if isinstance(level, int) and 1 <= level <= 6 else 1) + " " + " ".join(text.split())
    elif text.strip():
        yield text


def _output(output: dict[str, Any]) -> str:
    """The text form of an output: a stream, an error or the plain rendering of a value."""
    if output.get("output_type") == "error" or "traceback" in output:
        return f"{_text(output.get('ename'))}: {_text(output.get('evalue'))}"
    data = _mapping(output.get("data"))
    return _text(data.get("text/plain")) or _text(output.get("text"))


def _fenced(text: str, programming: str) -> str:
    longest = max((len(found[1]) for found in _FENCE.finditer(text)), default=2)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{programming}\n{text}\n{fence}"


def _text(value: object) -> str:
    """A multi-line string of the format: one string or a list of them."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
