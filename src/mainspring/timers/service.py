"""What users do with timers: requests in, views out. Decisions are in `record`; the waiting is here.

Every write is a compare-and-set on the row's version. A new id is one write; anything else reads first, and reads
again if the row has changed meanwhile, which comes to an end because each time somebody's write succeeded.
An answer is given only after the store has committed.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableSequence, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from mainspring import crashpoint, telemetry
from mainspring.clock import Clock
from mainspring.delivery.secrets import Secrets
from mainspring.delivery.webhook import new_delivery_id
from mainspring.errors import Conflict, InvalidInput, MainspringError, NotFound, wrong_field
from mainspring.model import FOREVER, Attempt, Namespace, State, Timer, TimerKey
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
    TimerStats,
    TimerStatsView,
    TimerView,
    UpdateTimer,
)
from mainspring.timers.views import attempt_view, view_of
from mainspring.unreadable import Unreadable
from mainspring.wire import cursors
from mainspring.wire.checks import check_change
from mainspring.wire.instants import to_instant, to_ms
from mainspring.wire.message import ProblemItem
from mainspring.wire.strict_json import decode_items

T = TypeVar("T")

BULK_PAGE = 500
BREATH = 50
LOOKS = 10
"""How many pages in vain one request reads, each of which lets others go first."""
COUNT_LIMIT = 100_000
COUNT_SECONDS = 2.0
"""How many timers, and how long, one request counts at most; first those that are parked, then the others."""
HISTORY_SCAN_LIMIT = 100_000
"""How many entries one filtered history request looks through at most."""


class Places(NamedTuple):
    """Where the timer of an id may be, newest range first, and where it goes if it is nowhere."""

    all: Sequence[TimerKey]
    fresh: TimerKey


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
        names = self._namespaces
        namespace = names.open_to_timers(request.namespace) or await names.find_open(request.namespace)
        fresh = self._fresh(request, namespace)
        if not namespace.earlier:  # and most are new
            [verdict] = await self._put([Put(fresh, 0)])
            if was_applied(verdict):
                crashpoint.reach(crashpoint.CREATE_STORED)
                if names.open_to_timers(request.namespace) is not namespace:
                    await names.check_added(namespace)
                return view_of(fresh, self._secrets)
        [stored] = await self._put_new([fresh], self._places([(fresh, namespace)]) if namespace.earlier else None)
        if isinstance(stored, MainspringError):
            raise stored
        await names.check_added(namespace)
        return view_of(stored, self._secrets)

    async def create_batch(self, request: CreateTimers) -> BatchView:
        results: list[BatchItem | None] = [None] * len(request.timers)
        fresh: list[tuple[int, Timer]] = []
        ranged: list[tuple[Timer, Namespace]] = []
        used: dict[str, Namespace] = {}
        names = self._namespaces
        for index, item in enumerate(decode_items(request.timers, CreateTimer)):
            if index % BREATH == 0:
                await asyncio.sleep(0)
            try:
                if isinstance(item, InvalidInput):
                    raise item
                self._check(item)
                namespace = names.open_to_timers(item.namespace) or await names.find_open(item.namespace)
                used.setdefault(namespace.name, namespace)
                fresh.append((index, self._fresh(item, namespace)))
                if namespace.earlier:
                    ranged.append((fresh[-1][1], namespace))
            except MainspringError as error:
                results[index] = BatchItem(problem=_problem_item(error))
        timers = [timer for _, timer in fresh]
        places = self._places(ranged)
        stored = await (self._would_be if request.dry_run else self._put_new)(timers, places)
        replaced = sum(isinstance(timer, Timer) and timer.generation > 1 for timer in stored)
        lost = {} if request.dry_run else await self._lost(used.values())
        for (index, _), timer in zip(fresh, stored, strict=True):
            if index % BREATH == 0:
                await asyncio.sleep(0)
            written = timer if isinstance(timer, MainspringError) else lost.get(timer.namespace, timer)
            if isinstance(written, MainspringError):
                results[index] = BatchItem(problem=_problem_item(written))
            else:
                results[index] = BatchItem(timer=view_of(written, self._secrets))
        done = tuple(result for result in results if result is not None)
        created = sum(result.problem is None for result in done)
        return BatchView(created=created, failed=len(done) - created, results=done, replaced=replaced)

    async def _lost(self, namespaces: Iterable[Namespace]) -> Mapping[str, MainspringError]:
        """Which of these may not have kept what was added to them, and why."""
        lost: dict[str, MainspringError] = {}
        for namespace in namespaces:
            try:
                await self._namespaces.check_added(namespace)
            except MainspringError as error:
                lost[namespace.name] = error
        return lost

    async def get(self, request: TimerRef) -> TimerView:
        return view_of((await self._rows(request.namespace, request.timer_id))[0], self._secrets)

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

        return view_of(await self._change(request.namespace, request.timer_id, change, to_call=True), self._secrets)

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
        timer = (await self._rows(request.namespace, request.timer_id, to_call=True))[0]
        await self._revive(timer.detail.callback_url)
        return view_of(await self._change(request.namespace, request.timer_id, change, to_call=True), self._secrets)

    # --- many timers ----------------------------------------------------------------------------------

    async def list(self, request: ListTimers) -> TimerPage:
        namespace = await self._namespaces.find_current(request.namespace)
        after = START if request.cursor is UNSET else Position(*cursors.read(request.cursor, tuple[int, str]))
        where = self._filter(request)
        found: Sequence[Timer] = ()
        end: Position | None = after
        for _ in range(LOOKS):
            if found or end is None:
                break
            # One more than asked for shows whether there is more.
            found, end = await self._store.list_timers(namespace.shards, where, after=end, limit=request.limit + 1)
        rows = found[: request.limit]
        if len(found) > request.limit:
            end = Position(rows[-1].due_at, rows[-1].uuid)
        secrets = None if request.secrets else self._secrets
        return TimerPage(
            timers=tuple(view_of(timer, secrets, listed=True) for timer in rows),
            next_cursor=cursors.write(tuple(end)) if end is not None else None,
        )

    async def bulk_delete(self, request: BulkTimers) -> BulkView:
        namespace = await self._namespaces.find_current(request.namespace)

        async def act(rows: Sequence[Timer]) -> int:
            if namespace.earlier:
                await self._remove_older([key for timer in rows for key in namespace.older_keys_of(timer)])
            verdicts = await self._store.write([Remove(timer.key, timer.version) for timer in rows])
            return _count_applied(verdicts)

        return await self._bulk(request, act)

    async def bulk_park(self, request: BulkTimers) -> BulkView:
        async def act(rows: Sequence[Timer]) -> int:
            return await self._put_changed([(timer, record.parked(timer, now=self._clock.now_ms())) for timer in rows])

        # Parked timers come after all others, and so will those that are parked now: none of them matches twice.
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

        await self._namespaces.find_open(request.namespace)
        return await self._bulk(request, act, is_changed=lambda timer: timer.state is State.PARKED)

    async def stats(self, request: TimerStats) -> TimerStatsView:
        namespace = await self._namespaces.find_current(request.namespace)
        now = self._clock.now_ms()
        deadline = self._clock.monotonic() + COUNT_SECONDS
        counts: Counter[State] = Counter()
        first: int | None = None
        overdue, is_cut_short = 0, False
        # Parked ones come after all others, of which there may be too many to get there.
        for where in (TimerFilter(due_from=FOREVER), TimerFilter(due_to=FOREVER)):
            count = 0
            async for rows in timer_pages(self._store, namespace.shards, where):
                counts.update(timer.state for timer in rows)
                waiting = [timer.due_at for timer in rows if timer.state in (State.SCHEDULED, State.RETRYING)]
                overdue += sum(due_at <= now for due_at in waiting)
                first = next(iter(waiting), None) if first is None else first
                count += len(rows)
                if count >= COUNT_LIMIT or self._clock.monotonic() >= deadline:
                    is_cut_short = True
                    break
        return TimerStatsView(
            namespace=namespace.name,
            **{state.value: counts[state] for state in State},
            overdue=overdue,
            next_due_at=None if first is None else to_instant(first),
            counts_are_minimum=is_cut_short,
        )

    async def history(self, request: ListHistory) -> HistoryPage:
        namespace = await self._namespaces.find_current(request.namespace)
        keys = namespace.keys_of(request.timer_id)
        before = None if request.cursor is UNSET else cursors.read(request.cursor, tuple[int, int])
        if request.until is not UNSET and (before is None or to_ms(request.until) < before[0]):
            before = (to_ms(request.until), 0)
        since = to_ms(request.since) if request.since is not UNSET else None
        found: MutableSequence[Attempt] = []
        for _ in range(HISTORY_SCAN_LIMIT // BATCH_LIMIT):
            page = await self._history_page(keys, before)
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

    def _filter(self, request: FilterFields) -> TimerFilter:
        where = TimerFilter(
            states=request.states,
            id_prefix=request.id_prefix,
            labels=tuple(sorted(request.labels.items())),
            due_from=None if request.due_from is UNSET else to_ms(request.due_from),
            due_to=None if request.due_to is UNSET else to_ms(request.due_to),
        )
        return record.narrowed(where, now=self._clock.now_ms())

    def _fresh(self, request: CreateTimer, namespace: Namespace) -> Timer:
        return record.created(
            request,
            namespace,
            now=self._clock.now_ms(),
            version=first_version(self._random),
            delivery_id=new_delivery_id(self._random),
            max_payload=self._max_payload,
            correlation_id=telemetry.correlation_id(),
        )

    def _places(self, timers: Sequence[tuple[Timer, Namespace]]) -> dict[TimerKey, Places]:
        now = self._clock.now_ms()
        return {
            timer.key: Places(namespace.keys_of(timer.timer_id), namespace.new_key_of(timer.timer_id, now))
            for timer, namespace in timers
        }

    async def _put_new(
        self, timers: Sequence[Timer], places: Mapping[TimerKey, Places] | None = None
    ) -> Sequence[Timer | MainspringError]:
        """Create, or replace what exists; returns an error for each that could not be.

        If an id occurs more than once, its requests are applied in order, in one write: the last stands, and its
        generation counts them all. `places` are those of timers that may be elsewhere than their key says.
        """
        stored: MutableSequence[Timer | MainspringError] = [*timers]
        waiting: dict[TimerKey, MutableSequence[int]] = {}
        for index, timer in enumerate(timers):
            waiting.setdefault(timer.key, []).append(index)
        found = await self._present(list(places), places) if places else {}
        while waiting:
            puts = []
            for key, indexes in waiting.items():
                at, current = found.get(key, (key, None))
                timer = _in_turn(timers, indexes, current, stored)
                if places and key in places:
                    place = places[key].fresh if current is None else at
                    timer = replace(timer, shard_id=place.shard_id, uuid=place.uuid)
                puts.append(Put(timer, 0 if current is None else current.version))
            stale: dict[TimerKey, MutableSequence[int]] = {}
            for (key, indexes), verdict in zip(waiting.items(), await self._put(puts), strict=True):
                try:
                    if not was_applied(verdict):
                        stale[key] = indexes
                except MainspringError as error:
                    for index in indexes:
                        stored[index] = error
            waiting = stale
            found = await self._present(list(waiting), places) if waiting else {}
        crashpoint.reach(crashpoint.CREATE_STORED)
        return stored

    async def _would_be(
        self, timers: Sequence[Timer], places: Mapping[TimerKey, Places]
    ) -> Sequence[Timer | MainspringError]:
        """What `_put_new` would come to, if nobody else wrote at the same time."""
        stored: MutableSequence[Timer | MainspringError] = [*timers]
        indexes: dict[TimerKey, MutableSequence[int]] = {}
        for index, timer in enumerate(timers):
            indexes.setdefault(timer.key, []).append(index)
        found = await self._present(list(indexes), places)
        for key, some in indexes.items():
            _in_turn(timers, some, found.get(key, (key, None))[1], stored)
        return stored

    async def _present(
        self, keys: Sequence[TimerKey], places: Mapping[TimerKey, Places] | None
    ) -> dict[TimerKey, tuple[TimerKey, Timer | Unreadable]]:
        """The rows of these keys and where they are, including unreadable ones: they are replaced like any other."""
        found: dict[TimerKey, tuple[TimerKey, Timer | Unreadable]] = {}
        everywhere = [(at, key) for key in keys for at in (places[key].all if places and key in places else (key,))]
        rows = await _in_batches(self._store.get, [at for at, _ in everywhere])
        for (at, key), row in zip(everywhere, rows, strict=True):
            if row is not None and key not in found:
                found[key] = (at, row)
        missing = [(at, key) for at, key in everywhere if key not in found]
        damaged = await _in_batches(self._store.damaged, [at for at, _ in missing])
        for (at, key), one in zip(missing, damaged, strict=True):
            if one is not None and key not in found:
                found[key] = (at, one)
        return found

    async def _put_changed(self, pairs: Sequence[tuple[Timer, Timer | None]]) -> int:
        """Write changed rows whose originals are still what they were; returns how many."""
        puts = [Put(after, before.version) for before, after in pairs if after is not None]
        return _count_applied(await self._put(puts))

    async def _put(self, puts: Sequence[Put]) -> Sequence[Verdict]:
        """Write rows and tell the engine about them."""
        verdicts = await self._store.write(puts)
        earliest: dict[int, int] = {}
        for put, verdict in zip(puts, verdicts, strict=True):
            if verdict is Verdict.APPLIED:
                timer = put.timer
                earliest[timer.shard_id] = min(timer.due_at, earliest.get(timer.shard_id, timer.due_at))
        for shard_id, due_at in earliest.items():
            self._wake(shard_id, due_at)
        telemetry.writes.add(amount=verdicts.count(Verdict.APPLIED))
        return verdicts

    async def _change(
        self, namespace: str, timer_id: str, change: Callable[[Timer], Timer | None], *, to_call: bool = False
    ) -> Timer:
        while True:
            timer = await self._find(namespace, timer_id, to_call=to_call)
            after = change(timer)
            if after is None:
                return timer
            if await self._put_changed([(timer, after)]):
                return after

    async def _find(self, namespace: str, timer_id: str, *, to_call: bool = False) -> Timer:
        """The timer, to change or delete it: there is no other of its id that would be called in its place. Raises
        `Conflict` if it is `to_call`, and will not be because its namespace is being deleted."""
        found = await self._rows(namespace, timer_id, to_call=to_call)
        if len(found) > 1:
            await self._remove_older([row.key for row in found[1:]])
        return found[0]

    async def _rows(self, namespace: str, timer_id: str, *, to_call: bool = False) -> Sequence[Timer]:
        """The timer. If there are more of its id, the others do not count: see `namespaces.reshard`."""
        names = self._namespaces
        find = names.find_open if to_call else names.find_current
        keys = (names.open_to_timers(namespace) or await find(namespace)).keys_of(timer_id)
        found = [row for row in await self._store.get(keys) if row is not None]
        if not found:
            await self._check_damage(keys, timer_id)
            raise NotFound(f"Timer {timer_id!r} does not exist in namespace {namespace!r}")
        return found

    async def _remove_older(self, keys: Sequence[TimerKey]) -> None:
        """Remove what is there of these. When this returns, it is gone: otherwise it would be called once the one in
        the newer shards is deleted. Raises if one of them cannot be reached."""
        while keys:
            rows = [row for row in await _in_batches(self._store.get, keys) if row is not None]
            stale: MutableSequence[TimerKey] = []
            for start in range(0, len(rows), BATCH_LIMIT):
                some = rows[start : start + BATCH_LIMIT]
                verdicts = await self._store.write([Remove(row.key, row.version) for row in some])
                stale += [row.key for row, verdict in zip(some, verdicts, strict=True) if not was_applied(verdict)]
            keys = stale

    async def _check_damage(self, keys: Sequence[TimerKey], timer_id: str) -> None:
        for damaged in await self._store.damaged(keys):
            if damaged is not None:
                raise Conflict(f"Timer {timer_id!r} cannot be read ({damaged.reason}). Creating it again replaces it.")

    async def _history_page(self, keys: Sequence[TimerKey], before: tuple[int, int] | None) -> Sequence[Attempt]:
        """The newest attempts, wherever they are kept."""
        if len(keys) == 1:
            return await self._store.history(keys[0], before=before, limit=BATCH_LIMIT)
        pages = [await self._store.history(key, before=before, limit=BATCH_LIMIT) for key in keys]
        attempts = sorted(chain(*pages), key=lambda entry: (entry.started_at, entry.attempt), reverse=True)
        return attempts[:BATCH_LIMIT]

    async def _bulk(
        self,
        request: BulkTimers,
        act: Callable[[Sequence[Timer]], Awaitable[int]],
        *,
        before: int | None = None,
        is_changed: Callable[[Timer], bool] = lambda timer: True,
    ) -> BulkView:
        """Act page by page. What changes meanwhile is left alone; what is written meanwhile may be missed.

        `is_changed` tells of a timer that matches whether acting on it would change anything.
        """
        where = self._filter(request)
        if where == TimerFilter() and not request.all:
            detail = "Expected at least one condition, or all: true, got neither"
            raise wrong_field("/all", detail)
        if before is not None:
            where = replace(where, due_to=before if where.due_to is None else min(before, where.due_to))
        shards = (await self._namespaces.find_current(request.namespace)).shards
        matched = changed = 0
        async for rows in timer_pages(self._store, shards, where, limit=BULK_PAGE):
            matched += len(rows)
            changed += sum(map(is_changed, rows)) if request.dry_run else await act(rows)
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


async def _in_batches(
    ask: Callable[[Sequence[TimerKey]], Awaitable[Sequence[T]]], keys: Sequence[TimerKey]
) -> Sequence[T]:
    """What a store says of keys, of which there may be more than one batch takes."""
    found: MutableSequence[T] = []
    for start in range(0, len(keys), BATCH_LIMIT):
        found += await ask(keys[start : start + BATCH_LIMIT])
    return found


def _problem_item(error: MainspringError) -> ProblemItem:
    return ProblemItem(
        code=error.code,
        detail=error.detail,
        retryable=error.retryable,
        errors=error.errors,
    )
