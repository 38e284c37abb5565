"""What a large cluster would need by the unit costs that were measured; docs/guides/scale.md explains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bench.figures import Figure

RATE: Final = 1_000_000
"""Timers that are created and called, a second."""
PENDING: Final = 1_000_000_000
INSTANCES: Final = 100
SHARDS: Final = 16_384
RENEW_SECONDS: Final = 2.0
LEASE_SECONDS: Final = 6.0
LOOK_SECONDS: Final = 1.0
COMPARED: Final = 0.1
"""The share of all shards that an instance compares in each lease, in addition to its own."""
STEPS: Final = ("create", "load", "begin", "finish")


def needs(name: str, unit: Mapping[str, float]) -> list[Figure]:
    """`unit` are the costs of one database, by what `costs` calls them."""

    def per_timer(kind: str) -> float:
        return sum(unit[f"{step}, 100 together: {kind}"] for step in STEPS)

    def idle(kind: str) -> float:
        """In a second, of all instances together."""
        compared = (SHARDS + INSTANCES * max(1_000.0, SHARDS * COMPARED)) / LEASE_SECONDS
        return (
            INSTANCES / RENEW_SECONDS * unit[f"a renewal, 99 others: {kind}"]
            + SHARDS / LOOK_SECONDS * unit[f"a look at an idle shard, of 1000: {kind}"]
            + compared * unit[f"a comparison of a shard, of 1000: {kind}"]
        )

    whole = unit["create over HTTP, whole instance: client"] + unit["call, whole instance: client"]
    busy = f"{RATE:,} timers/s: "
    quiet = f"{INSTANCES} idle instances, {SHARDS:,} shards: "
    rows = [
        (f"{busy}instances", "cores", RATE * whole / 1e6),
        (f"{busy}database", "cores", RATE * per_timer("database") / 1e6),
        (f"{busy}round trips", "/s", RATE * per_timer("round trips")),
        (f"{busy}to the database", "MB/s", RATE * per_timer("sent") / 1e6),
        (f"{busy}from the database", "MB/s", RATE * per_timer("received") / 1e6),
        (f"{quiet}database", "cores", idle("database") / 1e6),
        (f"{quiet}round trips", "/s", idle("round trips")),
        (f"{quiet}from the database", "MB/s", idle("received") / 1e6),
    ]
    if (room := unit.get("a pending timer: room on disk")) is not None:
        rows.append((f"{PENDING:,} pending: room on disk", "GB", PENDING * room / 1e9))
    return [Figure(benchmark=f"{name}, model", what=what, unit=kind, measured=value) for what, kind, value in rows]
