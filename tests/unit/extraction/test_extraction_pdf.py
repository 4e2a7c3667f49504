from pathlib import Path

import pytest

from app.extraction.contract import Corrupt, DocumentTooLarge, Encrypted, Limits, NoText
from app.extraction.pdf import extract_pdf
from tests import nasty_files


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "paper.pdf"


def test_page_starts_point_at_the_first_character_of_each_page(path: Path) -> None:
    path.write_bytes(nasty_files.pdf_of_pages(["First page.\nSecond line.", "Second page.", "Third."]))

    paper = extract_pdf(path, Limits())

    assert paper.text == "First page.\nSecond line.\n\nSecond page.\n\nThird."
    assert [paper.text[start : start + 5] for start in paper.page_starts] == ["First", "Secon", "Third"]
    assert paper.facts == {"pages": 3}
    assert paper.warnings == ()


def test_pages_without_text_are_counted_in_a_warning(path: Path) -> None:
    path.write_bytes(nasty_files.partly_scanned_pdf(pages=12, without=4))

    paper = extract_pdf(path, Limits())

    assert len(paper.page_starts) == 12
    assert [warning.code for warning in paper.warnings] == ["pages_without_text"]
    assert paper.warnings[0].message.startswith("4 of 12 pages")


def test_a_scan_is_no_text(path: Path) -> None:
    path.write_bytes(nasty_files.image_only_pdf())

    with pytest.raises(NoText):
        extract_pdf(path, Limits())


def test_a_password_is_said(path: Path) -> None:
    path.write_bytes(nasty_files.encrypted_pdf())

    with pytest.raises(Encrypted):
        extract_pdf(path, Limits())


def test_a_cut_file_is_corrupt(path: Path) -> None:
    path.write_bytes(nasty_files.truncated_pdf())

    with pytest.raises(Corrupt):
        extract_pdf(path, Limits())


def test_what_was_filled_into_a_form_is_read(path: Path) -> None:
    path.write_bytes(nasty_files.filled_form_pdf("Ada Lovelace"))

    assert extract_pdf(path, Limits()).text == "Name\nAda Lovelace"


@pytest.mark.parametrize(
    ("pages", "wanted"),
    [
        (["an embar-\nrassing case"], "an embarrassing case"),
        (["a well-\nknown case, as well-known as others"], "a well-known case, as well-known as others"),
    ],
)
def test_a_word_cut_at_a_line_end_is_joined_as_the_document_writes_it(
    path: Path, pages: list[str], wanted: str
) -> None:
    path.write_bytes(nasty_files.pdf_of_pages(pages))

    assert extract_pdf(path, Limits()).text == wanted


def test_more_characters_than_allowed_are_refused_while_reading(path: Path) -> None:
    path.write_bytes(nasty_files.pdf_of_pages(["This page has some text."] * 5))

    with pytest.raises(DocumentTooLarge):
        extract_pdf(path, Limits(max_characters=60))


def test_the_language_is_the_catalogues(path: Path) -> None:
    content = nasty_files.pdf_of_pages(["Wörter"]).replace(b"/Type/Catalog", b"/Type/Catalog/Lang(de-CH)")
    path.write_bytes(content)

    assert extract_pdf(path, Limits()).language == "de"
