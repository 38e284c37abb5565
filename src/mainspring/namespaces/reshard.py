"""A namespace gets more shards while it is in use. Its timers stay where they are; new ones go to the new shards.

    plan      its record names the new range: whoever reads that looks for a timer in all ranges before it adds one, and
              the shards are claimed; new timers go to the old range as before
    decide    its record says from when on new timers go to the new range: when nobody goes by what was read before the
              plan any more (`CACHE_SECONDS` after it was written)
    wear off  an id that exists in an earlier range stays there until it ends, whoever changes or creates it again; a
              range without timers is kept for its history, by whole days, and then removed with what is left of it

Nothing is moved: so nothing can be lost or doubled on its way, and no store needs to write two shards at once. The one
thing that two ranges cannot exclude is that an id is created in both at the same time, by one who adds it to the old
range, just before the instant or in a transaction that commits late, and one who finds it nowhere and adds it to the
new range. Then the one in the newer range counts, as if it had come second: whoever is about to call one of them
(`timers.carrier`) looks for the other, and so does whoever changes or deletes it; the other is removed first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from mainspring.clock import Clock
from mainspring.errors import Conflict, wrong_field
from mainspring.model import Namespace, ShardRange, salt_of
from mainspring.namespaces.cache import known_everywhere_at
from mainspring.namespaces.messages import RangeView, ReshardNamespace, ReshardView
from mainspring.namespaces.service import NamespaceService
from mainspring.namespaces.steps import DAY_MS, PAGE, deadline_of_step, forget_history, is_reached, undisturbed
from mainspring.store import TimerFilter, TimerStore, timer_pages
from mainspring.unreadable import timers_in
from mainspring.wire.instants import to_instant

COUNT_LIMIT: Final = 10_000
RANGE_LIMIT: Final = 3
"""Earlier ranges: every look-up of an id asks them all."""


class NamespaceReshard:
    def __init__(self, *, store: TimerStore, namespaces: NamespaceService, clock: Clock) -> None:
        self._store = store
        self._namespaces = namespaces
        self._clock = clock

    async def step(self, request: ReshardNamespace) -> ReshardView:
        """Do what is next, and wait for the instant for a few seconds if that is all there is to do."""
        return await undisturbed(lambda: self._step(request))

    async def _step(self, request: ReshardNamespace) -> ReshardView:
        namespace, version = await self._namespaces.load(request.name)
        if namespace.deletion is not None:
            raise Conflict(f"Namespace {request.name!r} is being deleted")
        count = namespace.shard_count if request.shard_count is UNSET else request.shard_count
        if count != namespace.shard_count:
            self._check_more(namespace, count)
        if request.dry_run:
            return await self._dry_run(namespace, count)
        if count != namespace.shard_count:
            namespace, version = await self._plan(namespace, count, version)
        if namespace.earlier and namespace.since is None:  # counted from when everybody can read the plan
            decided = replace(namespace, since=known_everywhere_at(self._clock.now_ms()))
            namespace, version = await self._namespaces.rewrite(namespace, decided, version=version)
        deadline = deadline_of_step(self._clock)
        if namespace.since is not None and not await is_reached(namespace.since, clock=self._clock, deadline=deadline):
            return _view(namespace, active=False)
        counts = await self._counts(namespace)
        noted = [self._noted(one, counts[one.first_shard]) for one in namespace.earlier]
        left = tuple([one for one in noted if not await self._is_over(one, namespace)])
        after = replace(namespace, earlier=left, since=namespace.since if left else None)
        namespace, _ = await self._namespaces.rewrite(namespace, after, version=version)
        return _view(namespace, active=True, counts=counts)

    def _check_more(self, namespace: Namespace, shard_count: int) -> None:
        if shard_count < namespace.shard_count:
            detail = f"Expected more shards than the {namespace.shard_count} there are, got {shard_count}"
            raise wrong_field("/shardCount", detail)
        if not self._is_active(namespace):
            raise Conflict(f"Namespace {namespace.name!r} is about to get {namespace.shard_count} shards: wait for it")
        if len(namespace.earlier) >= RANGE_LIMIT:
            raise Conflict(
                f"Namespace {namespace.name!r} has {len(namespace.earlier)} earlier ranges of shards that hold timers "
                "or history: wait until one is gone"
            )

    def _is_active(self, namespace: Namespace) -> bool:
        return not namespace.earlier or (namespace.since is not None and self._clock.now_ms() >= namespace.since)

    async def _dry_run(self, namespace: Namespace, shard_count: int) -> ReshardView:
        if shard_count != namespace.shard_count:
            await self._namespaces.check_room(shard_count)
        view = _view(namespace, active=self._is_active(namespace), counts=await self._counts(namespace))
        return replace(view, dry_run=True)

    async def _plan(self, namespace: Namespace, shard_count: int, version: int) -> tuple[Namespace, int]:
        before = ShardRange(
            first_shard=namespace.first_shard,
            shard_count=namespace.shard_count,
            salt=namespace.salt,
            grouped=namespace.grouped,
        )
        async with self._namespaces.more_shards(namespace.name, shard_count, version=version) as taken:
            planned = replace(
                namespace,
                first_shard=taken.start,
                shard_count=shard_count,
                salt=salt_of(taken),
                grouped=True,
                earlier=(before, *namespace.earlier),
                since=None,
                updated_at=self._clock.now_ms(),
            )
            return await self._namespaces.rewrite(namespace, planned, version=version)

    async def _counts(self, namespace: Namespace) -> Mapping[int, int]:
        """How many timers are left in the earlier ranges, by their first shards."""
        return {one.first_shard: await self._count(one) for one in namespace.earlier}

    async def _count(self, one: ShardRange) -> int:
        timers = 0
        async for page in timer_pages(self._store, one.shards, TimerFilter(), limit=PAGE):
            timers += len(page)
            if timers >= COUNT_LIMIT:
                break
        return timers + len(timers_in(one.shards))

    def _noted(self, one: ShardRange, timers: int) -> ShardRange:
        if timers:
            return replace(one, emptied_at=None)
        return one if one.emptied_at is not None else replace(one, emptied_at=self._clock.now_ms())

    async def _is_over(self, one: ShardRange, namespace: Namespace) -> bool:
        """Whether a range can be removed. Nobody prunes it afterwards, so what is left of its history goes first."""
        until = _kept_until(one, namespace)
        if until is None or self._clock.now_ms() < until:
            return False
        deadline = deadline_of_step(self._clock)
        _, is_done = await forget_history(self._store, one.shards, clock=self._clock, deadline=deadline)
        return is_done


def _kept_until(one: ShardRange, namespace: Namespace) -> int | None:
    """The end of the last day on which its history is kept, which is pruned by whole days. None: it has timers."""
    if one.emptied_at is None:
        return None
    return (one.emptied_at // DAY_MS + namespace.history_retention_days + 1) * DAY_MS


def _view(namespace: Namespace, *, active: bool, counts: Mapping[int, int] | None = None) -> ReshardView:
    """Without `counts`, nothing is said of earlier ranges."""
    return ReshardView(
        name=namespace.name,
        shard_count=namespace.shard_count,
        first_shard=namespace.first_shard,
        active=active,
        since=None if namespace.since is None else to_instant(namespace.since),
        earlier=tuple(_range_view(one, namespace, counts[one.first_shard]) for one in namespace.earlier)
        if counts is not None
        else (),
    )


def _range_view(one: ShardRange, namespace: Namespace, timers: int) -> RangeView:
    until = _kept_until(one, namespace)
    return RangeView(
        first_shard=one.first_shard,
        shard_count=one.shard_count,
        timers=timers,
        counts_are_minimum=timers >= COUNT_LIMIT,
        kept_until=None if until is None else to_instant(until),
    )
