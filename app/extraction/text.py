"""Bytes of plain text to characters."""

import codecs
import re
from typing import Final

import chardet

from app.extraction.contract import BadEncoding

# What a label means in practice: the superset that browsers and senders use under that name.
SUPERSETS: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-9": "cp1254",
}
BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
MAX_UNREADABLE_SHARE: Final = 0.02
MAX_NUL_SHARE: Final = 0.3
_FEW = 2  # so many unreadable characters are never held against a text, however short
_SAMPLE_BYTES = 200_000
_UTF16_SAMPLE_BYTES = 65_536
# Controls that text files do hold: tab, line ends, form feed, backspace, escape (colours of logs), end-of-file.
_UNREADABLE = re.compile("[\x01-\x07\x0e-\x19\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd\ufffe\uffff]")
_XML_ENCODING = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)["']""")


def decode(data: bytes, *, hint: str | None = None) -> str:
    """Decode by BOM, strict UTF-8, UTF-16 by its zero bytes, the file's own claim (`hint`), then detection.

    A claim counts only when the bytes fit it. U+0000 stays in (the common clean-up removes it).
    Raises: BadEncoding when more than 2 % of the characters are controls or replacements.
    """
    for mark, encoding in BOMS:
        if data.startswith(mark):
            return _checked(data[len(mark) :].decode(encoding, "replace"))
    text = _strictly(data, "utf-8")
    has_nul = b"\x00" in data
    if text is not None and not has_nul:
        return _checked(text)
    if has_nul and (wide := _utf16_order(data)):
        return _checked(data.decode(wide, "replace"))
    if text is not None:
        if data.count(b"\x00") > max(_FEW, len(data) * MAX_NUL_SHARE):
            raise BadEncoding
        return _checked(text)
    return _checked(_by_claim(data, hint) or _by_detection(data))


def claimed_xml_encoding(data: bytes) -> str | None:
    """The encoding that an XML declaration names."""
    found = _XML_ENCODING.match(data[:1024])
    return found[1].decode("ascii") if found else None


def _checked(text: str) -> str:
    unreadable = sum(1 for _ in _UNREADABLE.finditer(text))
    if unreadable > max(_FEW, len(text) * MAX_UNREADABLE_SHARE):
        raise BadEncoding
    return text


def _strictly(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except (UnicodeDecodeError, LookupError):
        return None


def _utf16_order(data: bytes) -> str | None:
    """The byte order of UTF-16 without BOM: text in most scripts has zeros in one half of its byte pairs only."""
    sample = data[:_UTF16_SAMPLE_BYTES]
    pairs = len(sample) // 2
    first, second = sample[0::2].count(0), sample[1::2].count(0)
    if len(data) % 2 or not pairs:
        return None
    if second > pairs * 0.3 and first < pairs * 0.05:
        return "utf-16-le"
    if first > pairs * 0.3 and second < pairs * 0.05:
        return "utf-16-be"
    return None


def _by_claim(data: bytes, hint: str | None) -> str | None:
    if not hint:
        return None
    try:
        encoding = codecs.lookup(hint).name
    except LookupError:
        return None
    if encoding.startswith(("utf", "idna", "punycode", "unicode", "raw", "undefined", "mbcs")):
        return None  # UTF-8 has been tried; the others are no encodings of files
    return _strictly(data, SUPERSETS.get(encoding, encoding))


def _by_detection(data: bytes) -> str:
    sample = _sample(data)
    if b"\x00" in sample and data.count(b"\x00") <= max(_FEW, len(data) * MAX_NUL_SHARE):
        found = _detected(sample) or _detected(sample.replace(b"\x00", b""))  # a few stray ones make it "binary"
    else:
        found = _detected(sample)
    if found is None:
        raise BadEncoding
    return data.decode(found, "replace")


def _detected(sample: bytes) -> str | None:
    name = chardet.detect(sample, prefer_superset=True, compat_names=False)["encoding"]
    try:
        encoding = codecs.lookup(name or "").name
    except LookupError:
        return None
    return SUPERSETS.get(encoding, encoding)


def _sample(data: bytes) -> bytes:
    """At most 200 kB for the detector: from the first line that is not ASCII on."""
    if len(data) <= _SAMPLE_BYTES:
        return data
    odd = next(re.finditer(rb"[\x80-\xff]", data)).start()
    start = data.rfind(b"\n", 0, odd) + 1
    return data[max(start, odd - _SAMPLE_BYTES // 2) :][:_SAMPLE_BYTES]
