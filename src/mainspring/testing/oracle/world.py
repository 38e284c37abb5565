"""The facts about a run that rules need in addition to its journal."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mainspring.model import RetryPolicy


class Host(Struct, frozen=True, kw_only=True):
    """How a destination behaves."""

    kind: Literal["fast", "slow", "silent", "refusing", "flapping", "gone", "busy", "cuts"] = "fast"
    """busy answers 429, gone 410; cuts acts and says nothing."""
    seconds: float = 0.0
    """How long it takes to answer, at most; silent ones take a call's whole timeout."""
    healed: bool = True
    """Whether it behaves like a fast one after the faults have been healed."""


class World(Struct, frozen=True, kw_only=True):
    """Limits and tolerances of a run. `commits` says whether its journal has them: what happens inside is known."""

    commits: bool
    lease_seconds: float = 6.0
    look_seconds: float = 1.0
    tolerance_ms: int = 0
    """How much earlier than its time a call may seem to come: how far clocks that are compared may disagree."""
    wire_ms: int = 1000
    """How long a call may take from the commit of its begin to its receiver, and an answer back, without a fault."""
    latency_ms: int = 0
    """How long a call of the store takes at most, without a fault."""
    store_timeout_ms: int = 3000
    """How long an instance waits for an answer of the store: for this long after healing it may still wait in vain."""
    call_timeout_ms: int = 30_000
    """Of timers that name none."""
    policy: RetryPolicy = RetryPolicy()
    """Of timers that name none."""
    window_limit: int = 8192
    in_flight_limit: int = 1024
    host_limit: int = 128
    page_size: int = 500
    circuit_seconds: float = 5.0
    wakeups_lost: bool = False
    """Whether instances may fail to hear of new rows from others: then a look finds these."""
    hosts: dict[str, Host] = {}
    """Destinations that are not named here are fast."""
    fetch_retention_seconds: float = 86_400.0
    idempotency_ttl_seconds: float = 86_400.0

    @property
    def slots(self) -> int:
        """Calls at a time: those are in the window, too, of which a part is for what waits."""
        return min(self.in_flight_limit, max(1, self.window_limit * 3 // 4))

    def host(self, name: str) -> Host:
        return self.hosts.get(name, FAST)


FAST = Host()
