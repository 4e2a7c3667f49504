import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from app.extraction.contract import (
    DocumentTooLarge,
    Extracted,
    ExtractionFailed,
    ExtractionTimeout,
    Limits,
    NoText,
)
from app.extraction.sandbox import SandboxedExtractor, SandboxUnavailable
from tests import nasty_files

Save = Callable[[bytes], Path]
OTHERS: set[int] = set()


@pytest.fixture
async def extractor() -> AsyncIterator[SandboxedExtractor]:
    extractor = SandboxedExtractor()
    yield extractor
    await extractor.close()


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def save(content: bytes) -> Path:
        path = tmp_path / f"upload-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content)
        return path

    return save


async def read(extractor: SandboxedExtractor, path: Path, name: str) -> Extracted:
    return await extractor.extract(path, name=name, declared_type="application/octet-stream")


@pytest.fixture(autouse=True)
def others() -> None:
    """Children of this process that were here before the test: a database, a service of the whole run."""
    OTHERS.clear()
    OTHERS.update(child.pid for child in psutil.Process().children())


def warm_processes() -> list[psutil.Process]:
    """The direct children that the test's extractor has made, zombies not counted."""
    return [child for child in psutil.Process().children() if child.pid not in OTHERS and is_alive(child)]


def own_children() -> set[int]:
    """The extractor's processes, warm ones and what they have made, zombies not counted."""
    found = set()
    for warm in warm_processes():
        found.add(warm.pid)
        with suppress(psutil.NoSuchProcess):
            found.update(below.pid for below in warm.children(recursive=True) if is_alive(below))
    return found


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def eventually(claim: Callable[[], bool]) -> None:
    for _ in range(200):
        if claim():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it never became so")


@pytest.mark.parametrize("nasty", nasty_files.NASTY_FILES, ids=str)
async def test_each_nasty_file_ends_with_its_code_and_harms_no_neighbour(
    extractor: SandboxedExtractor, save: Save, nasty: nasty_files.NastyFile
) -> None:
    neighbour = read(extractor, save(b"a peaceful neighbour"), "neighbour.txt")

    outcome, peaceful = await asyncio.gather(
        read(extractor, save(nasty.content()), nasty.name), neighbour, return_exceptions=True
    )

    assert isinstance(peaceful, Extracted)
    if nasty.code is None:
        assert isinstance(outcome, Extracted)
        assert outcome.text.strip()
        assert "\x00" not in outcome.text
    else:
        assert isinstance(outcome, ExtractionFailed)
        assert outcome.code == nasty.code


async def test_a_file_without_end_is_stopped_and_the_next_is_read(save: Save) -> None:
    extractor = SandboxedExtractor(Limits(timeout_s=0.7), processes=1)
    try:
        with pytest.raises(ExtractionTimeout, match=r"longer than 0\.7 seconds"):
            await read(extractor, save(nasty_files.endless_pdf()), "endless.pdf")

        assert (await read(extractor, save(b"next"), "next.txt")).text == "next"
    finally:
        await extractor.close()


async def test_processor_time_is_limited_as_well(save: Save) -> None:
    """The wall limit of a file is also bound by the kernel: a stopped warm process cannot lift it."""
    extractor = SandboxedExtractor(Limits(timeout_s=1), processes=1)
    try:
        await read(extractor, save(b"warm up"), "first.txt")
        [warm] = warm_processes()
        [child] = warm.children()
        reading = asyncio.ensure_future(read(extractor, save(nasty_files.endless_pdf()), "endless.pdf"))
        await eventually(lambda: child.cpu_times().user > 0.2)
        warm.suspend()

        await eventually(lambda: child.status() == psutil.STATUS_ZOMBIE)

        warm.resume()
        with pytest.raises(ExtractionTimeout):
            await reading
    finally:
        await extractor.close()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("endless.pdf", nasty_files.endless_pdf),
        ("hungry.html", nasty_files.memory_hungry_html),
        ("hungry.docx", lambda: nasty_files.docx("<w:p/>" * 5_000_000)),
    ],
)
async def test_a_file_that_eats_memory_is_too_large(save: Save, name: str, content: Callable[[], bytes]) -> None:
    extractor = SandboxedExtractor(Limits(memory_bytes=350 * 1024**2), processes=1)
    try:
        with pytest.raises(DocumentTooLarge):
            await read(extractor, save(content()), name)

        assert (await read(extractor, save(b"next"), "next.txt")).text == "next"
    finally:
        await extractor.close()


