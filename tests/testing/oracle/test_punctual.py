"""T7: who has to be in time, and whom a crowd or a bad shard excuses."""

from __future__ import annotations

import msgspec

from mainspring.testing.oracle.journal import Fault
from mainspring.testing.oracle.judge import judge
from mainspring.testing.oracle.world import Host, World
from tests.testing.oracle.model import WITH_COMMITS, Model, started

SILENT = {f"s{number}": Host(kind="silent", seconds=10.0) for number in range(20)}
CROWDED = msgspec.structs.replace(WITH_COMMITS, hosts=SILENT, in_flight_limit=16)


def late(model: Model, *, after_ms: int = 2500) -> Model:
    model.do("create", "t", due=0, mark="one")
    model.advance(after_ms)
    model.deliver("t")
    model.leave()
    return model


def rules(model: Model, world: World) -> set[str]:
    return {violation.rule for violation in judge(model.journal, world)}


def test_a_destination_that_has_answered_waits_for_no_number_of_silent_ones() -> None:
    model = started()
    model.do("create", "before", due=0, mark="zero")
    model.deliver("before")
    model.advance(1500)
    assert rules(late(model), CROWDED) == {"T7"}


def test_a_destination_that_nobody_knows_may_wait_where_silent_ones_take_all_slots() -> None:
    assert rules(late(started()), CROWDED) == set()


def test_slow_destinations_may_take_all_slots_also_from_one_that_has_answered() -> None:
    slow = {name: Host(kind="slow", seconds=3.0) for name in SILENT}
    model = started()
    model.do("create", "before", due=0, mark="zero")
    model.deliver("before")
    model.advance(1500)
    assert rules(late(model), msgspec.structs.replace(CROWDED, hosts=slow)) == set()


def refused(shard: int) -> Model:
    model = started()
    model.write(
        Fault(at=model.now, until=model.now + 5_000_000, kind="store", shard=shard, verb="begin", mode="refuse")
    )
    return late(model)


def test_a_shard_that_is_refused_excuses_no_other() -> None:
    assert rules(refused(shard=1), WITH_COMMITS) == {"T7"}


def test_a_shard_that_is_refused_excuses_its_own_rows() -> None:
    assert rules(refused(shard=0), WITH_COMMITS) == set()
