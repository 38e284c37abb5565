"""Makes the calls of fetches: each once, in places that hosts share, and sees each to its end.

    call ──▶ write its end into the record ──▶ offer the result to its origin, once ──▶ move the row

The place is free again when the end is on record. Offers have places of their own, which origins share; if there is
none for an origin, or no memory for the result, the first offer is left to the row like all others. A fetch that is
cancelled gives its place back at once: its call is cut off.

It needs the two stores, a sender and a clock, no engine: so it can work inside an instance or in a process of its own.
If it dies, the owner of the row does the rest, going by the record: what has ended is delivered, and what has not is
unknown.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.background import STORE_RETRY_SECONDS, until_available
from mainspring.clock import Clock
from mainspring.delivery.answer import LITTLE
from mainspring.delivery.call import Sends
from mainspring.errors import StoreUnavailable
from mainspring.fetches.call import call
from mainspring.fetches.memory import FetchMemory, RequestMemory, Share, size_of, while_offered, while_recorded
from mainspring.fetches.messages import OutboundRequest
from mainspring.fetches.outcome import Outcome, of_lost_executor, of_reply
from mainspring.fetches.places import Places, site_of_place
from mainspring.fetches.record import FIRST_OFFER_AIR_MS, Fetch, bare
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.results import Results
from mainspring.fetches.work_limit import WorkLimit
from mainspring.kernel.shares import Tier

T = TypeVar("T")
Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]
START_TRIES: Final = 3
_WAITING: Final = "results of fetches wait for the store"
"""There are few of them, at most the limit, and the record decides when they come too late."""
UNPLACED_AT_ONCE: Final = 32
"""How many fetches are looked at although nobody knows how large their requests are."""
LARGE_AT_ONCE: Final = 8
"""How many results are recorded beside a large request, which is read and written with them: many may come together."""
FAREWELL_SECONDS: Final = 2.0
"""How long a stop waits for the records of calls that did not end in time."""


class _OwnedFetch:
    """A fetch that is seen through to its end here."""

    def __init__(self, fetch: Fetch, host: str, place: int, tier: Tier, sent: Callable[[], None]) -> None:
        self.fetch = replace(fetch, request=bare(fetch.request))
        self.request: OutboundRequest | None = fetch.request
        """Until it is sent."""
        self.is_large = size_of(fetch.request) > LITTLE
        self.sent = sent
        """To be called then."""
        self.host = host
        self.place: int | None = place
        """Until it is given back."""
        self.tier = tier
        """What was known about the host before."""
        self.is_calling = True
        self.reachable: bool | None = None


class Executor:
    """`take` what is to be called; `stop` before the stores are closed."""

    def __init__(
        self,
        *,
        name: str,
        registry: FetchRegistry,
        results: Results,
        sender: Sends,
        clock: Clock,
        randomness: random.Random,
        spawn: Spawn,
        limit: int,
        host_limit: int,
        host_of: Callable[[str], str],
        freed: Callable[[Iterable[str]], None],
        memory: FetchMemory,
        requests: RequestMemory,
    ) -> None:
        """`host_of` names the host of a URL; `freed` is called with hosts that have room again."""
        self.name = name
        self.places = Places(limit, host_limit=host_limit, clock=clock)
        self._offers = results.origins
        self._host_of = host_of
        self._registry = registry
        self._results = results
        self._sender = sender
        self._clock = clock
        self._random = randomness
        self._spawn = spawn
        self._freed = freed
        self._memory = memory
        self._requests = requests
        self._unplaced = WorkLimit(UNPLACED_AT_ONCE)
        self._large_records = WorkLimit(LARGE_AT_ONCE)
        self._starting = 0
        self._running: dict[asyncio.Task[None], _OwnedFetch] = {}
        self._stopping = False
        self._stopped = False

    @property
    def limit(self) -> int:
        return self.places.limit

    @property
    def in_flight(self) -> int:
        return min(self.places.taken, self.limit)  # a call that has just begun also holds the place of its attempt

    @property
    def is_busy(self) -> bool:
        """Whether calls are under way, or results being offered."""
        return bool(self._starting or self._running)

    def room_for(self, fetch: Fetch) -> Callable[[], bool]:
        """Tells whether there is room, for whoever asks again until there is. Keeps nothing of the fetch."""
        return partial(self._has_room, self._host_of(fetch.request.url), size_of(fetch.request))

    def _has_room(self, host: str, size: int) -> bool:
        if not self.places.ask(host):
            return False
        return self._requests.has_room(site_of_place(host), size, self.places.tier_of(host))

    async def take(self, req_id: str, *, in_place: bool = False) -> Fetch | None:
        """Make the call of a fetch, if it is still to be made and there is room; returns it as it then stands.

        Returns once it is written that the call is made here, and does not wait for the call. `in_place`: the
        caller has taken one of the host's places, and gives it back afterwards.
        """
        if self._stopping or not (in_place or self.places.free):
            return await self._registry.find(req_id)
        # A new one each time: the same fetch may be handed over again while this one is under way.
        mark = f"{self._random.getrandbits(64):016x}"
        taken: tuple[str, int, Tier] | None = None
        mine = False

        def may_start(fetch: Fetch) -> bool:
            nonlocal taken
            if in_place:
                return True
            host = self._host_of(fetch.request.url)
            tier = self.places.tier_of(host)
            has_room = self._requests.has_room(site_of_place(host), size_of(fetch.request), tier)
            if taken is None and has_room and self.places.room(host) > 0:
                taken = host, self.places.take(host), tier
            return taken is not None

        self._starting += 1
        try:
            fetch = await self._start(req_id, mark, may_start, in_place=in_place)
            mine = fetch is not None and fetch.state == "running" and fetch.mark == mark
            if fetch is not None and mine:
                crashpoint.reach(crashpoint.FETCH_DISPATCHED)
                if taken is None:
                    host = self._host_of(fetch.request.url)
                    tier = self.places.tier_of(host, in_place=True)
                    taken = host, self.places.take(host, in_place=True), tier
                host, _, tier = taken
                sent = self._requests.keep(site_of_place(host), fetch.request, tier)
                self._run(_OwnedFetch(fetch, *taken, sent))
            return fetch
        finally:
            self._starting -= 1
            if taken is not None and not mine:
                host, place, _ = taken
                self._free(host, place, None)

    async def _start(
        self, req_id: str, mark: str, may_start: Callable[[Fetch], bool], *, in_place: bool
    ) -> Fetch | None:
        """After a lost answer nobody knows whether it was written: asking again with the same mark tells."""
        now = self._clock.now_ms()

        async def start() -> Fetch | None:
            async with nullcontext() if in_place else self._unplaced.place(req_id):
                return await self._registry.start(req_id, executor=self.name, mark=mark, now=now, may_start=may_start)

        for _ in range(START_TRIES - 1):
            try:
                return await start()
            except StoreUnavailable:
                await asyncio.sleep(STORE_RETRY_SECONDS)
        return await start()

    def _run(self, run: _OwnedFetch) -> None:
        if self._stopped:
            run.sent()
            self._leave(run)
            return  # too late; whoever looks after the rows next finds that this executor is gone
        task = self._spawn(self._see_through(run))
        self._running[task] = run
        task.add_done_callback(self._over)

    def _over(self, task: asyncio.Task[None]) -> None:
        run = self._running.pop(task)
        run.sent()
        self._leave(run)

    def _leave(self, run: _OwnedFetch) -> None:
        """It no longer needs its place."""
        if run.place is not None:
            place, run.place = run.place, None
            self._free(run.host, place, run.reachable)

    def _free(self, host: str, place: int, reachable: bool | None) -> None:
        self.places.give_back(host, place, reachable=reachable)
        self._freed((*self.places.first_in_line, host))

    def cut_off(self, mark: str) -> None:
        """The result of this call is no longer wanted: if it is under way here, it ends."""
        for task, run in self._running.items():
            if run.fetch.mark == mark and run.is_calling:
                task.cancel()

    async def stop(self, seconds: float) -> None:
        """Take nothing more; wait this long for what is under way, then record the rest as unknown."""
        self._stopping = self.places.closed = self._offers.closed = True
        deadline = self._clock.monotonic() + seconds
        while self.is_busy:
            if self._clock.monotonic() >= deadline:
                break
            await asyncio.sleep(0.01)
        self._stopped = True
        left = dict(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
            farewells = [self._spawn(self._give_up(run.fetch)) for run in left.values()]
            await asyncio.wait(farewells, timeout=FAREWELL_SECONDS)
            for farewell in farewells:
                farewell.cancel()

    async def _see_through(self, run: _OwnedFetch) -> None:
        try:
            await self._work(run)
        except Exception:  # noqa: BLE001 - nothing foreseen raises; if it does, the watchdog ends this fetch only
            telemetry.exception("a fetch ended with an unforeseen error", req_id=run.fetch.req_id)

    async def _work(self, run: _OwnedFetch) -> None:
        with self._memory.share(site_of_place(run.host), partial(self._tier_of, run)) as memory:
            outcome = await self._call(run, memory)
            memory.keep(while_recorded(outcome))
            crashpoint.reach(crashpoint.FETCH_ANSWERED)
            with self._place_for_offer(run.fetch, outcome) as offer_ms:
                ended, first = await until_available(
                    lambda: self._end(run, outcome, memory, offer_ms=offer_ms), complaint=_WAITING
                )
                memory.give_back()
                crashpoint.reach(crashpoint.FETCH_ENDED)
                if ended is None or not first:
                    return  # whoever ended it first sees to the rest
                if ended.delivery.state == "waiting" and offer_ms:
                    self._leave(run)
                    ended = await self._offer(ended, outcome, offer_ms)
                moved = ended
                await until_available(lambda: self._registry.move(moved), complaint=_WAITING)

    def _tier_of(self, run: _OwnedFetch) -> Tier:
        """What is known by now about the host of a call. A new one is not doubted because of this one."""
        tier = self.places.tier_of(run.host)
        return run.tier if run.tier is Tier.UNTRIED and tier is Tier.DOUBTFUL else tier

    async def _end(
        self, run: _OwnedFetch, outcome: Outcome, memory: Share, *, offer_ms: int
    ) -> tuple[Fetch | None, bool]:
        try:
            async with self._large_records.place(run.fetch.req_id) if run.is_large else nullcontext():
                ended, first = await self._registry.end(run.fetch, outcome, by_executor=True, offer_ms=offer_ms)
                return ended and replace(ended, request=bare(ended.request)), first
        except StoreUnavailable:
            memory.doubt()
            raise

    @contextmanager
    def _place_for_offer(self, fetch: Fetch, outcome: Outcome) -> Iterator[int]:
        """How long the first offer of the result may take; 0 if it is not made from here."""
        url = fetch.result_url
        origin = self._host_of(url) if url is not None and self._results.reaches(fetch) else None
        if url is None or origin is None or not self._offers.room(origin):
            yield 0
            return
        with self._results.share(url) as memory:
            if not memory.try_to_take(while_offered(outcome)):
                yield 0
                return
            place = self._offers.take(origin)
            try:
                yield self._results.first_offer_ms(url)
            finally:
                self._offers.give_back(origin, place)

    async def _offer(self, fetch: Fetch, outcome: Outcome, offer_ms: int) -> Fetch:
        try:
            return await self._results.offer(fetch, outcome, timeout_ms=offer_ms) or fetch
        except StoreUnavailable as error:
            telemetry.warning("an offer was not recorded and will be repeated", reason=error.detail)
        repeat_at = self._clock.now_ms() + FIRST_OFFER_AIR_MS
        again = await until_available(
            lambda: self._registry.offered(fetch, lambda delivery: replace(delivery, next_at=repeat_at)),
            complaint=_WAITING,
        )
        return again or fetch

    async def _call(self, run: _OwnedFetch, memory: Share) -> Outcome:
        fetch = run.fetch
        request, run.request = run.request or fetch.request, None
        calling = call(
            self._sender,
            request,
            req_id=fetch.req_id,
            timeout_ms=fetch.timeout_ms,
            clock=self._clock,
            room=memory,
            sent=run.sent,
        )
        del request
        try:
            called = await calling
        finally:
            run.is_calling = False
        if called.reply.problem != "exhausted":
            run.reachable = called.reply.status is not None
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
        ended, _ = await until_available(
            lambda: self._registry.end(fetch, outcome, by_executor=False), complaint=_WAITING
        )
        if ended is not None:
            await until_available(lambda: self._registry.move(ended), complaint=_WAITING)
