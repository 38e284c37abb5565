#!/bin/sh
# Resolves the dependencies of pyproject.toml into requirements/*.txt: name==version with hashes, no addresses.
# "$1" is a Python to work with; further arguments go to the resolver. Leaves nothing else behind.
set -eu

python=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch"
"$scratch/bin/python" -m pip install --quiet uv

compile() {
    "$scratch/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header pyproject.toml "$@"
}

compile --output-file requirements/runtime.txt "$@"
compile --extra test --output-file requirements/test.txt "$@"
for extra in postgresql mysql mongodb cassandra dynamodb redis; do
    # The versions that are tested.
    compile --extra "$extra" --constraint requirements/test.txt --output-file "requirements/$extra.txt"
done
