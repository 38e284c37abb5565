"""What every `RecordStore` must do, sentence by sentence of the contract. Bind it with one fixture:

class TestMyStore(RecordStoreConformance):
    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]: ...   # empty and open
"""

from __future__ import annotations

import asyncio

from mainspring.model import LAST_VERSION, Record
from mainspring.store import ReadsManyRecords, RecordStore, ends_scan
from mainspring.testing.timer_samples import NOW, ODD_TEXTS


class RecordStoreConformance:
    """The whole contract."""

    async def test_a_record_is_read_back_as_it_was_written(self, store: RecordStore) -> None:
        values = (b"", b"\x00", bytes(range(256)), b'{"a": 1}', b"x" * 300_000)
        for n, value in enumerate(values):
            written = await store.put_record("c", f"k{n}", value, expect=0, now=NOW, expires_at=NOW + 1)
            assert written == Record(f"k{n}", value, 1, NOW + 1)
            assert await store.get_record("c", f"k{n}", now=NOW) == written

    async def test_many_records_are_read_as_each_of_them_is(self, store: RecordStore) -> None:
        """Where the store offers that."""
        if not isinstance(store, ReadsManyRecords):
            return
        values = {
            ("c", "a"): b"1",
            ("d", "a"): b"2",
            ("c", "b"): b"x" * 300_000,
            ("c", "gone"): b"",
            ("d", "\u00e4"): b"",
        }
        for (collection, key), value in values.items():
            expires_at = NOW + (0 if key == "gone" else 9)
            await store.put_record(collection, key, value, expect=0, now=NOW - 1, expires_at=expires_at)
        wanted = [*values, ("c", "never"), ("c", "a")]
        each = [await store.get_record(collection, key, now=NOW) for collection, key in wanted]
        assert await store.get_records(wanted, now=NOW) == each
        assert sum(record is None for record in each) == 2
        assert await store.get_records([], now=NOW) == []

    async def test_a_record_that_was_never_written_does_not_exist(self, store: RecordStore) -> None:
        assert await store.get_record("c", "k", now=NOW) is None
        assert await store.scan_records("c", now=NOW) == []
        assert not await store.delete_record("c", "k", expect=0, now=NOW)

    async def test_versions_start_at_one_and_grow_by_one(self, store: RecordStore) -> None:
        for expect in range(5):
            written = await store.put_record("c", "k", b"%d" % expect, expect=expect, now=NOW)
            assert written == Record("k", b"%d" % expect, expect + 1)
            assert await store.get_record("c", "k", now=NOW) == written

    async def test_a_put_that_expects_another_version_changes_nothing(self, store: RecordStore) -> None:
        assert await store.put_record("c", "k", b"x", expect=1, now=NOW) is None
        written = await store.put_record("c", "k", b"a", expect=0, now=NOW)
        for expect in (0, 2, 3):
            assert await store.put_record("c", "k", b"x", expect=expect, now=NOW) is None
        assert await store.get_record("c", "k", now=NOW) == written

    async def test_a_delete_needs_the_present_version(self, store: RecordStore) -> None:
        await store.put_record("c", "k", b"a", expect=0, now=NOW)
        assert not await store.delete_record("c", "k", expect=2, now=NOW)
        assert not await store.delete_record("c", "k", expect=0, now=NOW)
        assert await store.delete_record("c", "k", expect=1, now=NOW)
        assert not await store.delete_record("c", "k", expect=1, now=NOW)
        assert await store.get_record("c", "k", now=NOW) is None

    async def test_a_deleted_record_can_be_written_again_with_version_one(self, store: RecordStore) -> None:
        await store.put_record("c", "k", b"a", expect=0, now=NOW)
        await store.put_record("c", "k", b"b", expect=1, now=NOW)
        await store.delete_record("c", "k", expect=2, now=NOW)
        assert await store.put_record("c", "k", b"c", expect=0, now=NOW) == Record("k", b"c", 1)

    async def test_a_new_record_has_the_version_that_its_creator_drew(self, store: RecordStore) -> None:
        for n, first in enumerate((1, 2, 2**31, 2**53 + 1, 2**62)):
            written = await store.put_record("c", f"k{n}", b"a", expect=0, first=first, now=NOW)
            assert written == Record(f"k{n}", b"a", first)
            assert await store.put_record("c", f"k{n}", b"x", expect=first + 1, now=NOW) is None
            assert await store.put_record("c", f"k{n}", b"x", expect=first - 1, now=NOW) is None
            changed = await store.put_record("c", f"k{n}", b"b", expect=first, now=NOW, expires_at=NOW + 1)
            assert changed == Record(f"k{n}", b"b", first + 1, NOW + 1)
            assert await store.get_record("c", f"k{n}", now=NOW) == changed
            assert changed in await store.scan_records("c", now=NOW)
            assert not await store.delete_record("c", f"k{n}", expect=first, now=NOW)
            assert await store.delete_record("c", f"k{n}", expect=first + 1, now=NOW)

    async def test_a_record_whose_version_cannot_grow_is_written_like_a_new_one(self, store: RecordStore) -> None:
        for collection in ("c", "idempotency"):
            await store.put_record(collection, "k", b"a", expect=0, first=LAST_VERSION, now=NOW)
            assert await store.put_record(collection, "k", b"x", expect=LAST_VERSION - 1, now=NOW) is None
            written = await store.put_record(collection, "k", b"b", expect=LAST_VERSION, first=9, now=NOW)
            assert written == Record("k", b"b", 9)
            assert await store.get_record(collection, "k", now=NOW) == written

    async def test_who_held_a_record_that_is_gone_changes_no_later_one_of_its_key(self, store: RecordStore) -> None:
        """Every collection is listed, or only looked up: both kinds."""
        for collection in ("c", "idempotency"):
            for key, expires_at in (("removed", None), ("expired", NOW + 1)):
                await store.put_record(collection, key, b"a", expect=0, first=7, now=NOW, expires_at=expires_at)
                await store.delete_record(collection, key, expect=7, now=NOW + 1)
                later = await store.put_record(collection, key, b"b", expect=0, first=2**62 - 5, now=NOW + 1)
                assert await store.put_record(collection, key, b"x", expect=7, now=NOW + 1) is None
                assert not await store.delete_record(collection, key, expect=7, now=NOW + 1)
                assert await store.get_record(collection, key, now=NOW + 1) == later

    async def test_a_record_does_not_exist_from_its_expiry_on(self, store: RecordStore) -> None:
        written = await store.put_record("c", "k", b"a", expect=0, now=NOW, expires_at=NOW + 10)
        assert await store.get_record("c", "k", now=NOW + 9) == written
        assert await store.get_record("c", "k", now=NOW + 10) is None
        assert await store.scan_records("c", now=NOW + 10) == []
        assert await store.put_record("c", "k", b"b", expect=1, now=NOW + 10) is None
        assert not await store.delete_record("c", "k", expect=1, now=NOW + 10)
        assert await store.put_record("c", "k", b"b", expect=0, now=NOW + 10) == Record("k", b"b", 1)

    async def test_a_put_sets_and_clears_the_expiry(self, store: RecordStore) -> None:
        await store.put_record("c", "k", b"a", expect=0, now=NOW, expires_at=NOW + 10)
        await store.put_record("c", "k", b"b", expect=1, now=NOW, expires_at=NOW + 20)
        assert await store.get_record("c", "k", now=NOW + 15) == Record("k", b"b", 2, NOW + 20)
        await store.put_record("c", "k", b"c", expect=2, now=NOW + 15)
        assert await store.get_record("c", "k", now=NOW + 999) == Record("k", b"c", 3)

    async def test_expired_records_hide_neither_live_ones_nor_new_ones(self, store: RecordStore) -> None:
        for n in range(300):
            expires_at = NOW + 1 if n % 3 else None
            await store.put_record("c", f"{n:03}", b"", expect=0, now=NOW, expires_at=expires_at)
        await store.put_record("c", "new", b"", expect=0, now=NOW + 1, expires_at=NOW + 2)
        keys = [record.key for record in await store.scan_records("c", now=NOW + 1, limit=50)]
        keys += [record.key for record in await store.scan_records("c", now=NOW + 1, after=keys[-1], limit=999)]
        assert keys == [f"{n:03}" for n in range(0, 300, 3)] + ["new"]

    async def test_collections_do_not_see_each_other(self, store: RecordStore) -> None:
        await store.put_record("a", "k", b"1", expect=0, now=NOW)
        await store.put_record("a:k", "", b"2", expect=0, now=NOW)
        await store.put_record("b", "k", b"3", expect=0, now=NOW)
        assert await store.scan_records("a", now=NOW) == [Record("k", b"1", 1)]
        assert await store.scan_records("b", now=NOW) == [Record("k", b"3", 1)]
        assert await store.delete_record("a", "k", expect=1, now=NOW)
        assert await store.get_record("b", "k", now=NOW) == Record("k", b"3", 1)

    async def test_a_scan_is_in_the_order_of_code_points(self, store: RecordStore) -> None:
        keys = ["a", "B", "b", "A", "aa", "a b", "é", "e\u0301", "z", "\uffff", "😀", "\U0010ffff", "10", "9", "~", "_"]
        for key in keys:
            await store.put_record("c", key, key.encode(), expect=0, now=NOW)
        assert [record.key for record in await store.scan_records("c", now=NOW)] == sorted(keys)

    async def test_scans_go_on_behind_a_key_that_need_not_exist(self, store: RecordStore) -> None:
        for n in range(25):
            await store.put_record("c", f"k{n:02}", b"", expect=0, now=NOW)
        seen: list[str] = []
        while page := await store.scan_records("c", now=NOW, after=seen[-1] if seen else "", limit=4):
            seen += [record.key for record in page]
            assert len(seen) <= 25
        assert seen == [f"k{n:02}" for n in range(25)]
        assert [record.key for record in await store.scan_records("c", now=NOW, after="k225", limit=1)] == ["k23"]

    async def test_a_scan_of_large_records_comes_in_pages_that_say_so(self, store: RecordStore) -> None:
        for n in range(150):
            await store.put_record("c", f"k{n:03}", b"x" * 100_000, expect=0, now=NOW)
        page = await store.scan_records("c", now=NOW, limit=200)
        assert len(page) < 150
        assert not ends_scan(page, 200)
        rest = await store.scan_records("c", now=NOW, after=page[-1].key, limit=200)
        assert [record.key for record in (*page, *rest)] == [f"k{n:03}" for n in range(150)]
        assert ends_scan(rest, 200)

    async def test_odd_texts_are_names_like_any_other(self, store: RecordStore) -> None:
        for text in ODD_TEXTS:
            written = await store.put_record(text, text, text.encode(), expect=0, now=NOW)
            assert await store.get_record(text, text, now=NOW) == written
            assert await store.scan_records(text, now=NOW) == [written]
        for text in ODD_TEXTS:
            assert await store.delete_record(text, text, expect=1, now=NOW)

    async def test_of_concurrent_puts_of_one_version_exactly_one_wins(self, store: RecordStore) -> None:
        for expect in range(4):
            puts = [store.put_record("c", "k", b"%d" % n, expect=expect, now=NOW) for n in range(30)]
            [winner] = [record for record in await asyncio.gather(*puts) if record is not None]
            assert await store.get_record("c", "k", now=NOW) == winner

    async def test_a_concurrent_put_and_delete_cannot_both_win(self, store: RecordStore) -> None:
        for n in range(10):
            await store.put_record("c", f"k{n}", b"", expect=0, now=NOW)
            put, deleted = await asyncio.gather(
                store.put_record("c", f"k{n}", b"x", expect=1, now=NOW),
                store.delete_record("c", f"k{n}", expect=1, now=NOW),
            )
            assert (put is not None) != deleted

    async def test_puts_of_one_new_key_that_overlap_have_one_winner(self, store: RecordStore) -> None:
        async def put_after(seconds: float, key: str) -> bool:
            await asyncio.sleep(seconds)
            return await store.put_record("c", key, b"mine", expect=0, now=NOW) is not None

        # A little apart, so that they are under way together and yet not in one group.
        for number in range(40):
            tries = [put_after(0.0004 * place, f"k{number}") for place in range(4)]
            assert sum(await asyncio.gather(*tries)) == 1
