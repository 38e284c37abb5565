"""The look for calls of executors that are gone is bounded, and misses none of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.errors import StoreUnavailable
from mainspring.fetches import watcher as module
from mainspring.fetches.rows import OPEN_MS
from mainspring.fetches.watcher import Watcher
from mainspring.model import Timer
from mainspring.store import ListPage, Position, TimerFilter
from mainspring.stores.memory import MemoryStore
from mainspring.testing.timer_samples import NOW, create, timer

SHARDS = range(6)
DEAD = {"state": "running", "executor": "gone"}


class CountingStore(MemoryStore):
    """Counts the pages that are read from each shard."""

    def __init__(self, clock: SystemClock) -> None:
        super().__init__(clock)
        self.pages: Counter[int] = Counter()
        self.away: set[int] = set()

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> ListPage:
        [shard_id] = shards
        self.pages[shard_id] += 1
        if shard_id in self.away:
            raise StoreUnavailable("a partition is away")
        return await super().list_timers(shards, where, after=after, limit=limit)


class Place:
    """A watcher of some shards, and what it does."""

    def __init__(self) -> None:
        clock = SystemClock()
        clock.align(NOW)
        self.store = CountingStore(clock)
        self.hastened: Counter[str] = Counter()
        self.leases: dict[str, bool | None] = {"gone": False}
        unused: Any = None
        self.watcher = Watcher(
            timers=self.store,
            registry=self,  # type: ignore[arg-type]
            members=tuple,
            executor_gone=self.executor_gone,
            owned=lambda: SHARDS,
            lives=self.lives,
            clock=clock,
            overdue=unused,
        )

    async def hasten(self, row: Timer) -> None:
        self.hastened[row.timer_id] += 1

    async def executor_gone(self) -> bool:
        return False

    async def lives(self, executor: str) -> bool:
        answer = self.leases[executor]
        if answer is None:
            raise StoreUnavailable("its lease cannot be read")
        return answer

    async def look(self) -> Counter[int]:
        """The pages that one look reads."""
        self.store.pages.clear()
        await self.watcher.look()
        return Counter(self.store.pages)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(module, "PAGE", 5)
    monkeypatch.setattr(module, "PAGES", 2)
    monkeypatch.setattr(module, "SHARDS", 2)
    return Place()


async def test_a_look_after_a_takeover_reads_some_pages_of_some_shards_and_the_next_ones_go_on(place: Place) -> None:
    rows = [timer(f"f{n}", shard_id=n % 6, due_at=NOW + n, labels=DEAD) for n in range(180)]
    await create(place.store, *rows)
    looks = 0
    while read := await place.look():
        assert len(read) <= 2
        assert max(read.values()) <= 2
        looks += 1
        assert looks < 50
    assert place.hastened == Counter(row.timer_id for row in rows)


async def test_fetches_that_are_only_kept_are_not_read(place: Place) -> None:
    kept = {"state": "succeeded", "executor": "gone"}
    late = [timer(f"k{n}", due_at=NOW + OPEN_MS + 600_000 + n, labels=kept) for n in range(900)]
    await create(place.store, *late, timer("f", due_at=NOW + OPEN_MS - 1, labels=DEAD))
    assert (await place.look())[0] == 1
    assert place.hastened == {"f": 1}


async def test_a_shard_that_cannot_be_read_keeps_nobody_from_the_others_and_is_looked_through_later(
    place: Place,
) -> None:
    await create(place.store, *(timer(f"f{n}", shard_id=n, labels=DEAD) for n in SHARDS))
    place.store.away = {0, 1, 2}
    for _ in range(6):
        await place.look()
    assert set(place.hastened) == {"f3", "f4", "f5"}
    place.store.away = set()
    for _ in range(6):
        await place.look()
    assert set(place.hastened) == {f"f{n}" for n in SHARDS}


async def test_a_shard_is_looked_through_again_until_it_is_known_of_every_executor_whether_it_lives(
    place: Place,
) -> None:
    place.leases["hidden"] = None
    hidden = {"state": "running", "executor": "hidden"}
    await create(place.store, timer("h", due_at=NOW - 9, labels=hidden), timer("f", labels=DEAD))
    for _ in range(5):
        await place.look()
    assert set(place.hastened) == {"f"}
    place.leases["hidden"] = False
    for _ in range(5):
        await place.look()
    assert set(place.hastened) == {"f", "h"}
    assert not await place.look()
