"""Makes the calls of fetches: at most `limit` at a time, each once, and sees each to its end.

    call ──▶ settle the record ──▶ offer the result to its origin, once ──▶ move the row

It needs the two stores, a sender and a clock, no engine: so it can work inside an instance or in a process of its own.
If it dies, the rest is done by whoever owns the row, which goes by the record: what was settled is delivered, and what
was not is unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.delivery.call import Sends
from mainspring.errors import StoreUnavailable
from mainspring.fetches.calling import call
from mainspring.fetches.ledger import Ledger
from mainspring.fetches.origins import Origins
from mainspring.fetches.outcome import Outcome, of_lost_executor, of_reply
from mainspring.fetches.record import FIRST_OFFER_MS, Fetch

T = TypeVar("T")
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
START_TRIES: Final = 3
STORE_RETRY_SECONDS: Final = 0.5
FAREWELL_SECONDS: Final = 2.0
"""What a stop gives to the records of calls that did not end in time."""


class Executor:
    """`take` what is to be called; `stop` before the stores are closed."""

    def __init__(
        self,
        *,
        name: str,
        ledger: Ledger,
        origins: Origins,
        sender: Sends,
        clock: Clock,
        randomness: random.Random,
        spawn: Spawn,
        limit: int,
        freed: Callable[[], None],
    ) -> None:
        """`freed` is told whenever there is room again."""
        self.name = name
        self.limit = limit
        self._ledger = ledger
        self._origins = origins
        self._sender = sender
        self._clock = clock
        self._random = randomness
        self._spawn = spawn
        self._freed = freed
        self._reserved = 0
        self._running: dict[asyncio.Task[None], Fetch] = {}
        self._stopping = False
        self._stopped = False

    @property
    def in_flight(self) -> int:
        return self._reserved + len(self._running)

    @property
    def room(self) -> int:
        return 0 if self._stopping else self.limit - self.in_flight

    async def take(self, req_id: str) -> Fetch | None:
        """Make the call of a fetch, if it is still to be made and there is room; answers with it as it then stands.

        Returns once it is written that the call is made here, and does not wait for the call.
        """
        if self.room <= 0:
            return await self._ledger.find(req_id)
        self._reserved += 1
        mine = False
        try:
            # Its own for each time: the same fetch may be handed over again while this one is under way.
            mark = f"{self._random.getrandbits(64):016x}"
            fetch = await self._start(req_id, mark)
            mine = fetch is not None and fetch.state == "running" and fetch.mark == mark
            if fetch is not None and mine:
                crashpoint.reach(crashpoint.FETCH_DISPATCHED)
                self._run(fetch)
            return fetch
        finally:
            self._reserved -= 1
            if not mine:
                self._freed()

    async def _start(self, req_id: str, mark: str) -> Fetch | None:
        """Written or not, after a lost answer nobody knows: asking again with the same mark tells."""
        now = self._clock.now_ms()
        for _ in range(START_TRIES - 1):
            try:
                return await self._ledger.start(req_id, executor=self.name, mark=mark, now=now)
            except StoreUnavailable:
                await asyncio.sleep(STORE_RETRY_SECONDS)
        return await self._ledger.start(req_id, executor=self.name, mark=mark, now=now)

    def _run(self, fetch: Fetch) -> None:
        if self._stopped:
            return  # too late; whoever looks after the rows next finds that this executor is gone
        task = self._spawn(self._see_through(fetch))
        self._running[task] = fetch
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task, None)
        self._freed()

    async def stop(self, seconds: float) -> None:
        """Take nothing more; wait so long for what is under way, then record the rest as unknown."""
        self._stopping = True
        deadline = self._clock.monotonic() + seconds
        while self.in_flight:
            if self._clock.monotonic() >= deadline:
                break
            await asyncio.sleep(0.01)
        self._stopped = True
        left = dict(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            farewells = [self._spawn(self._give_up(fetch)) for fetch in left.values()]
            await asyncio.wait(farewells, timeout=FAREWELL_SECONDS)
            for farewell in farewells:
                farewell.cancel()

    async def _see_through(self, fetch: Fetch) -> None:
        try:
            await self._work(fetch)
        except Exception:  # noqa: BLE001 - nothing foreseen raises; should it, the watchdog ends this fetch and no other
            telemetry.logger.exception("a fetch ended with an unforeseen error")

    async def _work(self, fetch: Fetch) -> None:
        outcome = await self._call(fetch)
        crashpoint.reach(crashpoint.FETCH_ANSWERED)
        offers = self._origins.reaches(fetch)
        settled, first = await self._until_available(
            lambda: self._ledger.settle(fetch, outcome, by_executor=True, offers=offers)
        )
        crashpoint.reach(crashpoint.FETCH_SETTLED)
        if settled is None or not first:
            return  # whoever ended it before sees to the rest
        if settled.delivery.state == "waiting" and offers:
            offer = self._origins.offer(settled, outcome, timeout_ms=FIRST_OFFER_MS)
            try:
                settled = await offer or settled
            except StoreUnavailable as error:
                telemetry.warning("an offer was not recorded and will be repeated", reason=error.detail)
        moved = settled
        await self._until_available(lambda: self._ledger.move(moved))

    async def _call(self, fetch: Fetch) -> Outcome:
        called = await call(self._sender, fetch.request, timeout_ms=fetch.timeout_ms, clock=self._clock)
        return of_reply(
            called.reply,
            method=fetch.request.method,
            url=called.url,
            redirected=called.redirected,
            finished_at=self._clock.now_ms(),
        )

    async def _give_up(self, fetch: Fetch) -> None:
        now = self._clock.now_ms()
        outcome = of_lost_executor(self.name, started_at=fetch.started_at or now, now=now)
        settled, _ = await self._until_available(lambda: self._ledger.settle(fetch, outcome, by_executor=False))
        if settled is not None:
            await self._until_available(lambda: self._ledger.move(settled))

    async def _until_available(self, step: Callable[[], Awaitable[T]]) -> T:
        """Results wait for the store: they are few (the limit), and the record decides when they come too late."""
        while True:
            try:
                return await step()
            except StoreUnavailable as error:
                telemetry.warning("results of fetches wait for the store", reason=error.detail)
                await asyncio.sleep(STORE_RETRY_SECONDS)
