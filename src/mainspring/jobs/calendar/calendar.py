"""Which instants a schedule has in a time zone, and what a change of clocks does to them.

Every local time that the schedule names is looked up in the zone:

| the local time            | policy                     | instants                                                    |
|---------------------------|----------------------------|-------------------------------------------------------------|
| exists once               |                            | that one                                                    |
| is left out (a gap)       | `onGap: shift`, default    | the one with the offset from before the gap: in a gap from  |
|                           |                            | 02:00 to 03:00, 02:30 fires when the clocks show 03:30      |
|                           | `onGap: skip`              | none                                                        |
| is repeated (an overlap)  | `onOverlap: first`, default| the first                                                   |
|                           | `onOverlap: last`          | the last                                                    |
|                           | `onOverlap: both`          | both                                                        |

Instants that coincide are one. The rule does not depend on how a schedule is written: by default each local time fires
exactly once, so `*/15 * * * *` pauses while an hour is repeated. With `both` it goes on, as does `@every 15m`, which
knows no zone. Only offsets count, so negative daylight saving (Dublin) and half hours (Lord Howe) need no rule.

How it is computed: a zone is a row of pieces with one offset each. The policies only move the edges of the local times
that belong to a piece (`_window`): a shifted time belongs to the piece before the gap, although its instant does not.

Instants are milliseconds since the epoch, from 1970 to `zone.END`. Nothing here waits or reads a clock.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from hashlib import blake2b
from typing import Final, Literal

from msgspec import Struct

from mainspring.jobs.calendar import zone as zones
from mainspring.jobs.calendar.schedule import DAY, Every, Schedule
from mainspring.jobs.calendar.zone import Piece

Mark = Literal["", "gap", "first", "last"]

_REACH: Final = DAY
"""A shifted instant is less than this after the end of its piece: no gap is longer than a day."""
_REMEMBERED: Final = 16
"""How many instants a calendar remembers."""


class Dst(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What becomes of local times that a change of clocks leaves out or repeats."""

    on_gap: Literal["skip", "shift"] = "shift"
    on_overlap: Literal["first", "last", "both"] = "first"


