"""Draws what users of fetches do, and the parts of the world that only fetches have."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring import crashpoint
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.plan import EXECUTORS, OPENING, Operation, Plan, World
from mainspring.testing.simulation.swarm import DAY, STORE_VERBS, draw_blows, draw_regimes, draw_world

RECORD_VERBS: Final = ("record", "get_record", "list", "write")
POINTS: Final = (*crashpoint.FETCH_NAMES, crashpoint.BEFORE_COMMIT, crashpoint.AFTER_COMMIT, crashpoint.ATTEMPT_BEGUN)
"""Where processes die or stand still."""
VERBS: Final = {"create": 50, "again": 20, "cancel": 10, "wait": 20}


def draw_fetches(chance: Chance, seed: int) -> Plan:
    world = _widened(chance, draw_world(chance))
    operations = _operations(chance, world)
    end = max(operation.at for operation in operations) + 1000
    return Plan(
        seed=seed,
        service="fetches",
        world=world,
        operations=operations,
        regimes=draw_regimes(chance, world, end, (*STORE_VERBS, *RECORD_VERBS)),
        blows=draw_blows(chance, world, end, POINTS),
    )


def _widened(chance: Chance, world: World) -> World:
    executors = chance.one("executors", (0, 1, 2, 3))
    dead = tuple(EXECUTORS + number for number in range(executors)) if chance.percent("executors left dead", 10) else ()
    return replace(
        world,
        destinations=world.destinations[:40],
        executors=executors,
        fetch_limit=chance.one("fetch limit", (2000, 2, 1)),
        fetch_pending_limit=chance.one("fetch pending limit", (50_000, 50_000, 20, 2)),
        fetch_retention=chance.one("fetch retention", (7 * DAY, 1000, 3000, 10_000)),
        left_dead=world.left_dead + dead,
    )


def _operations(chance: Chance, world: World) -> tuple[Operation, ...]:
    clients = chance.number("clients", 1, 8)
    each = chance.one("operations", (5, 10, 20, 40)) if clients < 5 else chance.one("operations", (3, 8, 16))
    pool = [f"r{number}" for number in range(chance.one("pool", (5, 1, 2, 50)))]
    used = {name for name in chance.some("verb", list(VERBS)) if name != "create"} | {"create"}
    weights = {name: weight for name, weight in VERBS.items() if name in used}
    wanted = chance.one("results wanted", (0, 60, 100))
    pauses = chance.one("pauses", ((0, 10, 1000), (0, 0, 10), (10,), (0, 10, 50, 1000)))
    made: list[Operation] = []
    first: dict[str, Operation] = {}
    """What was asked for under each id before, in the order of drawing."""
    for client in range(clients):
        at = OPENING + chance.number("first", 0, 500)
        for _ in range(each):
            at += chance.one("pause", pauses)
            verb = chance.weighted("which verb", weights)
            drawn = _operation(chance, world, verb, client=client, at=at, pool=pool, wanted=wanted)
            before = first.setdefault(drawn.ids[0], drawn)
            if not chance.percent("another request", 10):
                drawn = replace(drawn, destination=before.destination, origin=before.origin, method=before.method)
            made.append(drawn)
    return tuple(sorted(made, key=lambda operation: (operation.at, operation.client)))


def _operation(
    chance: Chance, world: World, verb: str, *, client: int, at: int, pool: list[str], wanted: int
) -> Operation:
    is_new = verb == "create" and chance.percent("new ids", 30)
    last = len(world.destinations) - 1
    return Operation(
        client=client,
        at=at,
        verb=verb,
        ids=(f"n{client}-{at}" if is_new else chance.one("which id", pool),),
        node=chance.number("which instance", 0, world.instances - 1),
        timeout=chance.one("timeout", (10_000, 100, 1000, 3000)),
        awaits=not chance.percent("unawaited", 20),
        again=chance.percent("again", 50),
        destination=chance.number("which destination", 0, last),
        origin=chance.number("which origin", 0, last) if chance.percent("result wanted", wanted) else None,
        method=chance.one("method", ("GET", "POST")),
        executor=world.executors > 0 and chance.percent("by an executor", 60),
        call_timeout=chance.one("call timeout", (1000, 300, 3000)),
        keeps=chance.one("kept on offer", (DAY, 2000, 20_000)),
        delay=chance.number("beside the expiry", -10, 100) if verb == "again" else None,
        hold=chance.one("waits for", (500, 0, 3000, 8000)) if verb == "wait" else 0,
    )
