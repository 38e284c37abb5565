"""The ledger: what became of every instant of a job, as records of the main store, newest first.

One record for each run, and one for each range of instants that were skipped for one reason. The key is made from
the instant, so there is at most one run record for a job and an instant: whoever plans an instant a second time
finds the record of the first. A run that was asked for beside the calendar has a suffix: it is a run of its own.

A *stamp* names a run within its job: the instant in milliseconds, with the suffix if it has one. Its id is
`<job>@<stamp>`.
A record that cannot be read is left as it is. What became of its run is `unknown`, and the others go on.
A record in a final state is never changed again, but for what came of a call that was under way when its run was
cancelled. What a run is doing meanwhile is told by its row.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.jobs.calendar.calendar import spread_ms
from mainspring.jobs.messages import JobOutcome, RunKind, RunState
from mainspring.jobs.record import Job
from mainspring.model import Record, to_json
from mainspring.store import BATCH_LIMIT, ReadsManyRecords, RecordPut, RecordStore, ends_scan
from mainspring.unreadable import Unreadable, read_record, reason_of, set_aside
from mainspring.wire.instants import LAST_INSTANT

FINAL: Final = frozenset({"succeeded", "failed", "unknown", "skipped", "cancelled"})
BY_CALENDAR: Final[frozenset[RunKind]] = frozenset({"scheduled", "catchup"})
"""The kinds of runs that the calendar has asked for, and nobody else."""
BACKFILL: Final = "backfill"
"""The suffix of an instant that was run later. What had become of it before stays on record."""
RERUN: Final = "rerun"
"""What the suffix of an instant that was run again begins with; its number follows, in three digits."""
_UNFINISHED_MS: Final = 400 * 86_400_000
"""How much longer a record that is not final is kept: more than the longest wait of a retry policy."""
_AT_ONCE: Final = 100
_REMEMBERED: Final = 20_000
_HOPS: Final = 64
"""How far back we look for the newest run that was made, and for failures before it."""
FAILURES_LIMIT: Final = 20
"""How many failures in a row are counted."""


class Run(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A run, or a range of instants that were not run."""

    kind: RunKind
    state: RunState
    instant: int
    until: int | None = None
    """The last instant of a range."""
    count: int = 1
    reason: str = ""
    by: str = ""
    planned_at: int
    due_at: int | None = None
    """The instant and its jitter."""
    started_at: int | None = None
    finished_at: int | None = None
    attempts: int = 0
    status: int | None = None
    duration_ms: int | None = None
    answer_head: str = ""
    delivery_id: str = ""
    rerun_of: str = ""
    """The stamp of the run that this one repeats because somebody asked for it."""
    counted: bool = False
    """It uses up one of the job's `maxRuns`, unless it is skipped: then the job's clock is told."""
    previous: str = ""
    """The stamp of the run before this one, for which it may have to wait."""
    blocked_by: str = ""
    """The stamp of the run because of which this one was skipped."""
    catching_up: str = ""
    """The stamp of the run that makes up for an outage and delays this one; its own, if it is such a one itself."""
    successor: str = ""
    """The stamp of a run that waits for the end of this one."""

    @property
    def moment(self) -> int:
        """When it is to begin."""
        return self.instant if self.due_at is None else self.due_at

    @property
    def is_final(self) -> bool:
        return self.state in FINAL


class LedgerEntry(Struct, frozen=True):
    """A run as it stands, and the version of its record."""

    stamp: str
    run: Run
    version: int
    is_readable: bool = True
    """Otherwise the run stands for what nobody can tell, and nothing can be written with the version."""


class Standing(Struct, frozen=True):
    """How a job stands, as far as the runs by its calendar tell."""

    last_run: int | None = None
    """The instant of the newest run whose time has come and that was not skipped."""
    last_outcome: JobOutcome | None = None
    """How the newest one ended that has an outcome."""
    failures: int = 0
    """How many in a row have failed since the last success, or are unknown."""


_decode_run: Final = msgspec.json.Decoder(Run).decode


