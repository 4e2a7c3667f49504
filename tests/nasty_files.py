"""Files that hurt: small generators of hostile, broken and odd input, with the outcome each one deserves.

`NASTY_FILES` lists them; every `content()` is deterministic and takes well under a second.
"""

import io
import random
import struct
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WORD_NAMESPACE = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="xml" ContentType="application/xml"/></Types>'
)
_RELATIONSHIPS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="r1" Target="word/document.xml" Type="http://schemas.openxmlformats.org/officeDocument/2006/'
    'relationships/officeDocument"/></Relationships>'
)


@dataclass(frozen=True)
class NastyFile:
    """`code`: the error code it ends with, None = its text is extracted."""

    name: str
    content: Callable[[], bytes]
    code: str | None

    def __str__(self) -> str:
        return self.name


def empty() -> bytes:
    return b""


def spaces() -> bytes:
    return b" \n\t\r\n" * 2000


def nul_text() -> bytes:
    return b"The NUL stands here:\x00and the text goes on after it.\n"


def binary_noise(size: int = 4096) -> bytes:
    return random.Random(7).randbytes(size)


def one_line_text(size: int = 5_000_000) -> bytes:
    return (b"word " * (size // 5 + 1))[:size]


def lying_charset_html() -> bytes:
    """Windows-1252 bytes under a declaration of UTF-8."""
    sentence = "Le déjeuner était servi à midi ; après, ils allèrent près de la rivière où l’eau était très fraîche."
    return f'<html><head><meta charset="utf-8"></head><body><p>{sentence}</p></body></html>'.encode("cp1252")


def deep_html(depth: int = 100_000) -> bytes:
    return b"<div>" * depth + b"at the bottom" + b"</div>" * depth


def docx(body: str, *, parts: dict[str, str] | None = None) -> bytes:
    """A Word document whose `w:body` is `body`; `parts` are further members of the archive."""
    document = f'<w:document xmlns:w="{WORD_NAMESPACE}"><w:body>{body}</w:body></w:document>'
    members = {"[Content_Types].xml": _CONTENT_TYPES, "_rels/.rels": _RELATIONSHIPS, "word/document.xml": document}
    return zip_of(members | (parts or {}))


def zip_of(members: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return packed.getvalue()


def zip_bomb_docx(inflated_bytes: int = 600 * 1024**2, *, declared_bytes: int | None = None) -> bytes:
    """A Word document of about 1 MB (by default) whose main part unpacks to `inflated_bytes`.

    `declared_bytes`: what its directory says about that size; the truth unless given. The checksum is wrong.
    """
    block = b"<w:p/>" * 170_000
    rounds = -(-inflated_bytes // len(block))
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    repeated = compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH)  # stands for itself, so it may repeat
    packed = repeated * rounds + compressor.flush()
    declared = rounds * len(block) if declared_bytes is None else declared_bytes
    return _zip_with_raw_member("word/document.xml", packed, declared_bytes=declared)


def _zip_with_raw_member(name: str, packed: bytes, *, declared_bytes: int) -> bytes:
    """An archive whose last member is given in compressed form."""
    base = zip_of({"[Content_Types].xml": _CONTENT_TYPES, "_rels/.rels": _RELATIONSHIPS})
    end = base.rindex(b"PK\x05\x06")
    count, directory_size, directory_start = struct.unpack_from("<H2I", base, end + 10)
    directory = base[directory_start : directory_start + directory_size]
    fields = struct.pack("<5H3I2H", 20, 0, 8, 0, 33, 0, len(packed), declared_bytes, len(name), 0)
    member = b"PK\x03\x04" + fields + name.encode() + packed
    entry = (
        b"PK\x01\x02"
        + struct.pack("<H", 20)
        + fields
        + struct.pack("<3H2I", 0, 0, 0, 0, directory_start)
        + name.encode()
    )
    start = directory_start + len(member)
    tail = struct.pack("<4H2IH", 0, 0, count + 1, count + 1, directory_size + len(entry), start, 0)
    return base[:directory_start] + member + directory + entry + b"PK\x05\x06" + tail


def entity_bomb_docx() -> bytes:
    """ "Billion laughs": nested entities in the main part."""
    entities = '<!ENTITY e0 "ha">' + "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    document = (
        f'<!DOCTYPE w:document [{entities}]><w:document xmlns:w="{WORD_NAMESPACE}"><w:body><w:p><w:r><w:t>&e9;</w:t>'
        "</w:r></w:p></w:body></w:document>"
    )
    return zip_of({"[Content_Types].xml": _CONTENT_TYPES, "_rels/.rels": _RELATIONSHIPS, "word/document.xml": document})


def crowded_zip(entries: int = 21_000) -> bytes:
    """An archive with very many empty members."""
    return zip_of({"[Content_Types].xml": _CONTENT_TYPES} | {f"word/{number}": "" for number in range(entries)})


def broken_docx() -> bytes:
    """A Word document cut off in the middle, as an interrupted download leaves it."""
    whole = docx("<w:p><w:r><w:t>never read</w:t></w:r></w:p>")
    return whole[: len(whole) * 2 // 3]


def encrypted_ooxml() -> bytes:
    """An OLE compound file with the streams of an Office document behind a password."""
    end, free, fat_sector, none = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD, 0xFFFFFFFF
    header = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    header += struct.pack("<6H", 0x3E, 3, 0xFFFE, 9, 6, 0) + bytes(4) + struct.pack("<2I", 0, 1)
    header += struct.pack("<7I", 1, 0, 4096, end, 0, end, 0) + struct.pack("<I", 0) + struct.pack("<I", free) * 108
    fat = struct.pack("<3I", fat_sector, end, end) + struct.pack("<I", free) * 125

    def entry(name: str, kind: int, child: int, sibling: int) -> bytes:
        encoded = (name + "\x00").encode("utf-16-le")
        links = struct.pack("<3I", none, sibling, child)
        return (
            encoded.ljust(64, b"\x00")
            + struct.pack("<HBB", len(encoded), kind, 1)
            + links
            + bytes(36)
            + (struct.pack("<IQ", end if kind == 5 else 2, 0 if kind == 5 else 512))
        )

    directory = (
        entry("Root Entry", 5, 1, none) + entry("EncryptionInfo", 2, none, 2) + entry("EncryptedPackage", 2, none, none)
    )
    return header + fat + directory.ljust(512, b"\x00") + random.Random(3).randbytes(512)


def pdf(objects: Sequence[bytes], *, trailer: bytes = b"") -> bytes:
    """A PDF out of the bodies of its objects, numbered from 1; the first is the catalogue."""
    written = bytearray(b"%PDF-1.7\n")
    starts = []
    for number, body in enumerate(objects, start=1):
        starts.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % start for start in starts)
    size = len(objects) + 1
    xref = b"xref\n0 %d\n0000000000 65535 f \n%strailer\n<</Size %d/Root 1 0 R%s>>\n" % (size, table, size, trailer)
    return bytes(written) + xref + b"startxref\n%d\n%%%%EOF\n" % len(written)


def stream(content: bytes, entries: bytes = b"") -> bytes:
    return b"<<%s/Length %d>>\nstream\n%s\nendstream" % (entries, len(content), content)


def pdf_of_pages(texts: Sequence[str]) -> bytes:
    """A PDF with one page per text (Latin-1); "" is a page that holds a picture only."""
    kids = b" ".join(b"%d 0 R" % (5 + 2 * i) for i in range(len(texts)))
    picture = b"/Type/XObject/Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8"
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d>>" % (kids, len(texts)),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        stream(b"\x80", picture),
    ]
    for i, text in enumerate(texts):
        lines = [
            line.encode("latin-1").replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")
            for line in text.split("\n")
        ]
        shown = b" T* ".join(b"(%s) Tj" % line for line in lines)
        content = b"BT /F1 12 Tf 14 TL 72 720 Td %s ET" % shown if text else b"q 500 0 0 700 50 50 cm /I1 Do Q"
        objects += [
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>/XObject<</I1 4 0 R>>>>>>" % (6 + 2 * i),
            stream(content),
        ]
    return pdf(objects)


def image_only_pdf() -> bytes:
    return pdf_of_pages(["", ""])


def partly_scanned_pdf(pages: int = 12, without: int = 4) -> bytes:
    """Every third page holds a picture only, until `without` of them are used up."""
    scanned = set(range(0, pages, 3)[:without])
    return pdf_of_pages(["" if i in scanned else f"This is page number {i + 1}." for i in range(pages)])


def encrypted_pdf() -> bytes:
    """A PDF whose user password is not the empty one."""
    noise = random.Random(5).randbytes(32).hex().encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[]/Count 0>>",
        b"<</Filter/Standard/V 1/R 2/O<%s>/U<%s>/P -4>>" % (noise, noise[::-1]),
    ]
    return pdf(objects, trailer=b"/Encrypt 3 0 R/ID[<00><00>]")


