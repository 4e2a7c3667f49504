"""`stackroom import` and `stackroom search`: the REST interface from the command line."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
from rich.text import Text

from app.cli import views
from app.cli.first_key import ClientProblem, find_access
from app.cli.folder import Selection, is_text, select_files
from app.cli.importing import FolderImport, Outcome, ensure_knowledge_base, find_knowledge_bases, several
from app.cli.rest import Json, Refused, Rest

FAILED, CANNOT, INTERRUPTED = 1, 2, 130
LONGEST_PARALLEL = 32
T = TypeVar("T")


class Mode(StrEnum):
    """How a search looks: by words and meaning, by meaning, by words."""

    hybrid = "hybrid"
    vector = "vector"
    lexical = "lexical"


def _text(value: str | None) -> str | None:
    if value is not None and not is_text(value):
        raise typer.BadParameter("this is not UTF-8")
    return value


NameOption = Annotated[
    str | None, typer.Option("--knowledge-base", "-k", metavar="NAME", help="Its exact name.", callback=_text)
]
IdOption = Annotated[str | None, typer.Option("--knowledge-base-id", metavar="ID", help="Its id, instead of a name.")]


def register(app: typer.Typer) -> None:
    """Add the client commands to the command line."""
    app.command("import")(import_folder)
    app.command("search")(search)


def import_folder(
    directory: Annotated[Path, typer.Argument(exists=True, file_okay=False, metavar="DIR", help="The folder.")],
    knowledge_base: NameOption = None,
    knowledge_base_id: IdOption = None,
    include: Annotated[list[str] | None, typer.Option(help="Only files like this; may be repeated.")] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="No files or folders like this; may be repeated.")] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Hidden files and folders too.")] = False,
    parallel: Annotated[int, typer.Option(min=1, max=LONGEST_PARALLEL, help="Uploads at a time.")] = 4,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return when everything is uploaded.")] = False,
) -> None:
    """Upload a folder; run again, it uploads only what changed.

    A knowledge base of that name is made when there is none. A document is recognised by its path in the folder.
    """
    if (knowledge_base is None) == (knowledge_base_id is None):
        raise typer.BadParameter("name one: --knowledge-base NAME or --knowledge-base-id ID")
    selection = select_files(directory, include=include or (), exclude=exclude or (), hidden=hidden)
    progress = views.ImportProgress(selection)
    work = _import(selection, progress, knowledge_base, knowledge_base_id, parallel=parallel, wait=not no_wait)
    outcomes = run(work, interrupted=lambda: progress.interrupted)
    views.print_outcomes(outcomes, selection)
    if any(outcome.result == "failed" for outcome in outcomes):
        raise typer.Exit(FAILED)


def search(
    query: Annotated[str, typer.Argument(help="What to look for: words or a question.", callback=_text)],
    mode: Annotated[Mode, typer.Option(help="By words and meaning, by meaning, by words.")] = Mode.hybrid,
    limit: Annotated[int, typer.Option(min=1, max=100, help="At most so many hits.")] = 5,
    knowledge_base: NameOption = None,
    knowledge_base_id: IdOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="The service's answer as it is.")] = False,
) -> None:
    """Find the places that answer a question, each with its document, heading and page."""
    answer = run(_search(query, mode, limit, knowledge_base, knowledge_base_id))
    if as_json:
        sys.stdout.write(json.dumps(answer, ensure_ascii=False, indent=2) + "\n")
    else:
        views.print_answer(answer)


async def _import(
    selection: Selection,
    progress: views.ImportProgress,
    name: str | None,
    base_id: str | None,
    *,
    parallel: int,
    wait: bool,
) -> list[Outcome]:
    async with Rest(find_access()) as rest:
        await rest.check()
        if name is not None:
            base, made = await ensure_knowledge_base(rest, name)
            base_id = base["id"]
            if made:
                views.notes().print(Text(f"Made the knowledge base {name!r} ({base_id})."))
        with progress:
            return await FolderImport(rest, str(base_id), progress).run(selection.files, parallel=parallel, wait=wait)


async def _search(query: str, mode: Mode, limit: int, name: str | None, base_id: str | None) -> Json:
    async with Rest(find_access(), patience_s=10) as rest:
        await rest.check()
        body: Json = {"query": query, "mode": mode.value, "limit": limit}
        if name is not None and base_id is None:
            base_id = (await _only_one(rest, name))["id"]
        if base_id is not None:
            body["knowledge_base_ids"] = [base_id]
        return await rest.post("/v1/search", body)


async def _only_one(rest: Rest, name: str) -> Json:
    found = await find_knowledge_bases(rest, name)
    if not found:
        raise ClientProblem(f"There is no knowledge base named {name!r}.")
    if len(found) > 1:
        raise ClientProblem(several(name, found))
    return found[0]


def run(work: Coroutine[Any, Any, T], *, interrupted: Callable[[], str] = lambda: "Interrupted.") -> T:
    """Run the work; its problems end the command with a sentence on standard error."""
    try:
        return asyncio.run(work)
    except ClientProblem as problem:
        _end(str(problem), CANNOT)
    except Refused as refused:
        _end(f"The service refuses: {refused.message} ({refused.code})", CANNOT)
    except KeyboardInterrupt:
        _end(interrupted(), INTERRUPTED)


def _end(sentence: str, exit_code: int) -> NoReturn:
    lines = "\n".join(views.printable(line) for line in sentence.splitlines())
    views.notes().print(Text(lines, "red"))
    raise typer.Exit(exit_code)
