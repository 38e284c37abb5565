"""A server in its own process, attacked by peers without a token: the others hardly notice, and memory stays."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.testing.attacks.witness import resident_bytes, witness
from tests.client.running_server import Running, running_server

SECONDS = 2.5
LONGEST_WAIT = 0.5
MOST_MEMORY = 60_000_000
"""Less than the 150 MB that are promised, as these attacks are smaller."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    directory: Path = tmp_path_factory.mktemp("attacked")
    with running_server(directory, "memory://", "--max-connections", "128", "--request-seconds", "2") as running:
        yield running


ATTACKS = {"endless trailers": 4, "unread pipelines": 40, "idle crowd": 300}
"""And with how many connections."""


async def attack(name: str, port: int) -> int:
    """Run it in a process of its own, so that the witnesses have theirs."""
    flags = ["--port", str(port), "--seconds", str(SECONDS), "--connections", str(ATTACKS[name])]
    command = [sys.executable, "-m", "mainspring.testing.attacks", name, *flags]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return int(out)


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_costs_others_little_time_and_the_server_little_memory(server: Running, name: str) -> None:
    async with asyncio.timeout(60):
        await witness(server.port, seconds=0.3)
        before = resident_bytes(server.process_id)
        taken, healthy, served = await asyncio.gather(
            attack(name, server.port),
            witness(server.port, seconds=SECONDS),
            witness(server.port, seconds=SECONDS, token=server.token, path="/ready"),
        )
    grown = resident_bytes(server.process_id) - before
    assert taken > 0
    assert (healthy.refused, served.refused) == (0, 0)
    assert max(healthy.p99, served.p99) < LONGEST_WAIT
    assert grown < MOST_MEMORY
