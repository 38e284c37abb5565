"""`python -m mainspring.testing.attacks NAME --port 8700 --seconds 5` runs one attack and prints what it achieved.

In a process of its own an attack takes no time from whoever watches.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import sys

from mainspring.testing.attacks.listener import LISTENER_ATTACKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m mainspring.testing.attacks")
    parser.add_argument("name", choices=LISTENER_ATTACKS)
    parser.add_argument("--port", type=int, required=True, help="Of a server on this machine.")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, help="As many as the attack has, if not given.")
    given = parser.parse_args()
    attack = LISTENER_ATTACKS[given.name]
    connections = given.connections or inspect.signature(attack).parameters["connections"].default
    taken = asyncio.run(attack(given.port, seconds=given.seconds, connections=connections))
    print(taken)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
