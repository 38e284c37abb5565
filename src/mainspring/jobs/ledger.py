"""The ledger: what became of every instant of a job, as records of the main store, newest first.

One record for each launch, and one for each range of instants that were skipped for one reason. The key is made from
the instant, so there is at most one launch record for a job and an instant: whoever plans an instant a second time
finds the record of the first. A launch that was asked for beside the calendar has a suffix: it is a launch of its own.

A *mark* names a launch within its job: the instant in milliseconds, with the suffix if it has one. Its id is
`<job>@<mark>`.
A record that cannot be read is left as it is. What became of its launch is `unknown`, and the others go on.
A record in a final state is never changed again. What a launch is doing meanwhile is told by its row.
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
from mainspring.jobs.messages import LaunchKind, LaunchState
from mainspring.model import Record, to_json
from mainspring.store import BATCH_LIMIT, RecordStore, ends_scan
from mainspring.unreadable import Unreadable, read_record, reason_of, set_aside
from mainspring.wire.instants import LAST_INSTANT

FINAL: Final = frozenset({"succeeded", "failed", "unknown", "skipped", "cancelled"})
BACKFILL: Final = "backfill"
"""The suffix of an instant that was launched afterwards. What had become of it before stays on record."""
_UNFINISHED_MS: Final = 400 * 86_400_000
"""How much longer than others a record is kept that is not final: more than the longest wait of a retry policy."""
_AT_ONCE: Final = 100
_REMEMBERED: Final = 20_000
_HOPS: Final = 64
"""How far back the newest launch that was made is looked for."""


class Launch(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A launch, or a range of instants that were not launched."""

    kind: LaunchKind
    state: LaunchState
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
    """The mark of the launch before this one, for which it may have to wait."""
    blocked_by: str = ""
    """The mark of the launch because of which this one was skipped."""
    catching_up: str = ""
    """The mark of the launch that makes up for an outage and delays this one; its own, if it is such a one itself."""
    successor: str = ""
    """The mark of a launch that waits for the end of this one."""

    @property
    def moment(self) -> int:
        """When it is to begin."""
        return self.instant if self.due_at is None else self.due_at

    @property
    def is_final(self) -> bool:
        return self.state in FINAL


class Entry(Struct, frozen=True):
    """A launch as it stands, and the version of its record."""

    mark: str
    launch: Launch
    version: int
    is_readable: bool = True
    """Else the launch stands for what nobody can tell, and nothing can be written by the version."""


def mark_of(instant: int, suffix: str = "") -> str:
    return f"{instant}-{suffix}" if suffix else str(instant)


def launch_id(job: str, mark: str) -> str:
    return f"{job}@{mark}"


def split_id(identity: str) -> tuple[str, str]:
    """Job and mark of a launch id. The name of a job has no @. `ValueError`: it is no launch's."""
    job, _, mark = identity.rpartition("@")
    if not job or not 0 <= instant_of(mark) <= LAST_INSTANT:
        raise ValueError(f"Expected the id of a launch, got {identity!r}")
    return job, mark


def instant_of(mark: str) -> int:
    return int(mark.partition("-")[0])


def key_of(mark: str) -> str:
    """Keys sort from the newest instant to the oldest."""
    instant, dash, suffix = mark.partition("-")
    return f"{LAST_INSTANT - int(instant):015d}{dash}{suffix}"


def behind(instant: int) -> str:
    """The place in a ledger before which everything is scheduled at this instant or later."""
    return f"{LAST_INSTANT - instant:015d}~"


