"""What an instance gets from the machine it runs on: time, chance, who it is, and how it reaches others.

Everything else an instance does follows from its settings, its store and the requests it gets. So a simulation with
surroundings of its own has the same history every time for the same seed.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

from mainspring.clock import Clock, SystemClock
from mainspring.delivery.sender import MakesSenders, Sender
from mainspring.kernel.ownership import Lease

_PROCESS: Final = secrets.token_hex(8)
_DRAWN_BYTES: Final = 16
_DRAWN_AT_ONCE: Final = 256
_forks = 0
"""How often this process, or one that it comes from, was forked."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Who a process is to others, and whether it can tell that they are gone."""

    name: str
    """No other process has it, or ever had it."""
    machine: str
    """This boot of this machine, as far as process ids go; empty where that cannot be told."""
    pid: int
    process: str
    """Distinguishes it from another process with the same id."""
    is_dead: Callable[[Lease], bool]
    """Whether a lease belongs to a process of this machine that is gone, so that nobody need wait for it to run out."""

    def lease(self, clock: Clock) -> Lease:
        return Lease(
            instance=self.name, machine=self.machine, pid=self.pid, process=self.process, started_at=clock.now_ms()
        )


def this_process() -> ProcessIdentity:
    """This process, with a name of its own for each instance in it."""
    host = socket.gethostname().split(".")[0][:40] or "host"
    name = f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
    return ProcessIdentity(name=name, machine=_machine(), pid=os.getpid(), process=_PROCESS, is_dead=is_dead)


class Unpredictable(random.SystemRandom):
    """The system's randomness: secrets are drawn from it as well as ids that everybody sees, and the ids must reveal
    nothing about the secrets.

    Numbers are drawn in bulk. Every call into the system lets another thread have the interpreter, and one that reads
    or writes for a store keeps it for milliseconds: a batch of a thousand timers takes two thousand numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._drawn: deque[bytes] = deque()
        self._forks = _forks

    def getrandbits(self, k: int) -> int:
        if not 0 <= k <= 8 * _DRAWN_BYTES:
            return super().getrandbits(k)
        if self._forks != _forks:  # a fork inherits what its parent has drawn
            self._drawn.clear()
            self._forks = _forks
        try:
            drawn = self._drawn.popleft()  # in one step, whichever thread asks
        except IndexError:
            more = os.urandom(_DRAWN_AT_ONCE * _DRAWN_BYTES)
            drawn, *others = (more[at : at + _DRAWN_BYTES] for at in range(0, len(more), _DRAWN_BYTES))
            self._drawn.extend(others)
        return int.from_bytes(drawn) >> (8 * _DRAWN_BYTES - k)

    def random(self) -> float:
        return self.getrandbits(53) * 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The defaults are the real ones."""

    clock: Clock = field(default_factory=SystemClock)
    randomness: random.Random = field(default_factory=Unpredictable)
    identity: ProcessIdentity = field(default_factory=this_process)
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
