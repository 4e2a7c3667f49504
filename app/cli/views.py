"""What the client commands show: the progress of an import, its closing table, the hits of a search."""

from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from app.cli.folder import Selection
from app.cli.importing import Outcome
from app.cli.rest import Json

SNIPPET_CHARACTERS = 300


def output() -> Console:
    """Where results go."""
    return Console(highlight=False)


def notes() -> Console:
    """Where everything else goes: standard error."""
    return Console(stderr=True, highlight=False)


class ImportProgress:
    """The progress bars: bytes on their way, then documents in processing. A `Watch`."""

    def __init__(self, selection: Selection) -> None:
        self._files = len(selection.files)
        self._done = 0
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=notes())
        size_bytes = sum(file.size_bytes for file in selection.files)
        self._sending = self._progress.add_task(self._upload_line(), total=max(size_bytes, 1))
        self._processing = self._progress.add_task("Processing", total=1, visible=False)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def sent(self, size_bytes: int) -> None:
        """See Watch."""
        self._progress.advance(self._sending, size_bytes)

    def file_done(self) -> None:
        """See Watch."""
        self._done += 1
        self._progress.update(self._sending, description=self._upload_line())

    def processed(self, done: int, total: int, waiting_for: str | None) -> None:
        """See Watch."""
        line = f"Processing {done} of {total}" + (
            f" (waiting: {escape(printable(waiting_for))})" if waiting_for else ""
        )
        self._progress.update(self._processing, description=line, completed=done, total=total, visible=True)

    def _upload_line(self) -> str:
        return f"Uploading {self._done} of {self._files}"

    @property
    def interrupted(self) -> str:
        """What to say after Ctrl-C."""
        return (
            f"Interrupted: {self._done} of {self._files} files are at the service, which goes on processing them. "
            "Run the same command again to continue."
        )


def print_outcomes(outcomes: Sequence[Outcome], selection: Selection) -> None:
    """Counts by result, then each file that failed or has a warning, with the reason."""
    console = output()
    counts = Counter(outcome.result for outcome in outcomes)
    table = Table("Result", "Documents")
    for result in ("ready", "uploaded", "unchanged", "failed"):
        if counts[result] or result in ("ready", "unchanged", "failed"):
            table.add_row(result, str(counts[result]))
    console.print(table)
    told = [outcome for outcome in outcomes if outcome.code or outcome.message]
    if told:
        reasons = Table("Document", "Result", "Code", "Message")
        for outcome in told:
            cells = (outcome.external_id, outcome.result, outcome.code, outcome.message)
            reasons.add_row(*(Text(printable(cell), overflow="fold") for cell in cells))
        console.print(reasons)
    if selection.left_out:
        console.print("Left out: " + ", ".join(f"{count} {why}" for why, count in sorted(selection.left_out.items())))


def print_answer(answer: Json) -> None:
    """The hits of a search, best first, after what was less than a full search."""
    for reason in answer["degraded"]:
        notes().print(Text(f"Less than a full search: {printable(reason['message'])} ({reason['code']})", "yellow"))
    console = output()
    if not answer["hits"]:
        console.print("Nothing found.")
    for number, hit in enumerate(answer["hits"], start=1):
        console.print(_place(number, hit))
        console.print(Text(f"   {_snippet(hit['text'])}"))


def printable(text: str) -> str:
    """`text` without what could move the cursor or colour the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _place(number: int, hit: Json) -> Text:
    location = hit["location"]
    line = Text(f"{number}. ").append(printable(hit["document_name"]), "bold")
    if location["heading_path"]:
        line.append(" › " + " › ".join(printable(heading) for heading in location["heading_path"]))
    if location["page"] is not None:
        line.append(f", page {location['page']}")
    return line.append(f"  score {hit['score']:.3f}", "dim")


def _snippet(text: str) -> str:
    words = " ".join(printable(text).split())
    return words if len(words) <= SNIPPET_CHARACTERS else words[:SNIPPET_CHARACTERS].rstrip() + "…"
