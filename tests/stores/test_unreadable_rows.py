"""Rows that cannot be read, on every store in which somebody else could have written them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable

import pytest

from mainspring import unreadable
from mainspring.clock import SystemClock
from mainspring.store import START, Store, TimerFilter, timer_pages
from mainspring.stores import store_from_url
from mainspring.testing.timer_samples import NOW, create, key_of, timer
from mainspring.testing.unreadable_conformance import UnreadableRowsConformance
from tests.servers.fixtures import server_params
from tests.stores.conftest import TIMER_STORES
from tests.stores.spoiled_rows import Spoiling, SpoilingSQL, SpoilingSQLite, spoiling

SPOILABLE = [store for store in TIMER_STORES if store != "memory"]


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


@pytest.fixture
async def spoil(url: str) -> Spoiling:
    return spoiling(url)


@pytest.mark.parametrize("fresh_url", SPOILABLE, indirect=True)
class TestUnreadableRows(UnreadableRowsConformance):
    pass


@pytest.mark.parametrize("fresh_url", ["sqlite"], indirect=True)
async def test_a_payload_that_is_no_text_stops_nobody(store: Store, url: str) -> None:
    await create(store, *(timer(name, due_at=NOW + n, payload='"x"') for n, name in enumerate("abc")))
    SpoilingSQLite(url).run(
        "UPDATE timers SET payload = CAST(x'22ff22' AS TEXT) WHERE shard_id = ? AND uuid = ?", key_of("b")
    )
    page = await store.load_due(0, until=NOW + 9, after=START, limit=9)
    assert [row.timer_id for row in page.timers] == ["a", "c"]


@pytest.mark.parametrize("fresh_url", ["sqlite"], indirect=True)
async def test_a_name_that_is_no_text_stops_nobody(store: Store, url: str) -> None:
    await create(store, *(timer(name, due_at=NOW) for name in "abcdef"))
    for column, name in (("timer_id", "a"), ("namespace", "b")):
        SpoilingSQLite(url).run(
            f"UPDATE timers SET {column} = CAST(x'61ff' AS TEXT) WHERE shard_id = ? AND uuid = ?", key_of(name)
        )
    for name in "cde":  # a flipped bit at the beginning, in the middle and at the end of a key
        uuid = key_of(name).uuid.encode()
        spoiled = {"c": b"\xb1" + uuid[1:], "d": uuid[:9] + b"\xff" + uuid[10:], "e": uuid[:-1] + b"\xe6"}[name]
        SpoilingSQLite(url).run(
            f"UPDATE timers SET uuid = CAST(x'{spoiled.hex()}' AS TEXT) WHERE shard_id = ? AND uuid = ?", key_of(name)
        )
    for limit in (1, 2, 9):
        page = await store.load_due(0, until=NOW, after=START, limit=limit)
        assert [row.timer_id for row in page.timers] == ["f"]
        pages = [page async for page in timer_pages(store, [0], TimerFilter(), limit=limit)]
        assert [row.timer_id for page in pages for row in page] == ["f"]


@pytest.mark.parametrize("fresh_url", ["sqlite"], indirect=True)
async def test_a_row_that_cannot_be_read_is_told_once_and_not_at_every_look(
    store: Store, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    await create(store, timer("a"), timer("b"))
    await SpoilingSQLite(url).timer(key_of("a"), "detail")
    with caplog.at_level(logging.WARNING, logger="mainspring"):
        logging.getLogger("mainspring").propagate = True
        for _ in range(5):
            await store.load_due(0, until=NOW, after=START, limit=9)
            await store.get([key_of("a")])
    lines = [record for record in caplog.records if "cannot be read" in record.message]
    assert len(lines) == 1
    [known] = unreadable.known()
    assert (known.kind, known.name, known.version) == ("timer", f"0/{key_of('a').uuid}", 1)


@pytest.mark.parametrize("fresh_url", server_params("postgresql"), indirect=True)
async def test_a_text_that_is_none_stops_nobody_in_postgresql(store: Store, url: str) -> None:
    """The server checks texts when they are written, and not when they are read."""
    await create(store, *(timer(name, due_at=NOW + n, payload='"x"') for n, name in enumerate("abc")))
    spoil = SpoilingSQL(url)
    session = await spoil.database.connect()
    await session.execute("CREATE CAST (bytea AS text) WITHOUT FUNCTION", ())
    try:
        await session.execute(
            rf"UPDATE {spoil.names.full('timers')} SET payload = '\x22ff22'::bytea::text WHERE timer_id = 'b'", ()
        )
    finally:
        await session.execute("DROP CAST (bytea AS text)", ())
        await session.close()
    for _ in range(2):
        page = await store.load_due(0, until=NOW + 9, after=START, limit=9)
        assert [row.timer_id for row in page.timers] == ["a", "c"]
        assert await store.get([key_of("b"), key_of("c")]) == [None, page.timers[1]]
