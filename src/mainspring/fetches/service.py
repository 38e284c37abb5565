"""What users do with fetches: requests in, views out. An answer is given only after the store has committed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, get_args

from msgspec import UNSET
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.clock import Clock
from mainspring.delivery.secrets import Secrets
from mainspring.errors import Conflict, FieldError, NotFound, RateLimited, ReqIdReuse, wrong_field
from mainspring.fetches.activity import Activity
from mainspring.fetches.checks import check
from mainspring.fetches.executor import Executor
from mainspring.fetches.messages import (
    CreateFetch,
    ExecutorView,
    FetchFilter,
    FetchPage,
    FetchRef,
    FetchState,
    FetchStats,
    FetchView,
    ListFetches,
    RedeliverFetches,
    RedeliveryView,
    StatsView,
)
from mainspring.fetches.pools import Pools
from mainspring.fetches.record import IN_PROCESS, NAMESPACE, Fetch, new_fetch, offered_again, other_request
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.rows import chosen, read_rows, state_of, summary_of
from mainspring.fetches.views import fetch_view
from mainspring.model import Timer
from mainspring.namespaces.service import NamespaceService
from mainspring.store import BATCH_LIMIT, START, ListPage, Position, TimerStore
from mainspring.wire import cursors
from mainspring.wire.instants import to_ms

FIRST_LOOK_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 1.0
"""How often a waiting caller checks whether somebody else has ended its fetch."""
SCAN_LIMIT: Final = 10_000
"""How many rows one request looks through at most."""
REDELIVERED_AT_ONCE: Final = 16


class FetchService:
    def __init__(
        self,
        *,
        timers: TimerStore,
        registry: FetchRegistry,
        activity: Activity,
        executor: Executor,
        pools: Pools,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
        check_url: Callable[[str], object],
        check_result_url: Callable[[str], object],
        owns: Callable[[int], bool],
        body_bytes: int,
        context_bytes: int,
        pending_limit: int,
        secrets: Secrets,
    ) -> None:
        """`check_url` refuses targets, `check_result_url` origins; `owns` tells whether this instance starts the
        fetches of a shard."""
        self._timers = timers
        self._registry = registry
        self._activity = activity
        self._executor = executor
        self._pools = pools
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness
        self._check_url = check_url
        self._check_result_url = check_result_url
        self._owns = owns
        self._body_bytes = body_bytes
        self._context_bytes = context_bytes
        self._pending_limit = pending_limit
        self._secrets = secrets

    def check(self, request: CreateFetch) -> None:
        """Raise `InvalidInput` for what `create` would refuse, whoever asks and whenever."""
        check(
            request,
            check_url=self._check_url,
            check_result_url=self._check_result_url,
            body_bytes=self._body_bytes,
            context_bytes=self._context_bytes,
        )

    async def create(self, request: CreateFetch) -> FetchView:
        """Accept a call. For a reqId that exists, returns what is there; `ReqIdReuse` if that is another call."""
        self.check(request)
        req_id = f"req_{self._random.getrandbits(128):032x}" if request.req_id is UNSET else request.req_id
        if await self._is_full() and await self._registry.find(req_id) is None:
            raise RateLimited(
                f"Expected fewer than {self._pending_limit} fetches waiting for an executor, got that many; try later"
            )
        correlation_id = telemetry.correlation_id()
        fresh = new_fetch(request, req_id=req_id, now=self._clock.now_ms(), correlation_id=correlation_id)
        shard_id = (await self._registry.key_of(req_id)).shard_id
        if self._owns(shard_id):
            self._activity.accepting(req_id, shard_id)
        fetch: Fetch | None = None
        try:
            fetch = await self._registry.add(fresh)
        finally:
            if fetch is None or fetch.state != "pending":
                self._activity.not_pending(req_id)
        if other := other_request(fetch, fresh):
            raise _reused(req_id, other)
        return fetch_view(fetch)

    async def get(self, request: FetchRef) -> FetchView:
        return fetch_view(await self._find(request.req_id))

    async def cancel(self, request: FetchRef) -> FetchView:
        """Returns the fetch as it then is: one that had ended stays what it was."""
        fetch = await self._registry.cancel(request.req_id)
        if fetch is None:
            raise _not_found(request.req_id)
        return fetch_view(fetch)

    async def wait(self, req_id: str, seconds: float) -> FetchView:
        """The fetch once it has ended, or as it stands when the time is over. It may end on another instance."""
        deadline = self._clock.monotonic() + seconds
        fetch = await self._find(req_id)
        ends_here = fetch.pool is None and self._owns((await self._registry.key_of(req_id)).shard_id)
        look = LOOK_SECONDS if ends_here else FIRST_LOOK_SECONDS
        with self._activity.awaiting(req_id) as ended:
            while True:
                fetch = await self._find(req_id)
                left = deadline - self._clock.monotonic()
                if fetch.is_final or left <= 0:
                    return fetch_view(fetch)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, look)):
                        await ended.wait()
                look = min(look * 2, LOOK_SECONDS)

    async def list(self, request: ListFetches) -> FetchPage:
        """A page may be short and yet have a cursor: then many rows were looked through in vain."""
        after = START if request.cursor is UNSET else Position(*cursors.read(request.cursor, tuple[int, str]))
        limit = request.limit + 1 if request.since is request.until is UNSET else BATCH_LIMIT
        found: dict[str, Timer] = {}
        """By id: a row that is moved meanwhile is seen twice."""
        end: Position | None = after
        for _ in range(SCAN_LIMIT // BATCH_LIMIT):
            rows, end = await self._rows(request, after, limit)
            for row in rows:
                if _is_of_time(row, request):
                    if len(found) == request.limit and row.uuid not in found:
                        return self._page(found, after)
                    found[row.uuid] = row
                after = Position(row.due_at, row.uuid)
            if end is None:
                break
            after = end
        return self._page(found, end)

    def _page(self, rows: dict[str, Timer], after: Position | None) -> FetchPage:
        return FetchPage(
            fetches=tuple(read_rows(rows.values(), lambda row: summary_of(row, self._secrets))),
            next_cursor=None if after is None else cursors.write(tuple(after)),
        )

    async def stats(self, request: FetchStats) -> StatsView:
        states: dict[str, FetchState] = {}
        """By row, because one that is moved meanwhile is seen twice."""
        after: Position | None = START
        for _ in range(SCAN_LIMIT // BATCH_LIMIT):
            if after is None:
                break
            rows, after = await self._rows(FetchFilter(), after, BATCH_LIMIT)
            states |= read_rows(rows, lambda row: (row.uuid, state_of(row)))
        counts = Counter(states.values())
        executor = self._executor
        own = ExecutorView(
            executor=executor.name, pool=IN_PROCESS, address="", in_flight=executor.in_flight, limit=executor.limit
        )
        return StatsView(
            **{state: counts[state] for state in get_args(FetchState)},
            counts_are_minimum=after is not None,
            p50_ms=self._activity.percentile(0.5),
            p99_ms=self._activity.percentile(0.99),
            executors=(own, *await self._pools.views()),
        )

    async def redeliver(self, request: RedeliverFetches) -> RedeliveryView:
        """Have results that did not reach their origins offered again. A repeat does no more than the first."""
        if request.req_id is not UNSET:
            return await self._redeliver_one(request.req_id, request)
        if _has_no_condition(request) and not request.all:
            raise wrong_field("/all", "Expected a reqId, at least one condition, or all: true, got none of them")
        found: dict[str, None] = {}
        """A row that is moved meanwhile is seen twice."""
        changed = 0
        after: Position | None = START
        while after is not None:
            rows, after = await self._rows(request, after, BATCH_LIMIT)
            fresh = [row.timer_id for row in rows if _is_of_time(row, request) and row.timer_id not in found]
            found |= dict.fromkeys(fresh)
            for first in range(0, len(fresh), REDELIVERED_AT_ONCE):
                some = fresh[first : first + REDELIVERED_AT_ONCE]
                act = self._would_be_redelivered if request.dry_run else self._try_to_redeliver
                changed += sum(await asyncio.gather(*map(act, some)))
        return RedeliveryView(matched=len(found), changed=changed, dry_run=request.dry_run)

    async def _redeliver_one(self, req_id: str, request: RedeliverFetches) -> RedeliveryView:
        if not _has_no_condition(request) or request.all:
            raise wrong_field("/reqId", "Expected a reqId or conditions, got both")
        fetch = await self._find(req_id)
        if fetch.delivery.state not in ("waiting", "failed"):
            raise Conflict(f"Fetch {req_id!r} has no result to deliver: {_why_not(fetch)}")
        changed = await (self._would_be_redelivered if request.dry_run else self._try_to_redeliver)(req_id)
        return RedeliveryView(matched=1, changed=int(changed), dry_run=request.dry_run)

    async def _would_be_redelivered(self, req_id: str) -> bool:
        fetch = await self._registry.find(req_id)
        return fetch is not None and offered_again(fetch, self._clock.now_ms()) is not None

    async def _try_to_redeliver(self, req_id: str) -> bool:
        """False if there was nothing to do: one of many may have arrived meanwhile, or its record cannot be read."""
        try:
            return (await self._registry.redeliver(req_id))[1]
        except Conflict:
            return False

    async def _rows(self, request: FetchFilter, after: Position, limit: int) -> ListPage:
        """The first rows after a position: the waiting ones by what they wait for, then the ended ones by their end."""
        shards = (await self._namespaces.system(NAMESPACE)).shards
        pages = [
            await self._timers.list_timers(shards, where, after=after, limit=limit)
            for where in chosen(request, now=self._clock.now_ms())
        ]
        rows = sorted((row for page in pages for row in page.timers), key=lambda row: (row.due_at, row.uuid))
        end = min((page.after for page in pages if page.after is not None), default=None)
        if end is not None:  # behind it, some state may have rows that were not read
            rows = [row for row in rows if (row.due_at, row.uuid) <= end]
        return ListPage(rows, end)

    async def _is_full(self) -> bool:
        """Whether as many wait as may. One of them may wait no longer: somebody else saw to it and told nobody."""
        if self._activity.pending(self._owns) < self._pending_limit:
            return False
        req_id = self._activity.next_pending()
        fetch = await self._registry.find(req_id) if req_id else None
        return fetch is not None and fetch.state == "pending"

    async def _find(self, req_id: str) -> Fetch:
        fetch = await self._registry.find(req_id)
        if fetch is None:
            raise _not_found(req_id)
        if fetch.state == "pending" and fetch.begin_by <= self._clock.now_ms():
            await self._registry.mend(fetch)
        return fetch


def _is_of_time(row: Timer, request: FetchFilter) -> bool:
    created_at = row.detail.created_at
    is_early = request.since is not UNSET and created_at < to_ms(request.since)
    return not is_early and (request.until is UNSET or created_at < to_ms(request.until))


def _has_no_condition(request: RedeliverFetches) -> bool:
    """Apart from how far the delivery is."""
    return replace(request, deliveries=(), all=False, dry_run=False, req_id=UNSET) == RedeliverFetches(deliveries=())


def _why_not(fetch: Fetch) -> str:
    if fetch.result_url is None:
        return "it has no resultUrl"
    return "it was delivered" if fetch.delivery.state == "delivered" else "it has not ended"


def _reused(req_id: str, pointers: Sequence[str]) -> ReqIdReuse:
    errors = tuple(FieldError(pointer, "Expected what the first request with this reqId has") for pointer in pointers)
    differs = ", ".join(pointer.rpartition("/")[2] for pointer in pointers)
    return ReqIdReuse(
        f"Fetch {req_id!r} was requested before with a different {differs}; choose another reqId for another call",
        errors=errors,
    )


def _not_found(req_id: str) -> NotFound:
    return NotFound(f"Fetch {req_id!r} does not exist")
