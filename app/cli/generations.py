"""`stackroom generations …`: the indexes of a Work from the command line, through the REST interface."""

import asyncio
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from app.cli import views
from app.cli.client import FAILED, run
from app.cli.first_key import ClientProblem, find_access
from app.cli.rest import Json, Rest

POLL_S = 0.5
app = typer.Typer(help="The index of a Work, and those that replace it.", no_args_is_help=True)

WorkOption = Annotated[str | None, typer.Option("--work-id", metavar="ID", help="Without it: the default Work.")]
Which = Annotated[str, typer.Argument(metavar="GENERATION", help="Its number or id.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return at once.")]


@app.command("list")
def list_generations(work_id: WorkOption = None) -> None:
    """List the generations, newest first."""
    _print(run(_list(work_id)))


@app.command()
def build(
    work_id: WorkOption = None,
    force: Annotated[bool, typer.Option("--force", help="Anew, though nothing else is wanted.")] = False,
    no_wait: NoWait = False,
) -> None:
    """Build the index that the settings want, and follow it until it is active."""
    _follow(run(_build(work_id, force=force, wait=not no_wait)))


@app.command()
def activate(
    generation: Which,
    work_id: WorkOption = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept that the refused documents stay out.")
    ] = False,
    no_wait: NoWait = False,
) -> None:
    """Switch to a generation that lacks nothing but refused documents; without --allow-missing they are listed."""
    body = {"allow_missing": allow_missing}
    _follow(run(_act(work_id, generation, "activate", body, wait=not no_wait, lists_refused=not allow_missing)))


@app.command()
def cancel(generation: Which, work_id: WorkOption = None) -> None:
    """Stop building a generation; the active one stays."""
    _follow(run(_act(work_id, generation, "cancel", {}, wait=False)))


@app.command()
def rollback(generation: Which, work_id: WorkOption = None, no_wait: NoWait = False) -> None:
    """Go back to a retired generation, and pin what it was made with."""
    _follow(run(_act(work_id, generation, "rollback", {}, wait=not no_wait)))


async def _list(work_id: str | None) -> list[Json]:
    async with Rest(find_access(), patience_s=10) as rest:
        path = await _path(rest, work_id)
        return [one async for one in rest.pages(path)]


async def _build(work_id: str | None, *, force: bool, wait: bool) -> Json:
    async with Rest(find_access(), patience_s=10) as rest:
        path = await _path(rest, work_id)
        made = await rest.create(path, {"force": force})
        return await _waited(rest, path, made) if wait else made


async def _act(
    work_id: str | None, which: str, act: str, body: Json, *, wait: bool, lists_refused: bool = False
) -> Json:
    async with Rest(find_access(), patience_s=10) as rest:
        path = await _path(rest, work_id)
        found = await _found(rest, path, which)
        if lists_refused:
            refused = [one async for one in rest.pages(f"{path}/{found['id']}/refused")]
            _print_refused([one for one in refused if not one["accepted"]])
        done = await rest.create(f"{path}/{found['id']}/{act}", body)
        return await _waited(rest, path, done) if wait else done


async def _path(rest: Rest, work_id: str | None) -> str:
    me = await rest.check()
    wanted = work_id or me.get("default_work_id")
    if not wanted:
        raise ClientProblem("This key has no default Work: name one with --work-id.")
    return f"/v1/works/{wanted}/generations"


async def _found(rest: Rest, path: str, which: str) -> Json:
    async for one in rest.pages(path):
        if which in (one["id"], str(one["number"])):
            return one
    raise ClientProblem(f"There is no generation {which!r}; `stackroom generations list` shows them.")


async def _waited(rest: Rest, path: str, generation: Json) -> Json:
    """The generation when it is no longer being built, or waits for somebody; a progress bar meanwhile."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=views.notes()) as progress:
        task = progress.add_task("Building", total=None)
        while generation["state"] == "building":
            total = max(1, generation["documents_total"] - generation["documents_refused"])
            waits = f" ({generation['error']})" if generation["error"] else ""
            line = f"Building {generation['documents_done']} of {total}{waits}"
            done = generation["documents_done"]
            progress.update(task, description=escape(views.printable(line)), completed=done, total=total)
            if generation["documents_refused"] and generation["documents_done"] >= total and waits:
                break
            await asyncio.sleep(POLL_S)
            generation = await rest.get(f"{path}/{generation['id']}")
    return generation


def _follow(generation: Json) -> None:
    _print([generation])
    if generation["state"] == "failed":
        raise typer.Exit(FAILED)
    if generation["state"] == "building" and generation["documents_refused"]:
        number = generation["number"]
        command = f"stackroom generations activate {number}"
        said = f"Documents were refused: `{command}` lists them, `{command} --allow-missing` accepts that."
        views.notes().print(Text(said, "yellow"))


def _print(generations: list[Json]) -> None:
    table = Table("number", "state", "store", "model", "dims", "documents", "refused", "note")
    for one in generations:
        table.add_row(
            str(one["number"]),
            one["state"],
            views.printable(one["vector_store_id"] or "none"),
            Text(views.printable(one["embedding_model"] or "")),
            "" if one["dims"] is None else str(one["dims"]),
            f"{one['documents_done']} of {one['documents_total']}",
            str(one["documents_refused"]),
            Text(views.printable(one["error"] or "")),
        )
    views.output().print(table)


def _print_refused(refused: list[Json]) -> None:
    if not refused:
        return
    table = Table("document", "code", "why", title="Refused documents")
    for one in refused:
        table.add_row(one["document_id"], one["code"], Text(views.printable(one["message"])))
    views.notes().print(table)
