"""Finds what is due: it sleeps until something is, reads it in pages, and offers each row to the dispatcher.

With nothing due, nothing is read. There are three ways to a row, in this order:

    due         from the read position of a shard, at the instant that is planned for it: at once for a new shard, but
                of many new ones it is asked first, in one call for many, when anything is due
    left        from a bookmark where rows were left in the store for want of room, when there is room again
    sweep       from the beginning up to the position, for rows that others wrote and nobody announced

Wake-ups from other instances can be lost, and a program may write timers without running an engine; so once in
`look_seconds` the store is asked for the earliest instant of all owned shards, in one call. An instance that is alone
on a store that notices other writers asks only that. A shard that does not answer is left behind, and holds up no
other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.agenda import Agenda, ShardState
from mainspring.kernel.batches import PATIENCE_SECONDS, Spawn
from mainspring.kernel.dispatcher import Dispatcher
from mainspring.kernel.fenced import COMPLAINT_SECONDS
from mainspring.kernel.ownership import Ownership
from mainspring.kernel.settings import EngineSettings
from mainspring.store import BATCH_LIMIT, START, DuePage, Position, ReadsManyShards, Store

SHORTEST_SECONDS: Final = 0.001
"""Event loops may end a wait slightly early; shorter waits would then be repeated again and again."""
CIRCUIT_LOOK_SECONDS: Final = 0.2
SCAN_PAUSE_SECONDS: Final = 0.01
"""The pause between pages that are not urgent, so that calls in flight come first."""
FRUITLESS_PAUSE_SECONDS: Final = 0.1
"""After pages from bookmarks of which nothing could be taken in."""
SWEEP_SHARE: Final = 4
"""A sweep rests this many times as long as it reads."""
SMALL_PAGE: Final = 64
"""At least this many rows are read from a bookmark at once."""
BREATH: Final = 16
"""So many rows of a page are offered before others get a turn. Each may be the first of its destination, which takes
longest, and other pages have come at the same time."""
READS_AT_ONCE: Final = 16
SHARDS_AT_ONCE: Final = 64
"""How many shards are read in one call, if the store can."""
FEW_ROWS: Final = 16
"""How many rows of each are read then. A shard that has more due is read by itself, as long as it has."""
FEW: Final = 64
"""How many new shards are simply read. More of them would delay everything that comes due meanwhile."""
LEFT_PAGES: Final = 4
"""Pages that are read from bookmarks before it is looked again at what is due."""


class PageOutcome(NamedTuple):
    """What was read, and what came of it."""

    last: Position | None = None
    is_full: bool = False
    next_due_at: int | None = None
    admitted: int = 0


class _Asked(NamedTuple):
    """A page that was asked for."""

    shard: ShardState
    after: Position
    number: int
    """Among those of the shard."""
    of_all: int
    """Among those of all shards."""


Read = tuple[Sequence[ShardState], Callable[[], Awaitable[None]]]
"""Shards, and what reads their pages."""


class Reader:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        agenda: Agenda,
        dispatcher: Dispatcher,
        ownership: Ownership,
        spawn: Spawn,
        settings: EngineSettings,
        foreign_writes: Callable[[], Awaitable[int]] | None,
    ) -> None:
        self._store = store
        self._many = store if isinstance(store, ReadsManyShards) else None
        self._clock = clock
        self._agenda = agenda
        self._dispatcher = dispatcher
        self._ownership = ownership
        self._spawn = spawn
        self._settings = settings
        self._foreign_writes = foreign_writes
        self._seen_writes: int | None = None
        self._glance_at = 0.0
        self._glancing = False
        self._new: deque[int] = deque()
        """Shards for which nobody knows yet when anything is due."""
        self._asking_new = False
        self._left_at = 0.0
        self._complain_at = 0.0

    def begin(self, shard_ids: Sequence[int]) -> None:
        """These shards are owned from now on."""
        if len(shard_ids) > FEW:
            self._new.extend(shard_ids)
        else:
            self._look_now(shard_ids)

    def _look_now(self, shard_ids: Sequence[int]) -> None:
        for shard_id in shard_ids:
            self._agenda.look_now(shard_id)

    async def loop(self) -> None:
        while True:
            try:
                await self._sleep()
                self._dispatcher.wake_reader.clear()
                if self._ownership.valid():
                    await self._look()
                self._dispatcher.serve()
            except Exception:  # noqa: BLE001 - an instance that owns shards and reads none would be worse than none
                telemetry.exception("the reader failed in an unforeseen way")
                await asyncio.sleep(self._settings.store_retry_seconds)

    async def _sleep(self) -> None:
        """Wait until something is due, or somebody says that there is something to do."""
        monotonic = self._clock.monotonic()
        seconds = min(self._settings.idle_wake_seconds, max(SHORTEST_SECONDS, self._glance_at - monotonic))
        if (wait := self._agenda.seconds_to_next(self._clock.now_ms(), monotonic)) is not None:
            seconds = min(seconds, wait if wait <= 0 else max(SHORTEST_SECONDS, wait))
        if self._dispatcher.window.left_any:
            seconds = min(seconds, max(SHORTEST_SECONDS, self._left_at - monotonic))
        if self._dispatcher.waits_for_circuits:
            seconds = min(seconds, CIRCUIT_LOOK_SECONDS)
        if self._new and not self._asking_new:
            seconds = 0
        if not self._ownership.valid():
            seconds = self._settings.idle_wake_seconds  # the keeper wakes the reader when the lease holds again
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._dispatcher.wake_reader.wait()

    async def _look(self) -> None:
        now = self._clock.now_ms()
        monotonic = self._clock.monotonic()
        if monotonic >= self._glance_at and not self._glancing:
            self._glance_at = monotonic + self._settings.look_seconds
            self._glancing = True
            await self._for_a_while(self._glance(now))
        if self._new and not self._asking_new:
            self._asking_new = True
            await self._for_a_while(self._ask_new())
        due = [shard for shard in self._agenda.take_due(now, monotonic) if not shard.draining]
        reads, together = list[Read](), list[ShardState]()
        for shard in due:
            if self._many is None or shard.is_dense or shard.hangs or shard.reading:
                reads.append(([shard], partial(self._read_due, shard, now)))
            else:
                together.append(shard)
        for start in range(0, len(together), SHARDS_AT_ONCE):
            some = together[start : start + SHARDS_AT_ONCE]
            reads.append((some, partial(self._read_due_of, some, now)))
        for start in range(0, len(reads), READS_AT_ONCE):
            await self._read_for_a_while(reads[start : start + READS_AT_ONCE])
            self._dispatcher.serve()
        if self._dispatcher.window.left_any and self._clock.monotonic() >= self._left_at:
            await self._read_what_was_left(now)

    async def _for_a_while(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done, and go on without it if it takes long: then a shard, or the store, hangs."""
        await asyncio.wait({self._spawn(work)}, timeout=PATIENCE_SECONDS)

    async def _read_for_a_while(self, reads: Sequence[Read]) -> None:
        """Read pages of different shards, all at once, and go on without those that take long."""
        awaited: list[asyncio.Task[None]] = []
        for shards, read in reads:
            if shards[0].reading:
                self._look_soon(shards[0], SCAN_PAUSE_SECONDS)
                continue
            for shard in shards:
                shard.reading = True
            task = self._spawn(self._guarded(shards, read))
            if not shards[0].hangs:
                awaited.append(task)
        if awaited:
            await asyncio.wait(awaited, timeout=PATIENCE_SECONDS)

    async def _guarded(self, shards: Sequence[ShardState], read: Callable[[], Awaitable[None]]) -> None:
        """What could not be read is read again from where it was: position and bookmarks move when a page has come."""
        began = self._clock.monotonic()
        try:
            await read()
        except StoreUnavailable as error:
            self._look_later(shards, error.detail)
        except Exception:  # noqa: BLE001 - no error of a store may end the engine
            telemetry.exception("the store failed in an unforeseen way")
            self._look_later(shards, "an unforeseen error")
        finally:
            hangs = self._clock.monotonic() - began > PATIENCE_SECONDS
            for shard in shards:
                shard.reading, shard.hangs = False, hangs

    def _look_later(self, shards: Sequence[ShardState], reason: str) -> None:
        for shard in shards:
            shard.is_dense = True  # by itself: nobody knows which of them has the trouble
            self._look_soon(shard, 0 if len(shards) > 1 else self._settings.store_retry_seconds)
        if self._clock.monotonic() >= self._complain_at:
            self._complain_at = self._clock.monotonic() + COMPLAINT_SECONDS
            telemetry.warning("the store cannot be read", reason=reason)

    def _look_soon(self, shard: ShardState, seconds: float) -> None:
        self._agenda.look_soon(shard.shard_id, self._clock.monotonic() + seconds)

    # --- due ------------------------------------------------------------------------------------------

    async def _read_due(self, shard: ShardState, now: int) -> None:
        shard.noted = None
        began = self._clock.monotonic()
        self._go_on(shard, now, began, await self._page(shard, now, shard.position, self._settings.page_size))

    async def _read_due_of(self, shards: Sequence[ShardState], now: int) -> None:
        """The same for many shards in one call. Those that cannot be read like that are read by themselves."""
        assert self._many is not None, "Expected a store that reads many shards at once"
        began = self._clock.monotonic()
        asked = [_Asked(shard, shard.position, shard.ask_page(), self._next_page()) for shard in shards]
        telemetry.due_reads.add()
        try:
            for shard in shards:
                shard.noted = None
            places = [(shard.shard_id, shard.position) for shard in shards]
            found = await self._many.load_due_of(places, until=now, limit=FEW_ROWS)
            for page, due in zip(asked, found, strict=True):
                if due is None:
                    page.shard.is_dense = True
                    self._look_soon(page.shard, 0)
                else:
                    self._go_on(page.shard, now, began, await self._offer(page, due, now, FEW_ROWS))
                    await asyncio.sleep(0)
        finally:
            for page in asked:
                page.shard.page_over(page.number)

    def _go_on(self, shard: ShardState, now: int, began: float, page: PageOutcome) -> None:
        """Move the position past a page, and plan the next look."""
        shard.is_dense = page.is_full
        if page.last is not None:
            shard.advance(page.last)
        if page.is_full:
            pause = SHORTEST_SECONDS if page.admitted else SCAN_PAUSE_SECONDS
            self._agenda.look_soon(shard.shard_id, began + pause)
        elif page.next_due_at is not None and page.next_due_at <= now:
            self._agenda.look_soon(shard.shard_id, began + SHORTEST_SECONDS)
        elif page.next_due_at is not None:
            self._agenda.look(shard.shard_id, page.next_due_at)

    def _next_page(self) -> int:
        self._dispatcher.window.pages += 1
        return self._dispatcher.window.pages

    async def _page(self, shard: ShardState, now: int, after: Position, limit: int) -> PageOutcome:
        """Read a page and offer its rows."""
        page = _Asked(shard, after, shard.ask_page(), self._next_page())
        telemetry.due_reads.add()
        try:
            due = await self._store.load_due(shard.shard_id, until=now, after=after, limit=limit)
            return await self._offer(page, due, now, limit)
        finally:
            shard.page_over(page.number)

    async def _offer(self, page: _Asked, due: DuePage, now: int, limit: int) -> PageOutcome:
        """Offer the rows of a page that has come."""
        shard, window = page.shard, self._dispatcher.window
        timers, next_due_at = due
        if self._agenda.shards.get(shard.shard_id) is not shard:
            return PageOutcome()
        last = Position(timers[-1].due_at, timers[-1].uuid) if timers else None
        # A page may end before its limit: because of its bytes, or after rows that cannot be read.
        is_full = len(timers) == limit or (bool(timers) and next_due_at is not None and next_due_at <= now)
        end = last if is_full else None
        if end is None and shard.position.due_at > now:
            end = Position(now + 1, "")  # the clock stepped back: what was left after that may stand there
        window.passed(shard.shard_id, page.after, end, monotonic=self._clock.monotonic(), page=page.of_all)
        admitted = 0
        for start in range(0, len(timers), BREATH):
            if start:
                await asyncio.sleep(0)
                if self._agenda.shards.get(shard.shard_id) is not shard:
                    return PageOutcome()
            before = window.admitted
            self._dispatcher.offer(timers[start : start + BREATH], page.number)
            admitted += window.admitted - before
            self._dispatcher.serve_soon()  # what is here waits for no other page
        return PageOutcome(last, is_full, next_due_at, admitted)

    async def _ask_new(self) -> None:
        """A batch at a time, with what is due in other shards in between."""
        batch = [self._new.popleft() for _ in range(min(BATCH_LIMIT, len(self._new)))]
        try:
            for shard_id, due_at in zip(batch, await self._store.next_due(batch), strict=True):
                if due_at is not None:
                    self._agenda.look(shard_id, due_at)
        except StoreUnavailable:
            self._look_now(batch)  # reading each tells which of them cannot be asked
        except Exception:  # noqa: BLE001 - no error of a store may end the engine
            telemetry.exception("the store failed in an unforeseen way")
            self._look_now(batch)
        finally:
            self._asking_new = False
            self._dispatcher.wake_reader.set()

    # --- left -----------------------------------------------------------------------------------------

    async def _read_what_was_left(self, now: int) -> None:
        """A few pages from bookmarks after which there is something for lanes with room, of one shard each.

        A pass goes on past rows that cannot be taken in, because there may be others after them that can.
        """
        window = self._dispatcher.window
        began, before = self._clock.monotonic(), window.admitted
        pages = 0
        for shard_id in window.shards_left():
            shard = self._agenda.shards.get(shard_id)
            if shard is None or shard.draining or shard.reading:
                continue
            bookmark = window.read_from(shard_id, now, self._clock.monotonic())
            start, shard.left_to = shard.left_to or bookmark, None
            if bookmark is None or start is None:
                continue
            page = partial(self._read_left, shard, now, start, is_first=start == bookmark)
            await self._read_for_a_while([([shard], page)])
            self._dispatcher.serve()
            pages += 1
            if pages == LEFT_PAGES:
                break
        under_way = any(shard.left_to is not None for shard in self._agenda.shards.values())
        if window.admitted > before and window.room >= SMALL_PAGE:
            pause = SHORTEST_SECONDS
        elif not pages:  # nobody has room yet, and a queue that is short soon will
            pause = max(SCAN_PAUSE_SECONDS, (self._clock.monotonic() - began) * SWEEP_SHARE)
        else:
            pause = SCAN_PAUSE_SECONDS if window.admitted > before or under_way else FRUITLESS_PAUSE_SECONDS
        self._left_at = self._clock.monotonic() + pause

    async def _read_left(self, shard: ShardState, now: int, start: Position, *, is_first: bool) -> None:
        limit = self._settings.page_size
        if is_first:
            limit = min(limit, max(SMALL_PAGE, 2 * self._dispatcher.window.room))
        page = await self._page(shard, now, start, limit)
        shard.left_to = page.last if page.is_full else None

    # --- sweep ----------------------------------------------------------------------------------------

    async def _glance(self, now: int) -> None:
        """Once in a while, look for what somebody else may have written."""
        try:
            if not await self._others_wrote():
                return
            owned = [shard_id for shard_id, shard in self._agenda.shards.items() if not shard.draining]
            for start in range(0, len(owned), BATCH_LIMIT):
                batch = owned[start : start + BATCH_LIMIT]
                for shard_id, due_at in zip(batch, await self._store.next_due(batch), strict=True):
                    shard = self._agenda.shards.get(shard_id)
                    if shard is not None and due_at is not None:
                        self._expect(shard, due_at, now)
        except StoreUnavailable:
            self._seen_writes = None  # who wrote is asked again
        except Exception:  # noqa: BLE001 - no error of a store may end the engine
            telemetry.exception("the store failed in an unforeseen way")
        finally:
            self._glancing = False

    async def _others_wrote(self) -> bool:
        if self._foreign_writes is None or not self._ownership.alone:
            self._seen_writes = None  # when this instance is alone again, whatever is counted is news
            return True
        seen, self._seen_writes = self._seen_writes, await self._foreign_writes()
        return seen != self._seen_writes

    def _expect(self, shard: ShardState, due_at: int, now: int) -> None:
        """The earliest row of a shard is due then. One that is already due may be unknown here, wherever it is."""
        if due_at <= now:
            shard.sweep_owed = True
            if not shard.sweeping:
                shard.sweeping = True
                self._spawn(self._sweep(shard))
        if self._agenda.look(shard.shard_id, due_at):
            self._dispatcher.wake_reader.set()

    async def _sweep(self, shard: ShardState) -> None:
        """Find rows that others wrote before the read position, in pages with pauses between."""
        try:
            while shard.sweep_owed and self._agenda.shards.get(shard.shard_id) is shard and self._ownership.valid():
                shard.sweep_owed = False
                after = START
                while after < shard.position:
                    began = self._clock.monotonic()
                    page = await self._page(shard, self._clock.now_ms(), after, self._settings.page_size)
                    self._dispatcher.serve()
                    if not page.is_full or page.last is None:
                        break
                    after = page.last
                    pause = (self._clock.monotonic() - began) * SWEEP_SHARE
                    await asyncio.sleep(max(SCAN_PAUSE_SECONDS, pause))
        except StoreUnavailable:
            self._seen_writes = None  # so that the next glance owes another
        except Exception:  # noqa: BLE001 - no error of a store may end the engine
            telemetry.exception("the store failed in an unforeseen way")
        finally:
            shard.sweeping = False
