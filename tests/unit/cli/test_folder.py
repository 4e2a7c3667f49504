"""Which files of a folder are imported."""

import os
from pathlib import Path

import pytest

from app.cli.folder import select_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "b.md", "a.md", "sub/c.txt", "sub/deep/d.md", "node_modules/x.js", ".hidden", ".git/config", ".cfg/e.md"
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def ids(folder: Path, **options: object) -> list[str]:
    return [file.external_id for file in select_files(folder, **options).files]  # type: ignore[arg-type]


def test_files_are_ordered_by_relative_path_without_hidden_ones(folder: Path) -> None:
    assert ids(folder) == ["a.md", "b.md", "node_modules/x.js", "sub/c.txt", "sub/deep/d.md"]


def test_hidden_files_come_when_asked_for_but_version_control_never(folder: Path) -> None:
    assert set(ids(folder, hidden=True)) - set(ids(folder)) == {".hidden", ".cfg/e.md"}


@pytest.mark.parametrize(
    ("include", "expected"),
    [
        (["*.md"], ["a.md", "b.md", "sub/deep/d.md"]),
        (["sub/*"], ["sub/c.txt", "sub/deep/d.md"]),
        (["a.md", "*.txt"], ["a.md", "sub/c.txt"]),
        (["*.MD"], []),
    ],
)
def test_include_chooses_files(folder: Path, include: list[str], expected: list[str]) -> None:
    assert ids(folder, include=include) == expected


def test_exclude_cuts_files_and_whole_directories(folder: Path) -> None:
    assert ids(folder, exclude=["node_modules", "sub/deep", "b.*"]) == ["a.md", "sub/c.txt"]


def test_links_to_files_are_followed_and_links_to_directories_are_not(folder: Path) -> None:
    (folder / "link.md").symlink_to("a.md")
    (folder / "loop").symlink_to(folder)
    (folder / "dangling").symlink_to("nowhere")
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "pipe")

    selection = select_files(folder)

    assert "link.md" in [file.external_id for file in selection.files]
    assert len(selection.files) == 6
    assert selection.left_out["links to directories"] == 1
    assert selection.left_out["broken links"] + selection.left_out["unreadable"] == 2
    assert selection.left_out["neither file nor directory"] == 1


def test_what_was_left_out_is_counted(folder: Path) -> None:
    assert select_files(folder, include=["*.md"], exclude=["sub"]).left_out == {
        "hidden": 3,
        "excluded": 1,
        "not included": 1,
    }


def test_a_name_that_is_no_text_is_left_out_and_counted(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"bad-\xff.txt")).write_text("x")

    selection = select_files(tmp_path)

    assert selection.files == []
    assert selection.left_out == {"names that are not UTF-8": 1}
