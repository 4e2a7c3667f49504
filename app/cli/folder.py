"""Which files of a folder are imported, and under which external id."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

VERSION_CONTROL = frozenset({".git", ".hg", ".svn"})


@dataclass(frozen=True)
class FoundFile:
    """A file to import. `external_id` = its path relative to the folder, with `/`."""

    path: Path
    external_id: str
    size_bytes: int


@dataclass
class Selection:
    """The files, ordered by external id; `left_out` counts what was passed over, by reason."""

    files: list[FoundFile] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


def select_files(
    root: Path, *, include: Sequence[str] = (), exclude: Sequence[str] = (), hidden: bool = False
) -> Selection:
    """Regular files below `root`, depth first.

    A pattern without `/` is matched against names, one with `/` against the relative path (`*` crosses `/`).
    `exclude` also cuts whole directories; `include` chooses among files. Hidden entries are left out unless `hidden`,
    version control always. Links to files are followed; links to directories are not, so there are no loops.
    """
    selection = Selection()
    for entry in _walk(root, "", selection.left_out, exclude, hidden):
        if include and not _matches(entry.external_id, include):
            selection.left_out["not included"] += 1
        else:
            selection.files.append(entry)
    selection.files.sort(key=lambda file: file.external_id)
    return selection


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits, in constant memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _walk(
    directory: Path, prefix: str, left_out: Counter[str], exclude: Sequence[str], hidden: bool
) -> Iterator[FoundFile]:
    try:
        with os.scandir(directory) as found:
            entries = list(found)
    except OSError:
        left_out["unreadable directories"] += 1
        return
    for entry in entries:
        relative = f"{prefix}{entry.name}"
        reason = _reason_against(entry, relative, exclude, hidden)
        if reason:
            left_out[reason] += 1
        elif entry.is_dir():
            yield from _walk(Path(entry.path), f"{relative}/", left_out, exclude, hidden)
        else:
            yield FoundFile(Path(entry.path), relative, entry.stat().st_size)


def _reason_against(entry: "os.DirEntry[str]", relative: str, exclude: Sequence[str], hidden: bool) -> str | None:
    if entry.name in VERSION_CONTROL or (entry.name.startswith(".") and not hidden):
        return "hidden"
    if _matches(relative, exclude):
        return "excluded"
    try:
        if entry.is_dir():
            return "links to directories" if entry.is_symlink() else None
        if not entry.is_file():
            return "broken links" if entry.is_symlink() else "neither file nor directory"
        entry.stat()
    except OSError:
        return "unreadable"
    return None if is_text(relative) else "names that are not UTF-8"


def _matches(relative: str, patterns: Sequence[str]) -> bool:
    name = relative.rpartition("/")[2]
    return any(fnmatchcase(relative if "/" in pattern else name, pattern) for pattern in patterns)


def is_text(name: str) -> bool:
    """Whether a name of the file system or the command line is Unicode text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
