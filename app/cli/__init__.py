"""The command line: `stackroom …`. A composition root: each command imports what it needs when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli import checking, client, generations

cli = typer.Typer(
    name="stackroom", help="A self-hostable knowledge base.", no_args_is_help=True, pretty_exceptions_enable=False
)
model = typer.Typer(help="The packaged embedding model.", no_args_is_help=True)
cli.add_typer(model, name="model")
cli.add_typer(generations.app, name="generations")
client.register(cli)
checking.register(cli)

Host = Annotated[str, typer.Option(help="Address to listen on.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")]


@cli.command()
def serve(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    data_dir: Annotated[Path | None, typer.Option(help="Where everything is kept (KB_DATA_DIR).")] = None,
    workers: Annotated[int, typer.Option(min=0, max=64, help="Job workers.")] = 1,
) -> None:
    """Run everything on this machine: database, API and workers."""
    from app.cli.running import settings_or_exit
    from app.cli.serve import serve as run

    raise typer.Exit(run(settings_or_exit(data_dir), host, port, workers))


@cli.command()
def api(
    host: Host = "127.0.0.1",
    port: Port = 8000,
    processes: Annotated[int, typer.Option(min=1, max=64, help="API processes.")] = 1,
) -> None:
    """Run the API alone; needs KB_DATABASE_URL."""
    from app.cli.running import run_api, settings_with_database

    raise typer.Exit(run_api(settings_with_database("api"), host=host, port=port, processes=processes))


@cli.command()
def worker() -> None:
    """Run one job worker; needs KB_DATABASE_URL."""
    from app.cli.running import run_worker, settings_with_database

    raise typer.Exit(run_worker(settings_with_database("worker")))


@cli.command()
def migrate() -> None:
    """Bring the database to this version's schema and make the first key; needs KB_DATABASE_URL."""
    from app.cli.running import run_migrate, settings_with_database

    raise typer.Exit(run_migrate(settings_with_database("migrate")))


@model.command("build")
def model_build(
    directory: Annotated[Path | None, typer.Option(help="Where to build it (KB_MODEL_DIR).")] = None,
    source: Annotated[Path | None, typer.Option(help="The data file, when its package is not installed.")] = None,
) -> None:
    """Build the packaged model from its data file; nothing happens when it is there."""
    from app.cli.running import build_packaged_model

    raise typer.Exit(build_packaged_model(directory, source))


@cli.command("rotate-keys")
def rotate_keys() -> None:
    """Seal every stored plugin setting anew with the first of KB_SECRET_KEYS."""
    from app.cli.running import run_rotation, settings_with_database

    raise typer.Exit(run_rotation(settings_with_database("rotate-keys")))


@cli.command()
def openapi() -> None:
    """Print the API description."""
    import json

    from app.main import create_app
    from app.settings import Settings

    defaults = Settings.model_construct()  # the same everywhere, whatever the environment says
    typer.echo(json.dumps(create_app(defaults).openapi(), indent=2, ensure_ascii=False))


def main() -> None:
    """The entry point of `stackroom`."""
    cli()
