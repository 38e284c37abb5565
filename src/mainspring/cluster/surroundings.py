"""What an instance has from the machine it runs on: time, chance, who it is, and how it reaches others.

Everything else an instance does follows from its settings, its store and what it is asked. So a simulation that puts
its own surroundings in place of the real ones has the same history every time, for the same seed.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from mainspring.clock import Clock, SystemClock
from mainspring.delivery.sender import MakesSenders, Sender
from mainspring.kernel.ownership import Lease

_PROCESS: Final = secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is for others, and what it can tell about their lives."""

    name: str
    """No other process has it, nor had it before."""
    machine: str
    """This boot of this machine, as far as process ids go; empty where that cannot be told."""
    pid: int
    process: str
    """Tells it from another process with the same id."""
    is_dead: Callable[[Lease], bool]
    """Whether a lease is that of a process of this machine that is gone, so that nobody need wait for its end."""

    def lease(self, clock: Clock) -> Lease:
        return Lease(
            instance=self.name, machine=self.machine, pid=self.pid, process=self.process, started_at=clock.now_ms()
        )


def this_process() -> Identity:
    """This process, with a name of its own for each instance in it."""
    host = socket.gethostname().split(".")[0][:40] or "host"
    name = f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
    return Identity(name=name, machine=_machine(), pid=os.getpid(), process=_PROCESS, is_dead=is_dead)


def unpredictable() -> random.Random:
    """The system's: secrets are drawn from it beside ids that everybody sees, which must tell nothing about them."""
    return random.SystemRandom()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The defaults are the real ones."""

    clock: Clock = field(default_factory=SystemClock)
    randomness: random.Random = field(default_factory=unpredictable)
    identity: Identity = field(default_factory=this_process)
    senders: MakesSenders = Sender


@cache
def _machine() -> str:
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def is_dead(lease: Lease) -> bool:
    if not lease.machine or lease.machine != _machine():
        return False
    if lease.pid == os.getpid():
        return lease.process != _PROCESS
    try:
        os.kill(lease.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
