from collections.abc import Callable
from pathlib import Path

import docx
import pytest
from docx.document import Document
from hypothesis import given, settings
from hypothesis import strategies as st

from app.extraction.contract import Corrupt, DocumentTooLarge, Extracted, Limits
from app.extraction.docx import extract_docx
from tests import nasty_files

plain = st.text(st.characters(categories=("L", "N", "P", "S"), max_codepoint=0xFFFF), min_size=1, max_size=20)
styles = {"heading": "Heading 2", "list": "List Bullet", "paragraph": "Normal"}
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("docx") / "letter.docx"


def written(path: Path, write: Callable[[Document], object]) -> Extracted:
    document = docx.Document()
    write(document)
    document.save(str(path))
    return extract_docx(path, Limits())


def raw(path: Path, body: str, parts: dict[str, str] | None = None) -> Extracted:
    path.write_bytes(nasty_files.docx(body, parts=parts))
    return extract_docx(path, Limits())


def run(text: str) -> str:
    return f"<w:r><w:t>{text}</w:t></w:r>"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(styles)), plain), min_size=1, max_size=8))
def test_marks_hold_exactly_the_blocks_of_the_document(path: Path, blocks: list[tuple[str, str]]) -> None:
    def write(document: Document) -> None:
        for kind, text in blocks:
            document.add_paragraph(text, style=styles[kind])

    letter = written(path, write)

    marked = [(mark.kind, line) for mark in letter.marks for line in letter.text[mark.start : mark.end].split("\n")]
    assert marked == [(kind, f"- {text}" if kind == "list" else text) for kind, text in blocks if kind != "paragraph"]


def test_headings_have_levels_and_titles(path: Path) -> None:
    def write(document: Document) -> None:
        document.add_heading("The whole", 0)
        document.add_heading("A part", 3)

    letter = written(path, write)

    assert [(mark.level, mark.title) for mark in letter.marks] == [(1, "The whole"), (3, "A part")]


def test_a_table_is_one_block_with_its_header_row(path: Path) -> None:
    def write(document: Document) -> None:
        table = document.add_table(2, 3)
        for cell, text in zip(table.rows[0].cells, "abc", strict=True):
            cell.text = text
        merged = table.cell(1, 0).merge(table.cell(1, 1))
        merged.text = "d e"
        table.cell(1, 2).text = "two\nlines"

    letter = written(path, write)

    assert letter.text == "| a | b | c |\n| d e |  | two lines |"
    [mark] = letter.marks
    assert mark.header_end is not None
    assert letter.text[: mark.header_end] == "| a | b | c |\n"


def test_a_frame_of_one_cell_is_read_as_its_paragraphs(path: Path) -> None:
    def write(document: Document) -> None:
        cell = document.add_table(1, 1).cell(0, 0)
        cell.text = "inside"
        cell.add_paragraph("the frame")

    assert written(path, write).text == "inside\n\nthe frame"


def test_headers_and_footers_stand_once_and_page_numbers_not_at_all(path: Path) -> None:
    def write(document: Document) -> None:
        document.sections[0].header.paragraphs[0].text = "Confidential"
        document.sections[0].footer.paragraphs[0].text = "42"
        document.add_paragraph("body")
        second = document.add_section()
        second.header.is_linked_to_previous = False
        second.header.paragraphs[0].text = "Confidential"

    assert written(path, write).text == "Confidential\n\nbody"


def test_a_comment_follows_what_it_is_about(path: Path) -> None:
    def write(document: Document) -> None:
        paragraph = document.add_paragraph("claim")
        document.add_comment(paragraph.runs, text="prove it", author="Ada")
        document.add_paragraph("next")

    assert written(path, write).text == "claim\n\nAda: prove it\n\nnext"


def test_a_footnote_follows_its_paragraph(path: Path) -> None:
    notes = (
        f'<w:footnotes xmlns:w="{nasty_files.WORD_NAMESPACE}"><w:footnote w:type="separator" w:id="0"><w:p>{run("no")}'
        f'</w:p></w:footnote><w:footnote w:id="2"><w:p>{run("See there.")}</w:p></w:footnote></w:footnotes>'
    )
    relationships = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{OFFICE}/footnotes" Target="footnotes.xml"/></Relationships>'
    )
    body = f'<w:p>{run("one")}<w:r><w:footnoteReference w:id="2"/></w:r>{run(" two")}</w:p><w:p>{run("three")}</w:p>'

    letter = raw(path, body, {"word/footnotes.xml": notes, "word/_rels/document.xml.rels": relationships})

    assert letter.text == "one two\n\nSee there.\n\nthree"


def test_a_text_box_is_read_once_although_it_is_written_twice(path: Path) -> None:
    box = f"<w:txbxContent><w:p>{run('boxed')}</w:p></w:txbxContent>"
    body = (
        f'<w:p>{run("beside")}<w:r><mc:AlternateContent xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/'
        f'2006"><mc:Choice><w:drawing>{box}</w:drawing></mc:Choice><mc:Fallback><w:pict>{box}</w:pict></mc:Fallback>'
        "</mc:AlternateContent></w:r></w:p>"
    )

    assert raw(path, body).text == "beside\n\nboxed"


def test_deleted_and_hidden_text_and_field_codes_are_left_out(path: Path) -> None:
    body = (
        f"<w:p>{run('a')}<w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:ins>{run('b')}</w:ins>"
        "<w:r><w:instrText>PAGE</w:instrText></w:r><w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r>"
        f"<w:hyperlink>{run('c')}</w:hyperlink><w:r><w:tab/><w:noBreakHyphen/><w:br/></w:r>{run('d')}</w:p>"
    )

    assert raw(path, body).text == "abc\t-\nd"


def test_an_embedded_web_page_is_read(path: Path) -> None:
    relationships = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{OFFICE}/aFChunk" Target="/word/part.htm"/></Relationships>'
    )
    types = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="htm" ContentType="text/html"/></Types>'
    )
    body = f'<w:altChunk xmlns:r="{OFFICE}" r:id="r1"/>'
    parts = {
        "word/_rels/document.xml.rels": relationships,
        "[Content_Types].xml": types,
        "word/part.htm": "<h1>Web</h1>",
    }

    letter = raw(path, body, parts)

    assert letter.text == "Web"
    assert letter.marks[0].kind == "heading"


def test_an_embedded_part_that_cannot_be_read_is_said(path: Path) -> None:
    letter = raw(path, f'<w:p>{run("text")}</w:p><w:altChunk xmlns:r="{OFFICE}" r:id="r9"/>')

    assert [warning.code for warning in letter.warnings] == ["embedded_part_not_read"]


def test_real_unpacked_bytes_are_counted(path: Path) -> None:
    path.write_bytes(nasty_files.zip_bomb_docx(3_000_000))

    with pytest.raises(DocumentTooLarge):
        extract_docx(path, Limits(max_inflated_bytes=2_000_000))


def test_a_document_without_a_body_is_corrupt(path: Path) -> None:
    path.write_bytes(nasty_files.zip_of({"word/document.xml": "<document/>"}))

    with pytest.raises(Corrupt):
        extract_docx(path, Limits())


def test_nesting_without_end_is_refused(path: Path) -> None:
    with pytest.raises(DocumentTooLarge):
        raw(path, "<w:sdt>" * 5000 + "</w:sdt>" * 5000)
