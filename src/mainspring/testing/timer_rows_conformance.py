"""The part of the timer contract that is about rows: writing, listing and loading what is due."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainspring.model import FOREVER, LastOutcome, Result, RetryPolicy, Shard, State, Timer
from mainspring.store import (
    BATCH_LIMIT,
    END,
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
    timer_pages,
)
from mainspring.testing.timer_samples import NOW, ODD_TEXTS, create, key_of, timer

if TYPE_CHECKING:
    import pytest

APPLIED, STALE, FENCED = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED
EVERYTHING = TimerFilter()
DAY = 86_400_000
EARLIEST = -(2**63)
"""Nothing of ours is due then, but a flipped bit may say so."""


class WriteConformance:
    """write and get"""

    async def test_a_created_timer_is_read_back_as_it_was_written(self, store: Store) -> None:
        full = timer("a", payload='{"n": 1.50, "big": 12345678901234567890}', labels={"k": "v"}, attempts=2)
        detail = replace(
            full.detail,
            headers={"X-A": "1"},
            retry_policy=RetryPolicy(max_attempts=3, schedule=(1.5, 2.0)),
            last_outcome=LastOutcome(outcome=Result.UNKNOWN, at=NOW, detail="?"),
        )
        full = replace(full, detail=detail, state=State.RETRYING, generation=7, fence=9)
        await create(store, full)
        assert await store.get([full.key]) == [full]

    async def test_a_create_of_an_existing_row_is_stale_and_changes_nothing(self, store: Store) -> None:
        [first] = await create(store, timer("a", due_at=1))
        assert await store.write([Put(timer("a", due_at=2), 0)]) == [STALE]
        assert await store.get([first.key]) == [first]

    async def test_a_stale_create_leaves_the_creates_beside_it_alone(self, store: Store) -> None:
        await create(store, timer("b"))
        changes = [Put(timer(name), 0) for name in ("a", "b", "c")]
        assert await store.write(changes) == [APPLIED, STALE, APPLIED]
        assert None not in await store.get([key_of(name) for name in ("a", "b", "c")])

    async def test_a_put_with_the_present_version_replaces_the_row_and_adds_one_to_it(self, store: Store) -> None:
        await create(store, timer("a"))
        changed = replace(timer("a", payload="2"), version=99)
        assert await store.write([Put(changed, 1)]) == [APPLIED]
        assert await store.get([changed.key]) == [replace(changed, version=2)]

    async def test_a_put_with_another_version_is_stale(self, store: Store) -> None:
        [first] = await create(store, timer("a"))
        assert await store.write([Put(timer("a", payload="x"), 2), Put(timer("b"), 1)]) == [STALE, STALE]
        assert await store.get([first.key, key_of("b")]) == [first, None]

    async def test_values_come_back_as_what_they_are_and_not_as_types_of_a_driver(self, store: Store) -> None:
        await create(store, timer("a", due_at=NOW))
        page = await store.load_due(0, until=NOW, after=START, limit=1)
        listed = (await store.list_timers([0], EVERYTHING, after=START, limit=1)).timers
        for row in (*page.timers, *listed, *await store.get([key_of("a")])):
            assert row is not None
            numbers = (row.shard_id, row.due_at, row.attempts, row.generation, row.version, row.fence)
            assert {type(number) for number in numbers} == {int}
            assert {type(text) for text in (row.uuid, row.namespace, row.timer_id)} == {str}
        assert [type(due) for due in await store.next_due([0])] == [int]

    async def test_a_row_that_moves_in_time_is_still_one_row(self, store: Store) -> None:
        await create(store, timer("a", due_at=NOW))
        for version, due_at in enumerate((NOW + 5, NOW - 5, FOREVER, NOW), start=1):
            assert await store.write([Put(timer("a", due_at=due_at), version)]) == [APPLIED]
            listed = (await store.list_timers([0], EVERYTHING, after=START, limit=10)).timers
            assert [(row.due_at, row.version) for row in listed] == [(due_at, version + 1)]
            assert await store.get([key_of("a")]) == listed

    async def test_remove_takes_a_row_with_the_expected_version_only(self, store: Store) -> None:
        [first] = await create(store, timer("a"))
        assert await store.write([Remove(first.key, 2)]) == [STALE]
        assert await store.write([Remove(first.key, 1)]) == [APPLIED]
        assert await store.write([Remove(first.key, 1)]) == [STALE]
        assert await store.get([first.key]) == [None]

    async def test_remove_of_a_row_that_never_was_is_stale(self, store: Store) -> None:
        assert await store.write([Remove(key_of("a"), 0), Remove(key_of("a"), 1)]) == [STALE, STALE]

    async def test_a_row_begins_with_the_version_that_its_creator_drew(self, store: Store) -> None:
        largest = replace(timer("b"), version=2**62)
        await create(store, replace(timer("a"), version=77), largest)
        assert await store.write([Put(timer("a"), 77), Put(timer("b"), 2**62)]) == [APPLIED, APPLIED]
        assert [row.version for row in await store.get([key_of("a"), key_of("b")]) if row] == [78, 2**62 + 1]

    async def test_what_was_decided_upon_a_removed_row_does_not_touch_its_successor(self, store: Store) -> None:
        old = replace(timer("a"), version=77)
        new = replace(timer("a", due_at=NOW + 9), version=78_000)
        await create(store, old)
        await store.write([Remove(old.key, 77)])
        await create(store, new)
        await store.claim_shards([Shard(old.shard_id, 0, "me")])
        assert await store.write([Put(timer("a"), 77), Remove(old.key, 77)]) == [STALE, STALE]
        assert await store.begin([Begin(old.key, 1, 77)]) == [STALE]
        assert await store.finish([Finish(old.key, 1, Remove(old.key, 78), None)]) == [STALE]
        assert await store.get([new.key]) == [new]

    async def test_items_that_name_the_same_row_are_applied_in_order(self, store: Store) -> None:
        a = timer("a")
        changes: list[Put | Remove] = [
            Put(a, 0),
            Put(timer("a", due_at=NOW + 1), 1),
            Put(timer("a", due_at=NOW + 2), 1),
            Remove(a.key, 2),
            Put(timer("a", due_at=NOW + 3), 0),
            Put(timer("a", due_at=NOW + 4), 0),
        ]
        assert await store.write(changes) == [APPLIED, APPLIED, STALE, APPLIED, APPLIED, STALE]
        assert (await store.list_timers([0], EVERYTHING, after=START, limit=9)).timers == [timer("a", due_at=NOW + 3)]

    async def test_a_row_is_named_by_shard_and_uuid(self, store: Store) -> None:
        here, there = timer("a", shard_id=1), timer("a", shard_id=2)
        await create(store, here)
        assert await store.get([there.key]) == [None]
        assert await store.write([Remove(there.key, 1)]) == [STALE]
        assert await store.get([here.key]) == [here]

    async def test_answers_come_in_the_order_of_the_keys_also_for_repeated_ones(self, store: Store) -> None:
        a, b = await create(store, timer("a"), timer("b", shard_id=3))
        assert await store.get([b.key, key_of("x"), a.key, b.key]) == [b, None, a, b]

    async def test_empty_batches_do_nothing(self, store: Store) -> None:
        assert await store.write([]) == []
        assert await store.get([]) == []
        assert await store.begin([]) == []
        assert await store.finish([]) == []
        assert await store.shards([]) == []
        assert await store.claim_shards([]) == []
        assert await store.release_shards([]) == []
        assert (await store.list_timers([], EVERYTHING, after=START, limit=9)).timers == []

    async def test_a_full_batch_is_written(self, store: Store) -> None:
        timers = await create(store, *(timer(f"t{n}", shard_id=n % 7, due_at=NOW + n % 13) for n in range(BATCH_LIMIT)))
        assert await store.get([row.key for row in timers]) == timers

    async def test_metacharacters_and_every_script_survive_in_every_field(self, store: Store) -> None:
        rows = [
            replace(
                timer(text, namespace=text, labels={text: text}, payload=f'"{n}"', due_at=NOW + n),
                detail=replace(
                    timer(text).detail, labels={text: text}, headers={text: text}, callback_url=text, delivery_id=text
                ),
            )
            for n, text in enumerate(ODD_TEXTS)
        ]
        await create(store, *rows)
        assert await store.get([row.key for row in rows]) == rows
        assert (await store.list_timers([0], EVERYTHING, after=START, limit=99)).timers == rows
        assert (await store.load_due(0, until=FOREVER, after=START, limit=99)).timers == rows

    async def test_payloads_are_passed_on_byte_for_byte(self, store: Store) -> None:
        payloads = (
            None,
            "null",
            '""',
            '{"a":1,"a":2}',
            "[1.0, 1e2, -0.0, 123456789012345678901234567890]",
            r'"\u0000\ud83d\ude00"',
            ' {"spaces" : [ 1 , 2 ] } ',
            '"' + "x" * 102_398 + '"',
            '"' + "é😀\\n" * 12_000 + '"',
        )
        rows = await create(store, *(timer(f"t{n}", payload=payload) for n, payload in enumerate(payloads)))
        assert [row.payload for row in await store.get([row.key for row in rows]) if row] == list(payloads)

    async def test_of_concurrent_creates_exactly_one_wins(self, store: Store) -> None:
        contenders = [timer("a", due_at=NOW + n) for n in range(50)]
        verdicts = await asyncio.gather(*(store.write([Put(row, 0)]) for row in contenders))
        winners = [row for row, verdict in zip(contenders, verdicts, strict=True) if verdict == [APPLIED]]
        assert len(winners) == 1
        assert (await store.list_timers([0], EVERYTHING, after=START, limit=99)).timers == winners

    async def test_of_concurrent_changes_of_one_version_exactly_one_wins(self, store: Store) -> None:
        await create(store, timer("a"))
        for version in range(1, 6):
            verdicts = await asyncio.gather(
                *(store.write([Put(timer("a", due_at=NOW + n), version)]) for n in range(20)),
                *(store.write([Put(timer(f"other-{version}-{n}"), 0)]) for n in range(20)),
            )
            assert verdicts[:20].count([APPLIED]) == 1
            assert verdicts[20:] == [[APPLIED]] * 20
            assert [row.version for row in await store.get([key_of("a")]) if row] == [version + 1]


class ListConformance:
    """list_timers"""

    async def ids(self, store: Store, where: TimerFilter, *shards: int) -> set[str]:
        return {row.timer_id for row in (await store.list_timers(shards or [0], where, after=START, limit=999)).timers}

    async def test_timers_are_listed_in_due_order_across_shards(self, store: Store) -> None:
        rows = [timer(f"t{n}", shard_id=n % 5, due_at=NOW + n * 37 % 11) for n in range(60)]
        await create(store, *rows)
        expected = sorted((row for row in rows if row.shard_id != 3), key=_position)
        assert (await store.list_timers([4, 0, 2, 1], EVERYTHING, after=START, limit=99)).timers == expected

    async def test_pages_follow_each_other_without_gap_or_repeat(self, store: Store) -> None:
        rows = [timer(f"t{n}", shard_id=n % 3, due_at=NOW + n % 4) for n in range(50)]
        await create(store, *rows)
        for limit in (1, 7, 50, 51):
            seen: list[Timer] = []
            after: Position | None = START
            while after is not None and len(seen) <= len(rows):
                page, after = await store.list_timers(range(3), EVERYTHING, after=after, limit=limit)
                assert len(page) <= limit
                assert after is None or after == _position(page[-1])
                seen += page
            assert seen == sorted(rows, key=_position)

    async def test_a_list_may_also_go_on_behind_any_of_its_rows(self, store: Store) -> None:
        rows = await create(store, *(timer(f"t{n}", shard_id=n % 3, due_at=NOW + n % 4) for n in range(20)))
        rows = sorted(rows, key=_position)
        for index, row in enumerate(rows):
            page = await store.list_timers(range(3), EVERYTHING, after=_position(row), limit=4)
            assert page.timers == rows[index + 1 : index + 5]

    async def test_a_page_looks_through_a_bounded_number_of_rows_and_says_where_the_list_goes_on(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mainspring.store.LOOK_ROWS", 30)
        monkeypatch.setattr("mainspring.store.LOOK_SHARD_ROWS", 2)
        rows = [
            timer(f"{'ab'[n % 97 == 96]}{n}", shard_id=n % 3, due_at=NOW + n // 5, labels={"at": str(n // 100)})
            for n in range(300)
        ]
        await create(store, *rows)
        filters = (TimerFilter(id_prefix="b"), TimerFilter(labels=(("at", "2"),)), TimerFilter(states=(State.PARKED,)))
        for where in filters:
            for limit in (1, 7, 99):
                seen: list[Timer] = []
                pages = 0
                after: Position | None = START
                while after is not None and pages < 999:
                    page, end = await store.list_timers(range(3), where, after=after, limit=limit)
                    assert all(after < _position(row) for row in page)
                    assert end is None or end > after
                    seen += page
                    pages += 1
                    after = end
                assert seen == sorted((row for row in rows if where.matches(row)), key=_position)
                assert pages >= 200 // 30

    async def test_a_list_over_many_shards_of_which_few_have_rows_gets_on(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mainspring.store.LOOK_ROWS", 30)
        monkeypatch.setattr("mainspring.store.LOOK_SHARD_ROWS", 2)
        rows = await create(
            store, *(timer(f"{'ab'[n % 20 == 19]}{n}", shard_id=5 + n % 2, due_at=NOW + n) for n in range(100))
        )
        for where in (TimerFilter(id_prefix="b"), EVERYTHING):
            seen: list[Timer] = []
            pages = 0
            after: Position | None = START
            while after is not None and pages < 999:
                page, after = await store.list_timers(range(40), where, after=after, limit=50)
                seen += page
                pages += 1
            assert seen == [row for row in rows if where.matches(row)]
            assert pages <= 2 + 100 // 2  # at least the least number of rows of one shard

    async def test_a_due_range_bounds_what_is_looked_through(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mainspring.store.LOOK_ROWS", 30)
        monkeypatch.setattr("mainspring.store.LOOK_SHARD_ROWS", 2)
        await create(store, *(timer(f"a{n}", shard_id=n % 3, due_at=NOW + n) for n in range(300)))
        b, c = await create(store, timer("b", due_at=NOW + 150), timer("c", due_at=FOREVER, state=State.PARKED))
        middle = TimerFilter(id_prefix="b", due_from=NOW + 148, due_to=NOW + 153)
        assert await store.list_timers(range(3), middle, after=START, limit=9) == ([b], None)
        end = TimerFilter(states=(State.PARKED,), due_from=FOREVER)
        assert await store.list_timers(range(3), end, after=START, limit=9) == ([c], None)

    async def test_filters_apply_before_the_limit(self, store: Store) -> None:
        await create(store, *(timer(f"{'ab'[n >= 40]}{n}", due_at=NOW + n, shard_id=n % 2) for n in range(44)))
        page = (await store.list_timers([0, 1], TimerFilter(id_prefix="b"), after=START, limit=3)).timers
        assert [row.timer_id for row in page] == ["b40", "b41", "b42"]

    async def test_filter_by_state(self, store: Store) -> None:
        await create(store, *(timer(state.value, state=state) for state in State))
        assert await self.ids(store, TimerFilter(states=(State.PARKED,))) == {"parked"}
        assert await self.ids(store, TimerFilter(states=(State.RUNNING, State.RETRYING))) == {"running", "retrying"}
        assert await self.ids(store, TimerFilter(states=())) == {state.value for state in State}

    async def test_filter_by_prefix_is_literal_and_minds_case(self, store: Store) -> None:
        names = ("a%b", "axb", "a_b", "A%b", "a'b", 'a"b', "a\\b", "a*b", "a?b", "é1", "e1", "😀x", "a")
        await create(store, *(timer(name) for name in names))
        for prefix in ("a%", "a_", "A", "a'", 'a"', "a\\", "a*", "a?", "é", "😀", "a", "a%b", "a%bc", ""):
            expected = {name for name in names if name.startswith(prefix)}
            assert await self.ids(store, TimerFilter(id_prefix=prefix)) == expected

    async def test_filter_by_labels_of_any_name_and_value(self, store: Store) -> None:
        await create(store, *(timer(f"t{n}", labels={text: text, "n": str(n)}) for n, text in enumerate(ODD_TEXTS)))
        await create(store, timer("dotted", labels={"a.b": "1"}), timer("nested", labels={"a": "1", "b": "1"}))
        for n, text in enumerate(ODD_TEXTS):
            assert await self.ids(store, TimerFilter(labels=((text, text),))) == {f"t{n}"}
            assert await self.ids(store, TimerFilter(labels=((text, text), ("n", str(n))))) == {f"t{n}"}
            assert await self.ids(store, TimerFilter(labels=((text, text), ("n", "99")))) == set()
        assert await self.ids(store, TimerFilter(labels=(("a.b", "1"),))) == {"dotted"}
        assert await self.ids(store, TimerFilter(labels=(("b", "1"),))) == {"nested"}
        assert await self.ids(store, TimerFilter(labels=(("b", ""),))) == set()

    async def test_filter_by_due_range_includes_from_and_excludes_to(self, store: Store) -> None:
        await create(store, *(timer(f"t{n}", due_at=NOW + n) for n in range(5)))
        assert await self.ids(store, TimerFilter(due_from=NOW + 1, due_to=NOW + 3)) == {"t1", "t2"}
        assert await self.ids(store, TimerFilter(due_from=NOW + 4)) == {"t4"}
        assert await self.ids(store, TimerFilter(due_to=NOW)) == set()

    async def test_all_conditions_hold_together(self, store: Store) -> None:
        match = timer("ab", labels={"k": "v"}, due_at=NOW + 1, state=State.RETRYING)
        near = [
            timer("x", labels={"k": "v"}, due_at=NOW + 1, state=State.RETRYING),
            timer("ac", labels={"k": "w"}, due_at=NOW + 1, state=State.RETRYING),
            timer("ad", labels={"k": "v"}, due_at=NOW + 2, state=State.RETRYING),
            timer("ae", labels={"k": "v"}, due_at=NOW + 1),
        ]
        await create(store, match, *near)
        where = TimerFilter(
            states=(State.RETRYING,), id_prefix="a", labels=(("k", "v"),), due_from=NOW + 1, due_to=NOW + 2
        )
        assert (await store.list_timers([0], where, after=START, limit=9)).timers == [match]

    async def test_parked_timers_are_listed_last(self, store: Store) -> None:
        await create(store, timer("p", due_at=FOREVER, state=State.PARKED), timer("a", due_at=NOW))
        listed = (await store.list_timers([0], EVERYTHING, after=START, limit=9)).timers
        assert [row.timer_id for row in listed] == ["a", "p"]


class DueConformance:
    """load_due and next_due"""

    async def test_due_rows_come_in_the_order_of_instant_then_uuid_bytes(self, store: Store) -> None:
        uuids = ["0" * 32, "00" + "f" * 30, "9" * 32, "a" * 32, "f" * 32]
        rows = [timer(f"{due}{uuid}", uuid=uuid, due_at=NOW + due) for due in (1, 0) for uuid in reversed(uuids)]
        rows = [replace(row, uuid=f"{row.uuid[:-1]}{row.due_at - NOW}") for row in rows]
        await create(store, *rows)
        page = await store.load_due(0, until=NOW + 1, after=START, limit=99)
        assert page.timers == sorted(rows, key=lambda row: (row.due_at, row.uuid.encode()))

    async def test_rows_due_at_the_limit_are_included_and_later_ones_are_announced(self, store: Store) -> None:
        a, b, _ = await create(store, timer("a", due_at=NOW), timer("b", due_at=NOW + 1), timer("c", due_at=NOW + 2))
        assert await store.load_due(0, until=NOW + 1, after=START, limit=9) == ([a, b], NOW + 2)
        assert await store.load_due(0, until=NOW - 1, after=START, limit=9) == ([], NOW)
        assert (await store.load_due(0, until=NOW + 2, after=START, limit=9)).next_due_at is None

    async def test_a_full_page_announces_the_row_behind_it_even_if_that_is_due(self, store: Store) -> None:
        a, _ = await create(store, timer("a", due_at=NOW), timer("b", due_at=NOW + 1))
        assert await store.load_due(0, until=NOW + 9, after=START, limit=1) == ([a], NOW + 1)

    async def test_an_empty_shard_has_nothing_due(self, store: Store) -> None:
        await create(store, timer("elsewhere", shard_id=1))
        assert await store.load_due(0, until=FOREVER - 1, after=START, limit=9) == ([], None)

    async def test_no_instant_is_too_early_to_be_due_and_listed(self, store: Store) -> None:
        rows = [timer(name, due_at=at) for name, at in (("a", EARLIEST), ("b", EARLIEST + 1), ("c", -1))]
        await create(store, *rows)
        assert (await store.load_due(0, until=NOW, after=START, limit=9)).timers == rows
        assert (await store.list_timers([0], EVERYTHING, after=START, limit=9)).timers == rows

    async def test_the_cursor_goes_on_behind_a_position(self, store: Store) -> None:
        rows = sorted(await create(store, *(timer(f"t{n}", due_at=NOW + n % 3) for n in range(30))), key=_position)
        for index, row in enumerate(rows):
            page = await store.load_due(0, until=NOW + 1, after=_position(row), limit=4)
            expected = [later for later in rows[index + 1 :] if later.due_at <= NOW + 1][:4]
            following = rows[index + 1 + len(expected) :]
            assert page == (expected, following[0].due_at if following else None)

    async def test_a_place_may_be_a_part_of_a_uuid_and_uuids_may_be_any_text(self, store: Store) -> None:
        uuids = ("ABCDEF", "a" * 32, "b" * 32, "not-hexadecimal")
        rows = await create(store, *(timer(uuid, uuid=uuid) for uuid in uuids))
        for index, uuid in enumerate(uuids):
            page = await store.load_due(0, until=NOW, after=Position(NOW, uuid[:-1]), limit=9)
            assert page.timers == rows[index:]

    async def test_more_rows_than_a_batch_may_be_due_in_one_instant(self, store: Store) -> None:
        rows = [timer(f"t{n}") for n in range(2 * BATCH_LIMIT + 500)]
        for start in range(0, len(rows), BATCH_LIMIT):
            await create(store, *rows[start : start + BATCH_LIMIT])
        seen: list[Timer] = []
        while page := (await store.load_due(0, until=NOW, after=_after(seen), limit=BATCH_LIMIT)).timers:
            seen += page
            assert len(seen) <= len(rows)
        assert seen == sorted(rows, key=_position)

    async def test_parked_rows_do_not_count_as_next(self, store: Store) -> None:
        await create(store, timer("p", due_at=FOREVER, state=State.PARKED))
        assert await store.load_due(0, until=NOW, after=START, limit=9) == ([], None)
        [a] = await create(store, timer("a", due_at=NOW))
        assert await store.load_due(0, until=NOW, after=START, limit=1) == ([a], None)

    async def test_rows_in_any_state_are_due_also_those_in_flight(self, store: Store) -> None:
        rows = await create(store, *(timer(state.value, state=state) for state in State))
        page = await store.load_due(0, until=NOW, after=START, limit=9)
        assert page.timers == sorted(rows, key=_position)

    async def test_many_shards_are_read_at_once_as_each_would_be_by_itself(self, store: Store) -> None:
        if not isinstance(store, ReadsManyShards):
            return  # nobody asks it to
        rows = [timer(f"t{n}", shard_id=n % 5, due_at=NOW + n // 5 % 4) for n in range(60)]
        rows += [timer("p", shard_id=5, due_at=FOREVER, state=State.PARKED), timer("l", shard_id=6, due_at=NOW + 9)]
        await create(store, *rows)
        first = min((row for row in rows if row.shard_id == 3), key=_position)
        places = [(6, START), (3, _position(first)), (0, START), (5, START), (2, END), (7, START), (4, START)]
        for until, limit in ((NOW + 2, 99), (NOW + 9, 4), (NOW - 1, 9), (FOREVER - 1, 12), (NOW + 3, 1)):
            each = [await store.load_due(shard_id, until=until, after=after, limit=limit) for shard_id, after in places]
            assert await store.load_due_of(places, until=until, limit=limit) == each
        assert await store.load_due_of([], until=NOW, limit=9) == []

    async def test_large_rows_of_many_shards_are_read_at_once_or_left_to_be_read_one_by_one(self, store: Store) -> None:
        if not isinstance(store, ReadsManyShards):
            return
        large = f'"{"x" * 300_000}"'
        for shard_id in range(40):
            await create(store, timer(f"t{shard_id}", shard_id=shard_id, payload=large))
        places = [(shard_id, START) for shard_id in range(40)]
        pages = await store.load_due_of(places, until=NOW, limit=9)
        for (shard_id, after), page in zip(places, pages, strict=True):
            assert page in (None, await store.load_due(shard_id, until=NOW, after=after, limit=9))
        assert 0 < sum(page is not None for page in pages) < 40

    async def test_the_earliest_instant_of_each_shard_is_told_in_the_order_that_was_asked(self, store: Store) -> None:
        await create(store, timer("a", due_at=NOW + 5), timer("b", due_at=NOW + 3))
        await create(store, *(timer(f"c{n}", shard_id=2, due_at=-n) for n in range(3)))
        assert await store.next_due([2, 1, 0, 0]) == [-2, None, NOW + 3, NOW + 3]
        assert await store.next_due([]) == []

    async def test_the_earliest_instant_is_that_of_a_row_in_any_state_but_never_of_a_parked_one(
        self, store: Store
    ) -> None:
        await create(store, timer("parked", due_at=FOREVER, state=State.PARKED))
        assert await store.next_due([0]) == [None]
        for due_at, state in ((NOW + 2, State.SCHEDULED), (NOW + 1, State.RETRYING), (NOW, State.RUNNING)):
            await create(store, timer(state.value, due_at=due_at, state=state))
            assert await store.next_due([0]) == [due_at]

    async def test_the_earliest_instant_follows_rows_that_are_moved_and_removed(self, store: Store) -> None:
        [a, b] = await create(store, timer("a", due_at=NOW), timer("b", due_at=NOW + 1))
        await store.write([Put(replace(a, due_at=NOW + 9), 1)])
        assert await store.next_due([0]) == [NOW + 1]
        await store.write([Remove(b.key, 1)])
        assert await store.next_due([0]) == [NOW + 9]

    async def test_the_earliest_instants_of_as_many_shards_as_a_batch_holds_come_at_once(self, store: Store) -> None:
        await create(store, *(timer("t", shard_id=n, due_at=NOW + n) for n in range(0, BATCH_LIMIT, 100)))
        told = await store.next_due(range(BATCH_LIMIT))
        assert told == [None if n % 100 else NOW + n for n in range(BATCH_LIMIT)]


def _position(row: Timer) -> Position:
    return Position(row.due_at, row.uuid)


def _after(seen: list[Timer]) -> Position:
    return _position(seen[-1]) if seen else START


class LargePagesConformance:
    """Pages are bounded in bytes."""

    async def test_a_page_of_large_rows_ends_early_and_the_next_one_goes_on_behind_it(self, store: Store) -> None:
        payload = f'"{"x" * 120_000}"'
        rows = [timer(f"t{n:03}", shard_id=n % 2, due_at=NOW + n, payload=payload) for n in range(160)]
        for start in range(0, len(rows), 20):
            await create(store, *rows[start : start + 20])
        listed: list[Timer] = []
        async for page in timer_pages(store, [0, 1], EVERYTHING, limit=999):
            assert len(page) < 120
            listed += page
        assert listed == rows
        loaded: list[Timer] = []
        until = NOW + 999
        while (due := await store.load_due(0, until=until, after=_end_of(loaded), limit=999)).timers:
            assert len(due.timers) < 80 or due.next_due_at is None
            loaded += due.timers
            assert due.next_due_at == next((row.due_at for row in rows[::2] if row.due_at > loaded[-1].due_at), None)
        assert loaded == rows[::2]

    async def test_a_row_that_is_larger_than_a_page_is_a_page(self, store: Store) -> None:
        rows = [timer(f"t{n}", due_at=NOW + n, payload=f'"{"x" * 130_000}"') for n in range(3)]
        await create(store, *rows)
        assert (await store.list_timers([0], EVERYTHING, after=START, limit=1)).timers == rows[:1]


def _end_of(rows: list[Timer]) -> Position:
    return Position(rows[-1].due_at, rows[-1].uuid) if rows else START
