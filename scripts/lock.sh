#!/bin/sh
# Resolve the dependencies of pyproject.toml anew, for every system and Python from 3.11 on, with hashes.
set -eu

uv=${UV:-.venv/bin/uv}
compile="$uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --upgrade"
$compile pyproject.toml -o requirements.lock
$compile pyproject.toml --group dev --all-extras -c requirements.lock -o requirements-dev.lock
.venv/bin/python -c '
import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")
' | $compile - --no-annotate -o requirements-build.lock
