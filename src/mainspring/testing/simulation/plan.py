"""A run as plain data: the world, what users do in it, and what befalls it, each with its instant.

What a plan does not say is drawn while it runs, by label (`draws`). So a plan and its muted labels are a whole history:
a replay file. Instants are milliseconds from the start of the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from mainspring.model import RetryPolicy
from mainspring.testing.oracle.parts import JobTerms

Service = Literal["timers", "jobs", "fetches", "idempotency"]
DestinationKind = Literal["fast", "slow", "silent", "refusing", "flapping", "gone", "busy", "cuts"]
RegimeKind = Literal["refuse", "lose", "hang", "late"]
BlowKind = Literal["kill", "pause", "stop", "restart", "join", "cut-peers", "store-clock", "wall-clock"]
Natural = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]
Period = Annotated[float, Meta(gt=0)]

OPENING: Final = 2_000
"""Until then instances start, and nothing goes wrong."""
EXECUTORS: Final = 100
"""The number of the first executor; those of instances are below."""


class Destination(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver of calls."""

    kind: DestinationKind = "fast"
    seconds: Seconds = 0.02
    """How long it takes to answer, at most."""
    healed: bool = True
    """Whether it becomes a fast one when all is healed."""


class Regime(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The store fails in one way for a while: for all, or for an instance, a shard, a verb."""

    at: Natural
    length: Natural
    kind: RegimeKind
    """refuse: nothing is done. lose: it is done, and nobody is told. hang: nothing happens until the caller gives up.
    late: the caller gives up, and then it is done."""
    node: int | None = None
    shard: Natural | None = None
    verb: str | None = None
    percent: Annotated[int, Meta(ge=1, le=100)] = 100
    """How many of the calls it befalls: each is decided on its own."""


class Blow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something happens to an instance, or to all at once."""

    at: Natural
    kind: BlowKind
    node: int = 0
    """-1: all of them."""
    length: int = 0
    """pause, cut-peers: how long. store-clock, wall-clock: by how many milliseconds, perhaps backwards."""
    point: str = ""
    """kill, pause: not at `at`, but when the instance next comes to this crash point."""


class Operation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a client asks for. Fields that a verb does not need mean nothing."""

    client: Natural
    at: Natural
    verb: str
    ids: tuple[str, ...] = ()
    node: Natural = 0
    """Which instance it asks."""
    timeout: Natural = 10_000
    awaits: bool = True
    """Whether the client waits for the answer before it goes on."""
    again: bool = False
    """Whether it checks how things stand if it does not know what became of it."""
    destination: Natural = 0
    delay: int | None = None
    """Due this many milliseconds after it is asked; negative: at an instant in the past."""
    instant: Natural | None = None
    """Due at this instant of the run."""
    at_most_once: bool = False
    policy: Natural = 0
    """Which of the world's policies."""
    call_timeout: Natural = 1000
    label: str = ""
    hold: Natural = 0
    """A foreign transaction: how long it stays open. Work, the block of a lock: how long it takes."""
    job: JobTerms | None = None
    """What a job is to be; its bounds are instants of the run. None in a foreign write: something incomprehensible."""
    origin: Natural | None = None
    """A fetch: which destination gets the result."""
    method: str = "GET"
    executor: bool = False
    """A fetch: whether the executors of the pool make the call."""
    keeps: Natural = 86_400_000
    """A fetch: for how long its result is offered."""


class World(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that stays the same in a run."""

    instances: Annotated[int, Meta(ge=1, le=EXECUTORS)] = 1
    starts_ms: Natural = 0
    """How long after `EPOCH_MS` the run begins: for example, shortly before clocks change."""
    shards: Count = 1
    more_shards: Natural = 0
    """How many the namespace gets in addition, at an instant in the middle of what users do. 0: it keeps those."""
    window_limit: Count = 8192
    window_bytes: Count = 16_777_216
    in_flight_limit: Count = 1024
    host_limit: Count = 128
    page_size: Count = 500
    circuit_failures: Count = 20
    circuit_seconds: Seconds = 5.0
    lease_seconds: Period = 6.0
    renew_seconds: Period = 2.0
    look_seconds: Period = 1.0
    drain_seconds: Seconds = 10.0
    destinations: tuple[Destination, ...] = (Destination(),)
    policies: tuple[RetryPolicy, ...] = (RetryPolicy(),)
    latency: Natural = 0
    """Milliseconds that a call of the store takes at most, unless it meets a spike or a fault."""
    spikes: bool = False
    """Whether one call in a hundred takes fifty times as long."""
    store_timeout: Natural = 2000
    """When a caller gives up waiting for the store."""
    sqlite: bool = False
    """Whether rows are in SQLite, in memory, instead of in dictionaries."""
    notices: bool = False
    """Whether the store tells of foreign writers."""
    one_machine: bool = False
    """Whether all instances are processes of one machine, which know at once that one is gone."""
    wire: Natural = 5
    """Milliseconds that anything takes from process to process, at most."""
    wakeups_lost: Annotated[int, Meta(ge=0, le=100)] = 0
    """Percentage of what instances tell each other."""
    skews: Annotated[tuple[int, ...], Meta(min_length=1)] = (0,)
    """By how many milliseconds the wall clock of each instance is wrong at the start."""
    wait_seconds: Seconds = 10.0
    """Idempotency: how long a caller waits for another that is at work."""
    ttl_seconds: Seconds = 86_400.0
    """Idempotency: how long a result is kept."""
    resolves: bool = False
    """Idempotency: whether programs find out what became of work whose outcome is unknown."""
    left_dead: tuple[int, ...] = ()
    """Instances that stay dead when all is healed."""
    left_cut: Natural | None = None
    """An instance that cannot reach the store even then."""
    executors: Annotated[int, Meta(ge=0, le=EXECUTORS)] = 0
    """Processes of the pool that makes calls of fetches."""
    fetch_limit: Count = 2000
    fetch_pending_limit: Count = 50_000
    fetch_retention: Natural = 7 * 86_400_000

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of all processes."""
        return (*range(self.instances), *range(EXECUTORS, EXECUTORS + self.executors))


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run."""

    seed: int
    service: Service = "timers"
    world: World = World()
    operations: tuple[Operation, ...] = ()
    regimes: tuple[Regime, ...] = ()
    blows: tuple[Blow, ...] = ()
    muted: tuple[str, ...] = ()
    """Labels, or beginnings of labels, that draw nothing but zero."""

    @property
    def heals_at(self) -> int:
        """When everything that was planned is over."""
        ends = [
            *(operation.at + operation.hold for operation in self.operations),
            *(regime.at + regime.length for regime in self.regimes),
            *(blow.at + (blow.length if blow.kind in ("pause", "cut-peers") else 0) for blow in self.blows),
        ]
        return max(ends, default=0) + 500


class NoPlan(Exception):
    """A file that has no plan, or one that cannot be run."""


def read_plan(path: Path) -> Plan:
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NoPlan(f"Expected a replay file, got {path}: {error}") from None
    if missing := _missing(plan):
        raise NoPlan(f"Expected a replay file, got {path}: its world has no {missing}")
    return plan


def _missing(plan: Plan) -> str:
    """The first thing that a plan mentions but that is not in its world."""
    world = plan.world
    for operation in plan.operations:
        if operation.node >= world.instances:
            return f"instance {operation.node}"
        if operation.policy >= len(world.policies):
            return f"policy {operation.policy}"
        if (host := max(operation.destination, operation.origin or 0)) >= len(world.destinations):
            return f"destination {host}"
    nodes = {*world.nodes, -1}
    struck = [*(regime.node for regime in plan.regimes), *(blow.node for blow in plan.blows), *world.left_dead]
    return next(
        (f"instance {node}" for node in (*struck, world.left_cut) if node is not None and node not in nodes), ""
    )


def write_plan(path: Path, plan: Plan) -> None:
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n")
