"""The engine of one instance: it knows when to look, and which shards are its own.

    reader      sleeps until something is due, loads it in pages, offers each row to the dispatcher
    keeper      renews the lease, hands shards over that belong elsewhere, claims those that belong here

With nothing due, nothing is read. Wake-ups from other instances can be lost, and a program may write timers without
running an engine; so once in `look_seconds` the store is asked for the earliest instant of all owned shards, in one
call. An instance that is alone on a store which notices other writers asks only that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.carrier import Carrier
from mainspring.kernel.dispatcher import Dispatcher, Spawn
from mainspring.kernel.lanes import LaneState
from mainspring.kernel.ownership import Ownership
from mainspring.kernel.reader import Agenda, ShardState
from mainspring.kernel.settings import EngineSettings
from mainspring.store import BATCH_LIMIT, START, DuePage, Position, Store

SCAN_PAUSE_SECONDS = 0.01
"""Between pages that held nothing for anybody but lanes that are full, so that calls in flight come first."""

SHORTEST_SECONDS = 0.001
"""Event loops may end a wait a touch early; a shorter one would then be waited for again and again."""
HAND_OVER_SECONDS = 0.2
"""Between two looks while shards are about to change hands."""


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ownership: Ownership,
        carrier: Carrier,
        spawn: Spawn,
        settings: EngineSettings,
        foreign_writes: Callable[[], Awaitable[int]] | None = None,
    ) -> None:
        """`foreign_writes` is the store's, if it has it (`NoticesWriters`)."""
        self._store = store
        self._clock = clock
        self._ownership = ownership
        self._spawn = spawn
        self._settings = settings
        self._agenda = Agenda()
        self._foreign_writes = foreign_writes
        self._seen_writes: int | None = None
        self._glance_at = 0.0
        self._draining: dict[int, float] = {}
        self._keep_wake = asyncio.Event()
        self._complain_at = 0.0
        self._newly_owned_elsewhere: set[int] = set()
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        self.dispatcher = Dispatcher(
            store=store,
            clock=clock,
            agenda=self._agenda,
            carrier=carrier,
            lease_valid=ownership.valid,
            deposed=self._deposed,
            spawn=spawn,
            settings=settings,
        )

    def wake(self, shard_id: int, due_at: int) -> None:
        """Somebody committed a row with this due instant."""
        self.dispatcher.note(shard_id, due_at)

    def claim_soon(self) -> None:
        """There may be other shards or other members than before: do not wait for the next renewal."""
        self._keep_wake.set()

    def owns(self, shard_id: int) -> bool:
        return shard_id in self._agenda.shards

    @property
    def owned_shards(self) -> int:
        return len(self._agenda.shards)

    async def start(self) -> None:
        """Take the lease and the first shards, then run. Raises StoreUnavailable if the store cannot be used."""
        await self._renew()
        await self._share()
        for loop in (self._read_loop, self.dispatcher.start_loop, self.dispatcher.finish_loop, self._keep_loop):
            self._loops.append(self._spawn(loop()))

    async def stop(self) -> None:
        """Begin nothing more, wait for the calls in flight (bounded), record them, give everything back."""
        if not self._stopping:
            await self.drain()
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        try:
            await self._ownership.resign()
        except StoreUnavailable as error:
            telemetry.warning("shards were not released; others wait for the lease to run out", reason=error.detail)

    async def drain(self) -> None:
        """The first part of a stop: nothing begins any more, while the lease is still kept."""
        self._stopping = True
        shards = set(self._agenda.shards)
        self._drain(shards)
        if not await self._settled(shards, self._settings.drain_seconds):
            self.dispatcher.give_up(shards)
            await self._settled(shards, self._settings.store_retry_seconds * 2)

    async def _settled(self, shards: set[int], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while self.dispatcher.busy(shards):
            if self._clock.monotonic() >= deadline or not self._ownership.valid():
                return False
            await asyncio.sleep(0.01)
        return True

    # --- reader ---------------------------------------------------------------------------------------

    async def _read_loop(self) -> None:
        while True:
            await self._sleep_until_due()
            self.dispatcher.wake_reader.clear()
            try:
                await self._look()
            except StoreUnavailable as error:
                telemetry.warning("the store cannot be read", reason=error.detail)
                for shard_id in self._agenda.shards:
                    self._agenda.reread(shard_id, self._clock.now_ms())
                await asyncio.sleep(self._settings.store_retry_seconds)

    async def _sleep_until_due(self) -> None:
        at = self._agenda.next_look()
        longest = min(
            self._settings.idle_wake_seconds, max(SHORTEST_SECONDS, self._glance_at - self._clock.monotonic())
        )
        seconds = longest if at is None else min(longest, (at - self._clock.now_ms()) / 1000)
        if not self._ownership.valid():
            seconds = self._settings.idle_wake_seconds  # the keeper wakes the reader when the lease holds again
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        await _wait(self.dispatcher.wake_reader, seconds)

    async def _look(self) -> None:
        now = self._clock.now_ms()
        refills = self.dispatcher.refills
        for _ in range(len(refills)):
            await self._refill(refills.popleft(), now)
        if self._ownership.valid():
            await self._glance(now)
            for shard in self._agenda.take_due(now):
                if not shard.draining:
                    await self._read(shard, now)
                    self.dispatcher.pump()
        self.dispatcher.pump()

    async def _glance(self, now: int) -> None:
        """Once in a while, plan a look at every shard to which somebody else may have written."""
        monotonic = self._clock.monotonic()
        if monotonic < self._glance_at:
            return
        self._glance_at = monotonic + self._settings.look_seconds
        owned = [shard_id for shard_id, shard in self._agenda.shards.items() if not shard.draining]
        if await self._others_wrote():
            for start in range(0, len(owned), BATCH_LIMIT):
                batch = owned[start : start + BATCH_LIMIT]
                for shard_id, due_at in zip(batch, await self._store.next_due(batch), strict=True):
                    self._expect(shard_id, due_at, now)
        for shard in self._agenda.shards.values():
            if shard.unswept:
                self._agenda.look(shard.shard_id, now)

    async def _others_wrote(self) -> bool:
        if self._foreign_writes is None or not self._ownership.alone:
            self._seen_writes = None  # whatever is counted when this instance is alone again is news
            return True
        seen, self._seen_writes = self._seen_writes, await self._foreign_writes()
        return seen != self._seen_writes

    def _expect(self, shard_id: int, due_at: int | None, now: int) -> None:
        """The earliest row of a shard is due then. One that is due already may be unknown here, wherever it stands."""
        shard = self._agenda.shards.get(shard_id)
        if shard is None or due_at is None:
            return
        if due_at <= now:
            shard.owe_sweep()
        self._agenda.look(shard_id, max(due_at, now))

    async def _read(self, shard: ShardState, now: int) -> None:
        if shard.unswept:
            await self._sweep(shard, now)
        limit = self._settings.page_size
        shard.noted = None
        page = await self._load(shard, now, shard.position)
        taken = [self.dispatcher.offer(timer) for timer in page.timers]
        if page.timers:
            shard.advance(Position(page.timers[-1].due_at, page.timers[-1].uuid))
        if len(page.timers) == limit:
            self._agenda.look(shard.shard_id, now + 1)
            if not any(taken):
                await asyncio.sleep(SCAN_PAUSE_SECONDS)
        elif page.next_due_at is not None:
            self._agenda.look(shard.shard_id, max(page.next_due_at, now + 1))

    async def _sweep(self, shard: ShardState, now: int) -> None:
        """See rows that other instances wrote behind the read position."""
        if shard.position == START:
            shard.sweep, shard.unswept = START, 0  # everything is about to be read
            return
        limit = self._settings.page_size
        page = await self._load(shard, now, shard.sweep)
        for timer in page.timers:
            self.dispatcher.offer(timer)
        full = len(page.timers) == limit
        shard.swept(Position(page.timers[-1].due_at, page.timers[-1].uuid) if full else None)

    async def _load(self, shard: ShardState, now: int, after: Position) -> DuePage:
        self.dispatcher.expect_page()
        telemetry.due_reads.add()
        return await self._store.load_due(shard.shard_id, until=now, after=after, limit=self._settings.page_size)

    async def _refill(self, lane: LaneState, now: int) -> None:
        """Read on where a full lane had to leave off."""
        limit = self._settings.page_size
        lane.refilling = False
        for shard_id in list(lane.backlog):
            if not self.dispatcher.wants_more(lane):
                break
            shard = self._agenda.shards.get(shard_id)
            after = lane.backlog.pop(shard_id, None)
            if shard is None or shard.draining or after is None:
                continue
            page = await self._load(shard, now, after)
            if len(page.timers) == limit:
                lane.remember(shard_id, Position(page.timers[-1].due_at, page.timers[-1].uuid))
            for timer in page.timers:
                if self.dispatcher.belongs(timer, lane):
                    self.dispatcher.offer(timer)
        self.dispatcher.request_refill(lane)

    # --- keeper ---------------------------------------------------------------------------------------

    async def _keep_loop(self) -> None:
        renew_at = self._clock.monotonic() + self._settings.renew_seconds
        while True:
            pause = max(SHORTEST_SECONDS, renew_at - self._clock.monotonic())
            if self._draining or self._ownership.awaited:
                pause = min(pause, HAND_OVER_SECONDS)
            await _wait(self._keep_wake, pause)
            self._tell_deposed()
            renew = self._keep_wake.is_set() or self._clock.monotonic() >= renew_at
            self._keep_wake.clear()
            try:
                if renew:
                    renew_at = self._clock.monotonic() + self._settings.store_retry_seconds
                    await self._renew()
                    renew_at = self._clock.monotonic() + self._settings.renew_seconds
                await self._share()
                if renew:
                    self._complain_at = 0.0
            except StoreUnavailable as error:
                self._complain(error)
                await asyncio.sleep(HAND_OVER_SECONDS)

    def _complain(self, error: StoreUnavailable) -> None:
        """An outage is told when it begins, and then once in a lease's time."""
        now = self._clock.monotonic()
        if now >= self._complain_at:
            self._complain_at = now + self._ownership.lease_seconds
            telemetry.warning("the lease was not renewed", reason=error.detail)

    async def _renew(self) -> None:
        if await self._ownership.renew():
            return
        lost = set(self._agenda.shards)
        if lost:
            telemetry.warning("shards were lost with the lease", count=len(lost))
            self._lose(lost)

    async def _share(self) -> None:
        """Give and take shards, as the members of the last renewal have it."""
        if self._stopping:
            return
        await self._hand_over()
        gained = await self._ownership.claim()
        now = self._clock.now_ms()
        for shard_id in gained:
            self._agenda.add(shard_id, self._ownership.fences[shard_id], now)
        if gained:
            telemetry.info("claimed shards", count=len(gained))
        self.dispatcher.wake_reader.set()

    async def _hand_over(self) -> None:
        """Release shards that belong elsewhere once nothing of theirs is in flight, or when that takes too long."""
        belongs_elsewhere = self._ownership.misplaced()
        fresh = {shard_id for shard_id in belongs_elsewhere if shard_id not in self._draining}
        self._drain(fresh)
        now = self._clock.monotonic()
        overdue = {s for s, since in self._draining.items() if now - since > self._settings.drain_seconds}
        if overdue:
            self.dispatcher.give_up(overdue)
        done = [shard_id for shard_id in self._draining if not self.dispatcher.busy({shard_id})]
        for shard_id in done:
            self._draining.pop(shard_id)
            self._agenda.remove(shard_id)
        if done:
            await self._ownership.release(done)
            telemetry.info("released shards", count=len(done))

    def _drain(self, shard_ids: set[int]) -> None:
        for shard_id in shard_ids:
            if (shard := self._agenda.shards.get(shard_id)) is not None:
                shard.draining = True
                self._draining[shard_id] = self._clock.monotonic()
        if shard_ids:
            self.dispatcher.let_go(shard_ids)

    def _deposed(self, shard_ids: set[int]) -> None:
        """Another instance owns these shards now."""
        self._newly_owned_elsewhere |= shard_ids
        self._lose(shard_ids)

    def _tell_deposed(self) -> None:
        """One line for what may have been found out shard by shard."""
        shards, self._newly_owned_elsewhere = self._newly_owned_elsewhere, set()
        if shards:
            telemetry.warning("a shard has a newer owner", count=len(shards), first=min(shards))

    def _lose(self, shard_ids: set[int]) -> None:
        for shard_id in shard_ids:
            self._agenda.shards.pop(shard_id, None)
            self._draining.pop(shard_id, None)
            self._ownership.fences.pop(shard_id, None)
        self.dispatcher.let_go(shard_ids)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
