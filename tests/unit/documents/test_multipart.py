from collections.abc import AsyncIterator

import pytest

from app.documents.multipart import MAX_PARTS, Event, PartBegin, PartData, PartEnd, boundary_of, parts
from app.errors import Invalid

BODY = (
    b'--x\r\nContent-Disposition: form-data; name="name"\r\n\r\nRep\xc3\xb6rt\r\n'
    b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\n'
    b"line one\r\n--y\r\n-x\r\n--x--\r\n"
)


async def pieces(*blocks: bytes) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block


async def read(*blocks: bytes) -> list[Event]:
    return [event async for event in parts(pieces(*blocks), b"x")]


def joined(events: list[Event]) -> list[tuple[PartBegin, bytes]]:
    found: list[tuple[PartBegin, bytes]] = []
    for event in events:
        if isinstance(event, PartBegin):
            found.append((event, b""))
        elif isinstance(event, PartData):
            found[-1] = (found[-1][0], found[-1][1] + event.data)
    assert sum(isinstance(event, PartEnd) for event in events) == len(found)
    return found


async def test_a_body_reads_the_same_wherever_it_is_cut() -> None:
    whole = joined(await read(BODY))

    assert whole[0] == (PartBegin("name", None, None), "Repört".encode())
    assert whole[1] == (PartBegin("file", "a.txt", "text/plain"), b"line one\r\n--y\r\n-x")
    for cut in range(1, len(BODY)):
        assert joined(await read(BODY[:cut], BODY[cut:])) == whole


@pytest.mark.parametrize("cut", [0, 10, 60, 120, len(BODY) - 8])
async def test_a_body_that_ends_early_is_refused(cut: int) -> None:
    with pytest.raises(Invalid):
        await read(BODY[:cut])


async def test_too_many_parts_and_huge_headers_are_refused() -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    with pytest.raises(Invalid):
        await read(part * (MAX_PARTS + 1) + b"--x--\r\n")
    with pytest.raises(Invalid):
        await read(b"--x\r\nX-Long: " + b"a" * 100_000 + b"\r\n\r\n1\r\n--x--\r\n")


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=x"])
def test_another_content_type_is_refused_with_its_place(content_type: str) -> None:
    with pytest.raises(Invalid) as refused:
        boundary_of(content_type)

    assert refused.value.faults[0].loc == ("header", "content-type")


async def test_a_body_reads_the_same_byte_by_byte() -> None:
    whole = joined(await read(BODY))

    assert joined(await read(*(BODY[i : i + 1] for i in range(len(BODY))))) == whole


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x--\r\n"[:3],
        b"no boundary at all",
        b"--y\r\n\r\n1\r\n--y--\r\n",
        b"--x\r\nno colon\r\n\r\n1\r\n--x--\r\n",
        b"--x\r\n: no name\r\n\r\n1\r\n--x--\r\n",
        b"--xx\r\n\r\n1\r\n--x--\r\n",
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1--x--\r\n',
        b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x\r\n',
        b"\x00" * 1000,
    ],
)
async def test_a_malformed_body_is_refused_however_it_is_cut(body: bytes) -> None:
    with pytest.raises(Invalid):
        await read(body)
    with pytest.raises(Invalid):
        await read(*(body[i : i + 1] for i in range(len(body))))


async def test_names_of_headers_have_no_case_and_bad_bytes_in_names_are_replaced() -> None:
    body = (
        b'--x\r\ncontent-DISPOSITION: form-data; name="f\xff"; filename="\xff.txt"\r\n'
        b"CONTENT-type: text/plain\r\n\r\n1\r\n--x--\r\n"
    )

    assert joined(await read(body)) == [(PartBegin("f\ufffd", "\ufffd.txt", "text/plain"), b"1")]


async def test_a_part_without_a_name_is_a_part_without_a_name() -> None:
    assert joined(await read(b"--x\r\nX-Other: 1\r\n\r\n1\r\n--x--\r\n")) == [(PartBegin("", None, None), b"1")]


async def test_many_short_headers_are_bounded_too() -> None:
    headers = b"".join(b"X-%d: 1\r\n" % n for n in range(20_000))

    with pytest.raises(Invalid):
        await read(b"--x\r\n" + headers + b"\r\n1\r\n--x--\r\n")