def planned(job: Job, instant: int, kind: RunKind, *, previous: str, now: int, delivery_id: str) -> Run:
    """The record of a run that is to come."""
    return Run(
        kind=kind,
        state="planned",
        instant=instant,
        planned_at=now,
        due_at=instant + spread_ms(job.name, instant, job.definition.jitter_seconds),
        counted=job.definition.max_runs is not None and kind in BY_CALENDAR,
        previous=previous,
        delivery_id=delivery_id,
    )


def stamp_of(instant: int, suffix: str = "") -> str:
    return f"{instant}-{suffix}" if suffix else str(instant)


def launch_id(job: str, stamp: str) -> str:
    return f"{job}@{stamp}"


def split_id(identity: str) -> tuple[str, str]:
    """Job and stamp of a run id. The name of a job has no @. `ValueError`: it is no run's."""
    job, _, stamp = identity.rpartition("@")
    if not job or not 0 <= instant_of(stamp) <= LAST_INSTANT:
        raise ValueError(f"Expected the id of a run, got {identity!r}")
    return job, stamp


def instant_of(stamp: str) -> int:
    return int(stamp.partition("-")[0])


def key_of(stamp: str) -> str:
    """Keys sort from the newest instant to the oldest."""
    instant, dash, suffix = stamp.partition("-")
    return f"{LAST_INSTANT - int(instant):015d}{dash}{suffix}"


def behind(instant: int) -> str:
    """The position in a ledger before which everything is scheduled at this instant or later."""
    return f"{LAST_INSTANT - instant:015d}~"


