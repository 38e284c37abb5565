"""What users of jobs do, drawn from a seed: few names, short calendars, and every way of changing them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from mainspring.jobs.calendar.calendar import Dst
from mainspring.testing.oracle.journal import JobTerms
from mainspring.testing.simulation import scenes
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.clock import EPOCH_MS
from mainspring.testing.simulation.plan import OPENING, Operation, Plan, World
from mainspring.testing.simulation.swarm import STORE_VERBS, draw_blows, draw_regimes, draw_world

STAGED: Final = 12
"""How many runs out of a hundred are scenes."""
OWN_SHARDS: Final = 32
"""Of clocks and of runs."""
VERBS: Final = {
    "create": 15,
    "recreate": 15,
    "update": 20,
    "pause": 10,
    "resume": 10,
    "trigger": 10,
    "backfill": 10,
    "foreign-write": 10,
}
SCHEDULES: Final = (
    "*/10 * * * * *",
    "*/5 * * * * *",
    "*/2 * * * * *",
    "*/15 * * * * *",
    "0,30 * * * * *",
    "@every 7s",
    "* * * * *",
)
CHANGES: Final = {
    "Europe/Berlin": (datetime(2027, 3, 28, 1, tzinfo=UTC), datetime(2027, 10, 31, 1, tzinfo=UTC)),
    "America/New_York": (datetime(2027, 3, 14, 7, tzinfo=UTC), datetime(2027, 11, 7, 6, tzinfo=UTC)),
    "Australia/Lord_Howe": (datetime(2027, 4, 3, 15, tzinfo=UTC), datetime(2027, 10, 2, 15, 30, tzinfo=UTC)),
}
"""Instants at which clocks change."""


def draw_jobs(chance: Chance, seed: int) -> Plan:
    world = _world(chance, draw_world(chance))
    operations = _operations(chance, world)
    end = max(operation.at for operation in operations) + 1000
    plan = Plan(
        seed=seed,
        service="jobs",
        world=world,
        operations=operations,
        regimes=draw_regimes(chance, world, end, (*STORE_VERBS, "record", "get_record", "scan"), shards=OWN_SHARDS),
        blows=draw_blows(chance, world, end),
    )
    return scenes.staged(chance, plan, scenes.JOBS, percent=STAGED)


def _world(chance: Chance, world: World) -> World:
    """In one run of five, clocks change while it lasts. Runs are long, so nobody looks twenty times a second."""
    world = replace(world, look_seconds=max(world.look_seconds, 0.5))
    if not chance.percent("clocks change", 20):
        return world
    changes = CHANGES[chance.one("zone that changes", tuple(CHANGES))]
    at = round(chance.one("change", changes).timestamp() * 1000)
    return replace(world, starts_ms=at - chance.number("change at", 5_000, 60_000) - EPOCH_MS)


def _operations(chance: Chance, world: World) -> tuple[Operation, ...]:
    clients = chance.number("clients", 1, 4)
    each = chance.one("operations", (5, 3, 8, 12))
    pool = [f"j{number}" for number in range(chance.one("pool", (2, 1, 3)))]
    used = {name for name in chance.some("verb", list(VERBS)) if name != "create"} | {"create"}
    weights = {name: weight for name, weight in VERBS.items() if name in used}
    pauses = chance.one("pauses", ((1000, 5000), (1000, 2000), (4000, 15_000)))
    latest: dict[str, JobTerms] = {}
    made: list[Operation] = []
    for client in range(clients):
        at = OPENING + chance.number("first", 0, 500)
        for place in range(each):
            verb = "create" if place == 0 else chance.weighted("which verb", weights)
            name = chance.one("which id", pool)
            made += _operation(chance, world, latest, client=client, at=at, verb=verb, name=name)
            at += chance.number("pause", *pauses)
    return tuple(sorted(made, key=lambda operation: (operation.at, operation.client)))


def _operation(
    chance: Chance, world: World, latest: dict[str, JobTerms], *, client: int, at: int, verb: str, name: str
) -> list[Operation]:
    if verb in ("create", "recreate") or name not in latest:
        latest[name] = _terms(chance, world, at)
    elif verb in ("update", "foreign-write"):
        latest[name] = _edited(chance, world, at, latest[name])
    defines = verb in ("create", "recreate", "update", "foreign-write")
    operation = Operation(
        client=client,
        at=at,
        verb=_asked(chance, verb),
        ids=(name,),
        node=chance.number("which instance", 0, world.instances - 1),
        timeout=chance.one("timeout", (10_000, 100, 1000, 3000)),
        awaits=not chance.percent("unawaited", 20),
        again=chance.percent("again", 50),
        destination=chance.number("which destination", 0, len(world.destinations) - 1),
        policy=chance.number("policy", 0, len(world.policies) - 1),
        call_timeout=chance.one("call timeout", (1000, 2000, 5000)),
        delay=chance.number("since", 1_000, 60_000) if verb == "backfill" else None,
        label=_how(chance) if verb == "foreign-write" else "",
        job=latest[name] if defines and not (verb == "foreign-write" and chance.percent("nonsense", 30)) else None,
    )
    if verb != "recreate":
        return [operation]
    gone = Operation(client=client, at=at, verb="delete", ids=(name,), node=operation.node, timeout=operation.timeout)
    return [gone, replace(operation, at=at + chance.number("recreated after", 0, 50))]


def _asked(chance: Chance, verb: str) -> str:
    if verb == "backfill" and chance.percent("rerun instead", 40):
        return "rerun"
    return "create" if verb == "recreate" else verb


def _how(chance: Chance) -> str:
    """How another program writes: everything anew, or what is there with a change; or it has run the job itself."""
    how = chance.one("how", ("", "keeps"))
    return "ran" if chance.percent("has run it", 30) else how


def _terms(chance: Chance, world: World, at: int) -> JobTerms:
    terms = JobTerms(schedule=SCHEDULES[0], seconds=True)
    for aspect in ASPECTS.values():
        terms = aspect(chance, world, at, terms)
    return replace(terms, paused=chance.percent("made paused", 5))


def _edited(chance: Chance, world: World, at: int, terms: JobTerms) -> JobTerms:
    aspect = ASPECTS[chance.one("which aspect", ("schedule", "schedule", "bounds", "bounds", "policies"))]
    return replace(aspect(chance, world, at, terms), paused=False)


def _schedule(chance: Chance, world: World, at: int, terms: JobTerms) -> JobTerms:
    schedule = chance.one("schedule", SCHEDULES)
    zone, dst = "UTC", Dst()
    if world.starts_ms:
        zone = chance.one("zone", (*CHANGES, "UTC"))
        dst = Dst(
            on_gap=chance.one("gap", ("shift", "skip")), on_overlap=chance.one("overlapping", ("first", "last", "both"))
        )
        if chance.percent("by the hour", 40) and schedule.startswith("*/1"):
            schedule = schedule.replace("* * * * *", f"* {chance.one('hour', ('2', '1,2', '2-3'))} * * *", 1)
    seconds = len(schedule.split()) == 6
    return replace(terms, schedule=schedule, seconds=seconds, time_zone=zone, dst=dst)


def _bounds(chance: Chance, world: World, at: int, terms: JobTerms) -> JobTerms:
    start = at + chance.number("start", -5_000, 20_000) if chance.percent("starts later", 20) else None
    end = max(at, start or 0) + chance.number("end", 0, 60_000) if chance.percent("ends", 25) else None
    runs = chance.number("runs", 1, 10) if chance.percent("max runs", 15) else None
    return replace(terms, start_ms=start, end_ms=end, max_runs=runs)


def _policies(chance: Chance, world: World, at: int, terms: JobTerms) -> JobTerms:
    return replace(
        terms,
        catchup=chance.one("catch-up", ("latest", "all", "none")),
        window_ms=chance.one("window of catch-up", (3_600_000, 20_000, 40_000)),
        overlap=chance.one("overlap", ("skip", "skip", "bufferOne", "bufferAll", "allowAll", "cancelOther")),
    )


ASPECTS: Final[dict[str, Callable[[Chance, World, int, JobTerms], JobTerms]]] = {
    "schedule": _schedule,
    "bounds": _bounds,
    "policies": _policies,
}
