"""What leaves a store is what the contract names, whatever a driver, a codec or a strange row raises."""

from __future__ import annotations

import asyncio

import pytest
from msgspec import DecodeError

from mainspring.errors import StoreUnavailable, TooLarge
from mainspring.store import RecordStore, TimerStore, Verdict
from mainspring.stores.cassandra import CassandraStore
from mainspring.stores.cassandra.connection import Connection, Row
from mainspring.stores.cassandra.limits import DEFAULT_BYTES, largest_row
from mainspring.stores.containment import cancellable, contained
from mainspring.stores.dynamodb import DynamoDBStore
from mainspring.stores.mongodb import MongoDBStore
from mainspring.stores.partial_results import answered, verdicts
from mainspring.stores.redis.store import RedisStore
from mainspring.stores.sql.store import SqlStore
from mainspring.stores.sqlite import SQLiteStore


@pytest.mark.parametrize("store", [CassandraStore, DynamoDBStore, MongoDBStore, RedisStore, SQLiteStore, SqlStore])
def test_every_verb_of_a_store_is_contained(store: type) -> None:
    verbs = [name for contract in (TimerStore, RecordStore) for name in vars(contract) if not name.startswith("_")]
    assert all(hasattr(getattr(store, verb), "__wrapped__") for verb in verbs)


async def test_an_unforeseen_error_is_unavailable_and_a_foreseen_one_stays() -> None:
    class Strange:
        async def time(self) -> int:
            raise DecodeError("JSON is malformed")

        async def put_record(self) -> None:
            raise TooLarge("a record")

        async def get(self) -> None:
            raise asyncio.CancelledError

        async def nothing(self) -> None: ...

        write = list_timers = load_due = next_due = begin = finish = history = prune_history = shards = nothing
        claim_shards = release_shards = get_record = delete_record = scan_records = damaged = nothing

    store = contained(Strange)()
    with pytest.raises(StoreUnavailable, match="time, got: DecodeError: JSON is malformed"):
        await store.time()
    with pytest.raises(TooLarge):
        await store.put_record()
    with pytest.raises(asyncio.CancelledError):
        await store.get()


@pytest.mark.parametrize("answer", [None, StoreUnavailable("closed")])
async def test_a_cancellation_that_a_driver_loses_ends_its_task_all_the_same(answer: StoreUnavailable | None) -> None:
    class Losing:
        async def time(self) -> int:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if answer is not None:
                    raise answer from None
            return 1

        async def nothing(self) -> None: ...

        write = get = list_timers = load_due = next_due = begin = finish = history = prune_history = shards = nothing
        claim_shards = release_shards = get_record = put_record = delete_record = scan_records = damaged = nothing

    store = cancellable(contained(Losing))()

    async def ask_for_ever() -> None:
        while True:
            try:
                await store.time()
            except StoreUnavailable:
                await asyncio.sleep(0)

    asking = asyncio.create_task(ask_for_ever())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking], timeout=1)
    assert asking.cancelled()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await store.time()
    assert not asyncio.current_task().cancelling()  # type: ignore[union-attr]


def test_a_part_that_failed_is_told_of_its_items_and_all_of_them_of_the_call() -> None:
    failure = StoreUnavailable("no quorum")
    assert verdicts([Verdict.APPLIED, failure]) == [Verdict.APPLIED, Verdict.UNAVAILABLE]
    assert verdicts([Verdict.REFUSED, failure]) == [Verdict.REFUSED, Verdict.UNAVAILABLE]
    assert answered([]) == []
    with pytest.raises(StoreUnavailable, match="no quorum") as caught:
        verdicts([failure, failure])
    assert caught.value is not failure
    with pytest.raises(asyncio.CancelledError):
        verdicts([Verdict.APPLIED, asyncio.CancelledError()])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([("4096KiB",)], 2 * 1024**2),
        ([("16MiB",)], 8 * 1024**2),
        ([("16384",)], 8 * 1024**2),
        ([("null",)], DEFAULT_BYTES // 2),
        ([], DEFAULT_BYTES // 2),
        (None, DEFAULT_BYTES // 2),
    ],
)
def test_the_largest_row_of_cassandra_follows_from_the_settings_of_its_server(
    settings: list[Row] | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(connection: Connection, query: str) -> list[Row]:
        if settings is None:
            raise StoreUnavailable("Keyspace system_views does not exist")
        return settings

    monkeypatch.setattr(Connection, "run", run)
    assert largest_row(Connection.__new__(Connection)) == expected
