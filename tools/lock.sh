#!/bin/sh
# Resolves the dependencies of pyproject.toml, and of the cart, into requirements/*.txt: name==version with hashes, no addresses.
# "$1" is a Python to work with; further arguments go to the resolver. Leaves nothing else behind.
set -eu

python=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT # a shell that a signal ends does not come to its EXIT
trap 'exit 143' TERM
"$python" -m venv "$scratch"
"$scratch/bin/python" -m pip install --quiet uv

compile() {
    "$scratch/bin/uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --no-emit-find-links --no-header "$@"
}

compile pyproject.toml --output-file requirements/runtime.txt "$@"
compile pyproject.toml --extra test --output-file requirements/test.txt "$@"
for extra in postgresql mysql mongodb cassandra dynamodb redis; do
    # The versions that are tested.
    compile pyproject.toml --extra "$extra" --constraint requirements/test.txt --output-file "requirements/$extra.txt"
done
compile apps/cart/pyproject.toml --no-emit-package mainspring --constraint requirements/test.txt \
    --output-file requirements/cart.txt
sed -i '/^$/,$d' requirements/cart.txt # what was left out
