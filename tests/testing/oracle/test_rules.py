"""Every rule finds what is planted for it, and no other rule takes it for something else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from mainspring.testing.oracle.journal import AnyEvent, Bound, Call, Commit, Fail, Fault, Ok, Owner, Reply
from mainspring.testing.oracle.judge import RULES, judge
from tests.testing.oracle.broken_services import PLANTED as OF_SERVICES
from tests.testing.oracle.histories import in_flight, the_end_of_the_old_removes_the_new
from tests.testing.oracle.model import LEASE_MS, WITH_COMMITS, WITHOUT, Attempt, Model, started, told

Plant = Callable[[Model], None]
Edit = Callable[[AnyEvent], AnyEvent | None]


def edited(model: Model, edit: Edit) -> None:
    """Change what was written; None leaves an event out."""
    model.journal[:] = [after for before in model.journal if (after := edit(before)) is not None]


def with_fields(kind: type[AnyEvent], **changes: Any) -> Edit:
    def edit(event: AnyEvent) -> AnyEvent:
        fits = isinstance(event, kind)
        return msgspec.structs.replace(event, **changes) if fits else event

    return edit


# --- T1 ---------------------------------------------------------------------------------------------------


def a_delete_is_acknowledged_and_not_done(m: Model) -> None:
    view = m.do("create", "t", due=0, mark="one")
    assert view is not None
    asking = m.ask("delete", "t")
    m.write(Ok(at=m.now, op=asking.invoke.op, views=(view,)))
    m.deliver("t")
    m.leave()


def a_row_is_gone(m: Model) -> None:
    m.do("create", "t", due=5000, mark="one")
    del m.rows["t"]
    m.leave()


def a_refusal_is_taken_for_done(m: Model) -> None:
    attempt = in_flight(m)
    m.reply(attempt, 503)
    m._conclude(attempt, "done", "succeeded", None)
    m.leave()


def a_create_that_failed_replaces_the_timer(m: Model) -> None:
    m.do("create", "t", due=5000, mark="one")
    asking = m.ask("create", "t", due=6000, mark="two")
    m.land(asking)
    m.write(Fail(at=m.now, op=asking.invoke.op, code="store_unavailable", status=503))
    m.leave()


def a_deleted_row_is_back(m: Model) -> None:
    m.do("create", "t", due=3_600_000, mark="one")
    row = m.rows["t"]
    m.do("delete", "t")
    m.rows["t"] = row
    m.leave()


def a_replaced_row_is_back(m: Model) -> None:
    m.do("create", "t", due=3_600_000, mark="one")
    row = m.rows["t"]
    m.do("create", "t", due=3_600_000, mark="two")
    m.rows["t"] = row
    m.leave()


def a_row_that_nobody_asked_for(m: Model) -> None:
    m.do("create", "t", due=3_600_000, mark="one")
    m.rows["u"] = replace(m.rows["t"], id="u", delivery_id="D9")
    m.leave()


def parked_without_a_reason(m: Model) -> None:
    m.do("create", "t", due=0, mark="one", delivery="at-most-once")
    m.deliver("t", 500)
    m.rows["t"] = replace(m.rows["t"], reason="")
    m.leave()


# --- T3, T4 -----------------------------------------------------------------------------------------------


def sent_early(m: Model) -> None:
    m.do("create", "t", due=500, mark="one")
    m.deliver("t")
    m.leave()


def sent_and_never_begun(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.arrive(Attempt(replace(m.rows["t"], attempts=1), "i1", 1, m.wall_ms))
    m.do("park", "t")
    m.leave()


def the_old_is_sent_under_the_begin_of_the_new(m: Model) -> None:
    """As when versions begin again: the begin finds the version that it expects, on another timer."""
    m.do("create", "t", due=0, mark="old")
    old = m.rows["t"]
    m.do("delete", "t")
    m.do("create", "t", due=0, mark="new")
    attempt = m.begin("t")
    m.arrive(replace(attempt, timer=replace(old, attempts=1)))
    m.kill("i1")
    m.take_over("i2")
    m.deliver("t")
    m.leave()


def sent_with_what_was_replaced(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.do("update", "t", mark="two")
    m.advance(3000)
    m.deliver("t")
    edited(m, with_fields(Call, mark="one", generation=1))
    m.leave()


def another_time_and_the_same_delivery(m: Model) -> None:
    view = m.do("create", "t", due=0, mark="one")
    m.do("update", "t", due=1000, mark="two")
    assert view is not None
    fresh = m.rows["t"].delivery_id
    m.rows["t"] = replace(m.rows["t"], delivery_id=view.delivery_id)

    def edit(event: AnyEvent) -> AnyEvent:
        return msgspec.json.decode(  # type: ignore[no-any-return]
            msgspec.json.encode(event).replace(fresh.encode(), view.delivery_id.encode()), type=AnyEvent
        )

    edited(m, edit)
    m.leave()


def sent_after_a_delete(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.do("delete", "t")
    m.advance(4000)
    m.arrive(attempt)
    m.reply(attempt)
    m.leave()


def begun_after_a_delete(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = Attempt(replace(m.rows["t"], attempts=1), "i1", 1, m.wall_ms)
    m.do("delete", "t")
    m.arrive(attempt)
    m.reply(attempt)
    m.leave()


def other_content_than_acknowledged(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t")
    edited(m, with_fields(Call, mark="two"))
    m.leave()


# --- T5, T6 -----------------------------------------------------------------------------------------------


def at_most_once_comes_twice(m: Model) -> None:
    attempt = in_flight(m, delivery="at-most-once")
    m.kill("i1")
    m.advance(LEASE_MS)
    m.claim("i2")
    m._conclude(Attempt(attempt.timer, "i2", 2, m.wall_ms), "retry", "unknown", m.wall_ms)
    m.deliver("t")
    m.leave()


def begun_again_after_its_end(m: Model) -> None:
    m.do("create", "t", due=0, mark="one", delivery="at-most-once")
    m.deliver("t", 500)
    m.rows["t"] = replace(m.rows["t"], state="retrying", due_ms=m.wall_ms)
    attempt = m.begin("t")
    attempt.reply = Reply(at=m.now, delivery_id="", attempt=2, accepted=False, status=500)
    m.finish(attempt)
    m.leave()


def accepted_twice_without_a_fault(m: Model) -> None:
    attempt = in_flight(m)
    m.reply(attempt)
    m.claim("i2")
    m.lost(m.rows["t"], "i2")
    m.deliver("t")
    m.leave()


def accepted_twice_and_the_fault_was_another_shards(m: Model) -> None:
    m.write(Fault(at=m.now, kind="store", shard=7, until=m.now + 60_000_000, mode="refuse"))
    accepted_twice_without_a_fault(m)


def attempts_fall(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t", 503)
    m.advance(3000)
    m.deliver("t", 503)
    edited(m, lambda event: msgspec.structs.replace(event, attempt=1) if isinstance(event, Call | Reply) else event)
    m.history[1:] = [msgspec.structs.replace(m.history[0], attempt=2)]
    m.do("park", "t")
    m.leave()


def a_call_after_the_recorded_end(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t", 503)
    m.advance(3000)
    m.deliver("t")
    m.history[0] = msgspec.structs.replace(m.history[0], next="dropped")
    m.history[1] = msgspec.structs.replace(m.history[1], next="superseded")
    m.leave()


def more_attempts_than_the_policy(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    for _ in range(4):
        m.deliver("t", 503)
        m.advance(2000)
        m.rows["t"] = replace(m.rows["t"], state="retrying")
    edited(m, lambda event: msgspec.structs.replace(event, next="retry") if isinstance(event, Commit) else event)
    m.history[:] = [msgspec.structs.replace(entry, next="retry") for entry in m.history]
    m.deliver("t")
    m.leave()


def a_wait_that_is_too_short(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t", 503)
    m.rows["t"] = replace(m.rows["t"], due_ms=m.wall_ms)
    m.advance(50)
    m.deliver("t")
    m.leave()


def a_wait_that_is_too_short_long_after_a_step_of_the_clock(m: Model) -> None:
    m.write(Fault(at=m.now, kind="store-clock"))
    m.advance(2 * LEASE_MS)
    a_wait_that_is_too_short(m)


# --- H, U -------------------------------------------------------------------------------------------------


def a_second_entry(m: Model) -> None:
    attempt = in_flight(m)
    m.reply(attempt, 503)
    m.finish(attempt)
    m.history.append(m.history[-1])
    entry = next(event for event in reversed(m.journal) if isinstance(event, Commit))
    m.write(msgspec.structs.replace(entry, before=None, after=None, next="superseded"))
    m.advance(1000)
    m.deliver("t")
    m.leave()


def no_entry(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.deliver("t")
    edited(m, lambda event: msgspec.structs.replace(event, recorded=False) if isinstance(event, Commit) else event)
    m.history.clear()
    m.leave()


def unknown_because_of_another_shard(m: Model) -> None:
    m.write(Fault(at=m.now, kind="store", shard=7, until=m.now + 60_000_000, mode="refuse"))
    unknown_for_no_reason(m)


def unknown_for_no_reason(m: Model) -> None:
    m.do("create", "t", due=0, mark="one", delivery="at-most-once")
    m.begin("t")
    m.advance(50)
    m.lost(m.rows["t"], "i1")
    m.leave()


# --- F ----------------------------------------------------------------------------------------------------


def a_begin_under_an_old_fence(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.claim("i2")
    m.deliver("t")
    edited(m, lambda e: msgspec.structs.replace(e, fence=1) if isinstance(e, Commit) and e.verb == "begin" else e)
    m.leave()


def a_version_that_comes_back(m: Model) -> None:
    m.do("create", "t", due=500, mark="one")
    m.do("update", "t", mark="two")
    edited(
        m,
        lambda event: (
            msgspec.structs.replace(event, before=1, after=1)
            if isinstance(event, Commit) and event.before == 1
            else event
        ),
    )
    m.rows["t"] = replace(m.rows["t"], version=1)
    m.advance(500)
    m.deliver("t")
    m.leave()


def a_begin_outside_the_lease(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.nodes = dict.fromkeys(m.nodes, False)
    m.advance(LEASE_MS + 2000)
    m.nodes = dict.fromkeys(m.nodes, True)
    attempt = m.begin("t")
    m.advance(1)
    m.renew("i1")
    m.send(attempt)
    m.arrive(attempt)
    m.reply(attempt)
    m.finish(attempt)
    m.leave(healed_at=m.now)


def a_call_outside_the_lease(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    attempt = m.begin("t")
    m.nodes = dict.fromkeys(m.nodes, False)
    m.advance(LEASE_MS + 2000)
    m.nodes = dict.fromkeys(m.nodes, True)
    m.send(attempt)
    m.arrive(attempt)
    m.reply(attempt)
    m.advance(1)
    m.renew("i1")
    m.finish(attempt)
    m.leave(healed_at=m.now)


def a_claim_that_skips_a_version(m: Model) -> None:
    m.version += 1
    m.claim("i2")
    m.leave()


# --- B, T7, Live ------------------------------------------------------------------------------------------


def too_many_in_the_window(m: Model) -> None:
    m.leave(bounds=(Bound(node="i1", what="window", value=10, limit=8),))


def more_lanes_than_twice_the_window(m: Model) -> None:
    m.leave(bounds=(Bound(node="i1", what="lanes", value=17, limit=8),))


def a_fast_host_waits_for_a_slow_one(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.advance(2500)
    m.deliver("t")
    m.leave()


def a_row_is_left_behind(m: Model) -> None:
    m.do("create", "t", due=0, mark="one")
    m.advance(30_000)
    m.leave()


def a_row_is_stuck_and_the_run_gave_up_at_once(m: Model) -> None:
    """Nothing happens for three looks; that is long enough with a lease as short as that."""
    m.do("create", "t", due=0, mark="one")
    m.advance(4000)
    m.leave()


def a_shard_without_an_owner(m: Model) -> None:
    m.advance(30_000)
    m.leave(owners=(Owner(shard=0, version=1, owner="i9"),))


PLANTED: list[tuple[str, str, Plant]] = [
    ("T1", "with", a_delete_is_acknowledged_and_not_done),
    ("T1", "with", the_end_of_the_old_removes_the_new),
    ("T1", "without", the_end_of_the_old_removes_the_new),
    ("T1", "both", a_row_is_gone),
    ("T1", "both", a_refusal_is_taken_for_done),
    ("T1", "both", a_create_that_failed_replaces_the_timer),
    ("T1", "both", a_deleted_row_is_back),
    ("T1", "both", a_replaced_row_is_back),
    ("T1", "both", a_row_that_nobody_asked_for),
    ("T1", "both", parked_without_a_reason),
    ("T3", "both", sent_early),
    ("T4", "with", sent_and_never_begun),
    ("T4", "with", the_old_is_sent_under_the_begin_of_the_new),
    ("T4", "both", sent_with_what_was_replaced),
    ("T4", "with", another_time_and_the_same_delivery),
    ("T4", "without", sent_after_a_delete),
    ("T4", "without", begun_after_a_delete),
    ("T4", "both", other_content_than_acknowledged),
    ("T5", "both", at_most_once_comes_twice),
    ("T5", "with", begun_again_after_its_end),
    ("T5", "both", accepted_twice_without_a_fault),
    ("T5", "with", accepted_twice_and_the_fault_was_another_shards),
    ("T5", "without", attempts_fall),
    ("T5", "without", a_call_after_the_recorded_end),
    ("T6", "both", more_attempts_than_the_policy),
    ("T6", "both", a_wait_that_is_too_short),
    ("T6", "both", a_wait_that_is_too_short_long_after_a_step_of_the_clock),
    ("H", "both", a_second_entry),
    ("H", "both", no_entry),
    ("U", "both", unknown_for_no_reason),
    ("U", "with", unknown_because_of_another_shard),
    ("F", "with", a_begin_under_an_old_fence),
    ("F", "with", a_version_that_comes_back),
    ("F", "with", a_begin_outside_the_lease),
    ("F", "with", a_call_outside_the_lease),
    ("F", "with", a_claim_that_skips_a_version),
    ("B", "both", too_many_in_the_window),
    ("B", "both", more_lanes_than_twice_the_window),
    ("T7", "both", a_fast_host_waits_for_a_slow_one),
    ("Live", "both", a_row_is_left_behind),
    ("Live", "both", a_row_is_stuck_and_the_run_gave_up_at_once),
    ("Live", "both", a_shard_without_an_owner),
]

LATE = {
    "a_begin_outside_the_lease",
    "a_call_outside_the_lease",
    "sent_with_what_was_replaced",
    "sent_after_a_delete",
    "more_attempts_than_the_policy",
}
"""They take their time, so punctuality is not asked of them."""


@pytest.mark.parametrize(
    ("rule", "mode", "plant"),
    [
        pytest.param(rule, mode, plant, id=f"{rule}-{plant.__name__}-{mode}")
        for rule, modes, plant in PLANTED
        for mode in (("with", "without") if modes == "both" else (modes,))
    ],
)
def test_a_planted_violation_is_found_by_its_rule_alone(rule: str, mode: str, plant: Plant) -> None:
    model = started()
    plant(model)
    journal, world = (model.journal, WITH_COMMITS) if mode == "with" else (told(model.journal), WITHOUT)
    if plant.__name__ in LATE:
        world = msgspec.structs.replace(world, in_flight_limit=1)
    if plant is a_row_is_stuck_and_the_run_gave_up_at_once:
        world = msgspec.structs.replace(world, lease_seconds=0.5)
    found = judge(journal, world)
    assert {violation.rule for violation in found} == {rule}, "\n".join(map(str, found))


def test_every_rule_has_something_planted_for_it() -> None:
    planted = {rule for rule, _, _ in PLANTED} | {rule for rule, _ in OF_SERVICES.values()}
    assert planted == set(RULES)
