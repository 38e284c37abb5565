"""What a run is made of, drawn from its seed: small limits, and hundreds of destinations, some of them bad."""

from __future__ import annotations

from typing import Final

from mainspring.testing.oracle.world import Host
from mainspring.testing.oracle.world import World as OracleWorld
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.plan import Destination, DestinationKind, World
from mainspring.testing.simulation.swarm import POLICIES

KINDS: Final[tuple[DestinationKind, ...]] = ("slow", "silent", "refusing", "flapping", "gone", "busy", "cuts")
CALL_TIMEOUT_MS: Final = 5000
WIRE_MS: Final = 1000
"""From the commit of a begin to the receiver, on a machine that also does other things."""
EARLY_MS: Final = 50


def draw_world(chance: Chance, *, instances: int, destinations: int, lease_seconds: float) -> World:
    return World(
        instances=instances,
        window_limit=chance.one("window", (64, 32, 256, 8192)),
        in_flight_limit=chance.one("in flight", (64, 16, 32, 1024)),
        host_limit=chance.one("host", (2, 1, 8, 128)),
        circuit_failures=chance.one("circuit", (20, 3)),
        circuit_seconds=1.0,
        lease_seconds=lease_seconds,
        renew_seconds=lease_seconds / 3,
        drain_seconds=chance.one("drain", (1.0, 5.0)),
        destinations=tuple(_destination(chance) for _ in range(destinations)),
        policies=POLICIES,
    )


def _destination(chance: Chance) -> Destination:
    if not chance.percent("bad destination", 15):
        return Destination(seconds=chance.one("seconds", (0.02, 0.1, 0.4)))
    kind = chance.one("kind", KINDS)
    return Destination(kind=kind, seconds=chance.one("slow seconds", (0.5, 0.9)) if kind == "slow" else 0.05)


def settings_of(world: World) -> dict[str, str]:
    """For a server process."""
    names = (
        *("window_limit", "in_flight_limit", "host_limit", "circuit_failures", "circuit_seconds"),
        *("lease_seconds", "renew_seconds", "look_seconds", "drain_seconds"),
    )
    return {name: str(getattr(world, name)) for name in names}


def oracle_world(world: World, hosts: dict[str, Destination]) -> OracleWorld:
    return OracleWorld(
        commits=False,
        lease_seconds=world.lease_seconds,
        look_seconds=world.look_seconds,
        tolerance_ms=EARLY_MS,
        wire_ms=WIRE_MS,
        latency_ms=500,
        call_timeout_ms=CALL_TIMEOUT_MS,
        window_limit=world.window_limit,
        in_flight_limit=world.in_flight_limit,
        host_limit=world.host_limit,
        circuit_seconds=world.circuit_seconds,
        hosts={
            name: Host(kind=known.kind, seconds=known.seconds, healed=known.healed)
            for name, known in hosts.items()
            if known.kind != "fast"
        },
    )