def truncated_pdf() -> bytes:
    return b"%PDF-1.7\n1 0 obj\n<</Type/Catalog"


def filled_form_pdf(value: str = "Filled in by hand") -> bytes:
    """One page that says "Name", and a text field whose value stands in its appearance only."""
    appearance = b"/Type/XObject/Subtype/Form/BBox[0 0 200 20]/Resources<</Font<</F1 3 0 R>>>>"
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R/AcroForm<</Fields[6 0 R]>>>>",
            b"<</Type/Pages/Kids[4 0 R]/Count 1>>",
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 5 0 R/Annots[6 0 R]"
            b"/Resources<</Font<</F1 3 0 R>>>>>>",
            stream(b"BT /F1 12 Tf 72 720 Td (Name) Tj ET"),
            b"<</Type/Annot/Subtype/Widget/FT/Tx/T(name)/V(%s)/Rect[120 715 320 735]/F 4/P 4 0 R/AP<</N 7 0 R>>>>"
            % value.encode("latin-1"),
            stream(b"/Tx BMC BT /F1 12 Tf 2 5 Td (%s) Tj ET EMC" % value.encode("latin-1"), appearance),
        ]
    )


def endless_pdf(levels: int = 12) -> bytes:
    """A small PDF that no reader ends with: each of its forms draws the next one ten times."""
    forms = [
        stream(
            b"/X Do " * 10 if level + 1 < levels else b"BT /F1 9 Tf (x) Tj ET",
            b"/Type/XObject/Subtype/Form/BBox[0 0 612 792]/Resources<</Font<</F1 3 0 R>>/XObject<</X %d 0 R>>>>"
            % (6 + min(level + 1, levels - 1)),
        )
        for level in range(levels)
    ]
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[4 0 R]/Count 1>>",
            b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 5 0 R/Resources<</XObject<</X 6 0 R>>>>>>",
            stream(b"/X Do"),
            *forms,
        ]
    )


