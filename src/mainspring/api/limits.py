"""What the peers of a listener may take, and the sweep that sees to it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from mainspring.api.answers import Cycle
from mainspring.api.crowd import Crowd
from mainspring.api.heads import Hosts
from mainspring.api.turns import Turns


@runtime_checkable
class Watched(Protocol):
    def check_deadlines(self) -> None:
        """Called at every tick."""
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
class Guard:
    """The limits of a listener and the tick that all its connections read."""

    limits: Limits
    hosts: Hosts = None
    cycle: type[Cycle] = Cycle
    """How answers leave."""
    tick: int = 0
    tick_seconds: float = field(init=False)
    request_ticks: int = field(init=False)
    idle_ticks: int = field(init=False)
    crowd: Crowd = field(init=False)
    turns: Turns = field(init=False, default_factory=Turns)

    def __post_init__(self) -> None:
        self.tick_seconds = min(1.0, self.limits.request_seconds / 4)
        self.request_ticks = math.ceil(self.limits.request_seconds / self.tick_seconds)
        self.idle_ticks = math.ceil(self.limits.idle_seconds / self.tick_seconds)
        self.crowd = Crowd(limit=self.limits.connections, stranger_limit=self.limits.tokenless_connections)

    async def sweep(self, connections: Iterable[Any]) -> None:
        """Look at every connection, tick after tick, until cancelled."""
        while True:
            await asyncio.sleep(self.tick_seconds)
            self.tick += 1
            for connection in tuple(connections):
                if isinstance(connection, Watched):
                    connection.check_deadlines()
            self.crowd.look_around()