class Ledger:
    def __init__(self, records: RecordStore, clock: Clock, *, retention_ms: int) -> None:
        self._records = records
        self._many = records if isinstance(records, ReadsManyRecords) else None
        self._clock = clock
        self._retention_ms = retention_ms
        self._ended: dict[str, str] = {}
        """Of each job the stamp of the last run that was made and whose end was written here."""

    def has_ended(self, job: str, stamp: str) -> bool:
        """Whether a run is known to have been made and to be over; asks nobody. Otherwise the record tells."""
        return self._ended.get(job) == stamp

    async def get(self, job: str, stamp: str) -> LedgerEntry | None:
        record = await self._records.get_record(collection_of(job), key_of(stamp), now=self._clock.now_ms())
        return None if record is None else _entry(job, stamp, record)

    @property
    def reads_many(self) -> bool:
        """Whether the store can read many entries at once."""
        return self._many is not None

    async def get_many(self, runs: Sequence[tuple[str, str]]) -> list[LedgerEntry | None]:
        """The same for pairs of a job and a stamp."""
        assert self._many is not None, "Expected a store that reads many records at once"
        wanted = [(collection_of(job), key_of(stamp)) for job, stamp in runs]
        found = await self._many.get_records(wanted, now=self._clock.now_ms())
        return [
            None if record is None else _entry(job, stamp, record)
            for (job, stamp), record in zip(runs, found, strict=True)
        ]

    async def put(self, job: str, stamp: str, run: Run, *, expect: int) -> bool:
        """Write if the record has that version. False if it does not."""
        put = self.change_to(job, stamp, run, expect=expect)
        record = await self._records.put_record(
            put.collection, put.key, put.value, expect=expect, now=put.now, expires_at=put.expires_at
        )
        if record is not None:
            self.note(job, stamp, run)
        return record is not None

    def change_to(self, job: str, stamp: str, run: Run, *, expect: int) -> RecordPut:
        """The same for somebody else to write, who then says so (`note`)."""
        now = self._clock.now_ms()
        kept_ms = self._retention_ms if run.is_final else self._retention_ms + _UNFINISHED_MS
        return RecordPut(
            collection=collection_of(job),
            key=key_of(stamp),
            value=to_json(run),
            expect=expect,
            now=now,
            expires_at=now + kept_ms,
        )

    def note(self, job: str, stamp: str, run: Run) -> None:
        """This was written here."""
        if run.is_final and run.state != "skipped":
            if len(self._ended) >= _REMEMBERED:
                self._ended.clear()
            self._ended[job] = stamp

    async def enter(self, job: str, runs: Sequence[tuple[str, Run]]) -> list[Run]:
        """Write new runs; where there is a record already, it stands, and is returned instead."""
        found: list[Run] = []
        for start in range(0, len(runs), _AT_ONCE):
            batch = runs[start : start + _AT_ONCE]
            if len(batch) == 1:
                found.append(await self._enter(job, *batch[0]))
            else:
                found += await asyncio.gather(*(self._enter(job, stamp, run) for stamp, run in batch))
        return found

    async def _enter(self, job: str, stamp: str, run: Run) -> Run:
        while not await self.put(job, stamp, run, expect=0):
            entry = await self.get(job, stamp)
            if entry is not None:
                return entry.run
        return run

    async def change(
        self, job: str, stamp: str, change: Callable[[Run | None], Run], *, known: LedgerEntry | None = None
    ) -> Run:
        """Change what is not final, by compare-and-set from what is `known`; returns the record as it then stands."""
        entry = known
        while entry is None or not entry.run.is_final:
            changed = change(None if entry is None else entry.run)
            if await self.put(job, stamp, changed, expect=0 if entry is None else entry.version):
                return changed
            entry = await self.get(job, stamp)
        return entry.run

    async def complete(self, job: str, stamp: str, change: Callable[[Run], Run]) -> None:
        """Add to the record of a run that was cancelled, once, what has become known about it since."""
        entry = await self.get(job, stamp)
        while entry is not None and entry.is_readable and entry.run.state == "cancelled":
            if await self.put(job, stamp, change(entry.run), expect=entry.version):
                return
            entry = await self.get(job, stamp)

    async def planned(self, job: str, *, after: int) -> list[LedgerEntry]:
        """Runs by the calendar, of instants after this one, that are not over."""
        return [entry async for entry in self._by_calendar(job, after) if not entry.run.is_final]

    async def on_record(self, job: str, first: int, last: int) -> set[int]:
        """The instants from one to another that have a run by the calendar, even one that was skipped since."""
        found = self._by_calendar(job, first - 1, place=behind(last + 1))
        return {entry.run.instant async for entry in found if entry.run.until is None}

    async def _by_calendar(self, job: str, after: int, *, place: str = "") -> AsyncIterator[LedgerEntry]:
        """Entries by the calendar of instants after this one, after a key, newest first."""
        while True:
            page, place = await self.page(job, after=place, limit=BATCH_LIMIT)
            for entry in page:
                if entry.run.instant <= after:
                    return
                if entry.run.kind in BY_CALENDAR:
                    yield entry
            if not place:
                return

    async def skip(self, job: str, entry: LedgerEntry, reason: str) -> None:
        """Note that a run that has not begun will not be made, unless somebody else has ended it."""
        skipped = replace(entry.run, state="skipped", reason=reason, finished_at=self._clock.now_ms())
        if await self.put(job, entry.stamp, skipped, expect=entry.version):
            telemetry.runs.add("skipped")

    async def refuse(self, job: str, stamps: Sequence[str]) -> None:
        """Note that runs were not made because the database cannot hold their rows."""
        now = self._clock.now_ms()
        for stamp in stamps:
            entry = await self.get(job, stamp)
            if entry is not None:
                await self.change(job, stamp, partial(_refused, at=now), known=entry)

    async def standings(self, jobs: Sequence[tuple[str, str]], *, now: int) -> list[Standing]:
        """How jobs stand, each seen from the run of a stamp back. All jobs are looked up together, one run of each at a
        time: this takes as many questions as the longest row of failures, not as there are jobs."""
        standings = [Standing()] * len(jobs)
        places = {at: stamp for at, (_, stamp) in enumerate(jobs)}
        for _ in range(_HOPS):
            if not places:
                break
            entries = await self._get_all([(jobs[at][0], stamp) for at, stamp in places.items()])
            following: dict[int, str] = {}
            for (at, stamp), entry in zip(places.items(), entries, strict=True):
                standings[at], further = _seen(standings[at], stamp, entry, now=now)
                if further:
                    following[at] = further
            places = following
        return standings

    async def _get_all(self, runs: Sequence[tuple[str, str]]) -> list[LedgerEntry | None]:
        found: list[LedgerEntry | None] = []
        size = _AT_ONCE if self._many is None else BATCH_LIMIT
        for start in range(0, len(runs), size):
            some = runs[start : start + size]
            if self._many is None:
                found += await asyncio.gather(*(self.get(job, stamp) for job, stamp in some))
            else:
                found += await self.get_many(some)
        return found

    async def last_ended(self, job: str, stamp: str) -> int | None:
        """The instant of the newest run that is over and of which a call was made, from this one back."""
        for _ in range(_HOPS):
            if not stamp:
                break
            entry = await self.get(job, stamp)
            if entry is None or (entry.run.is_final and entry.run.attempts):
                return instant_of(stamp)
            stamp = entry.run.blocked_by or entry.run.previous
        return None

    async def page(self, job: str, *, after: str, limit: int) -> tuple[list[LedgerEntry], str]:
        """Entries after a key, newest first, and the key after which there are more; '': there are none."""
        page = await self._records.scan_records(collection_of(job), now=self._clock.now_ms(), after=after, limit=limit)
        entries = [
            _entry(job, stamp, record)
            for record in page
            if (stamp := _stamp_in(collection_of(job), record)) is not None
        ]
        return entries, "" if ends_scan(page, limit) else page[-1].key


