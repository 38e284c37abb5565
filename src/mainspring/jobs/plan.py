"""What becomes of the instants of a job since it was last looked at: run, or skipped with a reason. Pure.

An instant is *missed* when it was more than `MISSED_AFTER_MS` ago and nobody had planned it. The others are on time and
are run. Missed ones follow the job's catch-up:

| catchup  | missed, older than the window | missed, within the window                                                 |
|----------|-------------------------------|---------------------------------------------------------------------------|
| `none`   | skipped: missed               | skipped: missed                                                           |
| `latest` | skipped: outside-window       | the latest is run late, the others are skipped: superseded. If a     |
|          |                               | newer one is due on time, that is the latest, and all are superseded      |
| `all`    | skipped: outside-window       | all are run late, in order                                           |

Invariant: every instant after the old `accounted_until` and not after the new one is in exactly one run or exactly
one skipped range. The new one is the horizon (`now + ahead_ms`), unless there is more to run than `RUN_LIMIT`
or than runs are left: then it is the last run, and the rest belongs to the next plan, if there is one. Instants
before `start_at` and after `end_at` are not the job's, and are not accounted for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from mainspring.jobs.calendar.calendar import Calendar
from mainspring.jobs.messages import Catchup

MISSED_AFTER_MS: Final = 15_000
RUN_LIMIT: Final = 1000
"""How much one plan runs at most."""

Reason = Literal["missed", "superseded", "outside-window"]


@dataclass(frozen=True, slots=True)
class Planned:
    """An instant to run. `is_late`: it was missed, and is made up for."""

    instant: int
    is_late: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """Instants in a row that are not run, all for one reason."""

    first: int
    last: int
    count: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, how far that accounts for everything, and the instant after that (None: never again)."""

    runs: tuple[Planned, ...]
    skipped: tuple[Skipped, ...]
    accounted_until: int
    next: int | None


def plan(
    calendar: Calendar,
    *,
    accounted_until: int,
    now: int,
    ahead_ms: int,
    catchup: Catchup,
    window_ms: int,
    start_at: int | None,
    end_at: int | None,
    runs_left: int | None,
) -> Plan:
    """Account for all instants up to `now + ahead_ms`. `start_at` and `end_at` are instants that still count."""
    horizon = max(accounted_until, now + ahead_ms)
    if runs_left == 0:
        return Plan((), (), accounted_until, None)
    after = accounted_until if start_at is None else max(accounted_until, start_at - 1)
    until = horizon if end_at is None else min(horizon, end_at)
    missed_until = min(until, now - MISSED_AFTER_MS - 1)

    skipped: list[Skipped] = []
    late_after = after
    if catchup != "none":
        late_after = max(after, min(missed_until, now - window_ms - 1))
        _skip(skipped, calendar, after, late_after, "outside-window")
    if catchup == "all":
        on_time_after = late_after
    elif catchup == "latest":
        on_time_after = _before_latest(calendar, late_after, missed_until, min(until, now))
        _skip(skipped, calendar, late_after, on_time_after, "superseded")
    else:
        on_time_after = max(late_after, missed_until)
        _skip(skipped, calendar, late_after, on_time_after, "missed")

    limit = RUN_LIMIT if runs_left is None else min(RUN_LIMIT, runs_left)
    instants = calendar.between(on_time_after, until, limit=limit + 1)
    runs = tuple(Planned(instant, instant <= missed_until) for instant in instants[:limit])
    if len(runs) == runs_left:
        return Plan(runs, tuple(skipped), runs[-1].instant, None)
    if len(instants) > limit:
        return Plan(runs, tuple(skipped), runs[-1].instant, instants[limit])
    following = calendar.next(horizon if start_at is None else max(horizon, start_at - 1))
    is_over = following is None or (end_at is not None and following > end_at)
    return Plan(runs, tuple(skipped), horizon, None if is_over else following)


def _before_latest(calendar: Calendar, after: int, missed_until: int, due_until: int) -> int:
    """How far missed instants are superseded: by one that is due on time, or else by the latest missed one."""
    if missed_until <= after:
        return after
    on_time = calendar.next(missed_until)
    if on_time is not None and on_time <= due_until:
        return missed_until
    latest = calendar.previous(missed_until + 1)
    return after if latest is None else max(after, latest - 1)


def _skip(skipped: list[Skipped], calendar: Calendar, after: int, until: int, reason: Reason) -> None:
    """Note the instants after one and not after the other, if there are any."""
    first = calendar.next(after) if until > after else None
    if first is None or first > until:
        return
    last = calendar.previous(until + 1)
    if last is not None:
        skipped.append(Skipped(first, last, calendar.count(after, until), reason))
