"""The engine's `Carrier` for the rows of fetches: looks at the record, does what is due, puts the row where it belongs.

    pending                 have the executor make the call, or one of the requested pool
    pending for too long    failed: nobody had room for it
    running, time is up     the watchdog: unknown
    running, executor gone  unknown, at once
    ended, origin waits     offer the result, in the lane of the origin; leave it if the origin is in another program
    ended, all done         remove the row; the record expires by itself

What is done follows from the record alone. So an attempt that was lost is simply made again: a call is made only by
whoever has written `running`, and that can be written once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.errors import Conflict, StoreUnavailable
from mainspring.fetches.executor import Executor
from mainspring.fetches.local_origins import is_inside
from mainspring.fetches.memory import RequestMemory, counted_as
from mainspring.fetches.outcome import Outcome, of_lost_executor, of_no_executor, of_no_room, of_silence
from mainspring.fetches.places import Places, site_of_place
from mainspring.fetches.pools import Pools
from mainspring.fetches.record import IN_PROCESS, NAMESPACE, Fetch, bare
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.results import Results
from mainspring.fetches.rows import Stage, ending, is_ours, request_size, stage_of
from mainspring.kernel.carrier import Ending, Lane, put_aside
from mainspring.kernel.shares import Tier
from mainspring.model import Result, Timer

ORIGINS: Final = f"{NAMESPACE} origins"
"""Offers of results are counted apart from fetches that are to be made, like two users' namespaces."""
LOOK_LIMIT: Final = 128
"""How many rows at a time only ask the store."""
NO_ROOM_MS: Final = 100
NO_EXECUTOR_MS: Final = 1_000
HAND_OVER_LIMIT: Final = 256
"""Fetches that are being handed over to executors of pools."""
HAND_OVERS_OF_ONE: Final = 64
"""For one host and pool."""
RETRY_MS: Final = 500
LONGEST_RETRY_MS: Final = 60_000
LEFT_MS: Final = 600_000
"""How often a result that was left to others is looked at: they take it long before that."""


