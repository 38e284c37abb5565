"""Whether a launch whose time has come is to go, and what it does about the one before it. Pure.

| overlap          | the launch before is not over                                                              |
|------------------|--------------------------------------------------------------------------------------------|
| `skip`           | skipped                                                                                    |
| `bufferOne`      | waits for its end; skipped if one waits already                                            |
| `bufferAll`      | waits for its end                                                                          |
| `allowAll`       | goes                                                                                       |
| `cancelOther`    | the other is not repeated any more and counts as cancelled; goes                           |
| `terminateOther` | refused when the job is made: a call that is under way cannot be undone                    |

Launches that catch up, and those of a backfill, run one after another: under `skip` and `bufferOne`, too, they wait.
So does under the catch-up `all` one that was planned in time and comes late, after an outage: it is the outage because
of which the launch before it is not over.
Manual ones look at nobody, and nobody waits for them. A repeat may already have been sent: it waits, and is never
skipped.
"""

from __future__ import annotations

from typing import Final, Literal

from mainspring.jobs.definition import BrokenJob, Definition, Job
from mainspring.jobs.ledger import Launch
from mainspring.jobs.messages import LaunchKind, Overlap
from mainspring.jobs.planning import MISSED_AFTER_MS
from mainspring.jobs.rows import Errand

LATE_MS: Final = 1_000
"""A launch that is looked at so long after its moment was held up."""

Objection = Literal["", "deleted", "broken", "paused", "changed", "missed", "superseded", "outside-window"]
Step = Literal["go", "skip", "wait", "cancel"]


def objection(
    job: Job | BrokenJob | None, errand: Errand, *, instant: int, due_at: int, now: int, waited: bool
) -> Objection:
    """Why a launch that was planned is not to be made after all, if so. `waited`: for another one, as it should."""
    if job is None:
        return "deleted"
    if isinstance(job, BrokenJob):
        return "broken"
    if errand.kind in ("manual", "backfill"):
        return ""
    if job.definition.paused or (job.definition.paused_at or 0) < instant <= (job.definition.resumed_at or 0):
        return "paused"
    if not _is_its_own(job, errand, instant):
        return "changed"
    is_missed = errand.kind == "scheduled" and not waited and now - due_at > MISSED_AFTER_MS
    return _missed(job, instant, now) if is_missed else ""


def _is_its_own(job: Job, errand: Errand, instant: int) -> bool:
    """Whether an instant still is one of the job's."""
    definition = job.definition
    first = max(definition.created_at, definition.starts_at or 0)
    in_calendar = errand.terms == definition.terms or job.calendar.next(instant - 1) == instant
    return in_calendar and first <= instant <= (definition.ends_at or instant)


def _missed(job: Job, instant: int, now: int) -> Objection:
    """A launch that was planned in time and comes late follows the catch-up like one that was not planned."""
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


def looks_back(policy: Overlap, kind: LaunchKind) -> bool:
    """Whether the launch before this one matters."""
    return kind == "backfill" or (policy != "allowAll" and kind != "manual")


def step(definition: Definition, kind: LaunchKind, blocker: Launch | None, *, is_repeat: bool, late_ms: int) -> Step:
    """What to do, given the launch before this one that is not over, if there is one."""
    policy = definition.overlap
    if blocker is None or not looks_back(policy, kind):
        return "go"
    if kind == "backfill":
        return "wait"
    if policy == "cancelOther":
        return "cancel"
    catches_up = kind == "catchup" or (definition.catchup == "all" and late_ms > LATE_MS)
    if catches_up or is_repeat or policy == "bufferAll":
        return "wait"
    return "wait" if policy == "bufferOne" and blocker.state != "buffered" else "skip"
