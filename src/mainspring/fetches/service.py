"""What users do with fetches: requests in, views out. An answer is given only after the store has committed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from heapq import merge
from itertools import islice
from typing import Final, get_args

from msgspec import UNSET

from mainspring.clock import Clock
from mainspring.delivery.secrets import Secrets
from mainspring.errors import NotFound, RateLimited
from mainspring.fetches.activity import Activity
from mainspring.fetches.checks import check
from mainspring.fetches.executor import Executor
from mainspring.fetches.messages import (
    CreateFetch,
    ExecutorView,
    FetchPage,
    FetchRef,
    FetchState,
    FetchStats,
    FetchView,
    ListFetches,
    StatsView,
)
from mainspring.fetches.pools import Pools
from mainspring.fetches.record import IN_PROCESS, NAMESPACE, Fetch, new_fetch
from mainspring.fetches.registry import FetchRegistry
from mainspring.fetches.rows import USER, read_rows, state_of, summary_of
from mainspring.fetches.views import fetch_view
from mainspring.model import Timer
from mainspring.namespaces.service import NamespaceService
from mainspring.store import BATCH_LIMIT, START, Position, TimerFilter, TimerStore
from mainspring.wire import cursors
from mainspring.wire.instants import to_ms

FIRST_LOOK_SECONDS: Final = 0.02
LOOK_SECONDS: Final = 1.0
"""How often a waiting caller checks whether somebody else has ended its fetch."""
SCAN_LIMIT: Final = 10_000
"""How many rows one request looks through at most."""


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
        """Accept a call. For a reqId that exists, returns what is there, whatever was asked for then."""
        self.check(request)
        req_id = f"req_{self._random.getrandbits(128):032x}" if request.req_id is UNSET else request.req_id
        if await self._is_full() and await self._registry.find(req_id) is None:
            raise RateLimited(
                f"Expected fewer than {self._pending_limit} fetches waiting for an executor, got that many; try later"
            )
        fresh = new_fetch(request, req_id=req_id, now=self._clock.now_ms())
        shard_id = (await self._registry.key_of(req_id)).shard_id
        if self._owns(shard_id):
            self._activity.accepting(req_id, shard_id)
        fetch: Fetch | None = None
        try:
            fetch = await self._registry.add(fresh)
        finally:
            if fetch is None or fetch.state != "pending":
                self._activity.not_pending(req_id)
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
        since = None if request.since is UNSET else to_ms(request.since)
        until = None if request.until is UNSET else to_ms(request.until)
        page = min(request.limit + 1, BATCH_LIMIT) if since is until is None else BATCH_LIMIT
        found: dict[str, Timer] = {}
        """By id: a row that is moved meanwhile is seen twice."""
        scanned = 0
        more = True
        while more and len(found) < request.limit and scanned < SCAN_LIMIT:
            rows = await self._rows(request.states, request.labels, after, page)
            more = bool(rows)
            for place, row in enumerate(rows):
                after = Position(row.due_at, row.uuid)
                created_at = row.detail.created_at
                if (since is None or created_at >= since) and (until is None or created_at < until):
                    found[row.uuid] = row
                if len(found) == request.limit:
                    more = place < len(rows) - 1 or bool(await self._rows(request.states, request.labels, after, 1))
                    break
            scanned += len(rows)
        return FetchPage(
            fetches=tuple(read_rows(found.values(), lambda row: summary_of(row, self._secrets))),
            next_cursor=cursors.write(tuple(after)) if more else None,
        )

    async def stats(self, request: FetchStats) -> StatsView:
        states: dict[str, FetchState] = {}
        """By row, because one that is moved meanwhile is seen twice."""
        after = START
        rows: Sequence[Timer] = ()
        for _ in range(SCAN_LIMIT // BATCH_LIMIT):
            rows = await self._rows((), {}, after, BATCH_LIMIT)
            states |= read_rows(rows, lambda row: (row.uuid, state_of(row)))
            if not rows:
                break
            after = Position(rows[-1].due_at, rows[-1].uuid)
        counts = Counter(states.values())
        executor = self._executor
        own = ExecutorView(
            executor=executor.name, pool=IN_PROCESS, address="", in_flight=executor.in_flight, limit=executor.limit
        )
        return StatsView(
            **{state: counts[state] for state in get_args(FetchState)},
            counts_are_minimum=bool(rows),
            p50_ms=self._activity.percentile(0.5),
            p99_ms=self._activity.percentile(0.99),
            executors=(own, *await self._pools.views()),
        )

    async def _rows(
        self, states: Sequence[FetchState], labels: dict[str, str], after: Position, limit: int
    ) -> Sequence[Timer]:
        """The first rows after a position: the waiting ones by what they wait for, then the ended ones by their end."""
        shards = (await self._namespaces.system(NAMESPACE)).shards
        users = tuple((USER + name, value) for name, value in sorted(labels.items()))
        wanted = [(("state", state), *users) for state in dict.fromkeys(states)] or [users]
        pages = [
            await self._timers.list_timers(shards, TimerFilter(labels=conditions), after=after, limit=limit)
            for conditions in wanted
        ]
        in_order: Iterator[Timer] = merge(*pages, key=lambda row: (row.due_at, row.uuid))
        return tuple(islice(in_order, limit))

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


def _not_found(req_id: str) -> NotFound:
    return NotFound(f"Fetch {req_id!r} does not exist")
