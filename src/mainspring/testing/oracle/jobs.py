"""C: every instant of a job's calendar is run or skipped, once, and for a reason that is true.

What a job *is* at an instant is not always known: requests overlap, and some have an unknown outcome. So each instant
has a set of definitions that may have been in force. What all of them demand must be there; what none of them allows
must not; nothing is said about the rest. Where commits are known, a definition is in force from the instant that it
gives itself to the commit of the next one; what another program writes counts from when somebody has noticed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final
from zoneinfo import ZoneInfo

from mainspring.jobs.ledger import collection_of, key_of, split_id
from mainspring.jobs.messages import RunView
from mainspring.testing.oracle.history import NEVER, Finding, History, Operation
from mainspring.testing.oracle.instants import instants_between, matcher
from mainspring.testing.oracle.journal import Call, Commit, JobTerms, Left
from mainspring.testing.oracle.reigns import DEFINES, NOTICED_MS, REGISTRY, Reign, asked_for, committed
from mainspring.testing.oracle.runs import FINAL, MADE, RECEIVED, SKIPS, Arrival, Watched, span
from mainspring.wire.instants import to_ms

AHEAD_MS: Final = 20_000
"""How long before its instant a run may be planned. What is changed in between is skipped as changed."""
OVER_MS: Final = 60_000
"""How long after its instant a run must be on record, or over."""
PROMPT_MS: Final = 10_000
"""How long after its instant there must be a record that somebody plans it, if nothing holds that up."""
CAUSES: Final = {
    "changed": DEFINES,
    "deleted": frozenset({"delete", "foreign-write"}),
    "broken": frozenset({"foreign-write"}),
    "run-elsewhere": frozenset({"foreign-write"}),
}
"""What somebody must have requested for a reason to be true."""
ASKED_FOR: Final = frozenset({"backfill", "rerun"})
"""Kinds of runs that are put on record before their rows, by a request that may fail in between."""
PUBLISHED_MS: Final = 20_000
"""How long after its instant a run must be the `lastRun` of its job, if nothing holds that up."""


def accounted(history: History) -> Iterator[Finding]:
    """C. The instants of a job, found by brute force, are those of its runs and of its skipped ranges, each once;
    a run has one delivery id; what was sent is on record, and what is on record was sent; reasons are true:

    | reason                               | true if                                                             |
    |--------------------------------------|---------------------------------------------------------------------|
    | overlap                              | a run before it was under way, or its end was not on record; if  |
    |                                      | that caught up, it took longer than there is between the two        |
    | missed, superseded, outside-window   | the policy has it, and a fault can have held runs up; missed    |
    |                                      | also if somebody paused before it was made up for                   |
    | paused; changed; deleted; broken;    | somebody paused; changed or re-created; deleted; wrote past the API |
    | run-elsewhere                        |                                                                     |

    What instances write as the `lastRun` of a record was run, and is later than what was there; and the newest run is
    there, if nothing has held that up.
    """
    left = history.left
    if left is None or not left.jobs or history.steps():
        return
    operations: dict[str, list[Operation]] = defaultdict(list)
    for operation in history.operations.values():
        if operation.invoke.service == "jobs" and operation.may_have_acted:
            for item in operation.invoke.items:
                operations[item.id].append(operation)
    runs: dict[str, list[RunView]] = defaultdict(list)
    for run in left.runs:
        runs[run.name].append(run)
    calls: dict[str, list[Call]] = defaultdict(list)
    for _, call in history.calls:
        if call.service == "jobs":
            calls[call.id].append(call)
    for name in dict.fromkeys((*operations, *runs, *calls)):
        job = _Job(
            history=history, left=left, name=name, operations=operations[name], runs=runs[name], calls=calls[name]
        )
        for detail in job.check():
            yield Finding(name, detail)


@dataclass(kw_only=True)
class _Job:
    """A name, and everything that is known about the jobs that had it."""

    history: History
    left: Left
    name: str
    operations: Sequence[Operation]
    runs: Sequence[RunView]
    calls: Sequence[Call]

    def __post_init__(self) -> None:
        self._by_calendar = [run for run in self.runs if run.kind in ("scheduled", "catchup")]

    def check(self) -> Iterator[str]:
        arrivals = list(self._arrivals())
        watched = Watched(self.name, (), self.runs, arrivals)
        for find in RECEIVED.values():
            yield from find(watched)
        yield from self._shared()
        yield from self._unfinished()
        yield from self._holes_and_doubles()
        yield from self._strays()
        yield from self._published()
        for run in self.runs:
            if run.state in ("skipped", "cancelled") and (objection := self._objection(run)):
                yield f"{run.launch_id} is {run.state} ({run.reason or 'without a reason'}): {objection}"

    def _arrivals(self) -> Iterator[Arrival]:
        """What arrived, without what is not on record yet, and without repeats of an instance that was given up: the
        other may have ended the run meanwhile."""
        attempts = {run.launch_id: run.attempts for run in self.runs}
        seen: Counter[str] = Counter()
        for call in self.calls:
            if call.launch_id not in attempts and self.left.at - call.at < OVER_MS * 1000:
                continue
            seen[call.launch_id] += 1
            is_repeat = 1 <= attempts.get(call.launch_id, 0) < seen[call.launch_id]
            if not is_repeat or not self._held_up(call.at - OVER_MS * 1000, call.at):
                yield Arrival(call.launch_id, call.delivery_id, call.wall_ms)

    def _held_up(self, since: int, until: int) -> bool:
        """Whether anything kept clocks or runs from going on in time: a fault, or lack of room."""
        world = self.history.world
        bad = sum(host.kind != "fast" for host in world.hosts.values())
        if min(world.in_flight_limit, world.window_limit, world.host_limit) < 2 ** min(bad + 3, 30):
            return True
        return self.history.met(since, until)

    # --- what may be in force -------------------------------------------------------------------------------

    def _definitions(self, first_ms: int, last_ms: int) -> list[JobTerms | None]:
        """Every definition that may have been in force between two instants; None: there was no such job."""
        first, last = self.history.at_of(first_ms), self.history.at_of(last_ms)
        return [reign.terms for reign in self._reigns if reign.since <= last and reign.until >= first]

    @cached_property
    def _reigns(self) -> list[Reign]:
        if self._is_exact:
            return list(committed(self.history, self.name))
        return list(asked_for(self.history, self.name, self.operations))

    @cached_property
    def _is_exact(self) -> bool:
        """Whether it is known what the registry held, and when."""
        return any(commit.event.id == REGISTRY + self.name for commit in self.history.commits)

    def _demands(self, terms: JobTerms | None, instant: int) -> bool:
        """Whether a definition certainly has this instant."""
        return (
            terms is not None
            and (terms.max_runs is None or self._made(terms.created_ms, instant) < terms.max_runs)
            and instant > terms.created_ms
            and instant in self._instants(terms)
        )

    def _made(self, after: int, before: int) -> int:
        """How many runs between two instants are on record, skipped ones too: at most that many runs are used up."""
        instants = (to_ms(run.scheduled_at) for run in self._by_calendar if run.scheduled_until is None)
        return sum(after < instant < before for instant in instants)

    def _allows(self, terms: JobTerms | None, instant: int) -> bool:
        return terms is not None and (
            matcher(terms.schedule, seconds=terms.seconds) is None or instant in self._instants(terms)
        )

    def _instants(self, terms: JobTerms) -> set[int]:
        found = self._found.get(terms.schedule + terms.time_zone + str(terms.dst) + str(terms.seconds))
        if found is None:
            matches = matcher(terms.schedule, seconds=terms.seconds)
            first = self.left.wall_ms - self.left.at // 1000
            found = set()
            if matches is not None:
                found = instants_between(
                    matches,
                    after=first - 1000,
                    until=self.left.wall_ms + AHEAD_MS,
                    zone=ZoneInfo(terms.time_zone),
                    dst=terms.dst,
                    is_fixed=terms.schedule.startswith("@every"),
                )
            self._found[terms.schedule + terms.time_zone + str(terms.dst) + str(terms.seconds)] = found
        low = terms.start_ms if terms.start_ms is not None else -NEVER
        high = terms.end_ms if terms.end_ms is not None else NEVER
        return {instant for instant in found if low <= instant <= high}

    @cached_property
    def _found(self) -> dict[str, set[int]]:
        return {}

    def _may_be_paused(self, last_ms: int) -> bool:
        """Whether it may have been paused at any time up to an instant."""
        until = self.history.at_of(last_ms)
        return any(
            operation.verb == "pause" or any(item.job and item.job.paused for item in operation.asked(self.name))
            for operation in self.operations
            if operation.invoke.at <= until
        )

    def _was_paused(self, first_ms: int, last_ms: int) -> bool:
        """Whether it may have been paused at any time between two instants."""
        if not self._is_exact:
            return self._may_be_paused(last_ms)
        return any(terms is not None and terms.paused for terms in self._definitions(first_ms, last_ms))

    def _asked(self, verbs: frozenset[str], last_ms: int) -> bool:
        until = self.history.at_of(last_ms)
        return any(operation.verb in verbs and operation.invoke.at <= until for operation in self.operations)

    # --- the calendar ---------------------------------------------------------------------------------------

    def _holes_and_doubles(self) -> Iterator[str]:
        entries: dict[int, list[RunView]] = defaultdict(list)
        demanded = sorted(self._demanded())
        for run in self._by_calendar:
            first, last = span(run)
            if run.scheduled_until is None:
                entries[first].append(run)
            else:
                for instant in demanded:
                    if first <= instant <= last:
                        entries[instant].append(run)
        for instant in demanded:
            if not entries[instant]:
                yield f"nothing is known of {instant}"
        for instant, runs in entries.items():
            if len(runs) > 1:
                yield f"{instant} is in {', '.join(f'{run.launch_id} ({run.state})' for run in runs)}"

    def _demanded(self) -> Iterator[int]:
        """Instants that are in every definition that may have been in force while they were accounted for."""
        reigns = self._reigns
        candidates = {instant for reign in reigns if reign.terms is not None for instant in self._instants(reign.terms)}
        is_demanded = self._is_owed if self._is_exact else self._is_undisturbed
        return (instant for instant in candidates if is_demanded(instant))

    def _is_undisturbed(self, instant: int) -> bool:
        """Whether nobody may have changed or paused the job until it was accounted for."""
        if instant > self.left.wall_ms - OVER_MS or self._may_be_paused(self.left.wall_ms):
            return False
        at = self.history.at_of(instant)
        held_up = self.history.met(at - AHEAD_MS * 1000, at + OVER_MS * 1000)
        last = self.left.wall_ms if held_up else instant + OVER_MS
        definitions = self._definitions(instant - AHEAD_MS, last)
        return bool(definitions) and all(self._demands(terms, instant) for terms in definitions)

    def _is_owed(self, instant: int) -> bool:
        """Whether it was the job's, and there was a clock afterwards that had time enough to account for it: one that
        is neither paused nor broken, of a job that was not deleted meanwhile."""
        at = self.history.at_of(instant)
        present = [reign for reign in self._reigns if reign.since <= at + 1000 and reign.until >= at - 1000]
        if not all(reign.noticed <= at and self._demands(reign.terms, instant) for reign in present):
            return False
        if not all(map(self._was_seen, present)):
            return False
        for reign in self._reigns:
            since = max(at, reign.noticed)
            if reign.until < at:
                continue
            if reign.terms is not None and not reign.terms.paused:
                patience = PROMPT_MS * 1000
                if self._held_up(since - (AHEAD_MS + NOTICED_MS) * 1000, since + patience):
                    # Whoever is left alive makes up for it, if anybody is.
                    since, patience = max(since, self._calm_at), NOTICED_MS * 1000 if self.left.alive else NEVER
                if since + patience <= min(reign.until, self.left.at):
                    return True
            if reign.is_deleted:
                return False
        return False

    def _was_seen(self, reign: Reign) -> bool:
        """Whether its clock looked while it was in force: a calendar that was replaced before is known to nobody."""
        looks = [
            commit.at
            for commit in self.history.commits
            if commit.event.id == self.name
            and commit.event.service == "jobs"
            and commit.event.verb in ("begin", "finish")
            and reign.noticed <= commit.at <= reign.until
        ]
        return len(looks) > 1 or reign.until == NEVER

    @cached_property
    def _calm_at(self) -> int:
        return self.left.healed_at + self.history.lease_us

    def _strays(self) -> Iterator[str]:
        for run in self._by_calendar:
            if run.scheduled_until is not None:
                continue
            instant = to_ms(run.scheduled_at)
            definitions = self._definitions(instant - AHEAD_MS, instant + 2000)
            if not any(self._allows(terms, instant) for terms in definitions):
                yield f"{run.launch_id} is for no instant of its calendar"

    # --- the last run ----------------------------------------------------------------------------------------

    def _published(self) -> Iterator[str]:
        run_at = {to_ms(run.scheduled_at) for run in self._by_calendar if run.state != "skipped"}
        present: int | None = None
        last: Commit | None = None
        for _, commit in (each for each in self.history.commits if each.event.id == REGISTRY + self.name):
            told, last = commit.last_run_ms, commit
            if commit.node and commit.verb == "put" and told is not None and told != present:
                if present is not None and told < present:
                    yield f"lastRun went back from {present} to {told}"
                if told not in run_at:
                    yield f"lastRun is {told}, which was not run"
            present = told
        newest = 0 if last is None or last.job is None or not self.left.alive else self._newest(last)
        if newest > (present or 0):
            yield f"lastRun is {present}, although {newest} was run"

    def _newest(self, last: Commit) -> int:
        """The newest run that must be on record in the job itself, as of its last commit."""
        assert last.job is not None, "Expected the record of a job"
        for run in sorted(self._by_calendar, key=lambda each: each.scheduled_at, reverse=True):
            instant = to_ms(run.scheduled_at)
            at = self.history.at_of(instant)
            if instant <= last.job.created_ms or (not last.node and at <= last.at):
                return 0
            if run.state in MADE and at + PUBLISHED_MS * 1000 < self.left.at:
                return 0 if self._held_up(at - AHEAD_MS * 1000, at + PUBLISHED_MS * 1000) else instant
        return 0

    # --- runs and reasons -------------------------------------------------------------------------------

    def _shared(self) -> Iterator[str]:
        seen: dict[str, str] = {}
        for run in self.runs:
            if run.delivery_id and seen.setdefault(run.delivery_id, run.launch_id) != run.launch_id:
                yield f"{run.launch_id} and {seen[run.delivery_id]} are both D={run.delivery_id}"

    def _unfinished(self) -> Iterator[str]:
        since = max(self.left.healed_at, 0)
        for run in self.runs if self.left.alive else ():
            planned = max(to_ms(run.scheduled_at), to_ms(run.planned_at))
            over_at = max(self.history.at_of(planned), since) + OVER_MS * 1000 + self.history.lease_us
            if run.kind in ASKED_FOR and not all(o.is_ok for o in self.operations if o.verb == run.kind):
                continue  # it may have been cut short: asking again completes it
            if run.state == "planned" and not run.attempts and self._is_left_over(run):
                continue
            if run.state not in FINAL and self.left.at > over_at and self._is_fast:
                yield f"{run.launch_id} is {run.state} when everything has come to rest"

    def _is_left_over(self, run: RunView) -> bool:
        """Whether its record may come from a look that failed, or have landed late, and its calendar has changed since:
        then it has no row by which it would end."""
        planned = self.history.at_of(to_ms(run.planned_at))
        changed = any(reign.noticed >= planned for reign in self._reigns) or any(r.is_deleted for r in self._reigns)
        return self._is_exact and changed and self._held_up(planned - OVER_MS * 1000, planned + OVER_MS * 1000)

    @property
    def _is_fast(self) -> bool:
        """Whether no destination that this job was given makes its runs wait."""
        hosts = [item.host for operation in self.operations for item in operation.asked(self.name) if item.host]
        return all(self.history.world.host(host).kind == "fast" for host in hosts)

    def _objection(self, run: RunView) -> str:
        first, last = span(run)
        judged = to_ms(run.finished_at or run.planned_at)
        definitions = [d for d in self._definitions(first - AHEAD_MS, max(last, judged)) if d is not None]
        if run.scheduled_until is not None and (told := self._miscounted(run)):
            return told
        overlaps: set[str] = {terms.overlap for terms in definitions}
        if run.state == "cancelled":
            return "" if "cancelOther" in overlaps else f"not by its policy ({', '.join(sorted(overlaps))})"
        if run.reason == "overlap":
            return self._overlap_objection(first, judged, overlaps)
        if run.reason == "paused":
            return "" if self._may_be_paused(max(last, judged)) else "nobody had paused it"
        if run.reason in CAUSES:
            asked = self._asked(CAUSES[run.reason], max(last, judged))
            return "" if asked else "nobody had given cause for it"
        return self._missed_objection(run, definitions, first, judged)

    def _miscounted(self, run: RunView) -> str:
        """What is wrong with the count of a range: it is by one of the calendars that the job ever had."""
        first, last = span(run)
        counts = {
            sum(first <= instant <= last for instant in self._instants(reign.terms))
            for reign in self._reigns
            if reign.terms is not None and first in self._instants(reign.terms)
        }
        is_known = all(
            matcher(reign.terms.schedule, seconds=reign.terms.seconds) for reign in self._reigns if reign.terms
        )
        return f"it says {run.count}, and not {sorted(counts)}" if is_known and run.count not in counts else ""

    def _overlap_objection(self, instant: int, judged: int, overlaps: set[str]) -> str:
        """One that was waiting when this was judged was in its way, even if somebody paused the job after that."""
        if not overlaps & {"skip", "bufferOne"}:
            return f"not by its policy ({', '.join(sorted(overlaps))})"
        busy = any(
            (other.kind == "scheduled" or (other.kind == "catchup" and _took_ms(other) >= instant - scheduled))
            and (
                other.state in MADE
                or other.state not in FINAL
                or (other.state == "cancelled" and other.attempts)
                or ("bufferOne" in overlaps and _was_waiting(other, judged))
            )
            and scheduled < instant
            and not self._was_over(other, instant)
            for other in self.runs
            for scheduled in [to_ms(other.scheduled_at)]
        )
        return "" if busy else "nothing before it was under way"

    def _was_over(self, run: RunView, instant: int) -> bool:
        """Whether it had ended before an instant, and that was on record then, as far as is known."""
        if run.finished_at is None or to_ms(run.finished_at) >= instant:
            return False
        return self._recorded.get(key_of(split_id(run.launch_id)[1]), -NEVER) < self.history.at_of(instant)

    @cached_property
    def _recorded(self) -> dict[str, int]:
        """When the record of each run was last written, by its key."""
        ledger = collection_of(self.name) + "/"
        written = (commit for commit in self.history.commits if commit.event.id.startswith(ledger))
        return {commit.event.id.removeprefix(ledger): commit.at for commit in written if commit.event.verb == "put"}

    def _missed_objection(self, run: RunView, definitions: Sequence[JobTerms], first: int, judged: int) -> str:
        # What was missed when somebody paused is not made up for, whatever the policy.
        is_paused = run.reason == "missed" and self._was_paused(span(run)[1], judged)
        if not is_paused and not any(run.reason in SKIPS[terms.catchup] for terms in definitions):
            return f"not by its policy ({', '.join(sorted({terms.catchup for terms in definitions}))})"
        since = self.history.at_of(first) - (AHEAD_MS + NOTICED_MS) * 1000
        is_left_behind = self._asked(CAUSES["run-elsewhere"], judged)  # by a program that had run it until then
        if self._is_fast and not is_left_behind and not self._held_up(since, self.history.at_of(judged)):
            return "somebody could have run it"
        if run.reason == "outside-window":
            windows = [terms.window_ms for terms in definitions if run.reason in SKIPS[terms.catchup]]
            if span(run)[1] + min(windows) >= judged:
                return f"the last of it was {judged - span(run)[1]} ms ago"
        return ""


def _was_waiting(run: RunView, at: int) -> bool:
    """Whether a run waited then that was not made in the end, because somebody wanted something else."""
    is_left = run.reason == "paused" or run.reason in CAUSES
    return is_left and run.finished_at is not None and to_ms(run.planned_at) <= at <= to_ms(run.finished_at)


def _took_ms(run: RunView) -> int:
    if run.started_at is None or run.finished_at is None:
        return 0
    return to_ms(run.finished_at) - to_ms(run.started_at)
