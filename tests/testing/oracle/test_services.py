"""The rules of jobs, fetches, keys and locks: legal journals raise nothing, planted violations are found."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.testing.oracle.journal import (
    Asked,
    Effect,
    Fault,
    Fetched,
    Held,
    Info,
    Invoke,
    Ok,
    Service,
    View,
)
from mainspring.testing.oracle.judge import judge
from mainspring.testing.oracle.world import World
from mainspring.wire.instants import to_instant, to_ms
from tests.testing.oracle.broken_services import (
    ALL_DOWN,
    CALM,
    DONE,
    EPOCH_MS,
    FORGOTTEN,
    GOOD,
    PLANTED,
    SECOND,
    Journal,
    _with,
    an_overlap_with_what_is_not_on_record_as_ended,
    call,
    claimed,
    fetch,
    instants,
    ledger,
    left_with,
    missed_before,
    operation,
    refused,
    run,
    skipped,
    work,
    wrote,
)
from tests.testing.oracle.model import WITH_COMMITS, WITHOUT


def unknown(op: str, at: int, service: Service, verb: str, item: Asked) -> Journal:
    asked = Invoke(at=at, op=op, client=f"c{op}", service=service, verb=verb, items=(item,))
    return [asked, Info(at=at + SECOND, op=op, reason="cut")]


# --- jobs -------------------------------------------------------------------------------------------------


def an_outage(catchup: Any) -> Journal:
    down = instants(65, 100)
    runs = [run for run in CALM if to_ms(run.scheduled_at) not in down]
    reason = "missed" if catchup == "none" else "superseded"
    runs.append(skipped(down[0], down[-1], reason, judged=EPOCH_MS + 116_000))
    return ledger(runs, ALL_DOWN, Fault(at=60 * SECOND, kind="pause", until=116 * SECOND), terms=_with(catchup=catchup))


def an_edited_calendar() -> Journal:
    """Every 5 seconds, then every 10; what was planned ahead is skipped as changed."""
    edit = operation("2", 100 * SECOND, "jobs", "update", Asked(id="j", job=_with(schedule="*/10 * * * * *")))
    runs = [run(instant) for instant in instants(5, 100)] + [run(instant) for instant in instants(110, 200, 10)]
    runs.append(skipped(EPOCH_MS + 105_000, EPOCH_MS + 105_000, "changed", judged=EPOCH_MS + 105_000))
    return ledger(runs, *edit)


def a_delete_that_may_have_happened() -> Journal:
    lost = unknown("2", 100 * SECOND, "jobs", "delete", Asked(id="j"))
    return ledger([run(instant) for instant in instants(5, 100)], *lost)


def a_job_that_was_deleted_and_created_again() -> Journal:
    delete = operation("2", 80 * SECOND, "jobs", "delete", Asked(id="j"))
    again = operation("3", 120 * SECOND, "jobs", "create", Asked(id="j", job=_with(schedule="*/20 * * * * *")))
    runs = [run(instant) for instant in instants(5, 80)] + [run(instant) for instant in instants(140, 200, 20)]
    runs.append(skipped(EPOCH_MS + 85_000, EPOCH_MS + 85_000, "deleted", judged=EPOCH_MS + 85_000))
    return ledger(runs, *delete, *again)


def a_job_that_was_paused() -> Journal:
    pause = operation("2", 80 * SECOND, "jobs", "pause", Asked(id="j"))
    resume = operation("3", 120 * SECOND, "jobs", "resume", Asked(id="j"))
    runs = [run(instant) for instant in (*instants(5, 80), *instants(125, 200))]
    runs.append(skipped(EPOCH_MS + 85_000, EPOCH_MS + 120_000, "paused", judged=EPOCH_MS + 121_000))
    return ledger(runs, *pause, *resume)


def an_overlap() -> Journal:
    slow = run(instants()[2], finished_at=to_instant(instants()[3] + 1000))
    behind = skipped(instants()[3], instants()[3], "overlap", judged=instants()[3])
    return ledger([*CALM[:2], slow, behind, *CALM[4:]])


# --- fetches ----------------------------------------------------------------------------------------------


TAKEN = Effect(at=6 * SECOND, service="fetches", key="r", token="once", mark="result")


# --- keys and locks ---------------------------------------------------------------------------------------


LEGAL: dict[str, Journal] = {
    "a calm job": ledger(CALM),
    "an outage, none": an_outage("none"),
    "an outage, latest": an_outage("latest"),
    "an edited calendar": an_edited_calendar(),
    "a delete that may have happened": a_delete_that_may_have_happened(),
    "deleted and created again": a_job_that_was_deleted_and_created_again(),
    "paused and resumed": a_job_that_was_paused(),
    "missed when it was paused": missed_before(
        EPOCH_MS + 118_000, *operation("2", 117 * SECOND, "jobs", "pause", Asked(id="j"))
    ),
    "an overlap": an_overlap(),
    "an overlap with a run whose end is not on record": an_overlap_with_what_is_not_on_record_as_ended(
        recorded_ms=instants()[3] + 1000
    ),
    "a job that has run as often as it may": ledger(CALM[:7], terms=_with(max_runs=7)),
    "a fetch": fetch(TAKEN, fetched=(GOOD,)),
    "a fetch whose result is given up": fetch(
        fetched=(Fetched(id="r", state="succeeded", mark="result", wanted=True, reason="origin is gone"),)
    ),
    "a key and a replay": [*DONE, *call("2", 3)],
    "work that failed and was begun again": [work(0.5, "z", "began"), work(0.6, "z", "failed"), *DONE],
    "a crash, then unknown": [work(1, "a", "began"), *refused("2", 40, "unknown_outcome")],
    "unknown while somebody is about to begin": [refused("1", 1, "", "a")[0], *refused("2", 2, "unknown_outcome", "b")],
    "unknown, of a claim whose program has died": [
        *claimed(1, "a"),
        Fault(at=2 * SECOND, kind="kill", node="a"),
        *refused("2", 40, "unknown_outcome", "b"),
        left_with("unknown"),
    ],
    "unknown, of a claim whose program cannot reach the store": [
        *claimed(1, "a"),
        Fault(at=SECOND, until=30 * SECOND, kind="store", node="a", mode="hang"),
        *refused("2", 20, "unknown_outcome", "b"),
        left_with("free"),
    ],
    "what holders write": [wrote(1, 5, 0), wrote(2, 5, 5), wrote(3, 7, 5)],
    "forgotten and done again": FORGOTTEN,
    "forgotten and done again before somebody is told who had asked before": [
        *FORGOTTEN,
        call("4", 1.5)[0],
        Ok(at=9 * SECOND, op="4", views=(View(id="k", state="completed", mark="r"),)),
    ],
    "a lock that changes hands": [
        Held(at=0, lock="l", client="a", fence=1, until=SECOND),
        Held(at=SECOND, lock="l", client="b", fence=2),
    ],
}


@pytest.mark.parametrize("world", [WITH_COMMITS, WITHOUT], ids=["with", "without"])
@pytest.mark.parametrize("journal", LEGAL.values(), ids=LEGAL.keys())
def test_a_legal_journal_raises_nothing(journal: Journal, world: World) -> None:
    assert judge(journal, world) == []


@pytest.mark.parametrize(("rule", "journal"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_violation_is_found_by_its_rule_alone(rule: str, journal: Journal) -> None:
    found = judge(journal, WITHOUT)
    assert {violation.rule for violation in found} == {rule}, "\n".join(map(str, found))
