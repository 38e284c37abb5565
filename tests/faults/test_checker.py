"""The checker of the crash test finds nothing in a good journal, and every violation that is planted in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring.testing.torture.checker import CALM_RULES, RULES, check
from mainspring.testing.torture.journal import (
    AnyEntry,
    Arrival,
    Crash,
    Journal,
    Operation,
    StoredAttempt,
    StoredTimer,
    read_journal,
)

T0 = 1_000_000
"""Wall-clock milliseconds at monotonic second 0."""


def created(timer_id: str, at: float, due: float, outcome: str = "ok") -> Operation:
    return operation(timer_id, "create", at, outcome=outcome, generation=1, execute_at=T0 + round(due * 1000))


def operation(
    timer_id: str,
    verb: str,
    at: float,
    *,
    outcome: str = "ok",
    generation: int = 1,
    delivery: int = 1,
    execute_at: int = 0,
    state: str = "scheduled",
    attempts: int = 0,
    code: str = "",
) -> Operation:
    return Operation(
        timer_id=timer_id,
        verb=verb,  # type: ignore[arg-type]
        outcome=outcome,  # type: ignore[arg-type]
        invoked_at=at,
        returned_at=at + 0.01,
        marker="" if verb == "delete" else f"{timer_id}/{generation}",
        code=code,
        delivery_id=f"{timer_id}-{delivery}",
        generation=generation,
        execute_at=execute_at,
        state=state,
        attempts=attempts,
    )


def arrived(
    timer_id: str,
    at: float,
    *,
    due: float,
    attempt: int = 1,
    generation: int = 1,
    delivery: int = 1,
    answer: str = "done",
    at_most_once: bool = False,
) -> Arrival:
    return Arrival(
        timer_id=timer_id,
        at=at,
        wall_ms=T0 + round(at * 1000),
        delivery_id=f"{timer_id}-{delivery}",
        attempt=attempt,
        max_attempts=3,
        generation=generation,
        scheduled_at=T0 + round(due * 1000),
        marker=f"{timer_id}/{generation}",
        at_most_once=at_most_once,
        answer=answer,  # type: ignore[arg-type]
    )


def recorded(timer_id: str, attempt: int = 1, *, delivery: int = 1, next_step: str = "done") -> StoredAttempt:
    outcome = "succeeded" if next_step == "done" else "failed"
    return StoredAttempt(
        timer_id=timer_id, delivery_id=f"{timer_id}-{delivery}", attempt=attempt, outcome=outcome, next=next_step
    )


def stored(timer_id: str, *, attempts: int, at_most_once: bool, state: str = "parked") -> StoredTimer:
    return StoredTimer(
        timer_id=timer_id,
        delivery_id=f"{timer_id}-1",
        generation=1,
        state=state,
        attempts=attempts,
        at_most_once=at_most_once,
        reason="The receiver answered 503.",
    )


def good_journal() -> list[AnyEntry]:
    """Everything that may happen without a promise being broken."""
    return [
        # delivered at once
        created("plain", 0.0, 1.0),
        arrived("plain", 1.0, due=1.0),
        recorded("plain"),
        # repeated after a failure and after a crash, always growing, under one id
        created("retried", 0.0, 1.0),
        arrived("retried", 1.0, due=1.0, answer="fail"),
        arrived("retried", 2.0, due=1.0, attempt=2),
        Crash(at=2.0, how="random"),
        arrived("retried", 3.0, due=1.0, attempt=3),
        recorded("retried", 1, next_step="retry"),
        recorded("retried", 2, next_step="retry"),
        recorded("retried", 3),
        # exhausted
        created("exhausted", 0.0, 1.0),
        *(arrived("exhausted", float(n), due=1.0, attempt=n, answer="fail") for n in (1, 2, 3)),
        *(recorded("exhausted", n, next_step="retry") for n in (1, 2)),
        recorded("exhausted", 3, next_step="parked"),
        stored("exhausted", attempts=3, at_most_once=False),
        # at most once: may have arrived, not repeated, and says so
        created("once", 0.0, 1.0),
        arrived("once", 1.0, due=1.0, at_most_once=True, answer="fail"),
        recorded("once", next_step="parked"),
        stored("once", attempts=1, at_most_once=True),
        # moved to a later time while a call was in flight
        created("moved", 0.0, 1.0),
        operation("moved", "update", 1.0, generation=2, delivery=2, execute_at=T0 + 4000),
        arrived("moved", 1.1, due=1.0, answer="fail"),
        arrived("moved", 4.0, due=4.0, generation=2, delivery=2),
        recorded("moved", delivery=2),
        # deleted while its only call was in flight
        created("deleted", 0.0, 1.0),
        operation("deleted", "delete", 1.0, state="running", attempts=1),
        arrived("deleted", 1.1, due=1.0),
        # perhaps deleted, perhaps not
        created("perhaps", 0.0, 5.0),
        operation("perhaps", "delete", 1.0, outcome="info", code="network"),
        operation("perhaps", "update", 2.0, outcome="fail", code="not_found"),
        # never acknowledged, and never there
        created("unborn", 0.0, 1.0, outcome="info"),
        operation("unborn", "update", 1.0, outcome="fail", code="not_found"),
        # moved on by its receiver
        created("again", 0.0, 1.0),
        arrived("again", 1.0, due=1.0, answer="reschedule"),
        arrived("again", 2.0, due=2.0, generation=2, delivery=2),
        recorded("again", next_step="rescheduled"),
        recorded("again", delivery=2),
        # found nothing, because it was done
        created("too-late", 0.0, 1.0),
        arrived("too-late", 1.0, due=1.0),
        recorded("too-late"),
        operation("too-late", "delete", 2.0, outcome="fail", code="not_found"),
    ]


def calm_journal() -> list[AnyEntry]:
    """The same without the crash, and so without the repeat that only a crash excuses."""
    story = [entry for entry in good_journal() if getattr(entry, "timer_id", "") != "retried"]
    return [
        *(entry for entry in story if not isinstance(entry, Crash)),
        created("retried", 0.0, 1.0),
        arrived("retried", 1.0, due=1.0, answer="fail"),
        arrived("retried", 2.0, due=1.0, attempt=2),
        recorded("retried", 1, next_step="retry"),
        recorded("retried", 2),
    ]


Doctor = Callable[[list[AnyEntry]], list[AnyEntry]]


def without(kind: type[AnyEntry], timer_id: str) -> Doctor:
    return lambda entries: [e for e in entries if not (isinstance(e, kind) and getattr(e, "timer_id", "") == timer_id)]


def having(*more: AnyEntry) -> Doctor:
    return lambda entries: [*entries, *more]


def changed(kind: type[AnyEntry], timer_id: str, **fields: object) -> Doctor:
    """The last entry of this kind, altered."""

    def doctor(entries: list[AnyEntry]) -> list[AnyEntry]:
        index = max(i for i, e in enumerate(entries) if isinstance(e, kind) and getattr(e, "timer_id", "") == timer_id)
        return [*entries[:index], replace(entries[index], **fields), *entries[index + 1 :]]

    return doctor


PLANTED: list[tuple[str, str, Doctor]] = [
    ("lost", "never arrived", without(Arrival, "plain")),
    ("lost", "only ever failed, and gone", without(StoredTimer, "exhausted")),
    ("lost", "the acknowledged update never arrived", changed(Arrival, "moved", generation=1, delivery_id="moved-1")),
    ("lost", "moved on by its receiver into nothing", changed(Arrival, "again", answer="fail")),
    ("resurrected", "a delete that was undone", having(stored("deleted", attempts=1, at_most_once=True))),
    (
        "vanished",
        "nobody deleted it",
        having(created("x", 0, 9), operation("x", "delete", 1, outcome="fail", code="not_found")),
    ),
    ("stuck", "retrying for ever", changed(StoredTimer, "exhausted", state="retrying")),
    ("unexplained", "no reason", changed(StoredTimer, "once", reason="")),
    ("unexplained", "gave up too soon", changed(StoredTimer, "exhausted", attempts=2)),
    ("deleted-fired", "a new attempt at once", having(arrived("deleted", 1.2, due=1.0, attempt=2))),
    ("deleted-fired", "loaded before, sent later", having(arrived("deleted", 2.5, due=1.0, generation=0, delivery=0))),
    ("outdated-fired", "loaded before the update", having(arrived("moved", 3.0, due=1.0, attempt=2))),
    ("wrong-content", "an old payload", changed(Arrival, "moved", marker="moved/1")),
    ("wrong-content", "another time", changed(Arrival, "plain", scheduled_at=T0 + 999)),
    ("changed-id", "a repeat under a new id", changed(Arrival, "retried", delivery_id="retried-9")),
    ("repeated", "twice", having(arrived("once", 2.0, due=1.0, attempt=2, at_most_once=True))),
    ("done-repeated", "after its end", having(arrived("plain", 2.0, due=1.0, attempt=2))),
    ("attempts-fell", "counted in memory", changed(Arrival, "retried", attempt=2)),
    ("attempts-beyond", "one more", having(arrived("exhausted", 4.0, due=1.0, attempt=4))),
    ("unrecorded", "no history", without(StoredAttempt, "retried")),
    ("early", "by a tenth", changed(Arrival, "plain", wall_ms=T0 + 900)),
]
PLANTED_IN_CALM: list[tuple[str, str, Doctor]] = [
    (
        "accepted-again",
        "its owner let go of it before the acceptance was recorded",
        lambda entries: [
            *changed(StoredAttempt, "retried", outcome="unknown", next="retry")(entries),
            arrived("retried", 2.2, due=1.0, attempt=3),
            recorded("retried", 3),
        ],
    ),
    (
        "accepted-again",
        "moved on by its receiver, and sent once more as before",
        lambda entries: [
            *(entry for entry in entries if not (isinstance(entry, StoredAttempt) and entry.timer_id == "again")),
            arrived("again", 1.3, due=1.0, attempt=2, answer="reschedule"),
            recorded("again", 1, next_step="retry"),
            recorded("again", 2, next_step="rescheduled"),
            recorded("again", delivery=2),
        ],
    ),
]


def test_a_journal_without_violations_passes() -> None:
    assert check(good_journal()) == []


@pytest.mark.parametrize(("rule", "story", "doctor"), PLANTED, ids=[f"{rule}: {story}" for rule, story, _ in PLANTED])
def test_a_planted_violation_is_found(rule: str, story: str, doctor: Doctor) -> None:
    assert rule in {violation.rule for violation in check(doctor(good_journal()))}


def test_a_calm_journal_without_violations_passes() -> None:
    assert check(calm_journal(), calm=True) == []


@pytest.mark.parametrize(("rule", "story", "doctor"), PLANTED_IN_CALM, ids=[story for _, story, _ in PLANTED_IN_CALM])
def test_what_only_a_crash_excuses_is_found_in_a_calm_run(rule: str, story: str, doctor: Doctor) -> None:
    entries = doctor(calm_journal())
    assert check(entries) == [], "expected a journal that is good but for its calm"
    assert {violation.rule for violation in check(entries, calm=True)} == {rule}


def test_every_rule_has_a_planted_violation() -> None:
    assert {rule for rule, _, _ in PLANTED} == set(RULES)
    assert {rule for rule, _, _ in PLANTED_IN_CALM} == set(CALM_RULES)


def test_a_journal_reads_back_as_it_was_written(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        for entry in good_journal():
            journal.write(entry)
    assert read_journal(tmp_path / "journal.jsonl") == good_journal()
