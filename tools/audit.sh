#!/bin/sh
# Runs pip-audit, installed for the moment, on the lock files. "$1" is a Python to work with. Exit codes: tools/audit.py.
set -eu

python=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch"
if ! "$scratch/bin/python" -m pip install --quiet pip-audit; then
    echo "NOT AUDITED: pip-audit cannot be installed here." >&2
    exit 3
fi
"$python" -m tools.audit "$scratch/bin/pip-audit"
