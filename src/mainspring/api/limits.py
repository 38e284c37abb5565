"""What the peers of a listener may take, and the sweep that sees to it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import Protocol

from mainspring.api.flow_control import READ_BYTES
from mainspring.api.head_checks import Hosts
from mainspring.api.peers import Peers
from mainspring.api.stranger_queue import StrangerQueue


class Watched(Protocol):
    """A connection."""

    @property
    def client(self) -> tuple[str, int] | None:
        """Where its peer is."""
        ...

    @property
    def is_due_answers(self) -> bool:
        """Whether its peer waits for any."""
        ...

    def check_deadlines(self) -> None:
        """Called at every tick."""
        ...

    def shut_down(self) -> None:
        """Close, after the answers that are due."""
        ...

    def hurry(self) -> None:
        """Let go of a peer without a token that has taken nothing of its answer since this was last asked."""
        ...

    def dismiss(self) -> None:
        """Close it now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one peer may take."""

    request_seconds: float = 10.0
    idle_seconds: float = 75.0
    head_bytes: int = 16_384
    connections: int = 2048
    tokenless_connections: int = 256
    """From one address, without ever having shown a token."""


@dataclass(slots=True)
class ListenerState:
    """The limits of a listener, its connections, and the tick that they all read."""

    limits: Limits
    hosts: Hosts = None
    access_log: bool = False
    """Whether each answer has a line in the log."""
    tick: int = 0
    tick_seconds: float = field(init=False)
    request_ticks: int = field(init=False)
    idle_ticks: int = field(init=False)
    peers: Peers = field(init=False)
    strangers: StrangerQueue = field(init=False, default_factory=StrangerQueue)
    connections: set[Watched] = field(init=False, default_factory=set)
    tasks: set[asyncio.Task[None]] = field(init=False, default_factory=set)
    """In which requests are being answered."""
    answered: int = field(init=False, default=0)
    buffer: memoryview = field(init=False, default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    """What arrives: one for all connections, because it is filled and emptied within one step of the loop. A transport
    that had to make one would make it a quarter of a megabyte."""

    def __post_init__(self) -> None:
        self.tick_seconds = min(1.0, self.limits.request_seconds / 4)
        self.request_ticks = math.ceil(self.limits.request_seconds / self.tick_seconds)
        self.idle_ticks = math.ceil(self.limits.idle_seconds / self.tick_seconds)
        self.peers = Peers(limit=self.limits.connections, stranger_limit=self.limits.tokenless_connections)

    async def sweep(self) -> None:
        """Look at every connection, tick after tick, until cancelled."""
        while True:
            await asyncio.sleep(self.tick_seconds)
            self.tick += 1
            for connection in tuple(self.connections):
                connection.check_deadlines()
            self.peers.look_around()