class Calendar:
    """A schedule in a zone. Raises `InvalidInput` for a zone that does not exist."""

    __slots__ = ("_dst", "_known", "_schedule", "_zone", "_zone_of_schedule")

    def __init__(self, schedule: Schedule, zone: str, dst: Dst) -> None:
        self._schedule = schedule
        self._dst = dst
        self._zone = zones.load(zone)
        self._zone_of_schedule = zones.load("UTC") if isinstance(schedule, Every) else self._zone
        self._known: tuple[int, ...] = ()
        """An instant, and those of the calendar that follow it without a gap. Jobs with the same schedule have the same
        calendar, and each asks for the same few instants again and again."""

    def next(self, after_ms: int) -> int | None:
        """The first instant strictly after this one; None when there is none before the end of time."""
        known = self._known
        place = bisect_right(known, after_ms)
        if 0 < place < len(known):
            return known[place]
        found = self._next(after_ms)
        if found is not None:
            goes_on = known and known[-1] == after_ms
            self._known = (*known[1 - _REMEMBERED :], found) if goes_on else (after_ms, found)
        return found

    def _next(self, after_ms: int) -> int | None:
        start = max(0, after_ms // 1000 + 1)
        found: int | None = None
        at = max(0, start - _REACH)
        while at < zones.END:
            piece = zones.piece_at(self._zone_of_schedule, at)
            low, high = self._window(piece)
            local = self._schedule.first(max(low, start + piece.offset))
            if local is not None and local < high:
                second = local - piece.offset
                found = second if found is None else min(found, second)
            if found is not None and found < piece.end:
                return found * 1000
            at = piece.end
        return None if found is None else found * 1000

    def previous(self, before_ms: int) -> int | None:
        """The last instant strictly before this one; None when there is none since 1970."""
        stop = min((before_ms - 1) // 1000, zones.END - 1)
        found: int | None = None
        at = stop
        while at >= 0:
            piece = zones.piece_at(self._zone_of_schedule, at)
            low, high = self._window(piece)
            local = self._schedule.last(min(high - 1, stop + piece.offset))
            if local is not None and local >= low:
                second = local - piece.offset
                found = second if found is None else max(found, second)
            if found is not None and found >= piece.start + _REACH:
                break
            at = piece.start - 1
        return None if found is None else found * 1000

    def between(self, after_ms: int, until_ms: int, *, limit: int) -> list[int]:
        """The instants after one and not after the other, in order; up to a limit."""
        found: list[int] = []
        at = self.next(after_ms)
        while at is not None and at <= until_ms and len(found) < limit:
            found.append(at)
            at = self.next(at)
        return found

    def count(self, after_ms: int, until_ms: int) -> int:
        """How many instants are after one and not after the other, without looking at each."""
        start, stop = max(0, after_ms // 1000 + 1), min(until_ms // 1000 + 1, zones.END)
        total = 0
        at = max(0, start - _REACH)
        while at < stop:
            piece = zones.piece_at(self._zone_of_schedule, at)
            low, high = self._window(piece)
            total += self._schedule.count(max(low, start + piece.offset), min(high, stop + piece.offset))
            total -= self._coinciding(piece, start, stop)
            at = piece.end
        return total

    def mark(self, instant_ms: int) -> Mark:
        """What a change of clocks did to this instant of the calendar.

        `gap`: it stands for a local time that was left out. `first`, `last`: its local time is repeated.
        """
        second = instant_ms // 1000
        piece = zones.piece_at(self._zone_of_schedule, second)
        local = second + piece.offset
        if second < piece.start + piece.offset - piece.offset_before and not self._matches(local):
            return "gap"
        if local < piece.start + piece.offset_before:
            return "last"
        if local >= piece.end + piece.offset_after:
            return "first"
        return ""

    def local(self, instant_ms: int) -> datetime:
        """The instant on the clocks of the calendar's zone."""
        return datetime.fromtimestamp(instant_ms / 1000, self._zone)

    def _window(self, piece: Piece) -> tuple[int, int]:
        """The local times that belong to a piece: the first, and the first that no longer does."""
        is_repeat = piece.offset < piece.offset_before
        low = piece.offset_before if is_repeat and self._dst.on_overlap == "first" else piece.offset
        is_repeated = piece.offset_after < piece.offset
        is_before_gap = piece.offset_after > piece.offset
        moved = (is_repeated and self._dst.on_overlap == "last") or (is_before_gap and self._dst.on_gap == "shift")
        high = piece.offset_after if moved else piece.offset
        return piece.start + low, piece.end + high

    def _coinciding(self, piece: Piece, start: int, stop: int) -> int:
        """How many instants from `start` to before `stop` are shifted into this piece and also native to it."""
        gap = piece.offset - piece.offset_before
        if gap <= 0 or self._dst.on_gap == "skip":
            return 0
        total = 0
        local = self._schedule.first(max(piece.start, start) + piece.offset_before)
        while local is not None and local < min(piece.start + gap, stop) + piece.offset_before:
            total += self._matches(local + gap)
            local = self._schedule.first(local + 1)
        return total

    def _matches(self, local: int) -> bool:
        return self._schedule.first(local) == local


def is_due(calendar: Calendar, last_run_ms: int, now_ms: int) -> bool:
    """Whether an instant later than the last run has come."""
    previous = calendar.previous(now_ms + 1)
    return previous is not None and previous > last_run_ms


def spread_ms(job: str, instant_ms: int, jitter_seconds: float) -> int:
    """How long to wait after an instant, from 0 to the jitter: the same on every instance, different for each job."""
    digest = blake2b(f"{job}\0{instant_ms}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") * int(jitter_seconds * 1000) // (2**64 - 1)