def _seen(standing: Standing, stamp: str, entry: LedgerEntry | None, *, now: int) -> tuple[Standing, str]:
    """What one more run adds, older than those seen before; and the stamp of the next, if that may add more.

    Runs are planned ahead, and may be skipped when their time comes. One whose record has expired was made.
    """
    last_run, outcome, failures = standing.last_run, standing.last_outcome, standing.failures
    if entry is None:
        made = instant_of(stamp) if instant_of(stamp) <= now else None
        return Standing(made if last_run is None else last_run, outcome, failures), ""
    run = entry.run
    if last_run is None and run.moment <= now and run.state not in ("skipped", "buffered"):
        last_run = run.instant
    if run.state in ("succeeded", "failed", "unknown"):
        outcome = outcome or run.state
        failures += run.state != "succeeded"
    is_enough = run.state == "succeeded" or failures == FAILURES_LIMIT
    return Standing(last_run, outcome, failures), "" if is_enough else run.blocked_by or run.previous


def _refused(run: Run | None, *, at: int) -> Run:
    assert run is not None, "Expected a run that is on record"
    return replace(run, state="failed", reason="The database cannot hold the row of this run.", finished_at=at)


def collection_of(job: str) -> str:
    return f"launch:{job}"


def _stamp_in(collection: str, record: Record) -> str | None:
    """The stamp that a key stands for; None if it is not that of a run."""
    instant, dash, suffix = record.key.partition("-")
    try:
        stamp = f"{LAST_INSTANT - int(instant)}{dash}{suffix}"
        if key_of(stamp) != record.key:
            raise ValueError(f"Expected the key of a run, got {record.key!r}")
    except ValueError as error:
        set_aside(Unreadable(collection, record.key, reason_of(error), record.version))
        return None
    return stamp


def _entry(job: str, stamp: str, record: Record) -> LedgerEntry:
    run = read_record(collection_of(job), record, _decode_run)
    return _unread(stamp) if run is None else LedgerEntry(stamp, run, record.version)


def _unread(stamp: str) -> LedgerEntry:
    instant, suffix = instant_of(stamp), stamp.partition("-")[2]
    kind: RunKind = "scheduled" if not suffix else "backfill" if suffix == BACKFILL else "manual"
    kind = "rerun" if suffix.startswith(RERUN) else kind
    reason = "The record of this run cannot be read."
    run = Run(kind=kind, state="unknown", instant=instant, planned_at=instant, reason=reason)
    return LedgerEntry(stamp, run, version=0, is_readable=False)
