"""One process of a search: one seed per line in, what became of it per line out."""

from __future__ import annotations

import sys

import msgspec

from mainspring.testing.simulation.search import look_at

if __name__ == "__main__":
    for found in look_at(map(int, sys.stdin), sys.argv[1]):
        sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        sys.stdout.buffer.flush()
