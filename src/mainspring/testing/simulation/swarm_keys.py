"""Draws a plan of programs that do their work once for each key, and hold locks."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mainspring.testing.simulation import scenes
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.plan import OPENING, Destination, Operation, Plan, World
from mainspring.testing.simulation.swarm import draw_blows, draw_regimes, draw_world

STAGED: Final = 6
"""How many runs out of a hundred are scenes."""
STORE_VERBS: Final = ("claim", "lock", "record", "get_record", "time")
VERBS: Final = {"call": 50, "other": 10, "cancelled": 10, "failing": 10, "forget": 5, "hold": 20}
"""`other` has another payload; `cancelled` and `failing` are calls that end that way."""


def draw_keys(chance: Chance, seed: int) -> Plan:
    world = _world(chance)
    operations = _operations(chance, world)
    end = max(operation.at for operation in operations) + 1000
    plan = Plan(
        seed=seed,
        service="idempotency",
        world=world,
        operations=operations,
        regimes=draw_regimes(chance, world, end, STORE_VERBS),
        blows=draw_blows(chance, world, end),
    )
    return scenes.staged(chance, plan, scenes.KEYS, percent=STAGED)


def _world(chance: Chance) -> World:
    drawn = draw_world(chance)
    programs = chance.one("programs", (2, 1, 3))
    # A store that stalls applies what it was sent long afterwards: what keeps that out is kept as long as a result is.
    latest = drawn.store_timeout / 1000 * 1.5 + 3 * drawn.lease_seconds
    return replace(
        drawn,
        instances=programs,
        destinations=(Destination(),),
        skews=drawn.skews[:1] * programs,
        left_dead=(programs - 1,) if drawn.left_dead and programs > 1 else (),
        left_cut=programs - 1 if drawn.left_cut is not None and programs > 1 else None,
        wait_seconds=chance.one("wait", (10.0, 0.0, 1.0)),
        ttl_seconds=chance.one("ttl", (86_400.0, 86_400.0, latest + 3)),
        resolves=chance.percent("resolves", 25),
    )


def _operations(chance: Chance, world: World) -> tuple[Operation, ...]:
    lease = round(world.lease_seconds * 1000)
    keys = [f"k{number}" for number in range(chance.number("keys", 1, 3))]
    epoch = chance.one("epoch", (1_000_000, lease // 2, 2 * lease))  # a key that is done is of little interest
    locks = [f"l{number}" for number in range(chance.number("locks", 1, 2))]
    used = {"call", *chance.some("verb", list(VERBS))}
    weights = {name: weight for name, weight in VERBS.items() if name in used}
    pauses = chance.one("pauses", ((0, 10, 1000), (0, 0, 10), (10, 100), (0, 10, lease)))
    made: list[Operation] = []
    for client in range(chance.number("callers", 2, 20)):
        at = OPENING + chance.number("first", 0, 1000)
        for _ in range(chance.one("operations", (1, 2, 5, 10))):
            at += chance.one("pause", pauses)
            verb = chance.weighted("which verb", weights)
            key = f"{chance.one('which key', keys)}.{(at - OPENING) // epoch}"
            made.append(
                Operation(
                    client=client,
                    at=at,
                    verb=verb,
                    ids=(chance.one("which lock", locks) if verb == "hold" else key,),
                    node=chance.number("which program", 0, world.instances - 1),
                    timeout=chance.number("cancelled after", 0, chance.one("cancelled", (20, 200, 2000))),
                    hold=chance.one("takes", (10, 0, 200, lease // 2, 2 * lease)),
                )
            )
    return tuple(sorted(made, key=lambda operation: (operation.at, operation.client)))
