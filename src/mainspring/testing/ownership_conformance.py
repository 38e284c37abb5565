"""The part of the timer contract that is about owners: claims, fenced attempts and their history."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from mainspring.model import LAST_VERSION, Attempt, Shard, State, Timer
from mainspring.store import (
    START,
    Begin,
    Finish,
    FinishesWithRecords,
    Put,
    RecordPut,
    Remove,
    Store,
    TimerFilter,
    Verdict,
)
from mainspring.testing.timer_samples import NOW, ODD_TEXTS, attempt, create, key_of, timer

APPLIED, STALE, FENCED = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED
EVERYTHING = TimerFilter()
DAY = 86_400_000


class ShardConformance:
    """shards, claim_shards, release_shards"""

    async def test_a_shard_that_was_never_claimed_has_version_0_and_no_owner(self, store: Store) -> None:
        assert await store.shards([5, 2]) == [Shard(5, 0, ""), Shard(2, 0, "")]

    async def test_a_claim_of_the_stored_version_takes_the_shard(self, store: Store) -> None:
        assert await store.claim_shards([Shard(1, 0, "me"), Shard(2, 0, "me")]) == [APPLIED, APPLIED]
        assert await store.shards([2, 3, 1]) == [Shard(2, 1, "me"), Shard(3, 0, ""), Shard(1, 1, "me")]

    async def test_a_claim_of_another_version_is_stale(self, store: Store) -> None:
        await store.claim_shards([Shard(1, 0, "me")])
        assert await store.claim_shards([Shard(1, 0, "you"), Shard(1, 2, "you"), Shard(2, 1, "you")]) == [STALE] * 3
        assert await store.shards([1, 2]) == [Shard(1, 1, "me"), Shard(2, 0, "")]

    async def test_versions_only_grow_through_claims_and_releases(self, store: Store) -> None:
        for version in range(4):
            assert await store.claim_shards([Shard(1, version, f"o{version}")]) == [APPLIED]
            assert await store.release_shards([Shard(1, version + 1, f"o{version}")]) == [APPLIED]
            assert await store.shards([1]) == [Shard(1, version + 1, "")]

    async def test_a_release_needs_exactly_this_version_and_owner(self, store: Store) -> None:
        await store.claim_shards([Shard(1, 0, "me")])
        wrong = [Shard(1, 1, "you"), Shard(1, 0, "me"), Shard(1, 2, "me"), Shard(2, 1, "me")]
        assert await store.release_shards(wrong) == [STALE] * 4
        assert await store.shards([1]) == [Shard(1, 1, "me")]

    async def test_of_concurrent_claims_exactly_one_wins(self, store: Store) -> None:
        for version in range(5):
            claims = [Shard(1, version, f"owner-{n} 'é'") for n in range(20)]
            verdicts = await asyncio.gather(*(store.claim_shards([claim]) for claim in claims))
            [winner] = [claim for claim, verdict in zip(claims, verdicts, strict=True) if verdict == [APPLIED]]
            assert await store.shards([1]) == [Shard(1, version + 1, winner.owner)]


class AttemptConformance:
    """begin and finish"""

    async def test_begin_marks_the_row_as_in_flight_and_keeps_all_else(self, store: Store) -> None:
        await store.claim_shards([Shard(0, 0, "me")])
        rows = await create(store, timer("a", payload='"p"', labels={"k": "v"}), timer("b", attempts=3))
        assert await store.begin([Begin(row.key, 1, 1) for row in rows]) == [APPLIED, APPLIED]
        assert await store.get([row.key for row in rows]) == [
            replace(row, state=State.RUNNING, attempts=row.attempts + 1, version=2, fence=1) for row in rows
        ]

    async def test_begin_is_stale_when_the_row_has_changed_or_is_gone(self, store: Store) -> None:
        await store.claim_shards([Shard(0, 0, "me")])
        changed, gone, same = await create(store, timer("changed"), timer("gone"), timer("same"))
        await store.write([Put(changed, 1), Remove(gone.key, 1)])
        items = [Begin(row.key, 1, 1) for row in (changed, gone, same)] + [Begin(key_of("never"), 1, 0)]
        assert await store.begin(items) == [STALE, STALE, APPLIED, STALE]
        assert [row.state for row in await store.get([changed.key]) if row] == [State.SCHEDULED]

    async def test_one_row_begun_twice_under_one_version_is_begun_once(self, store: Store) -> None:
        await store.claim_shards([Shard(0, 0, "me")])
        [a] = await create(store, timer("a"))
        assert await store.begin([Begin(a.key, 1, 1), Begin(a.key, 1, 1), Begin(a.key, 1, 2)]) == [
            APPLIED, STALE, APPLIED,
        ]  # fmt: skip
        assert [(row.attempts, row.version) for row in await store.get([a.key]) if row] == [(2, 3)]

    async def test_a_user_and_an_owner_who_collide_cannot_both_win(self, store: Store) -> None:
        await store.claim_shards([Shard(0, 0, "me")])
        for n in range(10):
            [row] = await create(store, timer(f"t{n}"))
            verdicts = await asyncio.gather(store.begin([Begin(row.key, 1, 1)]), store.write([Remove(row.key, 1)]))
            assert sorted(verdict[0].value for verdict in verdicts) == ["applied", "stale"]

    async def test_a_deposed_owner_writes_nothing(self, store: Store) -> None:
        a, b = await create(store, timer("a"), timer("b", shard_id=1))
        await store.claim_shards([Shard(0, 0, "old"), Shard(1, 0, "old")])
        await store.begin([Begin(a.key, 1, 1)])
        await store.claim_shards([Shard(0, 1, "new")])
        in_flight = await store.get([a.key])
        begins = [Begin(a.key, 1, 2), Begin(a.key, 1, 1), Begin(b.key, 1, 1)]
        assert await store.begin(begins) == [FENCED, FENCED, APPLIED]
        finishes = [
            Finish(a.key, 1, Remove(a.key, 2), attempt()),
            Finish(a.key, 1, Put(timer("a"), 2), attempt()),
            Finish(a.key, 1, None, attempt()),
            Finish(b.key, 1, Remove(b.key, 2), attempt()),
        ]
        assert await store.finish(finishes) == [FENCED, FENCED, FENCED, APPLIED]
        assert await store.get([a.key, b.key]) == [*in_flight, None]
        assert await store.history(a.key) == []

    async def test_the_new_owner_finds_and_begins_again_what_was_in_flight(self, store: Store) -> None:
        [a] = await create(store, timer("a"))
        await store.claim_shards([Shard(0, 0, "old")])
        await store.begin([Begin(a.key, 1, 1)])
        await store.claim_shards([Shard(0, 1, "new")])
        [found] = (await store.load_due(0, until=NOW, after=START, limit=9)).timers
        assert (found.state, found.fence, found.version) == (State.RUNNING, 1, 2)
        assert await store.begin([Begin(a.key, 2, 2)]) == [APPLIED]
        assert [(row.attempts, row.fence) for row in await store.get([a.key]) if row] == [(2, 2)]

    async def test_a_fence_that_nobody_has_claimed_is_refused(self, store: Store) -> None:
        [a] = await create(store, timer("a"))
        assert await store.begin([Begin(a.key, 1, 1)]) == [FENCED]

    async def test_finish_removes_or_rewrites_by_identity_and_version(self, store: Store) -> None:
        done, again, changed = await self.begun(store, timer("done"), timer("again"), timer("changed"))
        await store.write([Put(timer("changed", due_at=NOW + 7), 2)])
        retry = timer("again", due_at=NOW + 60_000, state=State.RETRYING, attempts=1)
        items = [
            Finish(done.key, 1, Remove(done.key, 2), attempt()),
            Finish(again.key, 1, Put(retry, 2), attempt()),
            Finish(changed.key, 1, Remove(changed.key, 2), attempt()),
        ]
        assert await store.finish(items) == [APPLIED, APPLIED, STALE]
        assert await store.get([done.key, again.key]) == [None, replace(retry, version=3)]
        assert [row.due_at for row in await store.get([changed.key]) if row] == [NOW + 7]

    async def test_history_is_written_if_and_only_if_the_change_is_applied(self, store: Store) -> None:
        done, changed, bare = await self.begun(store, timer("done"), timer("changed"), timer("bare"))
        await store.write([Put(timer("changed"), 2)])
        items = [
            Finish(done.key, 1, Remove(done.key, 2), attempt(1)),
            Finish(changed.key, 1, Remove(changed.key, 2), attempt(1)),
            Finish(bare.key, 1, Remove(bare.key, 2), None),
        ]
        assert await store.finish(items) == [APPLIED, STALE, APPLIED]
        assert await store.history(done.key) == [attempt(1)]
        assert await store.history(changed.key) == []
        assert await store.history(bare.key) == []

    async def test_a_finish_without_change_writes_history_only(self, store: Store) -> None:
        [a] = await self.begun(store, timer("a"))
        before = await store.get([a.key])
        assert await store.finish([Finish(a.key, 1, None, attempt(1)), Finish(a.key, 1, None, None)]) == [APPLIED] * 2
        assert await store.history(a.key) == [attempt(1)]
        assert await store.get([a.key]) == before

    async def test_a_record_is_written_with_the_end_of_an_attempt_or_neither_is(self, store: Store) -> None:
        """Where the store offers that."""
        if not isinstance(store, FinishesWithRecords):
            return
        good, late, changed = await self.begun(store, timer("good"), timer("late"), timer("changed"))
        written = [
            await store.put_record("c", name, b"old", expect=0, now=NOW) for name in ("good", "late", "changed", "gone")
        ]
        assert None not in written
        await store.put_record("c", "late", b"newer", expect=1, now=NOW)
        await store.write([Put(changed, 2)])

        def put(key: str, *, expect: int = 1, value: bytes = b"new") -> RecordPut:
            return RecordPut(collection="c", key=key, value=value, expect=expect, now=NOW, expires_at=NOW + DAY)

        items = [
            Finish(good.key, 1, Remove(good.key, 2), None, put("good")),
            Finish(late.key, 1, Remove(late.key, 2), attempt(), put("late")),
            Finish(changed.key, 1, Remove(changed.key, 2), None, put("changed")),
            Finish(key_of("gone"), 1, None, None, put("gone")),
            Finish(key_of("gone"), 7, None, None, put("gone", expect=2)),
            Finish(key_of("gone"), 1, None, None, put("fresh", expect=0)),
            Finish(key_of("gone"), 1, None, None, put("fresh", expect=1, value=b"newer")),
        ]
        assert await store.finish(items) == [APPLIED, STALE, STALE, APPLIED, FENCED, APPLIED, APPLIED]
        assert [row is None for row in await store.get([good.key, late.key, changed.key])] == [True, False, False]
        assert await store.history(late.key) == []
        found = [await store.get_record("c", name, now=NOW) for name in ("good", "late", "changed", "gone", "fresh")]
        assert [(record.value, record.version) for record in found if record] == [
            (b"new", 2), (b"newer", 2), (b"old", 1), (b"new", 2), (b"newer", 2),
        ]  # fmt: skip
        assert await store.get_record("c", "good", now=NOW + DAY) is None
        assert await store.finish(items[:1]) == [STALE]

    async def test_a_finish_that_is_repeated_is_stale_and_leaves_one_entry(self, store: Store) -> None:
        removed, moved = await self.begun(store, timer("removed"), timer("moved"))
        items = [
            Finish(removed.key, 1, Remove(removed.key, 2), attempt()),
            Finish(moved.key, 1, Put(timer("moved", due_at=NOW + 1), 2), attempt()),
        ]
        assert await store.finish(items) == [APPLIED, APPLIED]
        assert await store.finish(items) == [STALE, STALE]
        assert await store.history(removed.key) == [attempt()]
        assert await store.history(moved.key) == [attempt()]

    async def begun(self, store: Store, *timers: Timer) -> list[Timer]:
        await store.claim_shards([Shard(0, 0, "me")])
        await create(store, *timers)
        assert await store.begin([Begin(row.key, 1, 1) for row in timers]) == [APPLIED] * len(timers)
        return list(timers)

    async def test_a_row_whose_version_cannot_grow_is_begun_by_nobody_and_made_anew(self, store: Store) -> None:
        last = replace(timer("a"), version=LAST_VERSION)
        await create(store, last, timer("b"))
        await store.claim_shards([Shard(0, 0, "me")])
        begins = [Begin(last.key, 1, LAST_VERSION), Begin(key_of("b"), 1, 1)]
        assert await store.begin(begins) == [STALE, APPLIED]
        assert await store.write([Put(replace(last, version=77), LAST_VERSION)]) == [APPLIED]
        [row] = await store.get([last.key])
        assert row is not None
        assert row.version == 77

    async def test_a_row_of_the_last_shard_there_can_be_is_kept_like_any_other(self, store: Store) -> None:
        far = timer("a", shard_id=2**31 - 1)
        await create(store, far)
        assert await store.claim_shards([Shard(far.shard_id, 0, "me")]) == [APPLIED]
        assert (await store.load_due(far.shard_id, until=NOW, after=START, limit=9)).timers == [far]
        assert await store.begin([Begin(far.key, 1, 1)]) == [APPLIED]
        assert await store.finish([Finish(far.key, 1, Remove(far.key, 2), attempt())]) == [APPLIED]
        assert await store.history(far.key) == [attempt()]


class HistoryConformance:
    """history and prune_history"""

    async def test_attempts_come_newest_first(self, store: Store) -> None:
        attempts = [
            attempt(n, started_at=NOW + start) for n, start in ((1, 0), (2, 5), (3, 5), (4, 3 * DAY), (5, -DAY))
        ]
        await self.record(store, "a", *attempts)
        await self.record(store, "b", attempt(9))
        assert [entry.attempt for entry in await store.history(key_of("a"))] == [4, 3, 2, 1, 5]
        assert await store.history(key_of("a"), limit=2) == [attempts[3], attempts[2]]

    async def test_history_pages_go_on_below_a_position(self, store: Store) -> None:
        attempts = [attempt(n, started_at=NOW + n // 2 * DAY // 3) for n in range(20)]
        await self.record(store, "a", *attempts)
        seen = await store.history(key_of("a"), limit=3)
        while page := await store.history(key_of("a"), before=(seen[-1].started_at, seen[-1].attempt), limit=3):
            seen += page
            assert len(seen) <= len(attempts)
        assert seen == attempts[::-1]

    async def test_history_outlives_its_timer_and_belongs_to_its_key(self, store: Store) -> None:
        [a] = await create(store, timer("a"))
        await self.record(store, "a", attempt(1))
        await store.write([Remove(a.key, 1)])
        assert await store.history(a.key) == [attempt(1)]
        assert await store.history(key_of("a", shard_id=1)) == []

    async def test_the_same_attempt_twice_is_one_entry_and_different_ones_are_two(self, store: Store) -> None:
        await self.record(store, "a", attempt(1), attempt(1))
        assert await store.history(key_of("a")) == [attempt(1)]
        await self.record(store, "a", attempt(1, generation=2))
        assert len(await store.history(key_of("a"))) == 2

    async def test_odd_texts_survive_in_history(self, store: Store) -> None:
        attempts = [attempt(n, detail=text) for n, text in enumerate(ODD_TEXTS)]
        await self.record(store, "a", *attempts)
        assert await store.history(key_of("a")) == attempts[::-1]

    async def test_pruning_removes_what_is_older_and_nothing_else(self, store: Store) -> None:
        for n in range(10):
            await self.record(store, f"t{n}", attempt(1, started_at=NOW + n * DAY // 3))
        await self.record(store, "other", attempt(1, started_at=NOW - 9 * DAY), shard_id=1)
        assert await store.prune_history(0, older_than=NOW + DAY, limit=100) == 3
        left = [len(await store.history(key_of(f"t{n}"))) for n in range(10)]
        assert left == [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
        assert len(await store.history(key_of("other", shard_id=1))) == 1

    async def test_pruning_in_steps_takes_the_oldest_days_first_and_ends_with_zero(self, store: Store) -> None:
        await self.record(store, "a", *(attempt(n, started_at=NOW + n * DAY) for n in range(7)))
        for removed, left in ((2, 5), (2, 3), (1, 2), (0, 2)):
            assert await store.prune_history(0, older_than=NOW + 5 * DAY, limit=2) == removed
            assert [entry.attempt for entry in await store.history(key_of("a"))] == [6, 5, 4, 3, 2][:left]

    async def record(self, store: Store, name: str, *attempts: Attempt, shard_id: int = 0) -> None:
        [shard] = await store.shards([shard_id])
        assert shard is not None
        items = [Finish(key_of(name, shard_id=shard_id), shard.version, None, entry) for entry in attempts]
        assert await store.finish(items) == [APPLIED] * len(items)