class FetchCarrier:
    def __init__(
        self,
        *,
        registry: FetchRegistry,
        executor: Executor,
        requests: RequestMemory,
        pools: Pools,
        results: Results,
        host_of: Callable[[str], str],
        clock: Clock,
        lives: Callable[[str], Awaitable[bool]],
        waited: Callable[[int], None],
        host_limit: int,
    ) -> None:
        """`host_of` names the host of a URL; `lives` tells whether the executor of a name is alive; `waited` is told
        for how many milliseconds one has waited to be begun."""
        self._registry = registry
        self._executor = executor
        self._requests = requests
        self._pools = pools
        self._results = results
        self._host_of = host_of
        self._clock = clock
        self._lives = lives
        self._waited = waited
        self._host_limit = host_limit
        self._hand_overs = Places(HAND_OVER_LIMIT, host_limit=HAND_OVERS_OF_ONE, clock=clock)
        """Here a host is one as seen by a pool, named like its lane."""
        self._looks = Lane("fetch looks", LOOK_LIMIT, namespace=NAMESPACE, site="store", calls_nobody=True)
        self._inside = Lane("fetch origins inside", host_limit, namespace=ORIGINS, site="inside")

    def lane(self, timer: Timer) -> Lane:
        """New fetches wait in memory and in the store until an executor has room for their host; each host and each
        origin has a lane."""
        stage = stage_of(timer) if is_ours(timer) else None
        if stage is Stage.NEW:
            host = self._host_of(timer.detail.callback_url)
            return self._new_ones(timer.detail.labels["executor"], host, size=counted_as(request_size(timer)))
        if stage is not Stage.DELIVER:
            return self._looks
        url = timer.detail.headers["result-url"]
        if is_inside(url):
            return self._inside
        host = self._host_of(url)
        return Lane(f"fetch origin {host}", self._host_limit, namespace=ORIGINS, site=site_of_place(host))

    def _new_ones(self, pool: str, host: str, *, size: int) -> Lane:
        """Large requests have lanes of their own, so that they do not hold up others while they wait for memory."""
        site = site_of_place(host)
        name, place = lane_of(pool, host, size=size), lane_of(pool, host)
        is_here = pool == IN_PROCESS
        places = self._executor.places

        def tier() -> Tier:
            return places.tier_of(host) if is_here else Tier.PROVEN  # an executor calls it: nothing is known here

        def room() -> int:
            free = places.ask(host) if is_here else min(self._pools.room(pool, host), self._hand_overs.ask(place))
            return min(free, self._requests.room(name, site, size, tier())) if size and free else free

        def taking(change: int) -> None:
            if size and change > 0:
                self._requests.hold(name, site, size, tier())
            elif size:
                self._requests.let_go(name)
            if is_here:
                places.hold(host, change)
            else:
                self._hand_overs.hold(place, change)

        limit = places.host_limit if is_here else HAND_OVERS_OF_ONE
        return Lane(name, limit, NAMESPACE, site, room=room, taking=taking)

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        """Whatever is due is looked at."""
        return None

    async def carry(self, timer: Timer) -> Ending:
        if not is_ours(timer):
            return put_aside(timer, self._clock.now_ms(), "This is not the row of a fetch.")
        try:
            fetch, reachable = await self._advance(timer, stage_of(timer))
        except StoreUnavailable as error:
            return self._again(timer, error.detail, RETRY_MS)
        except Conflict as error:  # the record cannot be read, but may be repaired
            return self._again(timer, error.detail, LONGEST_RETRY_MS)
        now = self._clock.now_ms()
        if fetch is None or (fetch.expires_at is not None and fetch.expires_at <= now):
            return Ending(outcome=Result.SUCCEEDED, next="done", started_at=now, kept=False)
        return ending(fetch, now=now, not_before=_patience(fetch, now), reachable=reachable)

    def tell_failure(self, timer: Timer, ending: Ending) -> None:
        """Only what is no fetch at all: what becomes of a fetch is told by its record (`failures`)."""
        if ending.next == "parked":
            telemetry.warning("the row of a fetch was put aside", req_id=timer.timer_id, reason=ending.detail)

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        """Look again: at once, unless that was no use before."""
        wait = 0 if timer.attempts <= 1 else min(RETRY_MS * 2 ** min(timer.attempts, 10), LONGEST_RETRY_MS)
        return self._again(timer, reason, wait)

    def _again(self, timer: Timer, reason: str, wait_ms: int) -> Ending:
        now = self._clock.now_ms()
        return Ending(
            outcome=Result.UNKNOWN, next="retry", next_at=now + wait_ms, detail=reason, started_at=now, kept=False
        )

    async def _advance(self, timer: Timer, stage: Stage) -> tuple[Fetch | None, bool | None]:
        """Do what the record says is due; returns the fetch as it then stands, and what is now known about the
        destination of the lane."""
        reachable: bool | None = None
        if stage is Stage.DELIVER:
            return await self._bring(timer.timer_id, timer.detail.headers["result-url"])
        if stage is Stage.NEW:
            self._waited(self._clock.now_ms() - timer.due_at)
            pool = timer.detail.labels["executor"]
            fetch = await self._dispatch(timer.timer_id, pool, in_place=True)
            # As known from earlier calls: this one is yet to be made.
            reachable = pool != IN_PROCESS or self._is_proven(timer) or None
        else:
            fetch = await self._begun(await self._registry.find(timer.timer_id))
        if fetch is None or fetch.outcome is None:
            return fetch and await self._check_executor(fetch), reachable
        if not await self._is_to_offer(fetch):
            return fetch, reachable
        # An origin may keep us waiting: that belongs in its own lane, where the row goes now.
        return replace(fetch, delivery=replace(fetch.delivery, next_at=self._clock.now_ms())), reachable

    async def _bring(self, req_id: str, url: str) -> tuple[Fetch | None, bool | None]:
        """Offer or leave the result, if there is one and it is time."""
        async with self._results.found(req_id, url) as fetch:
            if fetch is not None and fetch.outcome is not None:
                return await self._offer(fetch, fetch.outcome) if await self._is_to_offer(fetch) else (fetch, None)
        fetch = await self._begun(fetch)
        return fetch and await self._check_executor(fetch), None

    async def _begun(self, fetch: Fetch | None) -> Fetch | None:
        if fetch is None or fetch.state != "pending":
            return fetch
        return await self._dispatch(fetch.req_id, fetch.pool or IN_PROCESS, in_place=False)

    async def _offer(self, fetch: Fetch, outcome: Outcome) -> tuple[Fetch | None, bool | None]:
        if not self._results.reaches(fetch):
            return (fetch if fetch.delivery.left else await self._results.leave(fetch)), True
        after = await self._results.offer(fetch, outcome)
        if after is None or after.delivery.attempts <= fetch.delivery.attempts:
            return after, None
        return after, after.delivery.last_status is not None

    def _is_proven(self, timer: Timer) -> bool:
        return self._executor.places.is_proven(self._host_of(timer.detail.callback_url))

    async def _is_to_offer(self, fetch: Fetch) -> bool:
        """The first offer is the executor's own, while it lives."""
        delivery = fetch.delivery
        if delivery.state != "waiting" or delivery.next_at <= self._clock.now_ms():
            return delivery.state == "waiting"
        return delivery.attempts == 0 and not await self._lives(fetch.executor)

    async def _check_executor(self, fetch: Fetch) -> Fetch | None:
        """End a running fetch if its time is up or nobody is running it."""
        if fetch.started_at is None or fetch.watchdog_at is None:
            return fetch
        now = self._clock.now_ms()
        if fetch.watchdog_at <= now:
            outcome = of_silence(fetch.executor, started_at=fetch.started_at, watchdog_at=fetch.watchdog_at, now=now)
        elif not await self._lives(fetch.executor):
            outcome = of_lost_executor(fetch.executor, started_at=fetch.started_at, now=now)
        else:
            return fetch
        return (await self._registry.end(fetch, outcome, by_executor=False))[0]

    async def _dispatch(self, req_id: str, pool: str, *, in_place: bool) -> Fetch | None:
        """Have the call made, if it is still to be made and somebody has room for it."""
        if pool == IN_PROCESS:
            return await self._executor.take(req_id, in_place=in_place)
        fetch = await self._registry.find(req_id)
        if fetch is None or fetch.state != "pending":
            return fetch
        fetch = replace(fetch, request=bare(fetch.request))  # whoever makes the call reads it again
        found = await self._pools.hand_over(pool, req_id, host=self._host_of(fetch.request.url))
        now = self._clock.now_ms()
        if not found and fetch.created_at + fetch.timeout_ms <= now:
            return await self._registry.give_up(req_id, of_no_executor(pool, created_at=fetch.created_at, now=now))
        if fetch.begin_by <= now:
            return await self._registry.give_up(req_id, of_no_room(created_at=fetch.created_at, now=now))
        return await self._registry.find(req_id)


def lane_of(pool: str, host: str, *, size: int = 0) -> str:
    """The name of the lane of new fetches to a host whose requests count as this large."""
    return f"fetch {pool} {f'{size} ' if size else ''}{host}"


def _patience(fetch: Fetch, now: int) -> int:
    """When a fetch that waits for others is looked at again; 0 if its record says when."""
    if fetch.delivery.left:
        return now + LEFT_MS
    if fetch.state != "pending":
        return 0
    if fetch.pool is None:
        return now + NO_ROOM_MS
    timeout_at = fetch.created_at + fetch.timeout_ms
    return now + NO_EXECUTOR_MS if timeout_at <= now else min(now + NO_EXECUTOR_MS, timeout_at)
