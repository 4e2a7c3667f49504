"""Files that are not what they should be: a code for the uploader, the worker alive, the neighbours unharmed."""

import io
import json
import re
import unicodedata
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.service import Service, Tenant

FILES = Path(__file__).parents[2].parent / "shared" / "data" / "files"
DOCX_MAIN = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
HERE = {"pdf", "docx", "html", "md", "txt"}  # formats of this release


def docx(body: bytes, *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A minimal DOCX around the XML of a body."""
    made = io.BytesIO()
    types = (
        '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/word/document.xml" ContentType="{DOCX_MAIN}"/></Types>'
    )
    rels = (
        '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        '<Relationship Id="r1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
        'officeDocument" Target="word/document.xml"/></Relationships>'
    )
    with zipfile.ZipFile(made, "w", compression) as archive:
        archive.writestr("[Content_Types].xml", types)
        archive.writestr("_rels/.rels", rels)
        archive.writestr("word/document.xml", body)
    return made.getvalue()


def word_xml(text: str, prolog: str = "") -> bytes:
    return (
        f'<?xml version="1.0"?>{prolog}<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/'
        f'main"><w:body><w:p><w:r><w:t>{text}</w:t></w:r></w:p></w:body></w:document>'
    ).encode()


def bomb() -> bytes:
    """About 1 MB that inflates to 900 MB of one paragraph."""
    start, end = word_xml("@").split(b"@")
    made = io.BytesIO(docx(b"placeholder"))
    out = io.BytesIO()
    with zipfile.ZipFile(made) as given, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in given.namelist():
            if name != "word/document.xml":
                archive.writestr(name, given.read(name))
        with archive.open("word/document.xml", "w", force_zip64=True) as part:
            part.write(start)
            block = b"x" * 1_000_000
            for _ in range(900):
                part.write(block)
            part.write(end)
    return out.getvalue()


def lying_bomb() -> bytes:
    """The same, but its directory declares a small size."""
    data = bytearray(bomb())
    at = data.rfind(b"word/document.xml") - 46
    assert data[at : at + 4] == b"PK\x01\x02"
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    return bytes(data)


def endless_pdf() -> bytes:
    """A PDF whose page tree is its own child, and whose content inflates without end."""
    content = zlib.compress(b"q " * 40_000_000, 9)
    parts = [
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n",
        b"2 0 obj<</Type/Pages/Kids[2 0 R 3 0 R]/Count 1000000>>endobj\n",
        b"3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R>>endobj\n",
        b"4 0 obj<</Length %d/Filter/FlateDecode>>stream\n" % len(content),
        content,
        b"\nendstream endobj\ntrailer<</Root 1 0 R>>\n%%EOF",
    ]
    return b"".join(parts)


def settled(tenant: Tenant, kb: str, name: str, data: bytes, content_type: str = "application/octet-stream") -> Any:
    answer = tenant.upload(kb, name, data, content_type)
    assert answer.status_code == 202, answer.text
    return tenant.settle(answer.json()["id"], 90)


@pytest.mark.parametrize(
    ("name", "data", "codes"),
    [
        ("random.bin", bytes(range(256)) * 64, {"unsupported"}),
        ("picture.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 500, {"unsupported"}),
        ("program.exe", b"MZ" + bytes(range(256)) * 40, {"unsupported"}),
        ("named-as-text.txt", b"\x7fELF" + bytes(range(256)) * 40, {"unsupported", "bad_encoding"}),
        ("broken.pdf", b"%PDF-1.7\nnothing of a PDF follows", {"corrupt"}),
        ("cut.docx", docx(word_xml("words"))[:200], {"corrupt"}),
        ("not-a-zip.docx", b"these are only words", {"corrupt", "unsupported"}),
        ("broken-xml.docx", docx(b"<w:document"), {"corrupt"}),
        ("other.zip", b"PK\x05\x06" + b"\0" * 18, {"unsupported", "corrupt"}),
    ],
)
def test_a_file_that_cannot_be_read_fails_with_its_code(
    tenant: Tenant, name: str, data: bytes, codes: set[str]
) -> None:
    kb = tenant.knowledge_base()
    if name == "not-a-zip.docx":
        document = settled(tenant, kb, name, data)
        assert document["status"] == "ready" or document["error"]["code"] in codes
        return

    document = settled(tenant, kb, name, data)

    assert (document["status"], document["chunk_count"]) == ("failed", 0)
    assert document["error"]["code"] in codes
    assert len(document["error"]["message"]) > 10
    assert document["error"]["retryable"] is False
    assert tenant.client.get(f"/documents/{document['id']}/content").content == data


def test_a_document_that_wants_to_read_other_files_gets_nothing(tenant: Tenant) -> None:
    prolog = '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    kb = tenant.knowledge_base()

    document = settled(tenant, kb, "xxe.docx", docx(word_xml("before &e; after", prolog)))

    if document["status"] == "ready":
        assert "root:" not in tenant.client.get(f"/documents/{document['id']}/text").json()["text"]
    else:
        assert document["error"]["code"] in ("corrupt", "no_text")


def test_entities_that_multiply_end_as_corrupt_or_too_large(tenant: Tenant) -> None:
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 11))
    prolog = f'<!DOCTYPE d [<!ENTITY a0 "lol">{levels}]>'

    document = settled(tenant, tenant.knowledge_base(), "lol.docx", docx(word_xml("&a10;", prolog)))

    assert document["status"] == "failed" or document["chunk_count"] < 10
    if document["status"] == "failed":
        assert document["error"]["code"] in ("corrupt", "too_large", "timeout", "no_text")


@pytest.mark.parametrize("make", [bomb, lying_bomb])
def test_a_zip_bomb_is_too_large_and_its_neighbours_are_read(tenant: Tenant, make: Any) -> None:
    kb = tenant.knowledge_base()
    data = make()
    assert len(data) < 2_000_000
    before = tenant.upload(kb, "before.docx", docx(word_xml("read before the bomb"))).json()
    thrown = tenant.upload(kb, "bomb.docx", data).json()
    after = tenant.upload(kb, "after.docx", docx(word_xml("read after the bomb"))).json()

    document = tenant.settle(thrown["id"], 90)
    assert document["status"] == "failed"
    assert document["error"]["code"] in (("too_large",) if make is bomb else ("too_large", "corrupt"))
    for neighbour in (before, after):
        assert tenant.settle(neighbour["id"], 60)["status"] == "ready"


def test_a_pdf_that_never_ends_is_ended(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    bad = tenant.upload(kb, "endless.pdf", endless_pdf()).json()
    good = tenant.text(kb, "a neighbour of an endless file")

    document = tenant.settle(bad["id"], 90)

    assert (document["status"], document["searchable"]) == ("failed", False)
    assert document["error"]["code"] in ("corrupt", "timeout", "too_large", "no_text")
    assert tenant.settle(good["id"], 60)["status"] == "ready"


def test_markup_of_great_depth_harms_nobody(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    html = b"<html><body>" + b"<div>" * 100_000 + b"deep words" + b"</div>" * 100_000
    markdown = b"> " * 50_000 + b"quoted deep\n\n" + b"[" * 50_000 + b"\n\n" + b"* " * 20_000 + b"star\n"
    table = b"|" * 30_000 + b"\n" + b"|-" * 30_000 + b"\n"
    thrown = [
        tenant.upload(kb, name, data, kind).json()
        for name, data, kind in (
            ("deep.html", html, "text/html"),
            ("deep.md", markdown, "text/markdown"),
            ("wide.md", table, "text/markdown"),
        )
    ]
    neighbour = tenant.text(kb, "a neighbour of deep markup")

    for document in thrown:
        assert tenant.settle(document["id"], 100)["terminal"]
    assert tenant.settle(neighbour["id"], 60)["status"] == "ready"


def test_a_text_without_a_single_break_is_cut_and_found(tenant: Tenant) -> None:
    kb = tenant.knowledge_base()
    document = settled(tenant, kb, "line.txt", b"abcdefghij" * 20_000, "text/plain")

    assert document["status"] == "ready"
    chunks = tenant.client.get(f"/documents/{document['id']}/chunks", params={"limit": 200}).json()["items"]
    assert all(c["token_count"] <= 512 for c in chunks)
    assert "".join(c["text"] for c in chunks[:3]).startswith("abcdefghij")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "cp1252", "shift_jis", "gb18030", "koi8-r"])
def test_texts_of_other_encodings_are_read(tenant: Tenant, encoding: str) -> None:
    text = {
        "shift_jis": "図書館は九時に開きます。利用者はカードを作ることができます。本は二週間借りられます。",
        "gb18030": "图书馆九点开门。读者可以办理借书证。每次可以借两个星期的书。欢迎大家光临。",
        "koi8-r": "Библиотека открывается в девять часов утра. Читатели могут взять книги на две недели.",
    }.get(encoding, "Die Bücherei öffnet um neun Uhr früh. Größere Gruppen müssen sich vorher anmelden, bitte schön.")
    kb = tenant.knowledge_base()

    document = settled(tenant, kb, "old.txt", (text + "\r\n").encode(encoding), "text/plain")

    assert document["status"] == "ready", document["error"]
    assert tenant.client.get(f"/documents/{document['id']}/text").json()["text"].strip("\ufeff\r\n") == text


INVISIBLE = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\u00ad\ufeff]")


def _normal(text: str) -> str:
    """As a person compares: compatibility forms, without invisible marks, runs of white space as one."""
    return re.sub(r"\s+", " ", INVISIBLE.sub("", unicodedata.normalize("NFKC", text)))


def _differences(row: dict[str, Any], text: str) -> list[str]:
    seen, squeezed = _normal(text), re.sub(r"\s", "", _normal(text))
    lacking = [p for p in row.get("must_contain", []) if _normal(p) not in seen]
    lacking += [p for p in row.get("must_contain_squeezed", []) if re.sub(r"\s", "", _normal(p)) not in squeezed]
    unwanted = [p for p in row.get("must_not_contain", []) if p in text]
    return [f"{row['file']}: lacks {p!r}" for p in lacking] + [f"{row['file']}: has {p!r}" for p in unwanted]


def _manifest() -> list[dict[str, Any]]:
    path = FILES / "manifest.jsonl"
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["format"] in HERE and (FILES / row["file"]).stat().st_size < 1_000_000]


@pytest.mark.skipif(not FILES.exists(), reason="../shared/data/files is not here")
def test_every_real_file_of_our_formats_ends_as_its_manifest_says(service: Service) -> None:
    tenant = service.tenant()
    kb = tenant.knowledge_base()
    rows = _manifest()
    uploaded = {row["file"]: tenant.upload(kb, row["file"], (FILES / row["file"]).read_bytes()) for row in rows}
    wrong: list[str] = []
    for row in rows:
        answer = uploaded[row["file"]]
        assert answer.status_code in (200, 202), (row["file"], answer.text)
        document = tenant.settle(answer.json()["id"], 100)
        ended = "text" if document["status"] == "ready" else "error"
        if document["status"] == "failed" and document["error"]["code"] == "no_text":
            ended = "empty" if "empty" in row["accept"] else "error"
        if ended not in row["accept"]:
            wrong.append(f"{row['file']}: {document['status']} {document['error']}, accepted {row['accept']}")
        if ended == "error" and row.get("error_kinds") and document["error"]["code"] not in row["error_kinds"]:
            wrong.append(f"{row['file']}: {document['error']['code']}, accepted {row['error_kinds']}")
        if ended == "text" and row["level"] == "must":
            text = tenant.client.get(f"/documents/{document['id']}/text").json()["text"]
            wrong += _differences(row, text)

    assert wrong == []
