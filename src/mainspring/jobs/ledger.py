"""The ledger: what became of every instant of a job, as records of the main store, newest first.

One record for each run, and one for each range of instants that were skipped for one reason. The key is made from
the instant, so there is at most one run record for a job and an instant: whoever plans an instant a second time
finds the record of the first. A run that was asked for beside the calendar has a suffix: it is a run of its own.

A *stamp* names a run within its job: the instant in milliseconds, with the suffix if it has one. Its id is
`<job>@<stamp>`.
A record that cannot be read is left as it is. What became of its run is `unknown`, and the others go on.
A record in a final state is never changed again. What a run is doing meanwhile is told by its row.
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
from mainspring.jobs.messages import RunKind, RunState
from mainspring.jobs.record import Job
from mainspring.model import Record, to_json
from mainspring.store import BATCH_LIMIT, RecordStore, ends_scan
from mainspring.unreadable import Unreadable, read_record, reason_of, set_aside
from mainspring.wire.instants import LAST_INSTANT

FINAL: Final = frozenset({"succeeded", "failed", "unknown", "skipped", "cancelled"})
BACKFILL: Final = "backfill"
"""The suffix of an instant that was run later. What had become of it before stays on record."""
_UNFINISHED_MS: Final = 400 * 86_400_000
"""How much longer a record that is not final is kept: more than the longest wait of a retry policy."""
_AT_ONCE: Final = 100
_REMEMBERED: Final = 20_000
_HOPS: Final = 64
"""How far back we look for the newest run that was made."""


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


def planned(job: Job, instant: int, kind: RunKind, *, previous: str, now: int, delivery_id: str) -> Run:
    """The record of a run that is to come."""
    return Run(
        kind=kind,
        state="planned",
        instant=instant,
        planned_at=now,
        due_at=instant + spread_ms(job.name, instant, job.definition.jitter_seconds),
        counted=job.definition.max_runs is not None and kind in ("scheduled", "catchup"),
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
        self._clock = clock
        self._retention_ms = retention_ms
        self._ended: dict[str, str] = {}
        """Of each job the stamp of the last run that was made and whose end was written here."""

    def has_ended(self, job: str, stamp: str) -> bool:
        """Whether a run is known to have been made and to be over; asks nobody. Otherwise the record tells."""
        return self._ended.get(job) == stamp

    async def get(self, job: str, stamp: str) -> LedgerEntry | None:
        record = await self._records.get_record(collection_of(job), key_of(stamp), now=self._clock.now_ms())
        return None if record is None else _entry(job, record)

    async def put(self, job: str, stamp: str, run: Run, *, expect: int) -> bool:
        """Write if the record has that version. False if it does not."""
        now = self._clock.now_ms()
        kept_ms = self._retention_ms if run.is_final else self._retention_ms + _UNFINISHED_MS
        record = await self._records.put_record(
            collection_of(job), key_of(stamp), to_json(run), expect=expect, now=now, expires_at=now + kept_ms
        )
        if record is not None and run.is_final and run.state != "skipped":
            if len(self._ended) >= _REMEMBERED:
                self._ended.clear()
            self._ended[job] = stamp
        return record is not None

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
                if entry.run.kind in ("scheduled", "catchup"):
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

    async def last_made(self, job: str, stamp: str, *, now: int) -> int | None:
        """The instant of the newest run whose time has come and that was not skipped, from this one back.

        Runs are planned ahead, and may be skipped when their time comes. One whose record has expired was made.
        """
        for _ in range(_HOPS):
            if not stamp:
                break
            if self.has_ended(job, stamp):
                return instant_of(stamp)
            entry = await self.get(job, stamp)
            if entry is None:
                return instant_of(stamp) if instant_of(stamp) <= now else None
            run = entry.run
            if run.moment <= now and run.state not in ("skipped", "buffered"):
                return run.instant
            stamp = run.blocked_by or run.previous
        return None

    async def page(self, job: str, *, after: str, limit: int) -> tuple[list[LedgerEntry], str]:
        """Entries after a key, newest first, and the key after which there are more; '': there are none."""
        page = await self._records.scan_records(collection_of(job), now=self._clock.now_ms(), after=after, limit=limit)
        entries = [entry for record in page if (entry := _entry(job, record)) is not None]
        return entries, "" if ends_scan(page, limit) else page[-1].key


def _refused(run: Run | None, *, at: int) -> Run:
    assert run is not None, "Expected a run that is on record"
    return replace(run, state="failed", reason="The database cannot hold the row of this run.", finished_at=at)


def collection_of(job: str) -> str:
    return f"launch:{job}"


def _entry(job: str, record: Record) -> LedgerEntry | None:
    """None if not even the key is that of a run."""
    instant, dash, suffix = record.key.partition("-")
    try:
        stamp = f"{LAST_INSTANT - int(instant)}{dash}{suffix}"
        if key_of(stamp) != record.key:
            raise ValueError(f"Expected the key of a run, got {record.key!r}")
    except ValueError as error:
        set_aside(Unreadable(collection_of(job), record.key, reason_of(error), record.version))
        return None
    run = read_record(collection_of(job), record, partial(msgspec.json.decode, type=Run))
    return _unread(stamp) if run is None else LedgerEntry(stamp, run, record.version)


def _unread(stamp: str) -> LedgerEntry:
    instant, suffix = instant_of(stamp), stamp.partition("-")[2]
    kind: RunKind = "scheduled" if not suffix else "backfill" if suffix == BACKFILL else "manual"
    reason = "The record of this run cannot be read."
    run = Run(kind=kind, state="unknown", instant=instant, planned_at=instant, reason=reason)
    return LedgerEntry(stamp, run, version=0, is_readable=False)
