"""`stackroom check`: every index compared with its store, on the machine that holds the database."""

import asyncio
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from app import logs
from app.cli import views
from app.cli.running import settings_or_exit
from app.errors import AppError
from app.settings import Settings

FOUND, CANNOT = 1, 2
NAMED = 20  # findings that are shown one by one for each index


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command("check")(check)


def check(
    repair: Annotated[bool, typer.Option("--repair", help="Delete what nobody names, bring what is missing.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept (KB_DATA_DIR).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything that was found, for programs.")] = False,
) -> None:
    """Compare every index with its vector store, and list deletions that are still open.

    Uses KB_DATABASE_URL, else the embedded database, whether `serve` runs or not. Ends with 0 when all is as it should
    be, with 1 when something is not, or a store could not be asked.
    """
    settings = settings_or_exit(data_dir)
    logs.configure(level="error", form=settings.log_format)
    try:
        with _with_database(settings) as reached:
            found, receipts = asyncio.run(_check(reached, repair=repair))
    except AppError as error:
        views.notes().print(Text(error.message, "red"))
        raise typer.Exit(CANNOT) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if as_json:
        sys.stdout.write(json.dumps({"indexes": found, "open_receipts": receipts}, indent=2) + "\n")
    else:
        _print(found, receipts, repair=repair)
    if receipts or not all(one["clean"] for one in found):
        raise typer.Exit(FOUND)


@contextmanager
def _with_database(settings: Settings) -> Iterator[Settings]:
    """Settings with a database that answers: one of your own, that of a running `serve`, or the embedded one."""
    from app.db.data_directory import DataDirectoryLock
    from app.db.embedded import EmbeddedServer

    if settings.database_url is not None:
        yield settings
        return
    server = EmbeddedServer(settings.data_dir)
    if not (server.directory / "PG_VERSION").exists():
        raise typer.BadParameter(f"there is no database in {settings.data_dir}: set KB_DATABASE_URL, or --data-dir")
    reached = settings.model_copy(update={"database_url": SecretStr(server.dsn)})
    if server.is_running():
        yield reached
        return
    with DataDirectoryLock(settings.data_dir):
        server.start()
        try:
            yield reached
        finally:
            server.stop()


async def _check(settings: Settings, *, repair: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    from app.assembly import open_assembly, readiness
    from app.worker import checker_of

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    async with open_assembly(settings, role="worker") as assembly:
        reasons, _ = await readiness(assembly)
        if reasons:
            raise AppError(reasons[0])
        checker = checker_of(assembly)
        found: list[dict[str, Any]] = []
        with Progress(*columns, console=views.notes(), transient=True) as progress:
            task = progress.add_task("Comparing indexes")
            async for one in checker.run(repair=repair):
                found.append(_shown(one))
                progress.update(task, description=f"Comparing indexes: {len(found)} done")
        receipts = [
            {
                "id": str(one.id),
                "kind": one.kind,
                "object_id": str(one.object_id),
                "since": one.created_at.isoformat(),
                "stores": one.stores,
            }
            for one in await checker.open_receipts()
        ]
    return found, receipts


def _shown(one: Any) -> dict[str, Any]:
    generation, audit = one.generation, one.audit
    return {
        "work_id": str(generation.work_id),
        "generation_id": str(generation.id),
        "number": generation.number,
        "state": generation.state,
        "vector_store_id": generation.vector_store_id,
        "documents": audit.documents,
        "chunks": audit.chunks,
        "clean": one.is_clean,
        "away": one.away,
        "mended": one.mended,
        "missing": [_finding(f) for f in audit.missing.values()],
        "leftovers": [_finding(f) for f in audit.leftovers.values()],
    }


def _finding(one: Any) -> dict[str, Any]:
    return {
        "document_id": str(one.document_id),
        "build": one.build,
        "chunks_expected": one.expected,
        "chunks_found": one.found,
    }


def _print(found: list[dict[str, Any]], receipts: list[dict[str, Any]], *, repair: bool) -> None:
    out = views.output()
    wrong = [one for one in found if not one["clean"] or one["mended"]]
    if wrong:
        table = Table("work", "index", "state", "store", "missing", "left over", "mended", "note")
        for one in wrong:
            table.add_row(
                one["work_id"],
                str(one["number"]),
                one["state"],
                one["vector_store_id"],
                str(len(one["missing"])),
                str(len(one["leftovers"])),
                str(one["mended"]),
                Text("" if one["away"] is None else f"not asked: {views.printable(one['away'])}"),
            )
        out.print(table)
        for one in wrong:
            for kind in ("missing", "leftovers"):
                for finding in one[kind][:NAMED]:
                    out.print(
                        f"index {one['number']} of {one['work_id']}: {kind.removesuffix('s')} document"
                        f" {finding['document_id']} build {finding['build']}, chunks {finding['chunks_found']}"
                        + ("" if finding["chunks_expected"] is None else f" of {finding['chunks_expected']}")
                    )
    for receipt in receipts:
        waits = ", ".join(f"{line['vector_store_id']} ({_remaining(line)})" for line in receipt["stores"]) or "its job"
        out.print(
            f"deletion of {receipt['kind']} {receipt['object_id']} open since {receipt['since']}: waits for {waits}"
        )
    chunks = sum(one["chunks"] for one in found)
    if all(one["clean"] for one in found):
        out.print(f"{len(found)} indexes with {chunks} chunks hold what they should.")
    elif not repair:
        out.print("Run it with --repair to mend this.")


def _remaining(line: dict[str, Any]) -> str:
    return "does not answer" if line["remaining"] < 0 else f"{line['remaining']} chunks left"
