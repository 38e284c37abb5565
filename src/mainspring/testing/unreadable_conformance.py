"""What every `TimerStore` must do about rows that cannot be read. Bind it with two fixtures:

class TestMyStore(UnreadableRowsConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]: ...   # empty and open
    @pytest.fixture
    async def spoil(self) -> Spoil: ...   # makes rows unreadable, behind the store's back
"""

from __future__ import annotations

from typing import Protocol

from mainspring.model import FOREVER, Shard, TimerKey
from mainspring.store import (
    START,
    Begin,
    Finish,
    Position,
    Put,
    ReadsManyShards,
    Remove,
    Store,
    TimerFilter,
    Verdict,
    look,
    timer_pages,
)
from mainspring.testing.timer_samples import NOW, attempt, create, key_of, timer
from mainspring.unreadable import Unreadable

APPLIED = Verdict.APPLIED
EVERYTHING = TimerFilter()


class Spoil(Protocol):
    """Makes what is stored unreadable, as a flipped bit or another program would."""

    async def timer(self, key: TimerKey, what: str) -> None:
        """The row of a timer: its `detail`, its `state`, or its `payload`, which is no JSON then."""
        ...

    async def attempt(self, key: TimerKey) -> None:
        """All attempts of a timer that are in the history."""
        ...


class UnreadableRowsConformance:
    async def test_a_row_that_cannot_be_read_is_passed_over_by_every_read(self, store: Store, spoil: Spoil) -> None:
        for what in ("detail", "state", "payload"):
            good = [timer(f"{what}{n}", due_at=NOW + n, labels={"k": "v"}) for n in (1, 3)]
            bad = timer(f"{what}bad", due_at=NOW + 2, labels={"k": "v"})
            await create(store, *good, bad)
            await spoil.timer(bad.key, what)
            assert await store.get([good[0].key, bad.key, good[1].key]) == [good[0], None, good[1]]
            page = await store.load_due(0, until=NOW + 9, after=START, limit=9)
            assert page.timers == good
            assert page.next_due_at is None
            for where in (EVERYTHING, TimerFilter(labels=(("k", "v"),)), TimerFilter(id_prefix=what)):
                assert (await store.list_timers([0], where, after=START, limit=9)).timers == good
            assert await store.write([Remove(row.key, row.version) for row in good]) == [APPLIED] * 2
            [found] = await store.damaged([bad.key])
            assert found is not None
            assert await store.write([Remove(bad.key, found.version)]) == [APPLIED]

    async def test_a_page_of_such_rows_hides_nothing_that_stands_behind_it(self, store: Store, spoil: Spoil) -> None:
        bad = [timer(f"bad{n}", due_at=NOW + n) for n in range(5)]
        good = timer("good", due_at=NOW + 5)
        await create(store, *bad, good)
        for row in bad:
            await spoil.timer(row.key, "detail")
        for limit in (1, 2, 5):
            page = await store.load_due(0, until=NOW + 9, after=START, limit=limit)
            assert page.timers == [good]
            assert [page async for page in timer_pages(store, [0, 1], EVERYTHING, limit=limit)] == [[good]]
        behind = Position(good.due_at, good.uuid)
        assert (await store.list_timers([0, 1], EVERYTHING, after=behind, limit=2)).timers == []

    async def test_rows_that_cannot_be_read_are_never_due_again_and_again(self, store: Store, spoil: Spoil) -> None:
        await create(store, *(timer(f"bad{n}", due_at=NOW + n) for n in range(3)), timer("later", due_at=NOW + 50))
        for n in range(3):
            await spoil.timer(key_of(f"bad{n}"), "detail")
        for limit in (1, 2, 3, 9):
            assert await store.load_due(0, until=NOW + 9, after=START, limit=limit) == ([], NOW + 50)
            if isinstance(store, ReadsManyShards):
                pages = await store.load_due_of([(0, START), (1, START)], until=NOW + 9, limit=limit)
                assert pages == [None, ([], None)]

    async def test_all_rows_of_a_list_are_found_beside_such_rows(self, store: Store, spoil: Spoil) -> None:
        rows = [timer(f"t{n}", shard_id=n % 3, due_at=NOW + n // 2) for n in range(30)]
        await create(store, *rows)
        for row in rows[::4]:
            await spoil.timer(row.key, "detail")
        good = sorted((row for row in rows if row not in rows[::4]), key=lambda row: (row.due_at, row.uuid))
        for limit in (1, 2, 7, 99):
            pages = [page async for page in timer_pages(store, range(3), EVERYTHING, limit=limit)]
            assert [row for page in pages for row in page] == good

    async def test_such_a_row_is_told_of_with_the_version_by_which_it_is_replaced(
        self, store: Store, spoil: Spoil
    ) -> None:
        await create(store, timer("good"), timer("bad"))
        await spoil.timer(key_of("bad"), "detail")
        keys = [key_of("good"), key_of("bad"), key_of("absent")]
        first, found, last = await store.damaged(keys)
        assert (first, last) == (None, None)
        assert found is not None
        assert found.version == 1
        assert found.reason
        assert isinstance(await look(store, key_of("bad")), Unreadable)
        assert await look(store, key_of("good")) == timer("good")
        assert await look(store, key_of("absent")) is None
        assert await store.write([Put(timer("bad", payload="1"), 0)]) == [Verdict.STALE]
        assert await store.write([Put(timer("bad", payload="1"), found.version)]) == [APPLIED]
        [mended] = await store.get([key_of("bad")])
        assert mended is not None
        assert mended.payload == "1"
        assert await store.damaged(keys) == [None] * 3

    async def test_parked_rows_are_listed_beside_one_that_cannot_be_read(self, store: Store, spoil: Spoil) -> None:
        await create(store, timer("a", due_at=FOREVER), timer("b", due_at=FOREVER))
        await spoil.timer(key_of("a"), "state")
        assert [page async for page in timer_pages(store, [0], EVERYTHING, limit=1)] == [[timer("b", due_at=FOREVER)]]

    async def test_attempts_that_cannot_be_read_hide_no_others(self, store: Store, spoil: Spoil) -> None:
        for name in ("a", "b"):
            await create(store, timer(name))
        await store.claim_shards([Shard(0, 0, "me")])
        for name in ("a", "b"):
            await store.begin([Begin(key_of(name), 1, 1)])
            finish = Finish(key_of(name), 1, Remove(key_of(name), 2), attempt(1))
            assert await store.finish([finish]) == [APPLIED]
        await spoil.attempt(key_of("a"))
        assert await store.history(key_of("a")) == []
        assert await store.history(key_of("b")) == [attempt(1)]
