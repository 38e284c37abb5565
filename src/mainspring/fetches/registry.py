"""The records of fetches and their rows: the only writer of both, apart from the engine's own moves of rows.

Every decision is a compare-and-set on the record; the row is moved afterwards, and where that is lost, the alarm that
is still set in the row repairs it. Needs no engine and no owner, so an executor in another process works with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.errors import Conflict, TooLarge
from mainspring.fetches.outcome import Outcome, of_cancelling, of_no_room
from mainspring.fetches.record import (
    FETCHES,
    LATE_BODY_BYTES,
    NAMESPACE,
    Fetch,
    ResultReturn,
    decode,
    encode,
    ended,
    offered_again,
    smaller,
    started,
    with_late,
)
from mainspring.fetches.rows import moved, new_row
from mainspring.fetches.work_limit import WorkLimit
from mainspring.model import Record, Timer, TimerKey
from mainspring.namespaces.service import NamespaceService
from mainspring.store import Put, RecordStore, TimerStore, first_version, look, was_applied
from mainspring.unreadable import read_record
from mainspring.wire.instants import to_instant

LARGE_BYTES: Final = 65_536
LARGE_AT_ONCE: Final = 1
"""How many records of more bytes are written at a time. Other writes wait for no more of them, unless they take
long."""
SLOW_AT_ONCE: Final = 64
"""How many of them may take long. What they hold is counted by whoever has them written (`memory`)."""
MOVES: Final = 5
"""How often a row that others are also moving may be moved again."""


class FetchRegistry:
    def __init__(
        self,
        *,
        records: RecordStore,
        timers: TimerStore,
        namespaces: NamespaceService,
        clock: Clock,
        wake: Callable[[int, int], None],
        randomness: random.Random,
        noted: Callable[[Fetch], None],
        not_pending: Callable[[str], None],
        retention_ms: int,
    ) -> None:
        """`wake` tells the engine about a row; `noted` is told about each change of state that was written here, and
        `not_pending` about each fetch that is found to need no executor now: the answer to the write that saw to
        that may have been lost."""
        self._records = records
        self._timers = timers
        self._namespaces = namespaces
        self._clock = clock
        self._wake = wake
        self._random = randomness
        self._noted = noted
        self._not_pending = not_pending
        self._retention_ms = retention_ms
        self._large = WorkLimit(LARGE_AT_ONCE, slow=SLOW_AT_ONCE)

    async def find(self, req_id: str) -> Fetch | None:
        return (await self._get(req_id))[1]

    async def _get(self, req_id: str) -> tuple[Record | None, Fetch | None]:
        record = await self._records.get_record(FETCHES, req_id, now=self._clock.now_ms())
        fetch = None if record is None else _read(record)
        if fetch is None or fetch.state != "pending":
            self._not_pending(req_id)
        return record, fetch

    async def key_of(self, req_id: str) -> TimerKey:
        """Where the row of a fetch is."""
        return (await self._namespaces.system(NAMESPACE)).key_of(req_id)

    async def add(self, fetch: Fetch) -> Fetch:
        """Store a new fetch, or return the one with that id. Either way it has a row afterwards.

        A fetch with that id whose time is over and that has no row was never acknowledged: the new one takes its place.
        """
        while True:
            now, first = self._clock.now_ms(), first_version(self._random)
            new = await self._records.put_record(FETCHES, fetch.req_id, encode(fetch), expect=0, now=now, first=first)
            if new is not None:
                break
            record = await self._records.get_record(FETCHES, fetch.req_id, now=now)
            if record is None:
                continue
            present = _read(record)
            is_done = present.is_final and present.delivery.state != "waiting"
            if is_done or await self._has_row(present):
                return present
            if present.state != "pending" or present.begin_by > now:
                fetch = present
                break
            if await self._put(record, fetch, now):
                break
        crashpoint.reach(crashpoint.FETCH_RECORDED)
        await self._give_row(fetch)
        return fetch

    async def mend(self, fetch: Fetch) -> None:
        """Have an instance look at a fetch whose time is over, should it have no row because of a crash."""
        if not await self._has_row(fetch):
            await self._give_row(fetch)

    async def start(
        self, req_id: str, *, executor: str, mark: str, now: int, may_start: Callable[[Fetch], bool]
    ) -> Fetch | None:
        """Make an executor the one that makes the call, if nobody does yet and it may; returns the fetch as it then
        stands.

        The call is the caller's to make if that fetch is running with this mark, which nobody else ever uses: then it
        was written, by this call or by an earlier one whose answer was lost. One that comes too late ends it instead.
        """

        def start(fetch: Fetch) -> Fetch | None:
            if fetch.state != "pending":
                return None
            if fetch.begin_by > now:
                return started(fetch, executor=executor, mark=mark, now=now) if may_start(fetch) else None
            outcome = of_no_room(created_at=fetch.created_at, now=now)
            return ended(fetch, outcome, offer_ms=0, retention_ms=self._retention_ms)

        fetch, changed = await self._change(req_id, start)
        if fetch is not None and changed:
            self._noted(fetch)
        return fetch

    async def end(
        self, of: Fetch, outcome: Outcome, *, by_executor: bool, offer_ms: int = 0
    ) -> tuple[Fetch | None, bool]:
        """End a fetch, unless it has ended; returns the fetch as it then stands, and whether this call ended it.

        What an executor brings is the result of a call: one that comes too late is kept beside the first. With
        `offer_ms`, the first offer to the origin is the caller's, and takes this long at most. A repeat after a lost
        answer finds its own.
        """
        first = False

        def end(fetch: Fetch) -> Fetch | None:
            nonlocal first
            first = not fetch.is_final or fetch.outcome == outcome
            if not fetch.is_final:
                return ended(fetch, outcome, offer_ms=offer_ms, retention_ms=self._retention_ms)
            return with_late(fetch, outcome) if by_executor and not first else None

        fetch, changed = await self._change(of.req_id, end, created_at=of.created_at)
        if fetch is not None and first and changed:
            self._noted(fetch)
        elif fetch is not None and fetch.outcome is not None and by_executor and not first:
            telemetry.late_results.add()
            telemetry.error(
                "a second result arrived for a fetch",
                req_id=fetch.req_id,
                result=outcome.state,
                first=fetch.outcome.state,
                first_at=to_instant(fetch.outcome.finished_at).isoformat(),
            )
        return fetch, first

    async def give_up(self, req_id: str, outcome: Outcome) -> Fetch | None:
        """End a fetch if nobody makes its call yet; returns the fetch as it then stands."""

        def give_up(fetch: Fetch) -> Fetch | None:
            if fetch.state != "pending":
                return None
            return ended(fetch, outcome, offer_ms=0, retention_ms=self._retention_ms)

        fetch, changed = await self._change(req_id, give_up)
        if fetch is not None and changed:
            self._noted(fetch)
        return fetch

    async def cancel(self, req_id: str) -> Fetch | None:
        """End a fetch that has not ended; returns the fetch as it then stands.

        The very record that is replaced says whether the call was under way: that changes from moment to moment.
        """

        def cancel(fetch: Fetch) -> Fetch | None:
            if fetch.is_final:
                return None
            outcome = of_cancelling(started_at=fetch.started_at, now=self._clock.now_ms())
            return ended(fetch, outcome, offer_ms=0, retention_ms=self._retention_ms)

        fetch, changed = await self._change(req_id, cancel)
        if fetch is not None and changed:
            self._noted(fetch)
            await self.move(fetch)
        return fetch

    async def offered(self, of: Fetch, change: Callable[[ResultReturn], ResultReturn]) -> Fetch | None:
        """Record what became of an offer to the origin."""

        def offered(fetch: Fetch) -> Fetch | None:
            return replace(fetch, delivery=change(fetch.delivery)) if fetch.delivery.state == "waiting" else None

        return (await self._change(of.req_id, offered, created_at=of.created_at))[0]

    async def redeliver(self, req_id: str) -> tuple[Fetch | None, bool]:
        """Have a result that has not arrived offered now; returns the fetch as it then stands, and whether it will be.

        A repeat puts the row where it belongs, should that have been lost.
        """
        fetch, changed = await self._change(req_id, lambda fetch: offered_again(fetch, self._clock.now_ms()))
        if fetch is not None and fetch.delivery.state == "waiting" and not fetch.delivery.left:
            await self.move(fetch)
        return fetch, changed

    async def move(self, fetch: Fetch) -> None:
        """Put the row where it belongs. Gives up if others keep moving it: they know the record, too."""
        key = await self.key_of(fetch.req_id)
        try:
            for _ in range(MOVES):
                [row] = await self._timers.get([key])
                if row is None:
                    await self._give_row(fetch)
                    return
                if await self._put_row(moved(row, fetch, self._clock.now_ms()), row.version):
                    return
        except TooLarge as error:  # the alarm that is set in the row stays as it is
            telemetry.error("the row of a fetch could not be rescheduled", req_id=fetch.req_id, reason=error.detail)

    async def hasten(self, row: Timer) -> None:
        """Have the owner of a row look at it now, unless it has been moved since it was read."""
        await self._put_row(replace(row, due_at=self._clock.now_ms()), row.version)

    async def _has_row(self, fetch: Fetch) -> bool:
        """A row of its own: that of an earlier fetch with this id is about to be removed by whoever looks at it."""
        [row] = await self._timers.get([await self.key_of(fetch.req_id)])
        return row is not None and row.detail.created_at >= fetch.created_at

    async def _give_row(self, fetch: Fetch) -> None:
        """Without a row nobody looks at a fetch: returns when it has one. Ends because each time somebody wrote."""
        namespace, now = await self._namespaces.system(NAMESPACE), self._clock.now_ms()
        row = new_row(fetch, namespace, version=first_version(self._random), now=now)
        expect = 0
        while not await self._put_row(row, expect):
            present = await look(self._timers, row.key)
            if isinstance(present, Timer) and present.detail.created_at >= fetch.created_at:
                return
            expect = 0 if present is None else present.version  # of an earlier fetch: see `_has_row`

    async def _put_row(self, row: Timer, expect: int) -> bool:
        """False if the row is not as expected."""
        [verdict] = await self._timers.write([Put(row, expect)])
        if not was_applied(verdict):
            return False
        self._wake(row.shard_id, row.due_at)
        return True

    async def _change(
        self, req_id: str, change: Callable[[Fetch], Fetch | None], *, created_at: int | None = None
    ) -> tuple[Fetch | None, bool]:
        """Compare and set until it is changed or `change` wants nothing. Ends because each time somebody wrote.

        With `created_at`, only a fetch of that instant: what became of it does not concern a later one with its id.
        """
        while True:
            now = self._clock.now_ms()
            record, fetch = await self._get(req_id)
            if record is None or fetch is None:
                return None, False
            if created_at is not None and fetch.created_at != created_at:
                return None, False
            after = change(fetch)
            if after is None:
                return fetch, False
            written = await self._put_what_fits(record, after, now)
            if written is not None:
                return written, True

    async def _put_what_fits(self, record: Record, fetch: Fetch, now: int) -> Fetch | None:
        for body_bytes in (LATE_BODY_BYTES, 0):
            try:
                return fetch if await self._put(record, fetch, now) else None
            except TooLarge:
                fetch = smaller(fetch, body_bytes)
        return fetch if await self._put(record, fetch, now) else None

    async def _put(self, record: Record, fetch: Fetch, now: int) -> bool:
        value = encode(fetch)
        async with self._large.place(record.key) if len(value) > LARGE_BYTES else nullcontext():
            put = await self._records.put_record(
                FETCHES, record.key, value, expect=record.version, now=now, expires_at=fetch.expires_at
            )
        return put is not None


def _read(record: Record) -> Fetch:
    fetch = read_record(FETCHES, record, decode)
    if fetch is None:
        raise Conflict(f"The record of fetch {record.key!r} cannot be read")
    return fetch
