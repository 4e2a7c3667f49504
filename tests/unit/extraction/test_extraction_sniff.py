from pathlib import Path

import pytest

from app.extraction.contract import Corrupt, Encrypted, Limits, Unsupported
from app.extraction.sniff import DOCX, Kind, sniff
from tests import nasty_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "upload"


def kind_of(path: Path, content: bytes, name: str, declared_type: str | None = None) -> Kind:
    path.write_bytes(content)
    return sniff(path, name=name, declared_type=declared_type, limits=Limits())


@pytest.mark.parametrize(
    ("content", "name", "content_type"),
    [
        (nasty_files.image_only_pdf(), "report.txt", "application/pdf"),
        (b"\n\n" + nasty_files.image_only_pdf(), "report", "application/pdf"),
        (nasty_files.docx(""), "report.pdf", DOCX),
        (b"<!-- x --><!DOCTYPE html><p>x", "page", "text/html"),
        (b"<html><p>x", "page.pdf", "text/html"),
        ("<html><p>x".encode("utf-16-le"), "page", "text/html"),
    ],
)
def test_bytes_go_before_the_name(path: Path, content: bytes, name: str, content_type: str) -> None:
    assert kind_of(path, content, name, "application/octet-stream").content_type == content_type


@pytest.mark.parametrize(
    ("content", "name", "content_type"),
    [
        (b"<html>an example</html>", "example.txt", "text/plain"),
        (b"%PDFs are files that begin with %PDF-", "about.md", "text/markdown"),
        (b"GIF89a is a signature", "signatures.txt", "text/plain"),
        (b"a,b\n1,2\n", "TABLE.CSV", "text/csv"),
        (b"{}", "data.json", "application/json"),
        (b"x = 1", "C:\\code\\x.py", "text/plain"),
    ],
)
def test_text_is_what_its_name_says(path: Path, content: bytes, name: str, content_type: str) -> None:
    assert kind_of(path, content, name, "application/pdf").content_type == content_type


def test_a_declared_type_counts_where_bytes_and_name_say_nothing(path: Path) -> None:
    kind = kind_of(path, b"# Title", "notes", "text/markdown; charset=utf-8")

    assert (kind.content_type, kind.family) == ("text/markdown", "markdown")


def test_text_of_unknown_name_without_a_type_is_plain(path: Path) -> None:
    assert kind_of(path, b"just words", "README", None).content_type == "text/plain"


@pytest.mark.parametrize(
    ("content", "name", "named"),
    [
        (nasty_files.zip_of({"[Content_Types].xml": "", "xl/workbook.xml": ""}), "a", "spreadsheetml"),
        (nasty_files.zip_of({"mimetype": "application/vnd.oasis.opendocument.text"}), "a.odt", "opendocument.text"),
        (nasty_files.zip_of({"mimetype": "application/epub+zip"}), "a", "EPUB"),
        (nasty_files.zip_of({"a.txt": ""}), "a.zip", "application/zip"),
        (rb"{\rtf1 text}", "a.doc", "RTF"),
        (b"From: a@b.c\n\n<html></html>", "a.eml", "E-mail"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a.txt", "image/png"),
        (b"\x1f\x8b\x08\x00\x00", "a", "gzip"),
    ],
)
def test_an_unsupported_type_is_named(path: Path, content: bytes, name: str, named: str) -> None:
    with pytest.raises(Unsupported, match=named.replace("+", r"\+")):
        kind_of(path, content, name)


def test_an_office_file_with_a_password_is_known_by_its_streams(path: Path) -> None:
    with pytest.raises(Encrypted):
        kind_of(path, nasty_files.encrypted_ooxml(), "plan.xlsx")


@pytest.mark.parametrize("name", ["letter.pdf", "letter.docx", "letter.odt"])
def test_text_under_a_binary_name_is_corrupt(path: Path, name: str) -> None:
    with pytest.raises(Corrupt, match="not what its name says"):
        kind_of(path, b"only words", name)


@pytest.mark.parametrize("content", [nasty_files.broken_docx(), b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\xff" * 600])
def test_a_broken_container_is_corrupt(path: Path, content: bytes) -> None:
    with pytest.raises(Corrupt):
        kind_of(path, content, "letter.docx")


@pytest.mark.parametrize("cut", [8, 100, 511, 600, 1100, 1500])
def test_a_compound_file_cut_anywhere_is_corrupt_or_encrypted(path: Path, cut: int) -> None:
    with pytest.raises((Corrupt, Encrypted)):
        kind_of(path, nasty_files.encrypted_ooxml()[:cut], "plan.xlsx")
