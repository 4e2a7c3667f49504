import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.extraction.contract import BadEncoding
from app.extraction.text import claimed_xml_encoding, decode

FRENCH = "Le déjeuner était servi à midi ; après, ils allèrent près de la rivière où l’eau était très fraîche."
CHINESE = "语言是一种功能强大而完善的通用型计算机程序设计语言，已经具有十多年的发展历史。"


@given(st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufeff\ufffd\ufffe\uffff")))
def test_utf8_comes_back_as_it_was(text: str) -> None:
    assert decode(text.encode()) == text


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides_and_is_no_part_of_the_text(encoding: str) -> None:
    assert decode(FRENCH.encode(encoding)) == FRENCH


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_mark_is_known_by_its_zero_bytes(encoding: str) -> None:
    assert decode(FRENCH.encode(encoding)) == FRENCH


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (FRENCH, "cp1252"),
        (CHINESE, "gb2312"),
        (CHINESE + "𠀀", "gb18030"),
        ("これは日本語の文章です。髙橋さん。", "cp932"),
        ("В гимназии он не был в числе первых учеников", "cp1251"),
        ("이것은 한국어 문장입니다. 똠방각하", "cp949"),
    ],
)
def test_legacy_encodings_are_detected(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)) == text


def test_nul_among_utf8_does_not_make_it_utf16() -> None:
    assert decode(b"before\x00after, and on it goes") == "before\x00after, and on it goes"


def test_nul_among_a_legacy_encoding_does_not_make_it_binary() -> None:
    text = FRENCH + "\x00" + FRENCH

    assert decode(text.encode("cp1252")) == text


def test_the_claim_of_a_file_goes_before_detection_when_the_bytes_fit_it() -> None:
    assert decode("Ýmäk".encode("cp1250"), hint="windows-1250") == "Ýmäk"


def test_a_false_claim_is_not_believed() -> None:
    assert decode(FRENCH.encode("cp1252"), hint="utf-8") == FRENCH


def test_an_unknown_claim_is_no_error() -> None:
    assert decode(FRENCH.encode("cp1252"), hint="klingon-7") == FRENCH


@pytest.mark.parametrize("size", [500, 5_000, 500_000])
def test_noise_is_refused(size: int) -> None:
    with pytest.raises(BadEncoding):
        decode(random.Random(size).randbytes(size))


def test_text_that_is_mostly_replacement_characters_is_refused() -> None:
    with pytest.raises(BadEncoding):
        decode(("caf\ufffd " * 50).encode())


def test_a_few_control_characters_are_not_held_against_a_text() -> None:
    assert decode(b"a\x01b\x1b[31mred\x1b[0m") == "a\x01b\x1b[31mred\x1b[0m"


def test_a_long_legacy_text_that_begins_in_ascii_is_detected_by_its_later_part() -> None:
    text = "plain ascii line\n" * 20_000 + FRENCH

    assert decode(text.encode("cp1252")).endswith(FRENCH)


def test_the_xml_declaration_names_the_encoding() -> None:
    assert claimed_xml_encoding(b'<?xml version="1.0" encoding="ISO-8859-2"?><a/>') == "ISO-8859-2"
