"""Draws a plan from a seed: every run is a different world, in which about half of what can happen does not.

A run in which everything happens finds less than many runs in which few things happen often: rare combinations need
the rest to be quiet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from mainspring import crashpoint
from mainspring.model import RetryPolicy
from mainspring.testing.simulation import scenes
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.plan import (
    OPENING,
    Blow,
    BlowKind,
    Destination,
    DestinationKind,
    Operation,
    Plan,
    Regime,
    RegimeKind,
    World,
)

STAGED: Final = 6
"""How many runs out of a hundred are scenes."""
MORE_SHARDS: Final = 4
"""In how many runs out of a hundred the namespace gets more shards."""
STORE_VERBS: Final = ("begin", "finish", "write", "claim", "release", "renew", "load_due", "next_due", "shards", "get")
KINDS: Final[tuple[DestinationKind, ...]] = ("slow", "silent", "refusing", "flapping", "gone", "busy", "cuts")
REGIMES: Final[tuple[RegimeKind, ...]] = ("refuse", "lose", "hang", "late")
BLOWS: Final[tuple[BlowKind, ...]] = ("kill", "pause", "stop", "restart", "join", "cut-peers")
SINGLE_CALLS: Final = 15
"""In how many runs out of a hundred the store fails for some calls, but not for those beside them."""
WALL_STEPS: Final = 8
"""In how many runs out of a hundred the wall clock of a machine is moved."""
DAY: Final = 86_400_000
STEPS: Final = (5_000, -5_000, 3_600_000, -3_600_000, 3 * DAY, -3 * DAY, 40 * DAY)
VERBS: Final = {
    "create": 30,
    "recreate": 10,
    "update": 12,
    "delete": 12,
    "run-now": 6,
    "park": 5,
    "resume": 5,
    "create-batch": 5,
    "bulk-delete": 2,
    "bulk-park": 2,
    "bulk-resume": 2,
    "transaction": 5,
    "get": 3,
    "list": 2,
}
TIMEOUTS: Final = (10_000, 100, 1000, 3000)
"""How long clients wait for an answer."""
POLICIES: Final = (
    RetryPolicy(max_attempts=3, initial_interval_seconds=0.2, max_interval_seconds=2.0),
    RetryPolicy(max_attempts=1),
    RetryPolicy(max_attempts=2, initial_interval_seconds=0.05, jitter=0.0, on_exhausted="drop"),
    RetryPolicy(schedule=(0.1, 0.4, 1.0), jitter=0.5),
    RetryPolicy(max_attempts=20, initial_interval_seconds=0.1, max_interval_seconds=1.0, max_elapsed_seconds=6.0),
)


def draw_plan(seed: int, service: str = "timers") -> Plan:
    from mainspring.testing.simulation.services import SERVICES  # noqa: PLC0415  (they build upon this module)

    return SERVICES[service_of(seed, service)].draw(Chance(Draws(seed)), seed)


def service_of(seed: int, service: str) -> str:
    """For `all`, the service whose turn it is at a seed: its history is the same as with that service alone."""
    from mainspring.testing.simulation.services import SERVICES  # noqa: PLC0415  (as above)

    return list(SERVICES)[seed % len(SERVICES)] if service == "all" else service


def draw_timers(chance: Chance, seed: int) -> Plan:
    world = draw_world(chance)
    operations = _operations(chance, world)
    end = max(operation.at for operation in operations) + 1000
    plan = Plan(
        seed=seed,
        world=world,
        operations=operations,
        regimes=draw_regimes(chance, world, end),
        blows=draw_blows(chance, world, end),
    )
    plan = scenes.staged(chance, plan, scenes.TIMERS, percent=STAGED)
    return scenes.more_shards(chance, plan) if chance.percent("more shards", MORE_SHARDS) else plan


# --- the world --------------------------------------------------------------------------------------------


def draw_world(chance: Chance) -> World:
    instances = chance.one("instances", (1, 2, 3, 3, 4, 5))
    latency = chance.one("latency", (1, 0, 5, 20, 50, 200))
    # A lease has to be long enough for the store to renew it: six requests, one after another.
    lease = max(chance.one("lease", (2.0, 0.5, 1.0, 3.0, 6.0)), latency / 50)
    renew = lease / 1.2 if latency <= lease * 20 and chance.percent("late renewals", 10) else lease / 3
    destinations = _destinations(chance)
    return World(
        instances=instances,
        shards=chance.one("shards", (1, 2, 4, 16)),
        window_limit=chance.one("window", (8192, 64, 8, 3, 2, 1)),
        window_bytes=chance.one("window bytes", (16_777_216, 16_777_216, 16_777_216, 2_000, 400, 1)),
        in_flight_limit=chance.one("in flight", (1024, 16, 8, 3, 2, 1)),
        host_limit=chance.one("host", (128, 2, 1)),
        page_size=chance.one("page", (500, 7, 2, 1)),
        circuit_failures=chance.one("circuit", (20, 3, 1)),
        circuit_seconds=chance.one("circuit seconds", (1.0, 5.0)),
        lease_seconds=lease,
        renew_seconds=renew,
        look_seconds=chance.one("look", (1.0, 0.05)),
        drain_seconds=chance.one("drain", (1.0, 0.01, 10.0)),
        destinations=destinations,
        policies=POLICIES,
        latency=latency,
        spikes=chance.percent("spikes", 20),
        store_timeout=max(chance.one("store timeout", (1000, 300, 3000)), 2 * latency),
        sqlite=chance.percent("sqlite", 10),
        notices=chance.percent("notices", 50),
        one_machine=chance.percent("one machine", 30),
        wire=chance.one("wire", (5, 1, 50)),
        wakeups_lost=chance.one("lost", (0, 0, 30, 100)),
        skews=tuple(chance.one("skew", (0, 0, 3_600_000, -3_600_000)) for _ in range(instances)),
        left_dead=tuple(range(1, instances)) if chance.percent("left dead", 20) else (),
        left_cut=instances - 1 if instances > 1 and chance.percent("left cut", 10) else None,
    )


def _destinations(chance: Chance) -> tuple[Destination, ...]:
    count = 2000 if chance.percent("many destinations", 3) else chance.one("destinations", (3, 1, 40))
    kinds = chance.some("destination kind", KINDS)
    found = []
    for _ in range(count):
        if not kinds or not chance.percent("bad destination", 40):
            found.append(Destination())
            continue
        kind = chance.one("kind of destination", kinds)
        seconds = chance.one("slow seconds", (0.5, 0.9, 3.0)) if kind == "slow" else 0.05
        found.append(Destination(kind=kind, seconds=seconds, healed=not chance.percent("bad for ever", 15)))
    return tuple(found)


# --- what users do ----------------------------------------------------------------------------------------


def _operations(chance: Chance, world: World) -> tuple[Operation, ...]:
    clients = chance.number("clients", 1, 8)
    each = chance.one("operations", (5, 10, 20, 40)) if clients < 5 else chance.one("operations", (3, 8, 16))
    pool = [f"t{number}" for number in range(chance.one("pool", (5, 1, 2, 50)))]
    used = {name for name in chance.some("verb", list(VERBS)) if name != "create"} | {"create"}
    weights = {name: weight for name, weight in VERBS.items() if name in used}
    pauses = chance.one("pauses", ((0, 10, 1000), (0, 0, 10), (10,), (0, 10, 50, 1000)))
    shared = OPENING + chance.number("shared instant", 500, 5000)
    made: list[Operation] = []
    for client in range(clients):
        at = OPENING + chance.number("first", 0, 500)
        for _ in range(each):
            at += chance.one("pause", pauses)
            verb = chance.weighted("which verb", weights)
            made += draw_operation(chance, world, verb, client=client, at=at, pool=pool, shared=shared)
    return tuple(sorted(made, key=lambda operation: (operation.at, operation.client)))


def draw_operation(
    chance: Chance, world: World, verb: str, *, client: int, at: int, pool: list[str], shared: int
) -> list[Operation]:
    crowd = len(world.destinations) > 100
    many = chance.one("batch size", (50, 200) if crowd else (2, 3, 8, 20)) if verb == "create-batch" else 1
    operation = Operation(
        client=client,
        at=at,
        verb="create" if verb == "recreate" else verb,
        ids=_ids(chance, client, at, many, pool),
        node=chance.number("which instance", 0, world.instances - 1),
        timeout=chance.one("timeout", TIMEOUTS),
        awaits=not chance.percent("unawaited", 20),
        again=chance.percent("again", 50),
        destination=chance.number("which destination", 0, len(world.destinations) - 1),
        at_most_once=chance.percent("at most once", 25),
        policy=chance.number("policy", 0, len(world.policies) - 1),
        call_timeout=chance.one("call timeout", (1000, 2000, 5000)),
        label=chance.one("label", ("", "a", "b")),
        hold=chance.one("hold", (0, 100, 1500)) if verb == "transaction" else 0,
    )
    operation = replace(operation, **_due(chance, shared))
    if verb != "recreate":
        return [operation]
    gone = Operation(
        client=client, at=at, verb="delete", ids=operation.ids, node=operation.node, timeout=operation.timeout
    )
    return [gone, replace(operation, at=at + chance.number("recreated after", 0, 50))]


def _ids(chance: Chance, client: int, at: int, many: int, pool: list[str]) -> tuple[str, ...]:
    if many > len(pool) or chance.percent("new ids", 10 if many == 1 else 50):
        return tuple(f"n{client}-{at}-{number}" for number in range(many))
    first = chance.number("which id", 0, len(pool) - 1)
    return tuple(pool[(first + number) % len(pool)] for number in range(many))


def _due(chance: Chance, shared: int) -> dict[str, Any]:
    match chance.one("due", ("soon", "past", "now", "shared", "soon", "later", "hour")):
        case "past":
            return {"delay": -chance.number("how long ago", 1, 100_000)}
        case "now":
            return {"delay": 0}
        case "shared":
            return {"instant": shared}
        case "later":
            return {"delay": chance.number("later", 2000, 6000)}
        case "hour":
            return {"delay": 3_600_000}
        case _:
            return {"delay": chance.number("soon", 0, 3000)}


# --- what goes wrong --------------------------------------------------------------------------------------


def draw_regimes(
    chance: Chance, world: World, end: int, verbs: Sequence[str] = STORE_VERBS, *, shards: int = 0
) -> tuple[Regime, ...]:
    """A service's own `shards` come after those of timers."""
    kinds = chance.some("regime kind", REGIMES)
    if not kinds or not chance.percent("store faults", 60):
        return ()
    lease = round(world.lease_seconds * 1000)
    scopes = chance.some("regime scope", ("node", "shard", "verb")) or ["all"]
    percent = 40 if chance.percent("single calls", SINGLE_CALLS) else 100
    found = []
    for _ in range(chance.number("regimes", 1, 5)):
        scope = chance.one("scope", ["all", *scopes])
        found.append(
            Regime(
                at=chance.number("regime at", OPENING, end),
                length=chance.number("regime length", lease // 10, 3 * lease),
                kind=chance.one("regime", kinds),
                node=chance.one("regime node", world.nodes) if scope == "node" else None,
                shard=chance.number("regime shard", 0, world.shards + shards - 1) if scope == "shard" else None,
                verb=chance.one("regime verb", verbs) if scope == "verb" or _both(chance, scope) else None,
                percent=percent,
            )
        )
    return tuple(sorted(found, key=lambda regime: regime.at))


def _both(chance: Chance, scope: str) -> bool:
    return scope != "all" and chance.percent("a verb of it", 30)


def draw_blows(chance: Chance, world: World, end: int, points: Sequence[str] = crashpoint.NAMES) -> tuple[Blow, ...]:
    kinds = chance.some("blow kind", BLOWS)
    found: list[Blow] = []
    if kinds and chance.percent("blows", 60):
        lease = round(world.lease_seconds * 1000)
        for _ in range(chance.number("how many blows", 1, 12)):
            kind = chance.one("blow", kinds)
            at = chance.number("blow at", OPENING, end)
            node = -1 if chance.percent("all at once", 10) else chance.one("blow node", world.nodes)
            point = ""
            if kind in ("kill", "pause") and node >= 0 and chance.percent("at a crash point", 40):
                point = chance.one("point", points)
            length = chance.number("blow length", lease // 5, 4 * lease) if kind in ("pause", "cut-peers") else 0
            found.append(Blow(at=at, kind=kind, node=node, length=length, point=point))
            if kind in ("kill", "stop") and chance.percent("restarted", 70):
                back = at + chance.number("restarted after", 0, 2 * lease)
                found.append(Blow(at=back, kind="restart", node=node))
    if chance.percent("the store's clock steps", 5):
        by = chance.one("step", (3_600_000, -3_600_000, 500, -500))
        found.append(Blow(at=chance.number("step at", OPENING, end), kind="store-clock", length=by))
    if chance.percent("a wall clock steps", WALL_STEPS):
        found += _wall_step(chance, world, end)
    return tuple(sorted(found, key=lambda blow: blow.at))


def _wall_step(chance: Chance, world: World, end: int) -> list[Blow]:
    """Somebody sets the clock of a machine. A process that runs there goes by the store's; one that is started there
    has to ask first, so it is often restarted."""
    at, node = chance.number("wall step at", OPENING, end), chance.one("wall step node", world.nodes)
    found = [Blow(at=at, kind="wall-clock", node=node, length=chance.one("wall step", STEPS))]
    if chance.percent("wall step, started anew", 50):
        back = at + chance.number("wall step, back", 0, round(2000 * world.lease_seconds))
        found += [Blow(at=at, kind="kill", node=node), Blow(at=back, kind="restart", node=node)]
    return found
