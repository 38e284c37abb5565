"""What users do with timers: requests in, views out. Decisions are in `record`; the waiting is here.

Every write is a compare-and-set on the row's version. A new id is one write; anything else reads first, and reads
again if the row has changed meanwhile, which comes to an end because each time somebody's write succeeded.
An answer is given only after the store has committed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, MutableSequence, Sequence

from msgspec import UNSET
from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.delivery.secrets import Secrets
from mainspring.delivery.webhook import new_delivery_id
from mainspring.errors import Conflict, InvalidInput, MainspringError, NotFound, wrong_field
from mainspring.model import FOREVER, Attempt, Namespace, Timer, TimerKey
from mainspring.namespaces.service import NamespaceService
from mainspring.store import (
    BATCH_LIMIT,
    START,
    Position,
    Put,
    Remove,
    TimerFilter,
    TimerStore,
    Verdict,
    first_version,
    timer_pages,
    was_applied,
)
from mainspring.timers import record
from mainspring.timers.checks import check
from mainspring.timers.messages import (
    BatchItem,
    BatchView,
    BulkTimers,
    BulkView,
    CreateTimer,
    CreateTimers,
    DeletedView,
    FilterFields,
    HistoryPage,
    ListHistory,
    ListTimers,
    TimerPage,
    TimerRef,
    TimerView,
    UpdateTimer,
)
from mainspring.timers.views import attempt_view, view_of
from mainspring.unreadable import Unreadable
from mainspring.wire import cursors
from mainspring.wire.checks import check_change
from mainspring.wire.instants import to_ms
from mainspring.wire.message import ProblemItem
from mainspring.wire.strict_json import decode_items

BULK_PAGE = 500
BREATH = 50
HISTORY_SCAN_LIMIT = 100_000
"""How many entries one filtered history request looks through at most."""


class TimerService:
    def __init__(
        self,
        *,
        store: TimerStore,
        namespaces: NamespaceService,
        clock: Clock,
        randomness: random.Random,
        check_url: Callable[[str], object],
        wake: Callable[[int, int], None],
        revive: Callable[[str], Awaitable[None]],
        max_payload: int,
        secrets: Secrets,
    ) -> None:
        """`check_url` refuses URLs; `wake` tells the engine about a row, `revive` about a URL that is to be called
        again."""
        self._store = store
        self._namespaces = namespaces
        self._clock = clock
        self._random = randomness
        self._check_url = check_url
        self._wake = wake
        self._revive = revive
        self._max_payload = max_payload
        self._secrets = secrets

    # --- one timer ------------------------------------------------------------------------------------

    async def create(self, request: CreateTimer) -> TimerView:
        self._check(request)
        namespace = self._namespaces.cached(request.namespace) or await self._namespaces.find(request.namespace)
        fresh = self._fresh(request, namespace)
        [stored] = await self._put_new([fresh])
        if isinstance(stored, MainspringError):
            raise stored
        return view_of(stored, self._secrets)

    async def create_batch(self, request: CreateTimers) -> BatchView:
        results: list[BatchItem | None] = [None] * len(request.timers)
        fresh: list[tuple[int, Timer]] = []
        for index, item in enumerate(decode_items(request.timers, CreateTimer)):
            await _breathe(index)
            try:
                if isinstance(item, InvalidInput):
                    raise item
                self._check(item)
                fresh.append((index, self._fresh(item, await self._namespaces.find(item.namespace))))
            except MainspringError as error:
                results[index] = BatchItem(problem=_problem_item(error))
        timers = [timer for _, timer in fresh]
        stored = timers if request.dry_run else await self._put_new(timers)
        for (index, _), timer in zip(fresh, stored, strict=True):
            await _breathe(index)
            if isinstance(timer, MainspringError):
                results[index] = BatchItem(problem=_problem_item(timer))
            else:
                results[index] = BatchItem(timer=view_of(timer, self._secrets))
        done = tuple(result for result in results if result is not None)
        created = sum(result.problem is None for result in done)
        return BatchView(created=created, failed=len(done) - created, results=done)

    async def get(self, request: TimerRef) -> TimerView:
        return view_of(await self._find(request.namespace, request.timer_id), self._secrets)

    async def update(self, request: UpdateTimer) -> TimerView:
        check_change(request)
        self._check(request)

        def change(timer: Timer) -> Timer:
            return record.updated(
                request,
                timer,
                now=self._clock.now_ms(),
                delivery_id=new_delivery_id(self._random),
                max_payload=self._max_payload,
                secrets=self._secrets,
            )

        return view_of(await self._change(request.namespace, request.timer_id, change), self._secrets)

    async def delete(self, request: TimerRef) -> DeletedView:
        while True:
            timer = await self._find(request.namespace, request.timer_id)
            [verdict] = await self._store.write([Remove(timer.key, timer.version)])
            if was_applied(verdict):
                telemetry.writes.add()
                return DeletedView(timer=view_of(timer, self._secrets))

    async def run_now(self, request: TimerRef) -> TimerView:
        delivery_id = new_delivery_id(self._random)
        return await self._change_to_call(
            request, lambda timer: record.run_now(timer, now=self._clock.now_ms(), delivery_id=delivery_id)
        )

    async def park(self, request: TimerRef) -> TimerView:
        def change(timer: Timer) -> Timer | None:
            return record.parked(timer, now=self._clock.now_ms())

        return view_of(await self._change(request.namespace, request.timer_id, change), self._secrets)

    async def resume(self, request: TimerRef) -> TimerView:
        return await self._change_to_call(request, lambda timer: record.resumed(timer, now=self._clock.now_ms()))

    async def _change_to_call(self, request: TimerRef, change: Callable[[Timer], Timer]) -> TimerView:
        """Change a timer so that its URL is called, even if that was gone."""
        await self._revive((await self._find(request.namespace, request.timer_id)).detail.callback_url)
        return view_of(await self._change(request.namespace, request.timer_id, change), self._secrets)

    # --- many timers ----------------------------------------------------------------------------------

    async def list(self, request: ListTimers) -> TimerPage:
        namespace = await self._namespaces.find(request.namespace)
        after = START if request.cursor is UNSET else Position(*cursors.read(request.cursor, tuple[int, str]))
        where = _filter(request)
        rows = await self._store.list_timers(namespace.shards, where, after=after, limit=request.limit)
        last = Position(rows[-1].due_at, rows[-1].uuid) if rows else after
        # A short page may be one of large rows: only an empty page is the end.
        more = rows and await self._store.list_timers(namespace.shards, where, after=last, limit=1)
        secrets = None if request.secrets else self._secrets
        return TimerPage(
            timers=tuple(view_of(timer, secrets, listed=True) for timer in rows),
            next_cursor=cursors.write(tuple(last)) if more else None,
        )

    async def bulk_delete(self, request: BulkTimers) -> BulkView:
        async def act(rows: Sequence[Timer]) -> int:
            verdicts = await self._store.write([Remove(timer.key, timer.version) for timer in rows])
            return _count_applied(verdicts)

        return await self._bulk(request, act)

    async def bulk_park(self, request: BulkTimers) -> BulkView:
        async def act(rows: Sequence[Timer]) -> int:
            return await self._put_changed([(timer, record.parked(timer, now=self._clock.now_ms())) for timer in rows])

        # Parked timers come after all others, and so will those that are parked now.
        return await self._bulk(request, act, before=FOREVER)

    async def bulk_resume(self, request: BulkTimers) -> BulkView:
        async def act(rows: Sequence[Timer]) -> int:
            pairs: list[tuple[Timer, Timer | None]] = []
            for timer in rows:
                try:
                    pairs.append((timer, record.resumed(timer, now=self._clock.now_ms())))
                except Conflict:
                    continue  # not parked: nothing to resume
            for url in dict.fromkeys(timer.detail.callback_url for timer, _ in pairs):
                await self._revive(url)
            return await self._put_changed(pairs)

        return await self._bulk(request, act)

    async def history(self, request: ListHistory) -> HistoryPage:
        namespace = await self._namespaces.find(request.namespace)
        key = namespace.key_of(request.timer_id)
        before = None if request.cursor is UNSET else cursors.read(request.cursor, tuple[int, int])
        if request.until is not UNSET and (before is None or to_ms(request.until) < before[0]):
            before = (to_ms(request.until), 0)
        since = to_ms(request.since) if request.since is not UNSET else None
        found: MutableSequence[Attempt] = []
        for _ in range(HISTORY_SCAN_LIMIT // BATCH_LIMIT):
            page = await self._store.history(key, before=before, limit=BATCH_LIMIT)
            recent = [entry for entry in page if since is None or entry.started_at >= since]
            found += [entry for entry in recent if not request.outcomes or entry.outcome in request.outcomes]
            before = (page[-1].started_at, page[-1].attempt) if page else None
            if len(page) < BATCH_LIMIT or len(recent) < len(page):
                before = None  # there is nothing behind this page
            if before is None or len(found) > request.limit:
                break
        shown = found[: request.limit]
        if len(found) > request.limit:
            before = (shown[-1].started_at, shown[-1].attempt)
        return HistoryPage(
            attempts=tuple(map(attempt_view, shown)), next_cursor=None if before is None else cursors.write(before)
        )

    # --- what they share ------------------------------------------------------------------------------

    def _check(self, request: CreateTimer | UpdateTimer) -> None:
        check(request, check_url=self._check_url, secrets=self._secrets)

    def _fresh(self, request: CreateTimer, namespace: Namespace) -> Timer:
        return record.created(
            request,
            namespace,
            now=self._clock.now_ms(),
            version=first_version(self._random),
            delivery_id=new_delivery_id(self._random),
            max_payload=self._max_payload,
        )

    async def _put_new(self, timers: Sequence[Timer]) -> Sequence[Timer | MainspringError]:
        """Create, or replace what exists; returns an error for each that could not be.

        If an id occurs more than once, its requests are applied in order, in one write: the last stands, and its
        generation counts them all.
        """
        stored: MutableSequence[Timer | MainspringError] = [*timers]
        waiting: dict[TimerKey, MutableSequence[int]] = {}
        for index, timer in enumerate(timers):
            waiting.setdefault(timer.key, []).append(index)
        found: dict[TimerKey, Timer | Unreadable] = {}
        while waiting:
            puts = []
            for key, indexes in waiting.items():
                current = found.get(key)
                puts.append(Put(_in_turn(timers, indexes, current, stored), 0 if current is None else current.version))
            stale: dict[TimerKey, MutableSequence[int]] = {}
            for (key, indexes), verdict in zip(waiting.items(), await self._put(puts), strict=True):
                try:
                    if not was_applied(verdict):
                        stale[key] = indexes
                except MainspringError as error:
                    for index in indexes:
                        stored[index] = error
            waiting = stale
            found = await self._present(list(waiting)) if waiting else {}
        crashpoint.reach(crashpoint.CREATE_STORED)
        return stored

    async def _present(self, keys: Sequence[TimerKey]) -> dict[TimerKey, Timer | Unreadable]:
        """The rows of these keys, including unreadable ones: they are replaced like any other."""
        found: dict[TimerKey, Timer | Unreadable] = {}
        for key, row in zip(keys, await self._store.get(keys), strict=True):
            if row is not None:
                found[key] = row
        missing = [key for key in keys if key not in found]
        for key, damaged in zip(missing, await self._store.damaged(missing), strict=True):
            if damaged is not None:
                found[key] = damaged
        return found

    async def _put_changed(self, pairs: Sequence[tuple[Timer, Timer | None]]) -> int:
        """Write changed rows whose originals are still what they were; returns how many."""
        puts = [Put(after, before.version) for before, after in pairs if after is not None]
        return _count_applied(await self._put(puts))

    async def _put(self, puts: Sequence[Put]) -> Sequence[Verdict]:
        """Write rows and tell the engine about them."""
        verdicts = await self._store.write(puts)
        for put, verdict in zip(puts, verdicts, strict=True):
            if verdict is Verdict.APPLIED:
                self._wake(put.timer.shard_id, put.timer.due_at)
        telemetry.writes.add(amount=verdicts.count(Verdict.APPLIED))
        return verdicts

    async def _change(self, namespace: str, timer_id: str, change: Callable[[Timer], Timer | None]) -> Timer:
        while True:
            timer = await self._find(namespace, timer_id)
            after = change(timer)
            if after is None:
                return timer
            if await self._put_changed([(timer, after)]):
                return after

    async def _find(self, namespace: str, timer_id: str) -> Timer:
        key = (await self._namespaces.find(namespace)).key_of(timer_id)
        [timer] = await self._store.get([key])
        if timer is None:
            await self._check_damage(key, timer_id)
            raise NotFound(f"Timer {timer_id!r} does not exist in namespace {namespace!r}")
        return timer

    async def _check_damage(self, key: TimerKey, timer_id: str) -> None:
        [damaged] = await self._store.damaged([key])
        if damaged is not None:
            raise Conflict(f"Timer {timer_id!r} cannot be read ({damaged.reason}). Creating it again replaces it.")

    async def _bulk(
        self, request: BulkTimers, act: Callable[[Sequence[Timer]], Awaitable[int]], *, before: int | None = None
    ) -> BulkView:
        """Act page by page. What changes meanwhile is left alone; what is written meanwhile may be missed."""
        where = _filter(request)
        if where == TimerFilter() and not request.all:
            detail = "Expected at least one condition, or all: true, got neither"
            raise wrong_field("/all", detail)
        if before is not None:
            where = replace(where, due_to=before if where.due_to is None else min(before, where.due_to))
        shards = (await self._namespaces.find(request.namespace)).shards
        matched = changed = 0
        async for rows in timer_pages(self._store, shards, where, limit=BULK_PAGE):
            matched += len(rows)
            if not request.dry_run:
                changed += await act(rows)
        return BulkView(matched=matched, changed=changed, dry_run=request.dry_run)


def _in_turn(
    timers: Sequence[Timer],
    indexes: Sequence[int],
    current: Timer | Unreadable | None,
    stored: MutableSequence[Timer | MainspringError],
) -> Timer:
    """What the creates of one id come to, one after another; notes what each of them leaves."""
    last = current if isinstance(current, Timer) else None
    for index in indexes:
        last = timers[index] if last is None else record.recreated(timers[index], last)
        stored[index] = last
    assert last is not None, "Expected at least one create of an id"
    return last


def _count_applied(verdicts: Sequence[Verdict]) -> int:
    """How many were written. Raises if some could not be reached: the others are written, and repeating helps."""
    return sum(map(was_applied, verdicts))


async def _breathe(index: int) -> None:
    """Now and then in a long batch, let other requests and the store's writer have their turn."""
    if index % BREATH == BREATH - 1:
        await asyncio.sleep(0)


def _filter(request: FilterFields) -> TimerFilter:
    return TimerFilter(
        states=request.states,
        id_prefix=request.id_prefix,
        labels=tuple(sorted(request.labels.items())),
        due_from=None if request.due_from is UNSET else to_ms(request.due_from),
        due_to=None if request.due_to is UNSET else to_ms(request.due_to),
    )


def _problem_item(error: MainspringError) -> ProblemItem:
    return ProblemItem(
        code=error.code,
        detail=error.detail,
        retryable=error.retryable,
        errors=error.errors,
    )
