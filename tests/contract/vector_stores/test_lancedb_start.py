"""LanceDB's package costs seconds to import and does not survive a fork: who pays, when, and that nobody forks."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", program, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout.strip()


def test_nothing_is_imported_until_a_work_is_written_or_asked(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from uuid import uuid4
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.testing.base import a_space

def loaded():
    return any(name in sys.modules for name in ("lancedb", "pyarrow"))

async def main():
    store = LanceDbStore(LanceDbSettings(path=Path(sys.argv[1])))
    assert (await store.is_available()).ok
    await store.close()
    print(loaded())
    store = LanceDbStore(LanceDbSettings(path=Path(sys.argv[1])))
    await store.count(uuid4(), a_space())
    print(loaded())

asyncio.run(main())
"""
    assert run(program, str(tmp_path)).split() == ["False", "True"]


def test_the_assembly_imports_the_plugin_and_not_the_package() -> None:
    assert run("import sys, app.assembly; print('lancedb' in sys.modules, 'pyarrow' in sys.modules)") == "False False"


def test_files_are_read_in_the_sandbox_and_nothing_here_forks_once_the_package_is_loaded(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys
from pathlib import Path
from uuid import uuid4
from app.extraction.sandbox import SandboxedExtractor
from app.vector_stores.lancedb import LanceDbSettings, LanceDbStore
from app.vector_stores.testing.base import a_space, chunks_of, direction

def refuse():
    raise AssertionError("a fork after LanceDB was loaded")

async def main():
    store, work = LanceDbStore(LanceDbSettings(path=Path(sys.argv[1]))), uuid4()
    await store.write_chunks(work, uuid4(), a_space(), 1, chunks_of([direction(0)]))
    os.register_at_fork(before=refuse)
    os.fork = refuse
    text = Path(sys.argv[1]) / "text.md"
    text.write_text("# A heading\\n\\nand words")
    extractor = SandboxedExtractor()
    found = await extractor.extract(text, name="text.md", declared_type=None)
    await extractor.close()
    print("words" in found.text, await store.count(work, a_space()))
    await store.close()

asyncio.run(main())
"""
    assert run(program, str(tmp_path)) == "True 1"


def test_the_sandboxs_own_process_which_does_fork_never_loads_it() -> None:
    program = "import sys, app.extraction.sandbox_main; print(any('lance' in name for name in sys.modules))"

    assert run(program) == "False"


def test_no_module_of_ours_forks_but_the_sandboxs() -> None:
    forking = ("os.fork", "multiprocessing", "ProcessPoolExecutor", "preexec_fn")
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "app").rglob("*.py")
        if any(word in path.read_text() for word in forking)
    }

    assert found == {"app/extraction/sandbox_main.py"}
