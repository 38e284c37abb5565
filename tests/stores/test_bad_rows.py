"""One row, record or shard that somebody else has written: it costs nobody else anything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from msgspec.structs import replace

from mainspring import unreadable
from mainspring.clock import SystemClock
from mainspring.model import LAST_VERSION, Shard
from mainspring.store import START, Begin, Put, Remove, Store, TimerFilter, Verdict
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import NOW, create, key_of, timer
from tests.servers.fixtures import server_params
from tests.stores.spoiled_rows import SpoilingSQL, SpoilingSQLite

APPLIED = Verdict.APPLIED
STORES = ["sqlite", *server_params("postgresql", "mysql")]


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    unreadable.forget()


@pytest.fixture
def url(fresh_url: Callable[[], str]) -> str:
    return fresh_url()


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    yield store
    await store.close()


async def run(url: str, table: str, statement: str) -> None:
    if url.startswith("sqlite"):
        SpoilingSQLite(url).run_any(statement.format(table))
        return
    spoil = SpoilingSQL(url)
    session = await spoil.database.connect()
    try:
        await session.begin()
        await session.execute(statement.format(spoil.names.full(table)), ())
        await session.commit()
    finally:
        await session.close()


def told() -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in unreadable.known()]


@pytest.mark.parametrize("fresh_url", STORES, indirect=True)
async def test_a_shard_whose_version_cannot_grow_stands_still_alone_and_is_told_of(store: Store, url: str) -> None:
    claims = [Shard(shard_id, 0, "me") for shard_id in range(4)]
    assert await store.claim_shards(claims) == [APPLIED] * 4
    await run(url, "shards", f"UPDATE {{}} SET version = {LAST_VERSION} WHERE shard_id = 2")
    found = await store.shards(range(4))
    assert [None if shard is None else shard.version for shard in found] == [1, 1, None, 1]
    assert told() == [("shard", "2")]
    versions = [1, 1, LAST_VERSION, 1]
    claims = [Shard(shard_id, version, "you") for shard_id, version in enumerate(versions)]
    assert await store.claim_shards(claims) == [APPLIED, APPLIED, Verdict.UNAVAILABLE, APPLIED]


@pytest.mark.parametrize("fresh_url", ["sqlite"], indirect=True)
async def test_a_shard_whose_owner_is_no_text_is_told_of_and_claimed_anew(store: Store, url: str) -> None:
    assert await store.claim_shards([Shard(n, 0, "me") for n in range(3)]) == [APPLIED] * 3
    await run(url, "shards", "UPDATE {} SET owner = CAST(x'22ff22' AS TEXT) WHERE shard_id = 1")
    found = await store.shards(range(3))
    assert [shard.owner for shard in found if shard is not None] == ["me", '"\\xff"', "me"]
    assert told() == [("shard", "1")]
    assert await store.claim_shards([Shard(n, 1, "you") for n in range(3)]) == [APPLIED] * 3
    assert list(await store.shards([1])) == [Shard(1, 2, "you")]


@pytest.mark.parametrize("column", ["version", "attempts", "generation"])
@pytest.mark.parametrize("fresh_url", STORES, indirect=True)
async def test_a_timer_that_cannot_be_counted_on_is_set_aside_until_it_is_made_anew(
    store: Store, url: str, column: str
) -> None:
    rows = [timer(name, due_at=NOW + n) for n, name in enumerate("abc")]
    await create(store, *rows)
    await run(url, "timers", f"UPDATE {{}} SET {column} = {LAST_VERSION} WHERE timer_id = 'b'")
    good = [rows[0], rows[2]]
    assert (await store.load_due(0, until=NOW + 9, after=START, limit=9)).timers == good
    assert (await store.list_timers([0], TimerFilter(), after=START, limit=9)).timers == good
    assert told() == [("timer", f"0/{key_of('b').uuid}")]
    await store.claim_shards([Shard(0, 0, "me")])
    assert await store.begin([Begin(row.key, 1, 1) for row in good]) == [APPLIED] * 2
    [found] = await store.damaged([key_of("b")])
    assert found is not None
    assert await store.write([Put(replace(timer("b", payload="1"), version=77), found.version)]) == [APPLIED]
    [mended] = await store.get([key_of("b")])
    assert mended is not None
    assert mended.version == (77 if column == "version" else 2)
    assert await store.write([Remove(key_of("b"), mended.version)]) == [APPLIED]


@pytest.mark.parametrize("fresh_url", STORES, indirect=True)
async def test_a_record_whose_version_cannot_grow_is_written_like_a_new_one(store: Store, url: str) -> None:
    await store.put_record("lock", "a", b"1", expect=0, now=NOW)
    await run(url, "records", f"UPDATE {{}} SET version = {LAST_VERSION} WHERE collection = 'lock'")
    written = await store.put_record("lock", "a", b"2", expect=LAST_VERSION, now=NOW, first=9)
    assert written is not None
    assert written.version == 9
    found = await store.get_record("lock", "a", now=NOW)
    assert found == written


@pytest.mark.parametrize("fresh_url", ["sqlite"], indirect=True)
async def test_a_record_whose_key_is_no_text_is_passed_over_by_scans(store: Store, url: str) -> None:
    for key in "abcd":
        await store.put_record("things", key, key.encode(), expect=0, now=NOW)
    await run(url, "records", "UPDATE {} SET key = CAST(x'62ff' AS TEXT) WHERE key = 'b'")
    for limit in (1, 2, 3, 9):
        keys: list[str] = []
        after = ""
        while page := await store.scan_records("things", now=NOW, after=after, limit=limit):
            keys += [record.key for record in page]
            after = page[-1].key
        assert keys == ["a", "c", "d"]
    assert told() == [("things", "b\\xff")]
