"""The engine of one instance: which shards are its own, and whom it runs.

    reader      finds what is due in the owned shards
    dispatcher  takes it from due to done
    keeper      renews the lease
    sharer      hands over shards that belong elsewhere, claims those that belong here

The keeper waits for nothing but the lease: a shard that does not answer must not cost all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable
from mainspring.kernel.agenda import Agenda
from mainspring.kernel.batches import Spawn
from mainspring.kernel.carrier import Carrier
from mainspring.kernel.dispatcher import Dispatcher
from mainspring.kernel.ownership import Ownership
from mainspring.kernel.reader import SHORTEST_SECONDS, Reader
from mainspring.kernel.settings import EngineSettings
from mainspring.store import Store

HAND_OVER_SECONDS: Final = 0.2
"""The pause between two looks while shards are about to change hands."""
WITHDRAW_LOOKS: Final = 100
RESIGN_SECONDS: Final = 1.0
"""How long an instance that stops tries to give its shards back. Others otherwise wait for its lease to run out."""


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
        """`foreign_writes` is the store's, if it has that verb (`NoticesWriters`)."""
        self._clock = clock
        self._ownership = ownership
        self._spawn = spawn
        self._settings = settings
        self._agenda = Agenda()
        self._draining: dict[int, float] = {}
        self._keep_wake = asyncio.Event()
        self._share_wake = asyncio.Event()
        self._complain_at = 0.0
        self._newly_owned_elsewhere: set[int] = set()
        self._stopping = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        """All that runs on behalf of the engine: none of it outlives a stop, however the store behaves."""
        self.dispatcher = Dispatcher(
            store=store,
            clock=clock,
            agenda=self._agenda,
            carrier=carrier,
            lease_valid=ownership.valid,
            deposed=self._deposed,
            spawn=self._start_task,
            settings=settings,
        )
        self._reader = Reader(
            store=store,
            clock=clock,
            agenda=self._agenda,
            dispatcher=self.dispatcher,
            ownership=ownership,
            spawn=self._start_task,
            settings=settings,
            foreign_writes=foreign_writes,
        )

    def wake(self, shard_id: int, due_at: int) -> None:
        """Somebody committed a row with this due instant."""
        self.dispatcher.note(shard_id, due_at)

    def claim_soon(self) -> None:
        """Shards or members may have changed: do not wait for the next renewal."""
        self._keep_wake.set()

    def owns(self, shard_id: int) -> bool:
        return shard_id in self._agenda.shards

    @property
    def owned_shards(self) -> int:
        return len(self._agenda.shards)

    async def start(self) -> None:
        """Take the lease and the first shards, then run. Raises StoreUnavailable if the store cannot be used."""
        await self._ownership.renew()
        self._start_task(self._keep_loop())  # very many shards take longer to claim than a lease lasts
        await self._share()
        for loop in (self._reader.loop(), *self.dispatcher.loops, self._share_loop()):
            self._start_task(loop)

    def _start_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._spawn(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    async def stop(self) -> None:
        """Begin nothing more, wait for the calls in flight (bounded), record them, give everything back."""
        if not self._stopping:
            await self.drain()
        while tasks := tuple(self._tasks):
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        try:
            async with asyncio.timeout(RESIGN_SECONDS):
                await self._ownership.resign()
        except (StoreUnavailable, TimeoutError) as error:
            reason = error.detail if isinstance(error, StoreUnavailable) else "the store did not answer in time"
            telemetry.warning("shards were not released; others wait for the lease to run out", reason=reason)

    async def drain(self) -> None:
        """The first part of a stop: nothing new begins, while the lease is still kept."""
        self._stopping = True
        shards = set(self._agenda.shards)
        self._drain(shards)
        if not await self._drained(shards, self._settings.drain_seconds):
            self.dispatcher.give_up(shards)
            await self._drained(shards, self._settings.store_retry_seconds * 2)

    async def withdraw(self) -> None:
        """After `drain`: let others have the shards, but keep the lease: calls outside the engine are under way.

        Waits until that is published, but not for long: what is not released now is when the engine stops."""
        self._ownership.withdraw()
        self._keep_wake.set()
        for _ in range(WITHDRAW_LOOKS):
            if self._ownership.is_published:
                break
            await asyncio.sleep(0.01)
        for shard_id in tuple(self._agenda.shards):
            self._agenda.remove(shard_id)
            self._draining.pop(shard_id, None)
        await self._ownership.release(list(self._ownership.fences))

    async def _drained(self, shards: set[int], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        while shards & self.dispatcher.window.busy_shards():
            if self._clock.monotonic() >= deadline or not self._ownership.valid():
                return False
            await asyncio.sleep(0.01)
        return True

    # --- keeper ---------------------------------------------------------------------------------------

    async def _keep_loop(self) -> None:
        pause = self._until_renewal()
        while True:
            await _wait(self._keep_wake, pause)
            self._keep_wake.clear()
            self._tell_deposed()
            try:
                await self._ownership.renew()
                pause = self._until_renewal()
                self._complain_at = 0.0
            except StoreUnavailable as error:
                self._complain(error.detail)
                pause = min(self._settings.renew_seconds, self._settings.store_retry_seconds)
            except Exception:  # noqa: BLE001 - no error of a store may end the engine
                telemetry.exception("the store failed in an unforeseen way")
                pause = self._settings.store_retry_seconds
            self._share_wake.set()

    def _until_renewal(self) -> float:
        due_in = self._ownership.renewed_at + self._settings.renew_seconds - self._clock.monotonic()
        return max(SHORTEST_SECONDS, due_in)

    def _complain(self, reason: str) -> None:
        """An outage is logged when it begins, and then once per lease."""
        now = self._clock.monotonic()
        if now >= self._complain_at:
            self._complain_at = now + self._ownership.lease_seconds
            telemetry.warning("the lease was not renewed", reason=reason)

    # --- sharer ---------------------------------------------------------------------------------------

    async def _share_loop(self) -> None:
        """After each renewal, and more often while shards are about to change hands."""
        while True:
            hurry = self._draining or self._ownership.awaited
            await _wait(self._share_wake, HAND_OVER_SECONDS if hurry else self._settings.renew_seconds)
            self._share_wake.clear()
            try:
                await self._share()
            except StoreUnavailable:
                await asyncio.sleep(HAND_OVER_SECONDS)  # the keeper says that the store is away
            except Exception:  # noqa: BLE001 - no error of a store may end the engine
                telemetry.exception("the store failed in an unforeseen way")
                await asyncio.sleep(HAND_OVER_SECONDS)

    async def _share(self) -> None:
        """Give and take shards, by the members as of the last renewal."""
        if self._stopping:
            return
        await self._ownership.place()
        await self._hand_over()
        lost = await self._ownership.check()
        if lost:
            self._deposed(lost)
        try:
            await self._ownership.claim()
        finally:
            self._adopt()
            self.dispatcher.wake_reader.set()

    def _adopt(self) -> None:
        """Look after all shards that are owned, even if only some of those asked for could be claimed.

        Not in an instance that has begun to stop meanwhile: it gives them back with all others.
        """
        if self._stopping:
            return
        gained = [shard_id for shard_id in self._ownership.fences if shard_id not in self._agenda.shards]
        for shard_id in gained:
            self._agenda.add(shard_id, self._ownership.fences[shard_id])
        if gained:
            self._reader.begin(gained)
            telemetry.info("claimed shards", count=len(gained))

    async def _hand_over(self) -> None:
        """Release shards that belong elsewhere once none of their rows is in flight, or when that takes too long."""
        belongs_elsewhere = self._ownership.misplaced()
        fresh = {shard_id for shard_id in belongs_elsewhere if shard_id not in self._draining}
        self._drain(fresh)
        now = self._clock.monotonic()
        overdue = {s for s, since in self._draining.items() if now - since > self._settings.drain_seconds}
        if overdue:
            self.dispatcher.give_up(overdue)
        busy = self.dispatcher.window.busy_shards()
        done = [shard_id for shard_id in self._draining if shard_id not in busy]
        for shard_id in done:
            self._draining.pop(shard_id)
            self._agenda.remove(shard_id)
        if done:
            self.dispatcher.let_go(set(done))  # and of the bookmarks that were set since
            if released := await self._ownership.release(done):
                telemetry.info("released shards", count=released)

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
        for shard_id in shard_ids:
            self._agenda.remove(shard_id)
            self._draining.pop(shard_id, None)
            self._ownership.fences.pop(shard_id, None)
        self.dispatcher.let_go(shard_ids)

    def _tell_deposed(self) -> None:
        """One log line for what may have been found out shard by shard."""
        shards, self._newly_owned_elsewhere = self._newly_owned_elsewhere, set()
        if shards:
            telemetry.warning("a shard has a newer owner", count=len(shards), first=min(shards))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
