"""The engine of one instance: it knows when to look, and which shards are its own.

    reader      sleeps until something is due, loads it in pages, offers each row to the dispatcher
    keeper      renews the lease, hands shards over that belong elsewhere, claims those that belong here

With nothing due, nothing is read. Beside other instances every owned shard is looked at once in
`look_seconds`, because nobody announces what they write.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.carrier import Carrier
from mainspring.kernel.dispatcher import Dispatcher, EngineSettings, Spawn
from mainspring.kernel.lanes import LaneState
from mainspring.kernel.ownership import Ownership
from mainspring.kernel.reader import Agenda, ShardState
from mainspring.store import START, Position, Store

SCAN_PAUSE_SECONDS = 0.01
"""Between pages that held nothing for anybody but lanes that are full, so that calls in flight come first."""


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
    ) -> None:
        self._store = store
        self._clock = clock
        self._ownership = ownership
        self._spawn = spawn
        self._settings = settings
        self._agenda = Agenda()
        self._draining: dict[int, float] = {}
        self._keep_wake = asyncio.Event()
        self._stopping = False
        self._loops: list[asyncio.Task[None]] = []
        self.dispatcher = Dispatcher(
            store=store,
            clock=clock,
            agenda=self._agenda,
            carrier=carrier,
            lease_valid=ownership.valid,
            lose=self._lose,
            spawn=spawn,
            settings=settings,
        )

    def wake(self, shard_id: int, due_at: int) -> None:
        """Somebody committed a row with this due instant."""
        self.dispatcher.note(shard_id, due_at)

    def claim_soon(self) -> None:
        """There may be shards that nobody owns yet: do not wait for the next renewal."""
        self._keep_wake.set()

    @property
    def owned_shards(self) -> int:
        return len(self._agenda.shards)

    async def start(self) -> None:
        """Take the lease and the first shards, then run. Raises StoreUnavailable if the store cannot be used."""
        await self._keep()
        for loop in (self._read_loop, self.dispatcher.start_loop, self.dispatcher.finish_loop, self._keep_loop):
            self._loops.append(self._spawn(loop()))

    async def stop(self) -> None:
        """Begin nothing more, wait for the calls in flight (bounded), record them, give everything back."""
        self._stopping = True
        shards = set(self._agenda.shards)
        self._drain(shards)
        if not await self._settled(shards, self._settings.drain_seconds):
            self.dispatcher.give_up(shards)
            await self._settled(shards, self._settings.store_retry_seconds * 2)
        for task in self._loops:
            task.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        try:
            await self._ownership.resign()
        except StoreUnavailable as error:
            telemetry.warning("shards were not released; others wait for the lease to run out", reason=error.detail)

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
        longest = self._settings.idle_wake_seconds
        seconds = longest if at is None else min(longest, (at - self._clock.now_ms()) / 1000)
        if not self._ownership.valid():
            seconds = longest  # the keeper wakes the reader when the lease holds again
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
            for shard in self._agenda.take_due(now):
                if not shard.draining:
                    await self._read(shard, now)
                    self.dispatcher.pump()
        self.dispatcher.pump()

    async def _read(self, shard: ShardState, now: int) -> None:
        if not self._ownership.alone:
            await self._sweep(shard, now)
            self._agenda.look(shard.shard_id, now + round(self._settings.look_seconds * 1000))
        limit = self._settings.page_size
        shard.noted = None
        page = await self._store.load_due(shard.shard_id, until=now, after=shard.position, limit=limit)
        telemetry.due_reads.add()
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
            return
        limit = self._settings.page_size
        page = await self._store.load_due(shard.shard_id, until=now, after=shard.sweep, limit=limit)
        telemetry.due_reads.add()
        for timer in page.timers:
            self.dispatcher.offer(timer)
        full = len(page.timers) == limit
        shard.sweep = Position(page.timers[-1].due_at, page.timers[-1].uuid) if full else START

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
            page = await self._store.load_due(shard_id, until=now, after=after, limit=limit)
            telemetry.due_reads.add()
            if len(page.timers) == limit:
                lane.remember(shard_id, Position(page.timers[-1].due_at, page.timers[-1].uuid))
            for timer in page.timers:
                if self.dispatcher.belongs(timer, lane):
                    self.dispatcher.offer(timer)
        self.dispatcher.request_refill(lane)

    # --- keeper ---------------------------------------------------------------------------------------

    async def _keep_loop(self) -> None:
        while True:
            await _wait(self._keep_wake, self._settings.renew_seconds)
            self._keep_wake.clear()
            try:
                await self._keep()
            except StoreUnavailable as error:
                telemetry.warning("the lease was not renewed", reason=error.detail)

    async def _keep(self) -> None:
        was_alone = self._ownership.alone
        kept = await self._ownership.renew()
        if self._ownership.alone and not was_alone:
            for shard_id in self._agenda.shards:  # what the others wrote before they left, and nobody announced
                self._agenda.reread(shard_id, self._clock.now_ms())
        if not kept:
            telemetry.warning("the lease had been lost; shards are claimed anew")
            for shard_id in list(self._agenda.shards):
                self._lose(shard_id)
        if self._stopping:
            return
        await self._hand_over()
        gained = await self._ownership.claim()
        now = self._clock.now_ms()
        for shard_id in gained:
            self._agenda.add(shard_id, self._ownership.fences[shard_id], now)
        if not self._ownership.alone:
            # A shard that was last looked at alone may have no look planned, and others now write to it unannounced.
            for shard_id in self._agenda.shards:
                self._agenda.look(shard_id, now + round(self._settings.look_seconds * 1000))
        if gained:
            telemetry.info("claimed shards", count=len(gained))
        self.dispatcher.wake_reader.set()

    async def _hand_over(self) -> None:
        """Release shards that belong elsewhere once nothing of theirs is in flight, or when that takes too long."""
        belongs_elsewhere = await self._ownership.misplaced()
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

    def _lose(self, shard_id: int) -> None:
        """Another instance owns the shard now."""
        if self._agenda.shards.pop(shard_id, None) is not None:
            telemetry.warning("a shard has a newer owner", shard=shard_id)
            self.dispatcher.let_go({shard_id})
        self._draining.pop(shard_id, None)
        self._ownership.fences.pop(shard_id, None)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
