"""Decides from a job's ledger, its calendar and what its receiver saw whether every instant was accounted for. Pure.

The instants come from outside, found by brute force; see `instants_of`. Nothing is shared with the code under test but
the shape of a ledger's entry.

| rule        | what it means                                                                                     |
|-------------|---------------------------------------------------------------------------------------------------|
| hole        | an instant of the calendar that no entry accounts for                                             |
| doubled     | an instant that two entries account for                                                           |
| stray       | an entry for an instant that the job did not have: not in its calendar, or out of its bounds as   |
|             | they were at that time, or before its creation                                                    |
| miscounted  | a range that does not say how many instants it stands for                                         |
| unfinished  | an entry that is not final when everything has come to rest                                       |
| wrong-skip  | skipped for a reason that the job's policy does not know, or that did not exist at that time; for |
|             | overlap also while a catch-up was under way, or because of a delay that a catch-up had caused     |
| wrong-late  | made up for although the policy says not to, or although it could be run in time                  |
| unsent      | on record as succeeded, but nothing arrived                                                       |
| sent-anyway | on record as not run, but something arrived                                                       |
| unrecorded  | something arrived that no entry knows, or more often than its entry has attempts                  |
| changed-id  | a run that arrived with a delivery id that is not on record: an unrecognisable repeat             |
| early       | something arrived before its instant                                                              |
| overdue     | run late, or not planned in time, although somebody was there and nothing held it up              |
| recounted   | a state that was counted more often than the ledger has runs in it                                |
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from mainspring.jobs.messages import Catchup, Overlap, RunView
from mainspring.wire.instants import to_ms

UTC: Final = ZoneInfo("UTC")
EARLY_MS: Final = 50
ROUNDING_MS: Final = 1_000
MISSED_AFTER_MS: Final = 15_000
"""How late a run may be without counting as missed. Users are told, so it is stated here independently."""
MADE: Final = frozenset({"succeeded", "failed", "unknown"})
FINAL: Final = MADE | {"skipped", "cancelled"}
SKIPS: Final[dict[Catchup, frozenset[str]]] = {
    "none": frozenset({"missed"}),
    "latest": frozenset({"superseded", "outside-window"}),
    "all": frozenset({"outside-window"}),
}
"""What may become of missed instants, other than being made up for."""


class Violation(NamedTuple):
    rule: str
    job: str
    detail: str


class Arrival(NamedTuple):
    """A request as its receiver saw it; `at` in milliseconds of the store's time."""

    launch_id: str
    delivery_id: str
    at: int


class Outage(NamedTuple):
    """Nobody ran anything between these instants, inclusive."""

    first: int
    last: int


@dataclass(frozen=True)
class Watched:
    """A job, and everything that is known about it."""

    name: str
    instants: Sequence[int]
    """All that it has to account for, in order."""
    runs: Sequence[RunView]
    arrivals: Sequence[Arrival]
    catchup: Catchup = "latest"
    overlap: Overlap = "skip"
    window_ms: int = 3_600_000
    outages: Sequence[Outage] = ()
    counted: Mapping[str, int] | None = None
    """How many runs ended in each state, by the counter of instances that lived all the time; None: not known."""
    entries: dict[int, list[RunView]] = field(init=False)
    """The entries of each instant."""

    def __post_init__(self) -> None:
        entries: dict[int, list[RunView]] = defaultdict(list)
        for run in self.runs:
            for instant in self.covered(run):
                entries[instant].append(run)
        object.__setattr__(self, "entries", entries)

    def covered(self, run: RunView) -> Sequence[int]:
        """The instants of the calendar for which an entry stands."""
        first, last = span(run)
        return self.instants[bisect_left(self.instants, first) : bisect_right(self.instants, last)]

    def was_down(self, instant: int) -> bool:
        return any(outage.first <= instant <= outage.last for outage in self.outages)