@pytest.mark.parametrize(("name", "separator"), [("many.txt", b" "), ("many.html", b"<p>")])
async def test_more_text_than_allowed_is_too_large(save: Save, name: str, separator: bytes) -> None:
    extractor = SandboxedExtractor(Limits(max_characters=1000))
    try:
        with pytest.raises(DocumentTooLarge, match="1000 characters"):
            await read(extractor, save(separator.join([b"word"] * 300)), name)
    finally:
        await extractor.close()


async def test_files_are_read_side_by_side_and_the_loop_stays_free(save: Save) -> None:
    extractor = SandboxedExtractor(Limits(timeout_s=2), processes=3)
    try:
        endless = save(nasty_files.endless_pdf())
        reading = [asyncio.ensure_future(read(extractor, endless, "endless.pdf")) for _ in range(2)]

        quick = await read(extractor, save(b"quick"), "quick.txt")

        assert quick.text == "quick"
        assert not any(slow.done() for slow in reading)
        assert [type(slow) for slow in await asyncio.gather(*reading, return_exceptions=True)] == [
            ExtractionTimeout
        ] * 2
    finally:
        await extractor.close()


async def test_no_more_files_are_read_at_a_time_than_allowed(save: Save) -> None:
    extractor = SandboxedExtractor(Limits(timeout_s=1), processes=1)
    try:
        endless = save(nasty_files.endless_pdf())
        reading = [asyncio.ensure_future(read(extractor, endless, "endless.pdf")) for _ in range(2)]
        most = 0
        while not all(slow.done() for slow in reading):
            most = max(most, len(own_children()) - 1)
            await asyncio.sleep(0.05)

        assert most == 1
        await asyncio.gather(*reading, return_exceptions=True)
    finally:
        await extractor.close()


async def test_a_killed_warm_process_is_replaced_and_the_file_read_again(
    extractor: SandboxedExtractor, save: Save
) -> None:
    await read(extractor, save(b"first"), "first.txt")
    [warm] = warm_processes()
    warm.kill()

    assert (await read(extractor, save(b"second"), "second.txt")).text == "second"


async def test_plain_texts_share_a_child_and_a_parsed_format_is_its_last_file(
    extractor: SandboxedExtractor, save: Save
) -> None:
    def children() -> set[int]:
        [warm] = warm_processes()
        return {child.pid for child in warm.children() if child.status() != psutil.STATUS_ZOMBIE}

    assert (await read(extractor, save(b"one"), "one.txt")).text == "one"
    first = children()
    assert (await read(extractor, save(b"# two"), "two.md")).text == "# two"
    assert children() == first

    assert (await read(extractor, save(b"<p>three</p>"), "three.html")).text == "three"

    await eventually(lambda: children() == set())
    assert (await read(extractor, save(b"four"), "four.txt")).text == "four"
    assert children().isdisjoint(first)


async def test_a_text_that_is_refused_is_its_childs_last_file(extractor: SandboxedExtractor, save: Save) -> None:
    await read(extractor, save(b"one"), "one.txt")
    [warm] = warm_processes()

    with pytest.raises(ExtractionFailed):
        await read(extractor, save(bytes(range(1, 32)) * 100), "noise.txt")

    await eventually(lambda: warm.children() == [])


async def test_more_texts_than_a_child_reads_are_all_read(save: Save) -> None:
    extractor = SandboxedExtractor(processes=3)
    try:
        path = save(b"words")
        texts = await asyncio.gather(*(read(extractor, path, "words.txt") for _ in range(350)))

        assert {found.text for found in texts} == {"words"}
    finally:
        await extractor.close()


