"""Histories of jobs, fetches and programs in which one rule is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.jobs.ledger import key_of
from mainspring.jobs.messages import RunView
from mainspring.testing.oracle.journal import (
    AnyEvent,
    Asked,
    Call,
    Commit,
    Effect,
    Fail,
    Fault,
    Fetched,
    Held,
    Info,
    Invoke,
    JobTerms,
    Key,
    Left,
    Ok,
    Service,
    View,
)
from mainspring.wire.instants import to_instant, to_ms

EPOCH_MS = 1_785_000_000_000
"""A full minute, and of no change of clocks."""
SECOND = 1_000_000
END = 200 * SECOND
Journal = list[AnyEvent]


def operation(op: str, at: int, service: Service, verb: str, item: Asked, *views: View) -> Journal:
    """Asked and acknowledged."""
    asked = Invoke(at=at, op=op, client=f"c{op}", service=service, verb=verb, items=(item,))
    return [asked, Ok(at=at + SECOND // 100, op=op, views=views)]


TERMS = JobTerms(schedule="*/5 * * * * *", seconds=True)
CREATED = SECOND


def at(instant: int) -> int:
    return (instant - EPOCH_MS) * 1000


def run(instant: int, **fields: Any) -> RunView:
    view = RunView(
        launch_id=f"j@{instant}",
        name="j",
        kind="scheduled",
        state="succeeded",
        scheduled_at=to_instant(instant),
        scheduled_until=None,
        count=1,
        reason="",
        by="",
        planned_at=to_instant(instant - 5000),
        started_at=to_instant(instant),
        late_ms=0,
        finished_at=to_instant(instant + 10),
        attempts=1,
        status=200,
        duration_ms=10,
        answer_head="",
        delivery_id=f"msg_{instant}",
    )
    return msgspec.structs.replace(view, **fields)


def skipped(first: int, last: int, reason: str, *, judged: int) -> RunView:
    return run(
        first,
        state="skipped",
        reason=reason,
        scheduled_until=to_instant(last),
        count=(last - first) // 5000 + 1,
        planned_at=to_instant(judged),
        started_at=None,
        finished_at=None,
        attempts=0,
        delivery_id="",
    )


def instants(first: int = 5, last: int = 200, step: int = 5) -> list[int]:
    """In seconds of the run."""
    return [EPOCH_MS + second * 1000 for second in range(first, last + 1, step)]


def ledger(runs: Sequence[RunView], *more: AnyEvent, terms: JobTerms = TERMS, calls: Sequence[RunView] = ()) -> Journal:
    """A job with these entries, whose receiver saw what they say."""
    journal = operation("1", CREATED, "jobs", "create", Asked(id="j", job=terms, host="a"))
    for run in calls or [run for run in runs if run.state == "succeeded"]:
        instant = to_ms(run.scheduled_at)
        started = to_ms(run.started_at) if run.started_at is not None else instant
        journal.append(
            Call(
                at=at(started),
                service="jobs",
                host="a",
                delivery_id=run.delivery_id,
                attempt=1,
                id="j",
                wall_ms=started,
                instant_ms=instant,
                launch_id=run.launch_id,
            )
        )
    left = Left(at=END, wall_ms=EPOCH_MS + END // 1000, timers=False, jobs=True, runs=tuple(runs), alive=("i1",))
    return [*journal, *more, left]


CALM = [run(instant) for instant in instants()]
ALL_DOWN = Fault(at=60 * SECOND, kind="kill")


def _with(**changes: Any) -> JobTerms:
    return msgspec.structs.replace(TERMS, **changes)


def missed_before(judged: int, *more: AnyEvent) -> Journal:
    """An outage from 60 to 116, of a job that catches up with the latest."""
    down = instants(65, 100)
    runs = [run for run in CALM if to_ms(run.scheduled_at) not in down and to_ms(run.scheduled_at) < judged]
    runs.append(skipped(down[0], down[-1], "missed", judged=judged))
    return ledger(runs, ALL_DOWN, Fault(at=60 * SECOND, kind="pause", until=116 * SECOND), *more)


def an_overlap_with_what_is_not_on_record_as_ended(*, recorded_ms: int) -> Journal:
    """The run before it ended in time. A slow store took its end later, or just in time."""
    ended = Commit(
        at=(recorded_ms - EPOCH_MS) * 1000, node="i1", verb="put", id=f"launch:j/{key_of(str(instants()[2]))}"
    )
    behind = skipped(instants()[3], instants()[3], "overlap", judged=instants()[3])
    return ledger([*CALM[:3], behind, *CALM[4:]], ended)


def without(place: int) -> Journal:
    return ledger([run for number, run in enumerate(CALM) if number != place])


def overlap_with_a_catch_up() -> Journal:
    on_time = instants()[3]
    late = run(
        instants()[2],
        kind="catchup",
        started_at=to_instant(on_time - 1000),
        finished_at=to_instant(on_time + 1000),
    )
    behind = skipped(instants()[3], instants()[3], "overlap", judged=instants()[3])
    return ledger([*CALM[:2], late, behind, *CALM[4:]], ALL_DOWN)


def the_past_of_a_calendar_that_was_extended() -> Journal:
    """It ended at 100; at 150 somebody lets it go on, and it runs what lay in between."""
    terms = _with(end_ms=EPOCH_MS + 100_000)
    edit = operation("2", 150 * SECOND, "jobs", "update", Asked(id="j", job=TERMS))
    runs = [run(i) for i in (*instants(5, 100), *instants(155, 200))]
    return ledger([*runs, run(EPOCH_MS + 110_000, kind="catchup")], *edit, terms=terms)


def fetch(*more: AnyEvent, fetched: Sequence[Fetched] = (), calls: int = 1, end: str = "succeeded") -> Journal:
    item = Asked(id="r", host="p", timeout_ms=5000)
    journal = operation("1", SECOND, "fetches", "create", item, View(id="r", state="pending"))
    for number in range(calls):
        journal.append(
            Call(
                at=(2 + number) * SECOND,
                service="fetches",
                host="p",
                delivery_id="r1",
                attempt=1,
                id="r",
                wall_ms=EPOCH_MS + 2000,
            )
        )
    journal += operation("2", 5 * SECOND, "fetches", "wait", Asked(id="r"), View(id="r", state=end, mark="result"))
    record = fetched or (Fetched(id="r", state="succeeded", mark="result"),)
    left = Left(
        at=END, wall_ms=EPOCH_MS + END // 1000, timers=False, fetches=True, fetched=tuple(record), alive=("i1",)
    )
    return [*journal, *more, left]


GOOD = Fetched(id="r", state="succeeded", mark="result", wanted=True, taken=True)


def call(op: str, seconds: float, result: str = "r", payload: str = "p") -> Journal:
    view = View(id="k", state="completed", mark=result)
    return operation(op, round(seconds * SECOND), "idempotency", "call", Asked(id="k", mark=payload), view)


def work(seconds: float, token: str, stage: Any, mark: str = "") -> Effect:
    return Effect(at=round(seconds * SECOND), key="k", token=token, stage=stage, mark=mark)


def refused(op: str, seconds: float, code: str, node: str = "") -> Journal:
    asked = Invoke(
        at=round(seconds * SECOND),
        op=op,
        client=op,
        service="idempotency",
        verb="call",
        items=(Asked(id="k", mark="p"),),
        node=node,
    )
    return [asked, Fail(at=asked.at + 1, op=op, code=code, status=409)]


DONE = [work(1.001, "a", "began"), work(1.005, "a", "done", "r"), *call("1", 1)]


def claimed(seconds: float, node: str) -> Journal:
    """A caller who does not know whether its claim is there."""
    asked, _ = refused(f"claim of {node}", seconds, "", node)
    return [asked, Info(at=asked.at + 1000, op=f"claim of {node}", reason="store_unavailable")]


def wrote(seconds: float, token: int, over: int) -> Effect:
    return Effect(at=round(seconds * SECOND), service="locks", key="l", token=str(token), mark=str(over))


def left_with(state: str) -> Left:
    alive = ("a", "b")
    return Left(at=END, wall_ms=0, timers=False, idempotency=True, alive=alive, keys=(Key(key="k", state=state),))


FORGOTTEN = [
    *DONE,
    *operation("2", 2 * SECOND, "idempotency", "forget", Asked(id="k")),
    work(3.001, "b", "began"),
    work(3.002, "b", "done", "other"),
    *call("3", 3, "other", "q"),
]


PLANTED: dict[str, tuple[str, Journal]] = {
    "an instant is missing": ("C", without(7)),
    "ended before it has run as often as it may": ("C", ledger(CALM[:7], terms=_with(max_runs=8))),
    "an instant is there twice": ("C", ledger([*CALM, run(instants()[4], launch_id="j@x", delivery_id="x")])),
    "an instant of no calendar": ("C", ledger([*CALM, run(instants()[4] + 1000)])),
    "skipped by an outage that was none": (
        "C",
        ledger([*CALM[:3], skipped(instants()[3], instants()[3], "superseded", judged=instants()[7]), *CALM[4:]]),
    ),
    "skipped by a pause that was none": (
        "C",
        ledger([*CALM[:3], skipped(instants()[3], instants()[3], "paused", judged=instants()[7]), *CALM[4:]]),
    ),
    "missed and not caught up with": ("C", missed_before(EPOCH_MS + 260_000)),
    "missed before the pause that came later": (
        "C",
        missed_before(EPOCH_MS + 118_000, *operation("2", 150 * SECOND, "jobs", "pause", Asked(id="j"))),
    ),
    "skipped by an overlap that was none": (
        "C",
        ledger([*CALM[:3], skipped(instants()[3], instants()[3], "overlap", judged=instants()[3]), *CALM[4:]]),
    ),
    "skipped by a run whose end is on record": (
        "C",
        an_overlap_with_what_is_not_on_record_as_ended(recorded_ms=instants()[3] - 1000),
    ),
    "on time, and skipped because of a catch-up": ("C", overlap_with_a_catch_up()),
    "launched for a time at which it had ended": ("C", the_past_of_a_calendar_that_was_extended()),
    "succeeded and never sent": ("C", ledger(CALM, calls=CALM[1:])),
    "two runs, one delivery": (
        "C",
        ledger([*CALM[:-1], msgspec.structs.replace(CALM[-1], delivery_id=CALM[0].delivery_id)]),
    ),
    "called twice": ("P", fetch(calls=2)),
    "accepted as a repeat of another call": (
        "P",
        fetch(*operation("3", 7 * SECOND, "fetches", "create", Asked(id="r", host="q"), View(id="r", state="pending"))),
    ),
    "the end changes": ("P", fetch(end="unknown")),
    "a result is neither taken nor given up": (
        "P",
        fetch(fetched=(Fetched(id="r", state="succeeded", mark="result", wanted=True),)),
    ),
    "on record as taken, and was not": ("P", fetch(fetched=(GOOD,))),
    "pending for ever": (
        "Live",
        [e for e in fetch(fetched=(Fetched(id="r", state="pending"),)) if getattr(e, "op", "") != "2"],
    ),
    "accepted and not on record": ("Live", fetch(fetched=(Fetched(id="other", state="failed"),))),
    "begun beside another": ("I", [*DONE, work(2, "b", "began"), work(2.1, "b", "done", "r")]),
    "begun again after it was cancelled": (
        "I",
        [work(0.5, "z", "began"), work(0.6, "z", "cancelled"), *DONE],
    ),
    "another result": ("I", [*DONE, *call("2", 3, "other")]),
    "another result than before it was forgotten": ("I", [*FORGOTTEN, *call("4", 9, "r", "q")]),
    "another payload": ("I", [*DONE, *call("2", 3, payload="q")]),
    "unknown, and never begun": ("I", refused("2", 40, "unknown_outcome")),
    "unknown to the program whose claim it was": ("I", [*claimed(1, "a"), *refused("2", 40, "unknown_outcome", "a")]),
    "unknown for long, of a claim whose program is well": (
        "I",
        [*claimed(1, "a"), *refused("2", 40, "unknown_outcome", "b"), left_with("free")],
    ),
    "an earlier holder writes over a later one": ("I", [wrote(1, 7, 5), wrote(2, 5, 7)]),
    "what a later holder wrote is gone": ("I", [wrote(1, 7, 5), wrote(2, 8, 5)]),
    "in progress when nobody is at work": ("Live", [*refused("2", 40, "in_progress", "a"), left_with("done")]),
    "never answered": ("Live", [refused("2", 1, "", "a")[0], left_with("done")]),
    "on record as unknown, and never begun": (
        "I",
        [
            *refused("2", 4, "in_progress"),
            Left(at=END, wall_ms=0, timers=False, idempotency=True, keys=(Key(key="k", state="unknown"),)),
        ],
    ),
    "two believers": (
        "I",
        [Held(at=0, lock="l", client="a", fence=1, until=SECOND + 1), Held(at=SECOND, lock="l", client="b", fence=2)],
    ),
    "a token that does not grow": (
        "I",
        [Held(at=0, lock="l", client="a", fence=2, until=SECOND), Held(at=SECOND, lock="l", client="b", fence=2)],
    ),
}
