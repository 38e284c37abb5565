"""The checker of runs finds what it is there to find: each rule is shown accounts that break it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pytest

from mainspring.jobs.messages import Catchup, RunView
from mainspring.testing.oracle.runs import (
    RULES,
    Arrival,
    Outage,
    Term,
    Watched,
    check,
    instants_of,
    instants_of_terms,
)
from mainspring.wire.instants import to_instant, to_ms
from tests.testing.oracle.broken_services import run

START = 1_785_000_000_000
DOWN, UP = START + 20_000, START + 80_000
"""In between nobody runs; what is due on time when they are back is run."""
INSTANTS = instants_of(lambda local: local.second % 2 == 0, after=START, until=START + 100_000)


def skipped(instants: Sequence[int], reason: str, *, at: int = UP) -> RunView:
    return run(
        instants[0],
        state="skipped",
        reason=reason,
        scheduled_until=to_instant(instants[-1]),
        count=len(instants),
        planned_at=to_instant(at),
        started_at=None,
        finished_at=None,
        attempts=0,
        delivery_id="",
    )


def arrivals(runs: Sequence[RunView]) -> list[Arrival]:
    return [
        Arrival(run.launch_id, run.delivery_id, to_ms(run.started_at))
        for run in runs
        if run.state == "succeeded" and run.started_at is not None
    ]


def account(catchup: Catchup = "latest", window_ms: int = 3_600_000) -> Watched:
    """A faithful one: half a minute of calm, a minute of silence, and what the policy makes of it."""
    missed = [instant for instant in INSTANTS if DOWN <= instant < UP - 15_000]
    runs = [run(instant) for instant in INSTANTS if instant not in missed]
    if catchup == "none":
        runs.append(skipped(missed, "missed"))
    if catchup == "latest":
        runs.append(skipped(missed, "superseded"))
    if catchup == "all":
        within = [instant for instant in missed if instant + window_ms >= UP]
        outside = [instant for instant in missed if instant not in within]
        runs += [run(instant, kind="catchup", started_at=to_instant(UP)) for instant in within]
        runs += [skipped(outside, "outside-window")] if outside else []
    return Watched("j", INSTANTS, runs, arrivals(runs), catchup, "skip", window_ms, [Outage(DOWN, UP)])


@pytest.mark.parametrize(
    "job",
    [account("none"), account("latest"), account("all"), account("all", 30_000)],
    ids=["none", "latest", "all", "window"],
)
def test_a_faithful_account_passes(job: Watched) -> None:
    assert check(job) == []


def test_a_run_that_was_repeated_under_its_id_passes() -> None:
    job = account()
    run = msgspec.structs.replace(job.runs[0], attempts=2)
    again = job.arrivals[0]._replace(at=job.arrivals[0].at + 3000)
    assert check(replace(job, runs=[run, *job.runs[1:]], arrivals=[*job.arrivals, again])) == []


def test_one_that_was_skipped_while_another_was_under_way_passes() -> None:
    job = account()
    slow = msgspec.structs.replace(job.runs[0], finished_at=to_instant(INSTANTS[1] + 1))
    behind = skipped([INSTANTS[1]], "overlap")
    assert check(_with(job, 0, slow, 1, behind)) == []


def _with(job: Watched, *changes: int | RunView) -> Watched:
    """Other entries at some places, and what a receiver would then have seen."""
    runs = list(job.runs)
    for place, other in zip(changes[::2], changes[1::2], strict=True):
        assert isinstance(place, int)
        assert isinstance(other, RunView)
        runs[place] = other
    return replace(job, runs=runs, arrivals=arrivals(runs))


def _again(job: Watched) -> Watched:
    twice = run(INSTANTS[3], launch_id="j@another")
    runs = [*job.runs, twice]
    return replace(job, runs=runs, arrivals=arrivals(runs))


def _without(job: Watched, place: int) -> Watched:
    runs = [run for number, run in enumerate(job.runs) if number != place]
    return replace(job, runs=runs, arrivals=arrivals(runs))


def _range_beside(job: Watched) -> Watched:
    """A range that stands for an instant that was run, too."""
    *runs, gap = job.runs
    first = next(instant for instant in reversed(INSTANTS) if instant < DOWN)
    longer = msgspec.structs.replace(gap, scheduled_at=to_instant(first), count=gap.count + 1)
    return replace(job, runs=[*runs, longer], outages=[Outage(first, UP)])


def _arrival(**fields: Any) -> Callable[[Watched], Watched]:
    return lambda job: replace(job, arrivals=[*job.arrivals[1:], job.arrivals[0]._replace(**fields)])


def _last(job: Watched, **fields: object) -> Watched:
    return _with(job, len(job.runs) - 1, msgspec.structs.replace(job.runs[-1], **fields))


def _delayed(*, gap: int, duration_ms: int, catchup_until: int) -> Watched:
    """Of a job of every two seconds: one caught up with, one that it delays, and one `gap` behind that is skipped."""
    job = account("all")
    first = UP + 2_000
    place = next(n for n, run in enumerate(job.runs) if to_ms(run.scheduled_at) == first)
    began = first + 20_000
    late = run(first, started_at=to_instant(began), late_ms=20_000, finished_at=to_instant(began + duration_ms))
    behind = skipped([first + gap], "overlap", at=began + duration_ms)
    last = next(n for n, run in reversed(list(enumerate(job.runs))) if run.kind == "catchup")
    caught_up = msgspec.structs.replace(job.runs[last], finished_at=to_instant(catchup_until))
    return _with(job, place, late, place + gap // 2000, behind, last, caught_up)


def test_one_behind_a_delayed_run_that_takes_longer_than_the_time_between_them_passes() -> None:
    assert check(_delayed(gap=4_000, duration_ms=6_000, catchup_until=UP + 20_000)) == []


def test_the_instants_of_a_job_that_was_edited_are_those_of_each_time() -> None:
    def every(step: int) -> Callable[[datetime], bool]:
        return lambda local: local.second % step == 0

    edited = [
        Term(START, START + 20_000, every(2), end_at=START + 6_000),
        Term(START + 20_000, START + 30_000, every(2)),
        Term(START + 40_000, START + 50_000, every(5)),
    ]
    assert [(instant - START) // 1000 for instant in instants_of_terms(edited)] == [
        *(2, 4, 6),
        *(22, 24, 26, 28, 30),
        *(45, 50),
    ]


def _extended(launched: int) -> Watched:
    """An end that was reached and then extended; `launched` is one that had passed before that."""
    terms = [
        Term(START, START + 20_000, lambda local: local.second % 2 == 0, end_at=START + 6_000),
        Term(START + 20_000, START + 30_000, lambda local: local.second % 2 == 0),
    ]
    instants = instants_of_terms(terms)
    runs = [run(instant) for instant in sorted({*instants, launched})]
    return Watched("j", instants, runs, arrivals(runs))


def test_a_job_whose_end_was_extended_passes_with_what_came_after_the_change() -> None:
    assert check(_extended(START + 22_000)) == []


PLANTED: list[tuple[str, Callable[[], Watched]]] = [
    ("hole", lambda: _without(account(), 3)),
    ("hole", lambda: _without(account(), len(account().runs) - 1)),
    ("doubled", lambda: _again(account())),
    ("doubled", lambda: _range_beside(account())),
    ("stray", lambda: _with(account(), 0, run(INSTANTS[0] + 1000, scheduled_at=to_instant(INSTANTS[0] + 1000)))),
    ("miscounted", lambda: _last(account(), count=3)),
    ("unfinished", lambda: _with(account(), 0, msgspec.structs.replace(account().runs[0], state="planned"))),
    ("wrong-skip", lambda: _with(account(), 0, skipped([INSTANTS[0]], "superseded"))),
    ("wrong-skip", lambda: _with(account("none"), 0, skipped([INSTANTS[0]], "missed"))),
    ("wrong-skip", lambda: _with(account(), 0, skipped([INSTANTS[0]], ""))),
    ("wrong-skip", lambda: _with(account(), 1, skipped([INSTANTS[1]], "overlap"))),
    ("wrong-skip", lambda: _with(account(), 0, run(INSTANTS[0], state="cancelled"))),
    ("wrong-skip", lambda: _last(account(), reason="missed")),
    ("wrong-skip", lambda: _last(account(), reason="outside-window")),
    ("wrong-skip", lambda: _last(account("none"), reason="superseded")),
    ("wrong-skip", lambda: replace(account(), outages=[Outage(DOWN + 4000, UP)])),
    ("wrong-skip", lambda: replace(account(), window_ms=10_000)),
    ("wrong-late", lambda: _with(account(), 0, run(INSTANTS[0], kind="catchup"))),
    ("wrong-late", lambda: replace(account("all"), catchup="none")),
    ("unsent", lambda: replace(account(), arrivals=account().arrivals[1:])),
    ("sent-anyway", lambda: replace(account(), arrivals=[*account().arrivals, Arrival(f"j@{DOWN}", "", UP)])),
    ("unrecorded", lambda: replace(account(), arrivals=[*account().arrivals, Arrival("j@1", "msg_1", UP)])),
    ("unrecorded", lambda: replace(account(), arrivals=[*account().arrivals, account().arrivals[0]])),
    ("changed-id", lambda: _arrival(delivery_id="msg_other")(account())),
    ("early", lambda: _arrival(at=INSTANTS[0] - 100)(account())),
    # An on-time instant that a catch-up has cost, at once and by the delay that it left.
    ("wrong-skip", lambda: _delayed(gap=4_000, duration_ms=6_000, catchup_until=UP + 60_000)),
    ("wrong-skip", lambda: _delayed(gap=4_000, duration_ms=1_000, catchup_until=UP + 20_000)),
    # An end that was extended, and an instant from before that.
    ("stray", lambda: _extended(START + 12_000)),
    # A job that was made anew, and the dead one's clock: the first instants are planned too late, or not at all.
    ("overdue", lambda: _with(account(), 0, run(INSTANTS[0], planned_at=to_instant(INSTANTS[0] + 50_000)))),
    ("recounted", lambda: replace(account(), counted={"succeeded": len(INSTANTS), "cancelled": 1})),
]


@pytest.mark.parametrize(("rule", "planted"), PLANTED, ids=[f"{n}-{rule}" for n, (rule, _) in enumerate(PLANTED)])
def test_a_planted_violation_is_found(rule: str, planted: Callable[[], Watched]) -> None:
    assert rule in {violation.rule for violation in check(planted())}


def test_every_rule_is_broken_by_something() -> None:
    assert {rule for rule, _ in PLANTED} == RULES.keys()
