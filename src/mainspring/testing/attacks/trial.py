"""One attack, from beginning to end: a server of its own, witnesses, the attack, and the way back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from mainspring.testing.attacks.alone import run
from mainspring.testing.attacks.attack import Attack, Victim
from mainspring.testing.attacks.punctuality import ADDRESS, Healthy
from mainspring.testing.attacks.verdict import (
    LONGEST_LATENESS_SECONDS,
    LONGEST_P99_SECONDS,
    LONGEST_RECOVERY_SECONDS,
    Verdict,
)
from mainspring.testing.attacks.witness import create, health, is_answered, most_resident_bytes, resident_bytes, witness
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import TOKEN, ServerProcess

BEFORE_SECONDS: Final = 1.0
"""How long a server works in peace first, so that what it always needs does not count as growth."""
START_SECONDS: Final = 1.0
"""How long a process takes to start."""
PATIENCE_SECONDS: Final = 40.0
"""How long anybody waits for a recovery."""


class ServerFailed(Exception):
    """There is no server to attack."""


async def run_trial(
    attack: Attack, directory: Path, *, seconds: float, size: int, told: Callable[[str], None] = lambda _: None
) -> Verdict:
    """Attack a server that is started for it, with its defaults; `told` is called with what is going on."""
    told("a server starts")
    server = ServerProcess(directory)
    try:
        if not await server.ready():
            raise ServerFailed(f"Expected a server, got exit code {server.exit_code}: {server.tail()}")
        async with TargetServer(host=ADDRESS) as target:
            return await _run_trial(attack, server, Healthy(target), seconds=seconds, size=size, told=told)
    finally:
        await server.kill()


async def _run_trial(
    attack: Attack,
    server: ServerProcess,
    healthy: Healthy,
    *,
    seconds: float,
    size: int,
    told: Callable[[str], None],
) -> Verdict:
    victim = Victim(server.port, TOKEN)
    told("in peace")
    await witness(victim, create(victim), seconds=BEFORE_SECONDS)
    before = resident_bytes(server.pid)
    lasting = seconds + START_SECONDS
    await healthy.plan_timers(victim, seconds=seconds)
    told(f"under attack for {seconds:g} s")
    async with asyncio.TaskGroup() as tasks:
        achieved = tasks.create_task(run(attack, victim, seconds=seconds, size=size))
        most = tasks.create_task(most_resident_bytes(server.pid, seconds=lasting))
        asks = (health(victim), create(victim))
        witnesses = [tasks.create_task(witness(victim, ask, seconds=lasting)) for ask in asks]
        tasks.create_task(healthy.fetch(victim, seconds=lasting))
    told("on the way back")
    exit_code = server.exit_code
    recovery = await _restarted(server, healthy) if attack.restarts else await _recovered(server, healthy)
    await healthy.arrived(seconds=LONGEST_RECOVERY_SECONDS)
    return Verdict(
        attack=attack,
        achieved=achieved.result(),
        size=size,
        seconds=seconds,
        experiences=tuple(task.result() for task in witnesses),
        timers=healthy.punctuality("timer-"),
        fetches=healthy.punctuality("fetch-"),
        growth_bytes=most.result() - before,
        recovery_seconds=recovery,
        exit_code=exit_code,
    )


async def _recovered(server: ServerProcess, healthy: Healthy) -> float:
    """Seconds until a client is answered soon and a new timer is called on time; infinite: never."""
    began = time.monotonic()
    victim = Victim(server.port, TOKEN)
    tries = 0
    while (waited := time.monotonic() - began) < PATIENCE_SECONDS and server.exit_code is None:
        tries += 1
        if await is_answered(victim, health(victim), seconds=LONGEST_P99_SECONDS) and await healthy.probe(
            victim, f"probe-{tries}", within=LONGEST_LATENESS_SECONDS
        ):
            return waited
        await asyncio.sleep(0.1)
    return float("inf")


async def _restarted(server: ServerProcess, healthy: Healthy) -> float:
    """Seconds from the start of another server on the same store until it works as it should."""
    await server.stop()
    began = time.monotonic()
    again = ServerProcess(server.log.parent)
    try:
        if not await again.ready(seconds=PATIENCE_SECONDS):
            return float("inf")
        ready = time.monotonic() - began
        return ready + await _recovered(again, healthy)
    except TimeoutError:
        return float("inf")
    finally:
        await again.kill()
