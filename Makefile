# The commands of this project; `make help` lists them. Needed: Python 3.11 or later with venv, and make.

BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input --quiet
STAMPS := .venv/.stamps
SERVE_ARGS ?=
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install serve test test-stores test-faults check format bench openapi clients container-steps lock clean

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMPS)/dev  ## make .venv with everything that running and developing needs

serve: $(STAMPS)/model  ## install what is missing, then run the service (SERVE_ARGS="--port 9000")
	@exec $(BIN)/stackroom serve $(SERVE_ARGS)

test: $(STAMPS)/dev  ## run the tests (PYTEST_ARGS="tests/unit -k name")
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

test-stores: $(STAMPS)/dev  ## run the tests of the stores that come as extras (LanceDB, Qdrant, Pinecone)
	@$(BIN)/python -m pytest -m stores $(PYTEST_ARGS)

test-faults: $(STAMPS)/dev  ## run the slow tests that start and kill real processes
	@$(BIN)/python -m pytest -m faults $(PYTEST_ARGS)

check: $(STAMPS)/dev  ## format, lint, types, import rules: what must be clean
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMPS)/dev  ## format the code and mend what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(STAMPS)/dev  ## run every benchmark, one after the other
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python "$$file" || exit 1; done

openapi: $(STAMPS)/dev  ## write openapi.json anew from the code
	@$(BIN)/stackroom openapi > .venv/openapi.json && mv .venv/openapi.json openapi.json

clients: $(STAMPS)/dev  ## generate the Python and TypeScript clients into build/clients/ and compile them
	@scripts/check_clients.sh

container-steps: $(STAMPS)/venv  ## run the Dockerfile's steps in a clean directory, without a container engine
	@$(BIN)/python scripts/container_steps.py

lock: $(STAMPS)/dev  ## resolve the dependencies anew and write the lock files
	@scripts/lock.sh

clean:  ## remove .venv, caches and generated files (never data/)
	rm -rf .venv build dist *.egg-info clients/node_modules
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './data/*' -prune -exec rm -rf {} +

# Each step leaves a stamp, so that a second run of anything starts at once.

$(STAMPS)/venv: scripts/make_venv.sh
	@scripts/make_venv.sh .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/runtime: $(STAMPS)/venv requirements.lock requirements-build.lock pyproject.toml
	@echo "Installing the locked packages; the first time this takes a few minutes."
	@$(PIP) --require-hashes -r requirements.lock
	@$(PIP) --require-hashes -r requirements-build.lock
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/runtime requirements-dev.lock
	@echo "Installing the locked packages for development."
	@$(PIP) --require-hashes -r requirements-dev.lock
	@touch $@

$(STAMPS)/model: $(STAMPS)/runtime scripts/model_data.sh
	@scripts/model_data.sh $(BIN)/python
	@$(BIN)/stackroom model build
	@touch $@