def memory_hungry_html(elements: int = 3_000_000) -> bytes:
    """About 9 MB of HTML whose tree takes several hundred."""
    return b"<p>" + b"<b>" * 5 + b"<i>x" * (elements // 4)


NASTY_FILES: tuple[NastyFile, ...] = (
    NastyFile("empty.txt", empty, "no_text"),
    NastyFile("spaces.txt", spaces, "no_text"),
    NastyFile("empty.docx", empty, "no_text"),
    NastyFile("nul.txt", nul_text, None),
    NastyFile("noise", binary_noise, "unsupported"),
    NastyFile("noise.bin", binary_noise, "unsupported"),
    NastyFile("noise.txt", binary_noise, "bad_encoding"),
    NastyFile("noise.pdf", binary_noise, "corrupt"),
    NastyFile("line.txt", one_line_text, None),
    NastyFile("charset.html", lying_charset_html, None),
    NastyFile("deep.html", deep_html, None),
    NastyFile("broken.docx", broken_docx, "corrupt"),
    NastyFile("bomb.docx", zip_bomb_docx, "too_large"),
    NastyFile("lying-bomb.docx", lambda: zip_bomb_docx(declared_bytes=100), "corrupt"),
    NastyFile("laughs.docx", entity_bomb_docx, "too_large"),
    NastyFile("crowded.docx", crowded_zip, "too_large"),
    NastyFile("password.docx", encrypted_ooxml, "encrypted"),
    NastyFile("password.xlsx", encrypted_ooxml, "encrypted"),
    NastyFile("password.pdf", encrypted_pdf, "encrypted"),
    NastyFile("cut.pdf", truncated_pdf, "corrupt"),
    NastyFile("scan.pdf", image_only_pdf, "no_text"),
    NastyFile("partly-scanned.pdf", partly_scanned_pdf, None),
    NastyFile("archive.zip", lambda: zip_of({"a.txt": "inside"}), "unsupported"),
)
