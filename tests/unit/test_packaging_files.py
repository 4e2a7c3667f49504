"""Dockerfile, docker-compose.yml, Makefile and .ci/run name only what exists; checked without a container engine."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from app.cli import cli
from app.settings import Settings

ROOT = Path(__file__).parents[2]
POSTGRES_OWN = {"POSTGRES_USER", "POSTGRES_PASSWORD", "POSTGRES_DB"}
COMPOSE_OWN = {"STACKROOM_PORT"}
SYSTEM_OWN = {"PATH", "HOME", "TMPDIR", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}

Instruction = tuple[str, str]


def settings_variables() -> set[str]:
    fields = Settings.model_fields.items()
    return {str(field.validation_alias or f"KB_{name.upper()}") for name, field in fields}


def dockerfile() -> list[Instruction]:
    """(instruction, rest), continuation lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", " ", text).splitlines()
    return [(name.upper(), rest.strip()) for line in lines if line for name, _, rest in [line.partition(" ")]]


def last_stage() -> list[Instruction]:
    instructions = dockerfile()
    start = max(i for i, (name, _) in enumerate(instructions) if name == "FROM")
    return instructions[start:]


def rests(instructions: list[Instruction], wanted: str) -> list[str]:
    return [rest for name, rest in instructions if name == wanted]


def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def is_a_command(words: list[str]) -> bool:
    """Whether the command line knows these words: `stackroom`, commands, options of the last one."""
    assert words[0] == "stackroom"
    command: Any = typer.main.get_command(cli)
    rest = words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    options = {name for parameter in command.params for name in parameter.opts}
    return not hasattr(command, "commands") and {word for word in rest if word.startswith("-")} <= options


@pytest.mark.parametrize("command", ["serve", "api", "worker", "migrate", "model build", "import", "search"])
def test_the_promised_commands_exist(command: str) -> None:
    assert is_a_command(["stackroom", *command.split()])


def test_the_container_runs_without_root() -> None:
    assert rests(last_stage(), "USER") == ["10001:10001"]
    assert "10001" in " ".join(rests(last_stage(), "RUN"))


def test_the_containers_command_and_health_check_are_real() -> None:
    health = rests(last_stage(), "HEALTHCHECK")[0]

    assert is_a_command(json.loads(rests(last_stage(), "CMD")[0]))
    assert "/healthz" in health
    compile(json.loads(health.partition(" CMD ")[2])[2], "HEALTHCHECK", "exec")


def test_nothing_is_fetched_but_hashed_packages_and_only_while_building() -> None:
    build = dockerfile()[: -len(last_stage())]
    installs = [part for run in rests(build, "RUN") for part in run.split("&&") if "pip install" in part]

    assert rests(dockerfile(), "ADD") == []
    assert installs
    assert all("--require-hashes -r " in each or "--no-deps --no-build-isolation ." in each for each in installs)
    assert not re.search(r"curl|wget|https?://(?!127\.0\.0\.1)", "\n".join(rest for _, rest in dockerfile()))
    assert not re.search(r"pip|apt", " ".join(rests(last_stage(), "RUN")))


def test_the_model_is_built_into_the_image_and_found_there() -> None:
    built = [run for run in rests(dockerfile(), "RUN") if "stackroom model build" in run]
    environment = dict(word.split("=", 1) for env in rests(last_stage(), "ENV") for word in shlex.split(env))

    assert len(built) == 1
    assert is_a_command(built[0].split(" ", 1)[1].split())
    assert built[0].startswith(f"KB_MODEL_DIR={environment['KB_MODEL_DIR']} ")


def test_the_containers_variables_are_settings() -> None:
    names = {word.split("=", 1)[0] for env in rests(last_stage(), "ENV") for word in shlex.split(env)}

    assert names <= settings_variables() | SYSTEM_OWN


def test_everything_the_container_writes_goes_to_its_volume() -> None:
    environment = dict(word.split("=", 1) for env in rests(last_stage(), "ENV") for word in shlex.split(env))

    assert rests(last_stage(), "VOLUME") == ["/data"]
    assert {environment[name] for name in ("HOME", "TMPDIR", "KB_DATA_DIR")} == {"/data"}


def test_what_is_copied_into_the_image_exists_and_is_not_ignored() -> None:
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        source for copy in rests(dockerfile(), "COPY") if not copy.startswith("--from") for source in copy.split()[:-1]
    }

    assert [source for source in copied if not (ROOT / source).exists()] == []
    assert copied == let_in
    assert "*" in (ROOT / ".dockerignore").read_text().splitlines()


def test_the_variables_of_the_services_are_settings_or_postgres_own() -> None:
    for name, service in compose()["services"].items():
        allowed = POSTGRES_OWN if name == "database" else settings_variables()
        assert set(service["environment"]) <= allowed, name


def test_every_variable_that_compose_fills_in_is_known() -> None:
    filled = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))

    assert filled <= settings_variables() | POSTGRES_OWN | COMPOSE_OWN


@pytest.mark.parametrize("secret", ["KB_BOOTSTRAP_API_KEY", "POSTGRES_PASSWORD"])
def test_compose_has_no_default_for_a_secret_and_refuses_an_empty_one(secret: str) -> None:
    uses = re.findall(rf"\$\{{{secret}(.*?)\}}", (ROOT / "docker-compose.yml").read_text())

    assert uses
    assert all(use.startswith(":?") for use in uses)
    assert f"\n{secret}=" not in (ROOT / ".env.example").read_text()


@pytest.mark.parametrize("name", ["migrate", "api", "worker"])
def test_each_of_our_services_runs_a_real_command_on_a_read_only_root(name: str) -> None:
    service = compose()["services"][name]

    assert is_a_command(service["command"])
    assert service["command"][1] == name
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["volumes"] == ["data:/data"], "files and sealing keys are shared by API and workers"


def test_services_start_in_order() -> None:
    services = compose()["services"]

    assert services["migrate"]["restart"] == "no"
    assert "healthcheck" in services["database"]
    assert services["migrate"]["depends_on"] == {"database": {"condition": "service_healthy"}}
    for name in ("api", "worker"):
        assert services[name]["depends_on"]["migrate"] == {"condition": "service_completed_successfully"}


def test_the_database_has_pgvector_and_keeps_its_data() -> None:
    services = compose()["services"]

    assert services["database"]["image"].startswith("pgvector/pgvector:")
    volumes = {volume.split(":")[0] for service in services.values() for volume in service["volumes"]}
    assert volumes == set(compose()["volumes"])


def test_every_target_of_make_says_what_it_does() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[0].split()

    assert set(re.findall(r"^([a-z-]+):.*## .+$", makefile, flags=re.MULTILINE)) == set(phony)


@pytest.mark.parametrize(
    "path", ["Makefile", ".ci/run", "Dockerfile", "docker-compose.yml", "clients/package-lock.json"]
)
def test_no_package_index_is_named(path: str) -> None:
    assert not re.search(r"index-url|find-links|\"resolved\"|--registry", (ROOT / path).read_text())


def test_the_scripts_that_are_called_exist_and_can_be_run() -> None:
    called = set(re.findall(r"scripts/[a-z_]+\.(?:sh|py)", (ROOT / "Makefile").read_text()))

    assert [name for name in sorted(called) if not (ROOT / name).exists()] == []
    assert [p.name for p in [*(ROOT / "scripts").glob("*.sh"), ROOT / ".ci/run"] if not p.stat().st_mode & 0o100] == []
