#!/bin/sh
# Make a virtual environment at $1 with the first Python that is new enough; say the way out when there is none.
# PYTHON names another interpreter. An environment that works already is kept.
set -eu

venv=${1:?name the directory}
oldest="3.11"
is_new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c "$is_new_enough" 2>/dev/null \
    && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

python=""
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if "$candidate" -c "$is_new_enough" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    found=$("${PYTHON:-python3}" --version 2>&1 || true)
    cat >&2 <<EOF
Python $oldest or later is needed; found: ${found:-none}.
Install one (Debian, Ubuntu: apt install python3.11 python3.11-venv; macOS: brew install python@3.13),
or name it: make PYTHON=/path/to/python3.11 ...
EOF
    exit 1
fi

if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    cat >&2 <<EOF
$python ($version) lacks its modules venv and ensurepip, which make a virtual environment.
Install them (Debian, Ubuntu: apt install python$version-venv), or name another Python: make PYTHON=/path/to/python ...
EOF
    exit 1
fi

"$python" -m venv --clear "$venv"