def instants_of(matches: Callable[[datetime], bool], *, after: int, until: int, zone: ZoneInfo = UTC) -> list[int]:
    """Every second after one instant and up to another whose local time matches. For zones without a change there."""
    seconds = range(after // 1000 + 1, until // 1000 + 1)
    return [second * 1000 for second in seconds if matches(datetime.fromtimestamp(second, zone))]


class Term(NamedTuple):
    """The span in which a job had these instants: from when it was created until before it was edited or deleted."""

    since: int
    until: int
    matches: Callable[[datetime], bool]
    start_at: int = 0
    end_at: int = 2**62


def instants_of_terms(terms: Sequence[Term], *, zone: ZoneInfo = UTC) -> list[int]:
    """What a job that was edited, or deleted and recreated, had to account for: each term counts from its change on.

    The bounds of a term hold only within it: extending them does not bring back what had passed.
    """
    found: list[int] = []
    for term in terms:
        after, until = max(term.since, term.start_at - 1), min(term.until, term.end_at)
        found += instants_of(term.matches, after=after, until=until, zone=zone)
    return sorted(set(found))


def check(job: Watched) -> list[Violation]:
    return [Violation(rule, job.name, detail) for rule, find in RULES.items() for detail in find(job)]


def span(run: RunView) -> tuple[int, int]:
    first = to_ms(run.scheduled_at)
    return first, first if run.scheduled_until is None else to_ms(run.scheduled_until)


# --- the ledger and the calendar --------------------------------------------------------------------------


def _hole(job: Watched) -> Iterator[str]:
    for instant in job.instants:
        if instant not in job.entries:
            yield f"nothing is known of {_told(instant)}"


def _doubled(job: Watched) -> Iterator[str]:
    for instant, runs in job.entries.items():
        if len(runs) > 1:
            yield f"{_told(instant)} is in {', '.join(f'{run.launch_id} ({run.state})' for run in runs)}"


def _stray(job: Watched) -> Iterator[str]:
    for run in job.runs:
        if not job.covered(run):
            yield f"{run.launch_id} is for no instant of the calendar"


def _miscounted(job: Watched) -> Iterator[str]:
    for run in job.runs:
        if run.count != len(job.covered(run)):
            yield f"{run.launch_id} says {run.count} and stands for {len(job.covered(run))}"


def _unfinished(job: Watched) -> Iterator[str]:
    for run in job.runs:
        if run.state not in FINAL:
            yield f"{run.launch_id} is {run.state} when everything has come to rest"


# --- what the policy says ---------------------------------------------------------------------------------


def _wrong_skip(job: Watched) -> Iterator[str]:
    for run in job.runs:
        if run.state in ("skipped", "cancelled") and (wrong := _objection(job, run)):
            yield f"{run.launch_id} is {run.state} ({run.reason or 'without a reason'}): {wrong}"


def _objection(job: Watched, run: RunView) -> str:
    if run.state == "skipped" and run.reason == "overlap":
        return "" if _was_busy(job, run) else "nothing before it was under way"
    if run.state == "cancelled" or run.reason not in SKIPS[job.catchup]:
        return f"not by its policy ({job.catchup}, {job.overlap})"
    if not all(map(job.was_down, job.covered(run))):
        return "somebody could have run it"
    first, last = span(run)
    judged_at = to_ms(run.finished_at or run.planned_at)
    if run.reason == "outside-window":
        return f"the last of it was {judged_at - last} ms ago" if last + job.window_ms >= judged_at else ""
    if run.reason == "superseded" and not _has_newer(job, last):
        return "nothing newer was run"
    is_outside = run.reason == "superseded" and first + job.window_ms < judged_at - MISSED_AFTER_MS
    return f"the first of it was outside of the window, {judged_at - first} ms ago" if is_outside else ""


def _was_busy(job: Watched, run: RunView) -> bool:
    """Whether a run before it was under way, and not only because an outage was being caught up with."""
    instant, judged_at = to_ms(run.scheduled_at), to_ms(run.finished_at or run.planned_at)
    earlier = [other for other in job.runs if other.state in MADE and to_ms(other.scheduled_at) < instant]
    if any(_catches_up(job, other) and _spans(other, judged_at) for other in earlier):
        return False
    return job.overlap in ("skip", "bufferOne") and any(
        to_ms(other.finished_at or 0) >= instant and not _catches_up(job, other) and _took_too_long(other, instant)
        for other in earlier
    )


def _catches_up(job: Watched, run: RunView) -> bool:
    """Whether a run makes up for an outage, even if it was planned before."""
    was_held_up = job.was_down(to_ms(run.scheduled_at)) and (run.late_ms or 0) > MISSED_AFTER_MS
    return run.kind == "catchup" or (run.kind == "scheduled" and was_held_up)


def _spans(run: RunView, instant: int) -> bool:
    return to_ms(run.planned_at) <= instant < to_ms(run.finished_at or 0)


def _took_too_long(run: RunView, instant: int) -> bool:
    """Whether a run would have been under way at an instant even without the delay with which it began."""
    if run.started_at is None or (run.late_ms or 0) <= MISSED_AFTER_MS:
        return True
    duration = to_ms(run.finished_at or 0) - to_ms(run.started_at)
    return duration >= instant - to_ms(run.scheduled_at) - ROUNDING_MS


def _has_newer(job: Watched, instant: int) -> bool:
    """Whether what follows superseded instants was run, or would have been but for an overlap."""
    for later in job.instants[bisect_right(job.instants, instant) :]:
        for run in job.entries.get(later, ()):
            if run.reason != "superseded":
                return run.state in MADE or run.reason == "overlap"
    return False


def _wrong_late(job: Watched) -> Iterator[str]:
    for run in job.runs:
        if run.kind == "catchup" and job.catchup == "none":
            yield f"{run.launch_id} was caught up with, and the policy is none"
        if run.kind == "catchup" and not job.was_down(to_ms(run.scheduled_at)):
            yield f"{run.launch_id} was caught up with, and could have been run in time"


def _overdue(job: Watched) -> Iterator[str]:
    """What nobody planned in time although somebody could: a clock stood still, or began late."""
    for run in job.runs:
        first, _ = span(run)
        is_made = run.state in MADE and run.kind == "scheduled"
        if is_made and to_ms(run.planned_at) > first + MISSED_AFTER_MS and not job.was_down(first):
            yield f"{run.launch_id} was planned {to_ms(run.planned_at) - first} ms after its time"


def _recounted(job: Watched) -> Iterator[str]:
    if job.counted is None:
        return
    on_record: Counter[str] = Counter()
    for run in job.runs:
        on_record[run.state] += run.count
    for state, count in job.counted.items():
        if count > on_record[state]:
            yield f"{count} were counted as {state}, and {on_record[state]} are on record"


# --- the ledger and the receiver --------------------------------------------------------------------------


def _unsent(job: Watched) -> Iterator[str]:
    arrived = {arrival.launch_id for arrival in job.arrivals}
    for run in job.runs:
        if run.state == "succeeded" and run.launch_id not in arrived:
            yield f"{run.launch_id} succeeded, and never arrived"


def _sent_anyway(job: Watched) -> Iterator[str]:
    arrived = {arrival.launch_id for arrival in job.arrivals}
    for run in job.runs:
        if run.state == "skipped" and run.launch_id in arrived:
            yield f"{run.launch_id} was skipped, and arrived"


def _unrecorded(job: Watched) -> Iterator[str]:
    attempts = {run.launch_id: run.attempts for run in job.runs}
    for launch_id, count in Counter(arrival.launch_id for arrival in job.arrivals).items():
        if launch_id not in attempts:
            yield f"{launch_id} arrived, and is not in the ledger"
        elif count > attempts[launch_id]:
            yield f"{launch_id} arrived {count} times in {attempts[launch_id]} attempts"


def _changed_id(job: Watched) -> Iterator[str]:
    on_record = {run.launch_id: run.delivery_id for run in job.runs}
    for arrival in job.arrivals:
        expected = on_record.get(arrival.launch_id, arrival.delivery_id)
        if arrival.delivery_id != expected:
            yield f"{arrival.launch_id} arrived as {arrival.delivery_id}, and not as {expected}"


def _early(job: Watched) -> Iterator[str]:
    instants = {run.launch_id: to_ms(run.scheduled_at) for run in job.runs}
    for arrival in job.arrivals:
        early_ms = instants.get(arrival.launch_id, arrival.at) - arrival.at
        if early_ms > EARLY_MS:
            yield f"{arrival.launch_id} arrived {early_ms} ms before its time"


def _told(instant: int) -> str:
    return f"{instant} ({datetime.fromtimestamp(instant / 1000, UTC):%H:%M:%S})"


RECEIVED: Final = {
    "unsent": _unsent,
    "sent-anyway": _sent_anyway,
    "unrecorded": _unrecorded,
    "changed-id": _changed_id,
    "early": _early,
}
"""The rules that compare the ledger with its receiver, and need no calendar."""
RULES: Final = {
    "hole": _hole,
    "doubled": _doubled,
    "stray": _stray,
    "miscounted": _miscounted,
    "unfinished": _unfinished,
    "wrong-skip": _wrong_skip,
    "wrong-late": _wrong_late,
    **RECEIVED,
    "overdue": _overdue,
    "recounted": _recounted,
}
