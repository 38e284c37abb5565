"""`python -m mainspring.testing.attacks.alone NAME --port 8700` runs one attack, and prints how much it got through.

It runs in a process of its own, and a polite one: a real attacker has machines of their own, so those who watch must
not have to wait for this one. The token is read from MAINSPRING_TOKEN.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Final

from mainspring import descriptors
from mainspring.testing.attacks.attack import Attack, Victim
from mainspring.testing.attacks.catalogue import ATTACKS
from mainspring.testing.signals import mortal

_POLITENESS: Final = 10
_SLACK_SECONDS: Final = 60.0


class Failed(Exception):
    """The attack itself did not work, which says nothing about the server."""


async def run(attack: Attack, victim: Victim, *, seconds: float, size: int | None = None) -> int:
    """Run an attack in a process that does not outlive this one; returns what it got through."""
    flags = ["--port", str(victim.port), "--seconds", str(seconds), "--size", str(size or attack.size)]
    command = mortal([sys.executable, "-m", __name__, attack.name, *flags])
    environment = os.environ | {"MAINSPRING_TOKEN": victim.token}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
    )
    try:
        async with asyncio.timeout(seconds + _SLACK_SECONDS):
            out, told = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise Failed(f"Expected the attack {attack.name} to run, got: {told.decode(errors='replace')[-2000:]}")
    return int(out)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mainspring.testing.attacks.alone", description=__doc__)
    parser.add_argument("name", choices=ATTACKS)
    parser.add_argument("--port", type=int, required=True, help="of a server on this machine")
    parser.add_argument("--seconds", type=float, default=10.0, help="[10]")
    parser.add_argument("--size", type=int, help="how many connections, timers or hosts it uses [its own]")
    given = parser.parse_args(arguments)
    attack = ATTACKS[given.name]
    os.nice(_POLITENESS)
    descriptors.raise_limit()
    victim = Victim(given.port, os.environ.get("MAINSPRING_TOKEN", ""))
    sys.stdout.write(f"{asyncio.run(attack.run(victim, given.seconds, given.size or attack.size))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
