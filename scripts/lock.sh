#!/bin/sh
# Resolve the dependencies of pyproject.toml, for every system and Python from 3.11 on, with hashes.
# What is locked already stays as it is; UPGRADE=1 takes the newest of everything.
set -eu

uv=${UV:-.venv/bin/uv}
compile="$uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header ${UPGRADE:+--upgrade}"
$compile pyproject.toml -o requirements.lock
$compile pyproject.toml --all-extras --group dev -c requirements.lock -o requirements-dev.lock
.venv/bin/python -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
' | $compile - --no-annotate -o requirements-build.lock
