"""`stackroom import` against a double of the service (see service_double.py)."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import Run
from service_double import ServiceDouble

COMMAND = "import typer; from app.cli.client import register; app = typer.Typer(); register(app); app()"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "guide").mkdir(parents=True)
    (folder / "readme.md").write_text("# Readme")
    (folder / "guide" / "größe.md").write_text("# Größe")
    (folder / "guide" / "big.bin").write_bytes(os.urandom(300_000))
    return folder


def test_a_folder_is_uploaded_under_its_relative_paths(service: ServiceDouble, run: Run, folder: Path) -> None:
    result = run("import", folder, "--knowledge-base", "Docs")

    assert result.exit_code == 0, result.output
    assert [base["name"] for base in service.bases] == ["Docs"]
    assert sorted(service.uploads) == ["guide/big.bin", "guide/größe.md", "readme.md"]
    assert service.contents["guide/big.bin"] == (folder / "guide/big.bin").read_bytes()
    assert {d["name"] for d in service.documents.values()} == {"big.bin", "größe.md", "readme.md"}


def test_a_second_run_uploads_only_what_changed(service: ServiceDouble, run: Run, folder: Path) -> None:
    run("import", folder, "-k", "Docs")
    service.uploads.clear()
    (folder / "readme.md").write_text("# Readmd")

    result = run("import", folder, "-k", "Docs")

    assert service.uploads == ["readme.md"]
    assert "unchanged" in result.output
    assert len(service.bases) == 1


def test_a_failed_document_is_told_with_its_reason_and_tried_again(
    service: ServiceDouble, run: Run, folder: Path
) -> None:
    service.failing = {"readme.md": "no_text"}

    first = run("import", folder, "-k", "Docs")
    service.failing = {}
    second = run("import", folder, "-k", "Docs")

    assert first.exit_code == 1
    assert "Because of no_text." in first.stdout
    assert second.exit_code == 0
    assert service.uploads.count("readme.md") == 2


def test_a_document_still_in_processing_is_awaited_and_not_sent_again(
    service: ServiceDouble, run: Run, folder: Path
) -> None:
    run("import", folder, "-k", "Docs", "--no-wait")
    service.uploads.clear()

    result = run("import", folder, "-k", "Docs")

    assert service.uploads == []
    assert result.exit_code == 0
    assert all(d["status"] == "ready" for d in service.documents.values())


def test_two_knowledge_bases_of_one_name_ask_for_the_id(service: ServiceDouble, run: Run, folder: Path) -> None:
    bases = [service.add_base(name) for name in ("Docs", "other", "Docs")]

    by_name = run("import", folder, "-k", "Docs")
    by_id = run("import", folder, "--knowledge-base-id", bases[2]["id"])

    assert by_name.exit_code == 2
    assert "--knowledge-base-id" in by_name.stderr
    assert bases[0]["id"] in by_name.stderr
    assert by_id.exit_code == 0
    assert {d["knowledge_base_id"] for d in service.documents.values()} == {bases[2]["id"]}


def test_a_name_must_match_exactly(service: ServiceDouble, run: Run, folder: Path) -> None:
    service.add_base("docs")

    run("import", folder, "-k", "Docs")

    assert [base["name"] for base in service.bases] == ["docs", "Docs"]


def test_an_unknown_id_is_refused_for_the_whole_run(service: ServiceDouble, run: Run, folder: Path) -> None:
    result = run("import", folder, "--knowledge-base-id", "0190b5f2-0000-7000-8000-000000000000")

    assert result.exit_code == 2
    assert "not_found" in result.stderr
    assert service.uploads == []


@pytest.mark.parametrize(("status", "code"), [(503, "database_unavailable"), (429, "rate_limited")])
def test_a_busy_service_is_asked_again(service: ServiceDouble, run: Run, folder: Path, status: int, code: str) -> None:
    service.refusals = [(status, code, {"retry-after": "0"})] * 4

    result = run("import", folder, "-k", "Docs")

    assert result.exit_code == 0, result.output
    assert len(service.documents) == 3


def test_a_broken_connection_is_made_again_and_the_file_sent_from_its_start(
    service: ServiceDouble, run: Run, folder: Path
) -> None:
    service.drop_uploads = 2

    result = run("import", folder, "-k", "Docs")

    assert result.exit_code == 0, result.output
    assert service.contents["guide/big.bin"] == (folder / "guide/big.bin").read_bytes()


def test_a_file_that_the_service_refuses_fails_alone(service: ServiceDouble, run: Run, folder: Path) -> None:
    base = service.add_base("Docs")
    service.accept(base["id"], "x", "x", b"")
    service.refusals = []

    def refuse_one() -> None:
        while not service.uploads:
            time.sleep(0.001)
        service.refusals.append((413, "too_large", {}))

    threading.Thread(target=refuse_one, daemon=True).start()
    service.upload_takes_s = 0.1
    result = run("import", folder, "-k", "Docs", "--parallel", "1", "--no-wait")

    assert result.exit_code == 1
    assert "too_large" in result.stdout
    assert len(service.uploads) == 2


def test_at_most_so_many_uploads_run_at_once(service: ServiceDouble, run: Run, tmp_path: Path) -> None:
    for number in range(12):
        (tmp_path / f"{number}.txt").write_text(str(number))
    service.upload_takes_s = 0.05

    run("import", tmp_path, "-k", "Docs", "--parallel", "3")

    assert service.most_at_once == 3


def test_a_file_that_vanishes_after_the_folder_was_read_fails_alone(
    service: ServiceDouble, run: Run, folder: Path
) -> None:
    service.upload_gate = threading.Event()

    def remove_one() -> None:
        while not service.at_once:
            time.sleep(0.005)
        (folder / "readme.md").unlink()
        service.upload_gate.set()  # type: ignore[union-attr]

    threading.Thread(target=remove_one, daemon=True).start()
    result = run("import", folder, "-k", "Docs", "--parallel", "1")

    assert result.exit_code == 1
    assert "unreadable" in result.stdout
    assert len(service.documents) == 2


def test_a_document_deleted_meanwhile_is_told(service: ServiceDouble, run: Run, folder: Path) -> None:
    service.processing_looks = 10**9

    def delete_all() -> None:
        while len(service.documents) < 3 or service.at_once:
            time.sleep(0.01)
        time.sleep(0.2)
        service.documents.clear()

    threading.Thread(target=delete_all, daemon=True).start()
    result = run("import", folder, "-k", "Docs")

    assert result.exit_code == 1
    assert "deleted" in result.stdout


def test_interrupted_uploads_leave_a_state_from_which_the_next_run_goes_on(
    service: ServiceDouble, run: Run, folder: Path
) -> None:
    service.upload_gate = threading.Event()
    importing = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "import", str(folder), "-k", "Docs"], stderr=subprocess.PIPE, text=True
    )
    while service.at_once == 0:
        time.sleep(0.02)
    importing.send_signal(signal.SIGINT)
    told = importing.communicate(timeout=60)[1]
    service.upload_gate.set()

    assert importing.returncode == 130
    assert "Run the same command again" in told
    assert "Traceback" not in told
    assert run("import", folder, "-k", "Docs").exit_code == 0
    assert len(service.documents) == 3


def test_one_of_name_and_id_is_needed(service: ServiceDouble, run: Run, folder: Path) -> None:
    neither = run("import", folder)
    both = run("import", folder, "-k", "a", "--knowledge-base-id", "b")

    assert neither.exit_code == both.exit_code == 2
    assert "--knowledge-base-id" in neither.output
