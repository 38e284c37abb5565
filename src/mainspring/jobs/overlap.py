"""Whether a run whose time has come should go, and what it does about the one before it. Pure.

| overlap          | the run before is not over                                                              |
|------------------|--------------------------------------------------------------------------------------------|
| `skip`           | skipped                                                                                    |
| `bufferOne`      | waits for its end; skipped if one waits already                                            |
| `bufferAll`      | waits for its end                                                                          |
| `allowAll`       | goes                                                                                       |
| `cancelOther`    | the other is no longer repeated and counts as cancelled; goes                              |
| `terminateOther` | refused when the job is made: a call that is under way cannot be undone                    |

Runs that catch up, and those of a backfill, run one after another: under `skip` and `bufferOne`, too, they wait.
So does one that was planned in time and comes late, after an outage: it is the outage because of which the run
before it is not over. And so does every run that comes while such a one is not over, or behind one that was delayed
by it: an instant that is on time is not lost to what an outage left behind. A run whose time has come, and that has
not begun, is held up: those behind it wait until it is missed. A run delayed like that is judged when its turn comes,
as if all had gone in time: it is skipped if the one before took longer than the time between their moments. So the
delay shrinks, even for a job that takes longer than its interval.
Manual ones and reruns look at nobody, and nobody waits for them. A repeat may already have been sent: it waits, and is
never skipped. Nor is one that was told to wait.
"""

from __future__ import annotations

from typing import Final, Literal

from mainspring.jobs.ledger import BY_CALENDAR, Run
from mainspring.jobs.messages import RunKind
from mainspring.jobs.plan import MISSED_AFTER_MS
from mainspring.jobs.record import BrokenJob, Definition, Job, KnownOverlap
from mainspring.jobs.rows import Errand

LATE_MS: Final = 1_000
"""A run that is looked at this long after its moment was held up."""

Objection = Literal["", "deleted", "broken", "paused", "changed", "missed", "superseded", "outside-window"]
Step = Literal["go", "skip", "wait", "cancel"]


def objection(
    job: Job | BrokenJob | None, errand: Errand, *, instant: int, due_at: int, now: int, waited: bool
) -> Objection:
    """Why a planned run should not be made after all, if so. `waited`: for another one, as it should."""
    if isinstance(job, BrokenJob):
        return "broken"
    if job is None or is_of_another(job, errand, instant):
        return "deleted"
    if errand.kind not in BY_CALENDAR:
        return ""
    if job.definition.paused or (job.definition.paused_at or 0) < instant <= (job.definition.resumed_at or 0):
        return "paused"
    if not _is_its_own(job, errand, instant):
        return "changed"
    is_missed = errand.kind == "scheduled" and not waited and now - due_at > MISSED_AFTER_MS
    return _missed(job, instant, now) if is_missed else ""


def is_of_another(job: Job, errand: Errand, instant: int) -> bool:
    """Whether a run belongs to a job that was deleted before the current one of its name was made.

    An instant that comes after the creation is the new job's, whoever planned it: there is one record for both.
    """
    created_at = job.definition.created_at
    if errand.created_at in (None, created_at):
        return False
    return errand.kind not in BY_CALENDAR or instant < created_at


def _is_its_own(job: Job, errand: Errand, instant: int) -> bool:
    """Whether an instant still is one of the job's."""
    definition = job.definition
    in_calendar = errand.terms == job.terms or job.calendar.next(instant - 1) == instant
    return in_calendar and definition.created_at <= instant and definition.bounds.has(instant)


def _missed(job: Job, instant: int, now: int) -> Objection:
    """A run that was planned in time and comes late follows the catch-up like one that was not planned."""
    definition = job.definition
    if definition.catchup == "none":
        return "missed"
    if now - instant > definition.catchup_window_seconds * 1000:
        return "outside-window"
    if definition.catchup == "latest" and definition.max_runs is None:
        newer = job.calendar.next(instant)
        if newer is not None and newer <= min(now, definition.ends_at or now):
            return "superseded"
    return ""


def looks_back(policy: KnownOverlap, kind: RunKind) -> bool:
    """Whether the run before this one matters."""
    return kind == "backfill" or (policy != "allowAll" and kind in BY_CALENDAR)


def catches_up(definition: Definition, kind: RunKind, *, late_ms: int) -> bool:
    """Whether a run that is looked at for the first time makes up for an outage, even if it was planned before.

    A run that is not late enough to be missed is on time; under the catch-up `all` it must not be lost either.
    """
    held_up_ms = LATE_MS if definition.catchup == "all" else MISSED_AFTER_MS
    return kind == "catchup" or (kind == "scheduled" and late_ms > held_up_ms)


def would_overlap(policy: KnownOverlap, before: Run, after: Run) -> bool:
    """Whether a run took so long that the next would have found it under way, had both gone in time."""
    if policy not in ("skip", "bufferOne") or before.started_at is None or before.finished_at is None:
        return False
    return before.finished_at - before.started_at > after.moment - before.moment


def step(definition: Definition, kind: RunKind, blocker: Run | None, *, is_kept: bool) -> Step:
    """What to do, given the run before this one that is not over, if there is one.

    `is_kept`: it must not be skipped: it is a repeat, waits already, catches up, or is delayed by one that does.
    """
    policy = definition.overlap
    if blocker is None or not looks_back(policy, kind):
        return "go"
    if kind == "backfill":
        return "wait"
    if policy == "cancelOther":
        return "cancel"
    if is_kept or policy == "bufferAll":
        return "wait"
    return "wait" if policy == "bufferOne" and blocker.state != "buffered" else "skip"
