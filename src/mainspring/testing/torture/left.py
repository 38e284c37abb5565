"""What is in the store when everything has come to rest, whatever database it is: read through its contract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable

import msgspec

from mainspring.clock import SystemClock
from mainspring.model import Namespace, Timer, TimerKey
from mainspring.store import BATCH_LIMIT, Store, TimerFilter, timer_pages
from mainspring.stores import store_from_url
from mainspring.testing.oracle.journal import Entry, Left, Owner, Row
from mainspring.testing.simulation.desks import Payload
from mainspring.testing.torture.hosts import now_us


async def read_left(
    store_url: str, ids: Iterable[str], *, healed_at: int, alive: tuple[str, ...], name_of: Callable[[str], str]
) -> Left:
    """`name_of` tells which server of the run an owner is; empty: none that runs."""
    store = store_from_url(store_url, clock=SystemClock())
    await store.open()
    try:
        now = await store.time()
        record = await store.get_record("namespace", "default", now=now)
        if record is None:
            raise RuntimeError("Expected the default namespace, got none")
        namespace = msgspec.json.decode(record.value, type=Namespace)
        shards = await store.shards(list(namespace.shards))
        return Left(
            at=now_us(),
            wall_ms=now,
            healed_at=healed_at,
            alive=alive,
            rows=tuple([_row(timer) async for timer in _timers(store, namespace)]),
            history=tuple([entry async for entry in _entries(store, namespace, ids)]),
            owners=tuple(
                Owner(shard=s.shard_id, version=s.version, owner=s.owner, alive=name_of(s.owner) in alive)
                for s in shards
                if s is not None
            ),
        )
    finally:
        await store.close()


async def _timers(store: Store, namespace: Namespace) -> AsyncIterator[Timer]:
    async for page in timer_pages(store, namespace.shards, TimerFilter()):
        for timer in page:
            yield timer


async def _entries(store: Store, namespace: Namespace, ids: Iterable[str]) -> AsyncIterator[Entry]:
    for id in ids:
        async for entry in _entries_of(store, namespace.key_of(id), id):
            yield entry


async def _entries_of(store: Store, key: TimerKey, id: str) -> AsyncIterator[Entry]:
    before = None
    while True:
        page = await store.history(key, before=before, limit=BATCH_LIMIT)
        for attempt in page:
            yield Entry(
                id=id,
                delivery_id=attempt.delivery_id,
                attempt=attempt.attempt,
                generation=attempt.generation,
                outcome=attempt.outcome.value,
                next=attempt.next,
                started_ms=attempt.started_at,
                duration_ms=attempt.duration_ms,
                next_ms=attempt.next_at,
                status=attempt.status,
                detail=attempt.detail,
            )
        if len(page) < BATCH_LIMIT:
            return
        before = (page[-1].started_at, page[-1].attempt)


def _row(timer: Timer) -> Row:
    last = timer.detail.last_outcome
    payload = msgspec.json.decode(timer.payload, type=Payload) if timer.payload is not None else Payload()
    return Row(
        id=timer.timer_id,
        delivery_id=timer.detail.delivery_id,
        generation=timer.generation,
        state=timer.state.value,
        attempts=timer.attempts,
        due_ms=timer.detail.execute_at,
        version=timer.version,
        delivery=timer.detail.delivery.value,
        mark=payload.mark,
        host=timer.detail.callback_url.removeprefix("http://").removesuffix("/hook"),
        reason=last.detail if last is not None else "",
        shard=timer.shard_id,
    )
