"""Runs that are staged for a situation that chance alone brings about too rarely: what would hide it is left out.

A scene takes a plan that was drawn, and puts its own world, operations and faults in place of some of them. What it
draws has labels of its own, so that all other runs stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from mainspring.testing.oracle.journal import JobTerms
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.plan import OPENING, Blow, Destination, Operation, Plan, Regime, World

Scene = Callable[[Chance, Plan], Plan]


def staged(chance: Chance, plan: Plan, scenes: Sequence[Scene], *, percent: float) -> Plan:
    """The plan, or in this many runs out of a hundred a scene."""
    if not chance.percent("staged", percent):
        return plan
    return chance.one("scene", scenes)(chance, plan)


def _calm(world: World, *, instances: int, latency: int) -> World:
    """Nothing goes wrong by itself, and there is room for everything."""
    return replace(
        world,
        instances=instances,
        window_limit=8192,
        window_bytes=16_777_216,
        in_flight_limit=1024,
        host_limit=128,
        page_size=500,
        latency=latency,
        spikes=False,
        lease_seconds=max(world.lease_seconds, latency / 50),
        renew_seconds=max(world.lease_seconds, latency / 50) / 3,
        store_timeout=max(world.store_timeout, 2 * latency),
        wakeups_lost=0,
        skews=world.skews[:instances],
        left_dead=(),
        left_cut=None,
    )


def more_shards(chance: Chance, plan: Plan) -> Plan:
    """The namespace gets more shards, which takes a while: everything else happens so much later that new timers begin
    to go there in the middle of it."""
    later = chance.number("more shards: later", 3_000, 11_000)
    return replace(
        plan,
        world=replace(plan.world, more_shards=chance.one("more shards", (1, 3, 16))),
        operations=tuple(
            replace(
                operation,
                at=operation.at + later,
                instant=None if operation.instant is None else operation.instant + later,
            )
            for operation in plan.operations
        ),
        regimes=tuple(replace(regime, at=regime.at + later) for regime in plan.regimes),
        blows=tuple(replace(blow, at=blow.at + later) for blow in plan.blows),
    )


# --- timers -----------------------------------------------------------------------------------------------


def alone(chance: Chance, plan: Plan) -> Plan:
    """One instance that notices other writers, of which there are none: it never reads again what it has read. Rows are
    written while others come due, so that some lie behind the position that a shard was read to."""
    world = replace(
        _calm(plan.world, instances=1, latency=chance.one("alone: latency", (200, 100, 50))),
        shards=1,
        notices=True,
        destinations=(Destination(),),
    )
    operations = [
        Operation(
            client=number % 8,
            at=OPENING + chance.number("alone: at", 0, 2_000),
            verb="create",
            ids=(f"n{number}",),
            awaits=False,
            delay=chance.one("alone: delay", (0, 100, 200, 500)),
        )
        for number in range(chance.number("alone: operations", 50, 120))
    ]
    return replace(plan, world=world, operations=_ordered(operations), regimes=(), blows=())


def silence(chance: Chance, plan: Plan) -> Plan:
    """Many destinations that never answer, more than there are slots; and two that do, and are known to."""
    silent = chance.number("silence: silent", 12, 40)
    world = replace(
        _calm(plan.world, instances=1, latency=chance.one("silence: latency", (1, 0, 5))),
        in_flight_limit=chance.one("silence: in flight", (16, 8, 64)),
        window_limit=chance.one("silence: window", (8192, 128)),
        destinations=(
            *(Destination(),) * 2,
            *(Destination(kind="silent", healed=chance.percent("silence: healed", 50)),) * silent,
        ),
    )
    operations = [_to(place, OPENING, place) for place in range(2)]
    operations += [
        Operation(
            client=2,
            at=OPENING + 1_000 + 1_000 * batch,
            verb="create-batch",
            ids=tuple(f"s{batch}-{place}" for place in range(silent)),
            destination=2,
            delay=chance.number("silence: delay", 0, 500),
            call_timeout=chance.one("silence: timeout", (5_000, 2_000)),
            policy=chance.number("silence: policy", 0, len(world.policies) - 1),
        )
        for batch in range(chance.number("silence: batches", 1, 4))
    ]
    operations += [
        _to(number % 2, OPENING + 1_500 + chance.number("silence: at", 0, 5_000), number)
        for number in range(2, 2 + chance.number("silence: others", 5, 20))
    ]
    return replace(plan, world=world, operations=_ordered(operations), regimes=(), blows=())


def bad_shard(chance: Chance, plan: Plan) -> Plan:
    """One shard cannot be written to for a while, in which so many rows come due that nearly every batch has one of
    its rows."""
    world = replace(
        _calm(plan.world, instances=1, latency=chance.one("bad shard: latency", (20, 5))),
        shards=chance.one("bad shard: shards", (2, 4)),
        destinations=(Destination(),) * 3,
    )
    regime = Regime(
        at=OPENING + 1_000,
        length=chance.number("bad shard: length", 2_000, 4_000),
        kind=chance.one("bad shard: kind", ("refuse", "refuse", "lose")),
        shard=chance.number("bad shard", 0, world.shards - 1),
        verb="begin",
    )
    operations = [
        Operation(
            client=batch,
            at=OPENING + chance.number("bad shard: at", 0, 500),
            verb="create-batch",
            ids=tuple(f"b{batch}-{place}" for place in range(10)),
            instant=regime.at + chance.number("bad shard: instant", 0, 2_000),
        )
        for batch in range(chance.number("bad shard: batches", 10, 20))
    ]
    return replace(plan, world=world, operations=_ordered(operations), regimes=(regime,), blows=())


def second_look(chance: Chance, plan: Plan) -> Plan:
    """Rows are changed while they are begun, and are then looked at once more. Some looks fail, and late: by then the
    row has been read again, and its call is under way. A destination takes one at a time: losing a slot stops it.
    """
    latency = chance.one("second look: latency", (50, 100, 20))
    world = replace(
        _calm(plan.world, instances=1, latency=latency),
        host_limit=1,
        store_timeout=chance.one("second look: timeout", (300, 500)),
        destinations=(Destination(kind="slow", seconds=0.9),) * chance.one("second look: destinations", (1, 3)),
    )
    operations: list[Operation] = []
    for number in range(chance.number("second look: rows", 8, 16)):
        due = OPENING + 1_000 + chance.number("second look: due", 0, 4_000)
        made = Operation(
            client=2 * number,
            at=OPENING + chance.number("second look: at", 0, 500),
            verb="create",
            ids=(f"r{number}",),
            instant=due,
            destination=number % len(world.destinations),
            policy=chance.number("second look: policy", 0, len(world.policies) - 1),
        )
        operations.append(made)
        for label in "aba"[: chance.number("second look: changes", 1, 3)]:
            at = due - latency + chance.number("second look: changed", 0, 3 * latency)
            changed = Operation(client=made.client + 1, at=at, verb="update", ids=made.ids, awaits=False, label=label)
            operations.append(changed)
    regime = Regime(at=OPENING + 900, length=5_000, kind="hang", verb="get", percent=50)
    return replace(plan, world=world, operations=_ordered(operations), regimes=(regime,), blows=())


def step_back(chance: Chance, plan: Plan) -> Plan:
    """More is due than the window holds when the store's clock steps back, to before some of it was due. An instance
    that is alone, and notices other writers, never reads again what it has read."""
    world = replace(
        _calm(plan.world, instances=1, latency=chance.one("step back: latency", (1, 5, 20))),
        shards=chance.one("step back: shards", (1, 2)),
        notices=True,
        window_limit=chance.one("step back: window", (8, 3, 2)),
        page_size=chance.one("step back: page", (500, 7)),
        destinations=(Destination(kind="slow", seconds=0.5),) * 3,
    )
    due = OPENING + 1_500
    operations = [
        Operation(
            client=number,
            at=OPENING + chance.number("step back: at", 0, 500),
            verb="create-batch",
            ids=tuple(f"b{number}-{place}" for place in range(10)),
            instant=due + chance.number("step back: instant", 0, 2_000),
            destination=number % 3,
        )
        for number in range(chance.number("step back: batches", 6, 12))
    ]
    back = Blow(
        at=due + chance.number("step back: stepped", 1_000, 3_000),
        kind="store-clock",
        length=chance.one("step back: by", (-1_000, -2_000, -500, -20_000)),
    )
    return replace(plan, world=world, operations=_ordered(operations), regimes=(), blows=(back,))


def lost_begins(chance: Chance, plan: Plan) -> Plan:
    """Attempts are begun, and nobody is told: more of them than the window holds."""
    world = replace(
        _calm(plan.world, instances=1, latency=chance.one("lost begins: latency", (1, 5, 20))),
        window_limit=chance.one("lost begins: window", (16, 32, 8)),
        destinations=(Destination(),) * 3,
    )
    regime = Regime(
        at=OPENING + 1_000, length=chance.number("lost begins: length", 500, 4_000), kind="lose", verb="begin"
    )
    operations = [
        Operation(
            client=number,
            at=OPENING + chance.number("lost begins: at", 0, 500),
            verb="create-batch",
            ids=tuple(f"b{number}-{place}" for place in range(10)),
            instant=regime.at + chance.number("lost begins: instant", 0, 100),
            destination=number % 3,
            at_most_once=True,
        )
        for number in range(chance.number("lost begins: batches", 8, 14))
    ]
    return replace(plan, world=world, operations=_ordered(operations), regimes=(regime,), blows=())


def _to(destination: int, at: int, number: int) -> Operation:
    return Operation(
        client=destination, at=at, verb="create", ids=(f"f{number}",), awaits=False, destination=destination, delay=0
    )


def _ordered(operations: Sequence[Operation]) -> tuple[Operation, ...]:
    return tuple(sorted(operations, key=lambda operation: (operation.at, operation.client)))


TIMERS: Final[Sequence[Scene]] = (alone, silence, bad_shard, second_look, step_back, lost_begins)


# --- jobs -------------------------------------------------------------------------------------------------


def outage(chance: Chance, plan: Plan) -> Plan:
    """All instances are dead until runs have been missed. These are made up for one after another, at a slow receiver,
    while the next ones come."""
    seconds = chance.one("outage: seconds", (3.0, 2.0))
    world = replace(
        _calm(plan.world, instances=chance.one("outage: instances", (1, 2)), latency=1),
        destinations=(Destination(kind="slow", seconds=seconds),),
    )
    terms = JobTerms(
        schedule=chance.one("outage: schedule", ("*/5 * * * * *", "*/4 * * * * *", "@every 7s")),
        catchup=chance.one("outage: catch-up", ("all", "latest")),
        overlap=chance.one("outage: overlap", ("skip", "bufferOne")),
    )
    at = OPENING + chance.number("outage: at", 8_000, 15_000)
    back = at + chance.number("outage: back", 20_000, 45_000)
    blows = (Blow(at=at, kind="kill", node=-1), Blow(at=back, kind="restart", node=-1))
    return replace(plan, world=world, operations=(_created("j0", OPENING, terms),), regimes=(), blows=blows)


def unwritten(chance: Chance, plan: Plan) -> Plan:
    """Rows cannot be written now and then, while records can; and nobody changes the job."""
    world = replace(
        _calm(plan.world, instances=chance.one("unwritten: instances", (1, 2)), latency=1),
        destinations=(Destination(),),
    )
    terms = JobTerms(
        schedule=chance.one("unwritten: schedule", ("*/5 * * * * *", "*/2 * * * * *", "*/15 * * * * *")),
        catchup=chance.one("unwritten: catch-up", ("latest", "all", "none")),
        overlap=chance.one("unwritten: overlap", ("skip", "allowAll", "bufferAll")),
    )
    regimes = tuple(
        Regime(
            at=OPENING + 2_000 + 8_000 * number + chance.number("unwritten: at", 0, 3_000),
            length=chance.number("unwritten: length", 500, 5_000),
            kind=chance.one("unwritten: kind", ("refuse", "hang", "lose", "late")),
            verb="write",
        )
        for number in range(chance.number("unwritten: how often", 1, 3))
    )
    return replace(plan, world=world, operations=(_created("j0", OPENING, terms),), regimes=regimes, blows=())


def successor(chance: Chance, plan: Plan) -> Plan:
    """A job is deleted and recreated while no row can be written: the clock of the old one finds the new one, which may
    run only a limited number of times."""
    world = replace(
        _calm(plan.world, instances=chance.one("successor: instances", (1, 2)), latency=1),
        destinations=(Destination(),),
    )
    old = JobTerms(schedule=chance.one("successor: old", ("*/2 * * * * *", "*/5 * * * * *")), overlap="allowAll")
    new = replace(
        old,
        schedule=chance.one("successor: new", ("*/5 * * * * *", "*/10 * * * * *", "@every 7s")),
        max_runs=chance.number("successor: runs", 1, 10),
    )
    at = OPENING + chance.number("successor: at", 10_000, 25_000)
    gone = Operation(client=0, at=at, verb="delete", ids=("j0",), timeout=1000)
    regime = Regime(at=at - 50, length=chance.number("successor: length", 1_500, 4_000), kind="refuse", verb="write")
    operations = (_created("j0", OPENING, old), gone, _created("j0", at + 20, new))
    return replace(plan, world=world, operations=operations, regimes=(regime,), blows=())


def _created(name: str, at: int, terms: JobTerms) -> Operation:
    job = replace(terms, seconds=not terms.schedule.startswith("@"))
    return Operation(client=0, at=at, verb="create", ids=(name,), job=job)


JOBS: Final[Sequence[Scene]] = (outage, unwritten, successor)


# --- keys and locks ---------------------------------------------------------------------------------------


def early_successor(chance: Chance, plan: Plan) -> Plan:
    """The store's clock jumps ahead while one program holds locks. Others that ask for them then get each at once, and
    write: the holder believes in its lock until its next renewal, and may write before that."""
    world = replace(_calm(plan.world, instances=3, latency=chance.one("early: latency", (1, 5, 20))), resolves=False)
    lease = round(world.lease_seconds * 1000)
    at = OPENING + 2 * lease
    operations: list[Operation] = []
    for number in range(chance.number("early: locks", 4, 10)):
        taken = OPENING + chance.number("early: taken", 0, lease)
        early = at + 10 + chance.number("early: successor", 0, lease)
        for client, asked, hold in ((0, taken, 4 * lease), (chance.one("early: who", (1, 2)), early, 1)):
            operations.append(
                Operation(client=client, at=asked, verb="hold", ids=(f"l{number}",), node=client, timeout=0, hold=hold)
            )
    ahead = Blow(at=at, kind="store-clock", length=chance.one("early: step", (3_600_000, 60_000)))
    return replace(plan, world=world, operations=_ordered(operations), regimes=(), blows=(ahead,))


KEYS: Final[Sequence[Scene]] = (early_successor,)