class Ledger:
    def __init__(self, records: RecordStore, clock: Clock, *, retention_ms: int) -> None:
        self._records = records
        self._clock = clock
        self._retention_ms = retention_ms
        self._ended: dict[str, str] = {}
        """Of each job the mark of the last launch that was made and whose end was written here."""

    def has_ended(self, job: str, mark: str) -> bool:
        """Whether a launch is known to have been made and to be over; asks nobody. Otherwise the record tells."""
        return self._ended.get(job) == mark

    async def get(self, job: str, mark: str) -> Entry | None:
        record = await self._records.get_record(collection_of(job), key_of(mark), now=self._clock.now_ms())
        return None if record is None else _entry(job, record)

    async def put(self, job: str, mark: str, launch: Launch, *, expect: int) -> bool:
        """Write if the record has that version. False if it has not."""
        now = self._clock.now_ms()
        kept_ms = self._retention_ms if launch.is_final else self._retention_ms + _UNFINISHED_MS
        record = await self._records.put_record(
            collection_of(job), key_of(mark), to_json(launch), expect=expect, now=now, expires_at=now + kept_ms
        )
        if record is not None and launch.is_final and launch.state != "skipped":
            if len(self._ended) >= _REMEMBERED:
                self._ended.clear()
            self._ended[job] = mark
        return record is not None

    async def enter(self, job: str, launches: Sequence[tuple[str, Launch]]) -> list[Launch]:
        """Write new launches; where there is a record already, that one stands, and is answered instead."""
        found: list[Launch] = []
        for start in range(0, len(launches), _AT_ONCE):
            batch = launches[start : start + _AT_ONCE]
            if len(batch) == 1:
                found.append(await self._enter(job, *batch[0]))
            else:
                found += await asyncio.gather(*(self._enter(job, mark, launch) for mark, launch in batch))
        return found

    async def _enter(self, job: str, mark: str, launch: Launch) -> Launch:
        while not await self.put(job, mark, launch, expect=0):
            entry = await self.get(job, mark)
            if entry is not None:
                return entry.launch
        return launch

    async def change(
        self, job: str, mark: str, change: Callable[[Launch | None], Launch], *, known: Entry | None = None
    ) -> Launch:
        """Change what is not final, by compare-and-set from what is `known`; answers the record as it then stands."""
        entry = known
        while entry is None or not entry.launch.is_final:
            changed = change(None if entry is None else entry.launch)
            if await self.put(job, mark, changed, expect=0 if entry is None else entry.version):
                return changed
            entry = await self.get(job, mark)
        return entry.launch

    async def planned(self, job: str, *, after: int) -> list[Entry]:
        """Launches by the calendar, of instants after this one, that are not over."""
        return [entry async for entry in self._by_calendar(job, after) if not entry.launch.is_final]

    async def on_record(self, job: str, first: int, last: int) -> set[int]:
        """The instants from one to another that have a launch by the calendar, be it one that was skipped since."""
        found = self._by_calendar(job, first - 1, place=behind(last + 1))
        return {entry.launch.instant async for entry in found if entry.launch.until is None}

    async def _by_calendar(self, job: str, after: int, *, place: str = "") -> AsyncIterator[Entry]:
        """Entries by the calendar of instants after this one, behind a key, from the newest on."""
        while True:
            page, place = await self.page(job, after=place, limit=BATCH_LIMIT)
            for entry in page:
                if entry.launch.instant <= after:
                    return
                if entry.launch.kind in ("scheduled", "catchup"):
                    yield entry
            if not place:
                return

    async def skip(self, job: str, entry: Entry, reason: str) -> None:
        """Note that a launch that has not begun will not be made, unless somebody else has ended it."""
        skipped = replace(entry.launch, state="skipped", reason=reason, finished_at=self._clock.now_ms())
        if await self.put(job, entry.mark, skipped, expect=entry.version):
            telemetry.launches.add("skipped")

    async def refuse(self, job: str, marks: Sequence[str]) -> None:
        """Note that launches were not made because the database cannot hold their rows."""
        now = self._clock.now_ms()
        for mark in marks:
            entry = await self.get(job, mark)
            if entry is not None:
                await self.change(job, mark, partial(_refused, at=now), known=entry)

    async def last_made(self, job: str, mark: str, *, now: int) -> int | None:
        """The instant of the newest launch whose time has come and that was not skipped, from this one back.

        Launches are planned ahead, and may be skipped when their time comes. One whose record has expired was made.
        """
        for _ in range(_HOPS):
            if not mark:
                break
            if self.has_ended(job, mark):
                return instant_of(mark)
            entry = await self.get(job, mark)
            if entry is None:
                return instant_of(mark) if instant_of(mark) <= now else None
            launch = entry.launch
            if launch.moment <= now and launch.state not in ("skipped", "buffered"):
                return launch.instant
            mark = launch.blocked_by or launch.previous
        return None

    async def page(self, job: str, *, after: str, limit: int) -> tuple[list[Entry], str]:
        """Entries behind a key, from the newest on, and the key behind which there are more; '': there are not."""
        page = await self._records.scan_records(collection_of(job), now=self._clock.now_ms(), after=after, limit=limit)
        entries = [entry for record in page if (entry := _entry(job, record)) is not None]
        return entries, "" if ends_scan(page, limit) else page[-1].key


def _refused(launch: Launch | None, *, at: int) -> Launch:
    assert launch is not None, "Expected a launch that is on record"
    return replace(launch, state="failed", reason="The database cannot hold the row of this launch.", finished_at=at)


def collection_of(job: str) -> str:
    return f"launch:{job}"


def _entry(job: str, record: Record) -> Entry | None:
    """None if not even the key is that of a launch."""
    instant, dash, suffix = record.key.partition("-")
    try:
        mark = f"{LAST_INSTANT - int(instant)}{dash}{suffix}"
        if key_of(mark) != record.key:
            raise ValueError(f"Expected the key of a launch, got {record.key!r}")
    except ValueError as error:
        set_aside(Unreadable(collection_of(job), record.key, reason_of(error), record.version))
        return None
    launch = read_record(collection_of(job), record, partial(msgspec.json.decode, type=Launch))
    return _unread(mark) if launch is None else Entry(mark, launch, record.version)


def _unread(mark: str) -> Entry:
    instant, suffix = instant_of(mark), mark.partition("-")[2]
    kind: LaunchKind = "scheduled" if not suffix else "backfill" if suffix == BACKFILL else "manual"
    reason = "The record of this launch cannot be read."
    launch = Launch(kind=kind, state="unknown", instant=instant, planned_at=instant, reason=reason)
    return Entry(mark, launch, version=0, is_readable=False)