async def test_a_child_killed_while_it_waits_costs_no_file(extractor: SandboxedExtractor, save: Save) -> None:
    """The warm process knows of its death, or has handed it the next file: a stopped child can't begin with that."""
    await read(extractor, save(b"one"), "one.txt")
    [warm] = warm_processes()
    [child] = warm.children()
    child.kill()

    assert (await read(extractor, save(b"two"), "two.txt")).text == "two"

    [child] = warm.children()
    child.suspend()
    reading = asyncio.ensure_future(read(extractor, save(b"three"), "three.txt"))
    await asyncio.sleep(0.3)
    child.kill()

    assert (await reading).text == "three"


async def test_children_die_with_the_warm_process(save: Save) -> None:
    extractor = SandboxedExtractor(Limits(timeout_s=60), processes=1)
    try:
        reading = asyncio.ensure_future(read(extractor, save(nasty_files.endless_pdf()), "endless.pdf"))
        await eventually(lambda: len(own_children()) == 2)
        [warm] = warm_processes()
        [child] = warm.children()

        warm.kill()

        await eventually(lambda: not psutil.pid_exists(child.pid) or child.status() == psutil.STATUS_ZOMBIE)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    finally:
        await extractor.close()


async def test_cancelling_a_call_ends_its_process(extractor: SandboxedExtractor, save: Save) -> None:
    reading = asyncio.ensure_future(read(extractor, save(nasty_files.endless_pdf()), "endless.pdf"))
    await eventually(lambda: len(own_children()) == 2)

    reading.cancel()

    await eventually(lambda: len(own_children()) == 1)
    assert (await read(extractor, save(b"next"), "next.txt")).text == "next"


async def test_closing_ends_every_process_and_every_call(save: Save) -> None:
    extractor = SandboxedExtractor()
    path = save(nasty_files.endless_pdf())
    reading = asyncio.ensure_future(read(extractor, path, "endless.pdf"))
    await eventually(lambda: len(own_children()) == 2)

    await extractor.close()

    assert own_children() == set()
    with pytest.raises(SandboxUnavailable):
        await reading
    with pytest.raises(SandboxUnavailable):
        await read(extractor, path, "endless.pdf")


def test_nothing_survives_a_service_killed_outright(tmp_path: Path) -> None:
    endless = tmp_path / "endless.pdf"
    endless.write_bytes(nasty_files.endless_pdf())
    service = textwrap.dedent(f"""
        import asyncio
        from pathlib import Path
        from app.extraction.sandbox import SandboxedExtractor
        extractor = SandboxedExtractor()
        asyncio.run(extractor.extract(Path({str(endless)!r}), name="endless.pdf", declared_type=None))
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", service], env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    below: list[psutil.Process] = []
    deadline = time.monotonic() + 30
    while len(below) < 2 and time.monotonic() < deadline:
        below = psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.05)
    assert len(below) == 2

    process.send_signal(signal.SIGKILL)
    process.wait()

    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == []


async def test_the_warm_process_has_one_thread_and_no_secrets(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KB_SECRET_KEYS", "not for parsers")
    extractor = SandboxedExtractor()
    try:
        await read(extractor, save(b"words"), "words.txt")
        [warm] = warm_processes()

        assert warm.num_threads() == 1
        assert "KB_SECRET_KEYS" not in warm.environ()
    finally:
        await extractor.close()


async def test_a_file_that_is_not_there_is_a_fault_of_ours(extractor: SandboxedExtractor, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await read(extractor, tmp_path / "absent", "absent.txt")


async def test_nothing_is_written_into_the_scratch_directory(
    save: Save, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    scratch.chmod(0o555)
    extractor = SandboxedExtractor(temp_dir=scratch)
    try:
        for content, name in [(nasty_files.pdf_of_pages(["x"]), "x.pdf"), (nasty_files.docx("<w:p/>"), "x.docx")]:
            with suppress(NoText):
                await read(extractor, save(content), name)

        assert list(scratch.iterdir()) == []
    finally:
        await extractor.close()


async def test_the_fingerprint_names_the_libraries() -> None:
    assert "pypdfium2=" in SandboxedExtractor().fingerprint
