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
