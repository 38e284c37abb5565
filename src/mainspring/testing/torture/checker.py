"""Decides from a journal whether the promises were kept: a pure function, tested with planted violations.

| rule             | what it means                                                                               |
|------------------|---------------------------------------------------------------------------------------------|
| lost             | acknowledged and not deleted, but neither delivered nor in the store                        |
| resurrected      | deleted, acknowledged, and in the store at the end                                          |
| vanished         | "not found" although it was acknowledged and has not been delivered                         |
| stuck            | at the end in the store, but not parked                                                     |
| unexplained      | parked without a reason, or although attempts were left to an at-least-once timer           |
| deleted-fired    | a call that started after an acknowledged delete                                            |
| outdated-fired   | a call with what an acknowledged update had replaced                                        |
| wrong-content    | a call that does not carry what was acknowledged for its generation                         |
| changed-id       | two delivery ids for one generation: a repeat that cannot be recognised                     |
| repeated         | an at-most-once delivery arrived twice                                                      |
| done-repeated    | a call after the attempt that the history calls the last of its delivery                    |
| attempts-fell    | attempts of a delivery that do not grow                                                     |
| attempts-beyond  | more attempts than the policy allows                                                        |
| unrecorded       | a call of which the history knows nothing                                                   |
| early            | a call before its time                                                                      |

And in a calm run, in which no server was killed or frozen:

| rule             | what it means                                                                               |
|------------------|---------------------------------------------------------------------------------------------|
| accepted-again   | a call of a delivery that its receiver had accepted before                                  |

A call that was in flight when a change was acknowledged may still arrive for `IN_FLIGHT_SECONDS`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from mainspring.testing.torture.journal import AnyEntry, Arrival, Crash, Operation, StoredAttempt, StoredTimer

EARLY_MS: Final = 50
IN_FLIGHT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    timer_id: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.timer_id}: {self.detail}"


@dataclass(slots=True)
class Life:
    """Everything that is known of one timer, each list in the order of time."""

    timer_id: str
    operations: list[Operation] = field(default_factory=list)
    arrivals: list[Arrival] = field(default_factory=list)
    attempts: list[StoredAttempt] = field(default_factory=list)
    row: StoredTimer | None = None


def check(entries: Iterable[AnyEntry], *, calm: bool = False) -> list[Violation]:
    """All violations, timer by timer. `calm` asks for what may be asked only where nothing was killed or frozen."""
    rules = RULES | CALM_RULES if calm else RULES
    return [
        Violation(rule, life.timer_id, detail)
        for life in lives(entries)
        for rule, find in rules.items()
        for detail in find(life)
    ]


def lives(entries: Iterable[AnyEntry]) -> list[Life]:
    known: dict[str, Life] = {}
    for entry in entries:
        if isinstance(entry, Crash):
            continue
        life = known.setdefault(entry.timer_id, Life(entry.timer_id))
        match entry:
            case Operation():
                life.operations.append(entry)
            case Arrival():
                life.arrivals.append(entry)
            case StoredAttempt():
                life.attempts.append(entry)
            case StoredTimer():
                life.row = entry
    for life in known.values():
        life.operations.sort(key=lambda operation: operation.invoked_at)
        life.arrivals.sort(key=lambda arrival: arrival.at)
    return list(known.values())


# --- what was acknowledged is kept ------------------------------------------------------------------------


def _lost(life: Life) -> Iterator[str]:
    promise = _last_promise(life)
    if promise is None or life.row is not None:
        return
    if not any(
        arrival.answer == "done"
        and (arrival.generation >= promise.generation or arrival.delivery_id == promise.delivery_id)
        for arrival in life.arrivals
    ):
        yield f"{promise.verb} of generation {promise.generation} was acknowledged; it is neither delivered nor stored"


def _last_promise(life: Life) -> Operation | None:
    """The newest acknowledged create or update, unless the timer may have been deleted since."""
    promise = None
    for operation in life.operations:
        if operation.verb == "delete" and operation.outcome != "fail":
            promise = None
        elif operation.outcome == "ok":
            promise = operation
    return promise


def _resurrected(life: Life) -> Iterator[str]:
    if life.row is not None and any(o.verb == "delete" and o.outcome == "ok" for o in life.operations):
        yield f"its delete was acknowledged, and it is {life.row.state} in the store"


def _vanished(life: Life) -> Iterator[str]:
    exists = False
    for operation in life.operations:
        if operation.code == "not_found" and exists:
            delivered = any(a.answer == "done" and a.at < operation.returned_at for a in life.arrivals)
            if not delivered:
                yield f"a {operation.verb} found nothing, but nothing was delivered"
        if operation.verb == "delete" and operation.outcome == "info":
            return
        exists = exists or operation.outcome == "ok"


def _stuck(life: Life) -> Iterator[str]:
    if life.row is not None and life.row.state != "parked":
        yield f"it is {life.row.state} after {life.row.attempts} attempts when everything has come to rest"


def _unexplained(life: Life) -> Iterator[str]:
    row = life.row
    if row is None or row.state != "parked":
        return
    if not row.reason:
        yield "it is parked without a reason"
    allowed = max((arrival.max_attempts for arrival in life.arrivals), default=1)
    if not row.at_most_once and row.attempts < allowed:
        yield f"it is parked after {row.attempts} of {allowed} attempts: {row.reason}"


# --- what was replaced or deleted is not sent -------------------------------------------------------------


def _deleted_fired(life: Life) -> Iterator[str]:
    for operation in life.operations:
        if operation.verb != "delete" or operation.outcome != "ok":
            continue
        for arrival in life.arrivals:
            new_attempt = arrival.delivery_id == operation.delivery_id and arrival.attempt > operation.attempts
            late = arrival.at > operation.returned_at + IN_FLIGHT_SECONDS
            if new_attempt or late:
                yield (
                    f"attempt {arrival.attempt} arrived {arrival.at - operation.returned_at:.3f} s after the delete, "
                    f"which found it {operation.state} after {operation.attempts} attempts"
                )


def _outdated_fired(life: Life) -> Iterator[str]:
    for operation in life.operations:
        if operation.verb == "delete" or operation.outcome != "ok":
            continue
        for arrival in life.arrivals:
            behind = arrival.at - operation.returned_at
            if arrival.generation < operation.generation and behind > IN_FLIGHT_SECONDS:
                yield (
                    f"generation {arrival.generation} arrived {behind:.3f} s after "
                    f"generation {operation.generation} was acknowledged"
                )


def _wrong_content(life: Life) -> Iterator[str]:
    promised = {o.generation: o for o in life.operations if o.outcome == "ok" and o.verb != "delete"}
    for arrival in life.arrivals:
        operation = promised.get(arrival.generation)
        if operation is None:
            continue
        got = (arrival.marker, arrival.delivery_id, arrival.scheduled_at)
        expected = (operation.marker, operation.delivery_id, operation.execute_at)
        if got != expected:
            yield f"expected {expected} in generation {arrival.generation}, got {got}"


# --- repeats and attempts ---------------------------------------------------------------------------------


def _changed_id(life: Life) -> Iterator[str]:
    ids: dict[int, str] = {}
    for arrival in life.arrivals:
        if ids.setdefault(arrival.generation, arrival.delivery_id) != arrival.delivery_id:
            yield f"generation {arrival.generation} arrived as {ids[arrival.generation]} and {arrival.delivery_id}"


def _deliveries(life: Life) -> dict[str, list[Arrival]]:
    found: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in life.arrivals:
        found[arrival.delivery_id].append(arrival)
    return found


def _repeated(life: Life) -> Iterator[str]:
    for delivery_id, arrivals in _deliveries(life).items():
        if len(arrivals) > 1 and any(arrival.at_most_once for arrival in arrivals):
            yield f"{delivery_id} arrived {len(arrivals)} times"


def _done_repeated(life: Life) -> Iterator[str]:
    ended = {a.delivery_id: a.attempt for a in life.attempts if a.next in ("done", "dropped", "rescheduled")}
    for arrival in life.arrivals:
        last = ended.get(arrival.delivery_id)
        if last is not None and arrival.attempt > last:
            yield f"attempt {arrival.attempt} of {arrival.delivery_id} arrived, but attempt {last} had ended it"


def _accepted_again(life: Life) -> Iterator[str]:
    """Whoever lives on records the acceptance; only who dies or freezes with it leaves a repeat to others."""
    for delivery_id, arrivals in _deliveries(life).items():
        accepted = next((arrival for arrival in arrivals if arrival.answer != "fail"), None)
        if accepted is not None and arrivals[-1] is not accepted:
            again = arrivals[-1]
            yield (
                f"attempt {again.attempt} of {delivery_id} arrived {again.at - accepted.at:.3f} s after "
                f"attempt {accepted.attempt} was accepted"
            )


def _attempts_fell(life: Life) -> Iterator[str]:
    for delivery_id, arrivals in _deliveries(life).items():
        numbers = [arrival.attempt for arrival in arrivals]
        if any(later <= earlier for earlier, later in pairwise(numbers)):
            yield f"{delivery_id} arrived as attempts {numbers}"


def _attempts_beyond(life: Life) -> Iterator[str]:
    for arrival in life.arrivals:
        if arrival.attempt > arrival.max_attempts:
            yield f"attempt {arrival.attempt} of at most {arrival.max_attempts} arrived"


def _unrecorded(life: Life) -> Iterator[str]:
    # A change made during a crashed attempt takes the row away from those who would record it.
    if any(operation.verb != "create" and operation.outcome != "fail" for operation in life.operations):
        return
    recorded = {(attempt.delivery_id, attempt.attempt) for attempt in life.attempts}
    for arrival in life.arrivals:
        if (arrival.delivery_id, arrival.attempt) not in recorded:
            yield f"attempt {arrival.attempt} of {arrival.delivery_id} arrived and is not in the history"


def _early(life: Life) -> Iterator[str]:
    for arrival in life.arrivals:
        if arrival.wall_ms < arrival.scheduled_at - EARLY_MS:
            yield f"attempt {arrival.attempt} arrived {arrival.scheduled_at - arrival.wall_ms} ms before its time"


RULES: Final = {
    "lost": _lost,
    "resurrected": _resurrected,
    "vanished": _vanished,
    "stuck": _stuck,
    "unexplained": _unexplained,
    "deleted-fired": _deleted_fired,
    "outdated-fired": _outdated_fired,
    "wrong-content": _wrong_content,
    "changed-id": _changed_id,
    "repeated": _repeated,
    "done-repeated": _done_repeated,
    "attempts-fell": _attempts_fell,
    "attempts-beyond": _attempts_beyond,
    "unrecorded": _unrecorded,
    "early": _early,
}
CALM_RULES: Final = {"accepted-again": _accepted_again}
