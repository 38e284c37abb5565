"""What is special about the store in DynamoDB: long batches, transactions in each other's way, sizes, its clock."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock
from mainspring.errors import ConfigError, StoreUnavailable, Unsupported
from mainspring.model import Shard, Timer
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores import store_from_url
from mainspring.stores.dynamodb import DynamoDBStore, dynamodb_store, schema
from mainspring.stores.dynamodb.server_time import ServerTime
from mainspring.testing.timer_samples import NOW, attempt, create, timer
from tests.servers.dynamodb import DynamoDB
from tests.stores.dynamodb_proxy import Answer, Proxy, cancelled, error

APPLIED, STALE, FENCED = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED
REFUSED, UNAVAILABLE = Verdict.REFUSED, Verdict.UNAVAILABLE


@pytest.fixture
async def store(dynamodb: DynamoDB) -> AsyncIterator[DynamoDBStore]:
    store = dynamodb_store(dynamodb.fresh(), clock=SystemClock())
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def proxy(dynamodb: DynamoDB) -> AsyncIterator[Proxy]:
    proxy = Proxy(f"http://127.0.0.1:{dynamodb.port}/")
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest.fixture
async def proxied(dynamodb: DynamoDB, proxy: Proxy) -> AsyncIterator[DynamoDBStore]:
    store = dynamodb_store(_url(dynamodb, proxy), clock=SystemClock())
    await store.open()
    yield store
    await store.close()


def _url(dynamodb: DynamoDB, proxy: Proxy) -> str:
    return f"{dynamodb.fresh().partition('?')[0]}?endpoint={proxy.endpoint}"


async def _begun(store: DynamoDBStore, count: int, **fields: Any) -> list[Timer]:
    rows = [timer(f"t{n}", **fields) for n in range(count)]
    await store.claim_shards([Shard(0, 0, "me")])
    await create(store, *rows)
    assert await store.begin([Begin(row.key, 1, 1) for row in rows]) == [APPLIED] * count
    return rows


# Addresses


@pytest.mark.parametrize(
    "url",
    [
        "dynamodb://",
        "dynamodb:///prefix",
        "dynamodb://EU WEST/x",
        "dynamodb://eu-west-1/a/b",
        "dynamodb://eu-west-1/x?endpoint=ftp://x",
        "dynamodb://eu-west-1/x?table=y",
        "dynamodb://eu-west-1/x?endpoint",
        "dynamodb://eu-west-1/x#y",
        "dynamodb://key:secret@eu-west-1/x",
    ],
)
def test_an_address_that_is_not_one_is_refused_with_the_form(url: str) -> None:
    with pytest.raises(ConfigError, match="Expected") as caught:
        store_from_url(url, clock=SystemClock())
    assert "secret" not in str(caught.value)


def test_a_region_alone_is_an_address() -> None:
    assert isinstance(store_from_url("dynamodb://eu-west-1", clock=SystemClock()), DynamoDBStore)


def test_without_its_library_the_store_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['aiobotocore'] = None\n"
        "from mainspring.clock import SystemClock\n"
        "from mainspring.stores import store_from_url\n"
        "store_from_url('dynamodb://eu-west-1', clock=SystemClock())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert "ConfigError" in done.stderr
    assert "pip install 'mainspring[dynamodb]'" in done.stderr


# Tables


async def test_migrations_are_told_before_and_not_after(dynamodb: DynamoDB) -> None:
    store = dynamodb_store(dynamodb.fresh(), clock=SystemClock())
    assert await store.pending_migrations() == ["0001 timers, history, records"]
    assert await store.migrate() == ["0001 timers, history, records"]
    assert await store.pending_migrations() == []
    assert await store.migrate() == []


async def test_tables_of_a_newer_version_are_refused(dynamodb: DynamoDB, monkeypatch: pytest.MonkeyPatch) -> None:
    url = dynamodb.fresh()

    async def nothing(client: object) -> None:
        """A migration of the future."""

    with monkeypatch.context() as future:
        future.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, schema.Migration(2, "later", nothing)))
        assert len(await dynamodb_store(url, clock=SystemClock()).migrate()) == 2
    with pytest.raises(ConfigError, match="newer Mainspring"):
        await dynamodb_store(url, clock=SystemClock()).open()


@pytest.mark.parametrize(
    "description",
    [
        {"Replicas": [{"RegionName": "eu-west-1", "ReplicaStatus": "ACTIVE"}], "GlobalTableVersion": "2019.11.21"},
        {"Replicas": [{"RegionName": "eu-west-1"}], "MultiRegionConsistency": "STRONG"},
        {"GlobalTableVersion": "2017.11.29"},
    ],
)
@pytest.mark.parametrize("kind", ["timers", "history", "records"])
async def test_tables_that_are_replicated_to_other_regions_are_refused(
    dynamodb: DynamoDB, proxy: Proxy, kind: str, description: dict[str, Any]
) -> None:
    def replicate(operation: str, answer: dict[str, Any]) -> None:
        if operation == "DescribeTable" and answer.get("Table", {}).get("TableName", "").endswith(kind):
            answer["Table"] |= description

    store = dynamodb_store(_url(dynamodb, proxy), clock=SystemClock())
    await store.migrate()
    proxy.alter = replicate
    with pytest.raises(ConfigError, match=rf"-{kind} in one region, got a global table with replicas in"):
        await store.open()


async def test_a_table_that_is_replicated_no_more_is_used(dynamodb: DynamoDB, proxy: Proxy) -> None:
    proxy.alter = lambda operation, answer: answer.get("Table", {}).update(Replicas=[])
    store = dynamodb_store(_url(dynamodb, proxy), clock=SystemClock())
    await store.open()
    await store.close()


async def test_refused_credentials_are_a_matter_of_configuration_at_the_start_only(
    dynamodb: DynamoDB, proxy: Proxy
) -> None:
    def refuse(operation: str, request: dict[str, Any]) -> Answer:
        return error("UnrecognizedClientException", "The security token included in the request is invalid.")

    store = dynamodb_store(_url(dynamodb, proxy), clock=SystemClock())
    proxy.answer, passing = refuse, proxy.answer
    with pytest.raises(ConfigError, match="security token"):
        await store.open()
    proxy.answer = passing
    await store.open()
    proxy.answer = refuse
    with pytest.raises(StoreUnavailable, match="security token"):
        await store.shards([1])
    await store.close()


# Batches


async def test_a_long_finish_gives_each_item_its_own_verdict(store: DynamoDBStore) -> None:
    rows = await _begun(store, 250)
    changed = rows[::7]
    await store.write([Put(row, 2) for row in changed])
    verdicts = await store.finish([Finish(row.key, 1, Remove(row.key, 2), attempt()) for row in rows])
    assert verdicts == [STALE if row in changed else APPLIED for row in rows]
    assert [row is None for row in await store.get([row.key for row in rows])] == [row not in changed for row in rows]
    histories = await asyncio.gather(*(store.history(row.key) for row in rows[:20]))
    assert histories == [[] if row in changed else [attempt()] for row in rows[:20]]


async def test_heavy_rows_are_written_in_several_requests(store: DynamoDBStore) -> None:
    rows = await _begun(store, 60, payload='"' + "x" * 95_000 + '"')
    retries = [Finish(row.key, 1, Put(replace(row, due_at=NOW + 1), 2), attempt()) for row in rows]
    assert await store.finish(retries) == [APPLIED] * 60


async def test_a_transaction_over_rows_that_are_too_large_together_is_divided(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    def limit(operation: str, request: dict[str, Any]) -> Answer | None:
        too_many = operation == "TransactWriteItems" and len(request["TransactItems"]) > 21
        return error("ValidationException", "Transaction payload size cannot exceed 4MB") if too_many else None

    proxy.answer = limit
    await _begun(proxied, 150)


async def test_of_a_transaction_only_the_row_that_became_too_large_is_refused(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    rows = [timer(f"t{n}") for n in range(3)]
    await create(proxied, *rows)
    await proxied.claim_shards([Shard(0, 0, "me")])
    answers = [cancelled("None", "None", "ValidationError", "None")]

    def refuse(operation: str, request: dict[str, Any]) -> Answer | None:
        return answers.pop() if operation == "TransactWriteItems" and answers else None

    proxy.answer = refuse
    assert await proxied.begin([Begin(row.key, 1, 1) for row in rows]) == [APPLIED, REFUSED, APPLIED]


async def test_of_rows_that_are_refused_together_the_one_to_blame_is_found(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    rows = [timer(f"t{n}") for n in range(7)]
    bad = rows[4].uuid

    def refuse(operation: str, request: dict[str, Any]) -> Answer | None:
        return (
            error("ValidationException", "Item size to update has exceeded the maximum")
            if bad in str(request)
            else None
        )

    proxy.answer = refuse
    expected = [REFUSED if row.uuid == bad else APPLIED for row in rows]
    assert await proxied.write([Put(row, 0) for row in rows]) == expected
    proxy.answer = lambda operation, request: None
    await create(proxied, rows[4])
    await proxied.claim_shards([Shard(0, 0, "me")])
    proxy.answer = refuse
    assert await proxied.begin([Begin(row.key, 1, 1) for row in rows]) == expected


async def test_a_row_that_others_hold_does_not_keep_its_transaction_from_being_written(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    rows = [timer(f"t{n}") for n in range(4)]
    await create(proxied, *rows)
    await proxied.claim_shards([Shard(0, 0, "me")])
    held = rows[1].uuid

    def hold(operation: str, request: dict[str, Any]) -> Answer | None:
        if operation != "TransactWriteItems" or held not in str(request):
            return None
        return cancelled(*("TransactionConflict" if held in str(one) else "None" for one in request["TransactItems"]))

    proxy.answer = hold
    expected = [UNAVAILABLE if row.uuid == held else APPLIED for row in rows]
    assert await proxied.begin([Begin(row.key, 1, 1) for row in rows]) == expected


async def test_writes_that_arrive_together_share_requests(proxied: DynamoDBStore, proxy: Proxy) -> None:
    before = proxy.counts.total()
    verdicts = await asyncio.gather(*(proxied.write([Put(timer(f"t{n}"), 0)]) for n in range(400)))
    assert verdicts == [[APPLIED]] * 400
    assert proxy.counts.total() - before <= 16 + 400 // 25 + 1


async def test_a_caller_that_goes_away_does_not_take_the_writes_of_others_with_it(store: DynamoDBStore) -> None:
    writes = [asyncio.create_task(store.write([Put(timer(f"t{n}"), 0)])) for n in range(60)]
    await asyncio.sleep(0)
    for write in writes[::2]:
        write.cancel()
    await asyncio.wait(writes)
    assert [write.result() for write in writes[1::2]] == [[APPLIED]] * 30


# The fence


async def test_no_write_under_the_old_fence_follows_a_claim(store: DynamoDBStore) -> None:
    rows = [timer(f"t{n}") for n in range(300)]
    await create(store, *rows)
    await store.claim_shards([Shard(0, 0, "old")])

    async def old_owner() -> list[Verdict]:
        batches = (rows[start : start + 10] for start in range(0, len(rows), 10))
        return [verdict for batch in batches for verdict in await store.begin([Begin(row.key, 1, 1) for row in batch])]

    working = asyncio.create_task(old_owner())
    await asyncio.sleep(0.05)
    assert await store.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
    at_the_claim = [row for row in await store.get([row.key for row in rows]) if row and row.fence == 1]
    verdicts = await working
    afterwards = [row for row in await store.get([row.key for row in rows]) if row and row.fence == 1]
    assert verdicts.count(APPLIED) == len(afterwards) == len(at_the_claim)
    assert verdicts.count(FENCED) == len(rows) - len(at_the_claim)


async def test_a_transaction_in_the_way_of_another_is_asked_again(proxied: DynamoDBStore, proxy: Proxy) -> None:
    rows = [timer(f"t{n}") for n in range(3)]
    await create(proxied, *rows)
    await proxied.claim_shards([Shard(0, 0, "me")])
    answers = [
        cancelled("TransactionConflict", "None", "None", "None"),
        cancelled("None", "ConditionalCheckFailed", "TransactionConflict", "None"),
        cancelled("None", "TransactionConflict", "None"),
    ]

    def in_the_way(operation: str, request: dict[str, Any]) -> Answer | None:
        return answers.pop(0) if operation == "TransactWriteItems" and answers else None

    proxy.answer = in_the_way
    assert await proxied.begin([Begin(row.key, 1, 1) for row in rows]) == [STALE, APPLIED, APPLIED]
    assert proxy.counts["TransactWriteItems"] == 4


async def test_a_claim_waits_for_an_open_transaction(proxied: DynamoDBStore, proxy: Proxy) -> None:
    await proxied.claim_shards([Shard(0, 0, "old")])
    refusals = 3

    def in_the_way(operation: str, request: dict[str, Any]) -> Answer | None:
        nonlocal refusals
        refusals -= 1
        conflict = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
        return (200, {"Responses": [{"Error": conflict, "TableName": "x"}]}) if refusals >= 0 else None

    proxy.answer = in_the_way
    assert await proxied.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
    assert await proxied.shards([0]) == [Shard(0, 2, "new")]


async def test_a_removal_waits_for_an_open_transaction(proxied: DynamoDBStore, proxy: Proxy) -> None:
    [a] = await create(proxied, timer("a"))
    answers = [error("TransactionConflictException")]
    proxy.answer = lambda operation, request: answers.pop() if answers else None
    assert await proxied.write([Remove(a.key, 1)]) == [APPLIED]


async def test_a_transaction_that_never_ends_makes_the_store_unavailable(proxied: DynamoDBStore, proxy: Proxy) -> None:
    [a] = await create(proxied, timer("a"))
    await proxied.claim_shards([Shard(0, 0, "me")])
    proxy.answer = lambda operation, request: cancelled("TransactionConflict", "None")
    with pytest.raises(StoreUnavailable, match="do not end"):
        await proxied.begin([Begin(a.key, 1, 1)])


async def test_an_overloaded_table_is_unavailable_and_nothing_is_sent_twice(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    [a] = await create(proxied, timer("a"))
    proxy.counts.clear()
    proxy.answer = lambda operation, request: error("ProvisionedThroughputExceededException", "slow down")
    with pytest.raises(StoreUnavailable, match="slow down"):
        await proxied.begin([Begin(a.key, 0, 1)])
    with pytest.raises(StoreUnavailable, match="slow down"):
        await proxied.write([Put(timer("b"), 0)])
    assert proxy.counts == {"TransactWriteItems": 1, "BatchExecuteStatement": 1}


async def test_a_shard_that_does_not_answer_costs_one_time_out_however_many_rows_it_has(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    rows = [timer(f"t{n}") for n in range(250)]
    await create(proxied, *rows, timer("other", shard_id=1))
    await proxied.claim_shards([Shard(0, 0, "me"), Shard(1, 0, "me")])
    proxy.bad_shard = 0
    proxy.counts.clear()
    items = [Begin(row.key, 1, 1) for row in (*rows, timer("other", shard_id=1))]
    assert await proxied.begin(items) == [*([UNAVAILABLE] * 250), APPLIED]
    assert proxy.counts["TransactWriteItems"] == 2


# Trouble


async def test_a_lost_answer_is_an_unknown_outcome_and_nothing_is_sent_twice(
    proxied: DynamoDBStore, proxy: Proxy
) -> None:
    [a] = await create(proxied, timer("a"))
    proxy.counts.clear()
    proxy.lose_answers = True
    with pytest.raises(StoreUnavailable):
        await proxied.write([Remove(a.key, 1)])
    proxy.lose_answers = False
    assert proxy.counts == {"DeleteItem": 1}
    assert await proxied.get([a.key]) == [None]


async def test_the_store_recovers_when_the_server_returns(proxied: DynamoDBStore, proxy: Proxy) -> None:
    [a] = await create(proxied, timer("a"))
    await proxy.stop()
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="Expected to use dynamodb://"):
            await proxied.get([a.key])
        with pytest.raises(StoreUnavailable):
            await proxied.write([Put(timer("b"), 0)])
    await proxy.start()
    assert await proxied.get([a.key]) == [a]
    assert await proxied.write([Put(timer("b"), 0)]) == [APPLIED]


async def test_a_store_that_is_not_open_is_unavailable(dynamodb: DynamoDB) -> None:
    store = dynamodb_store(dynamodb.fresh(), clock=SystemClock())
    with pytest.raises(StoreUnavailable, match="open"):
        await store.shards([1])


# Records


async def test_collections_that_are_only_looked_up_are_not_listed(store: DynamoDBStore) -> None:
    written = await store.put_record("idempotency", "k", b"1", expect=0, now=NOW, expires_at=NOW + 5)
    assert await store.get_record("idempotency", "k", now=NOW) == written
    with pytest.raises(Unsupported, match="looked up"):
        await store.scan_records("idempotency", now=NOW)
    assert await store.delete_record("idempotency", "k", expect=1, now=NOW)


# Time

_DATE = "Sun, 15 Nov 2026 04:44:04 GMT"
_DATE_MS = 1_794_717_844_000


def test_a_wall_clock_that_agrees_with_the_server_is_believed() -> None:
    known = ServerTime()
    known.narrow(_DATE, asked_at=100.0, answered_at=100.010)
    assert known.estimate(wall_ms=_DATE_MS + 300, monotonic=100.010) == _DATE_MS + 300


@pytest.mark.parametrize(("wrong_ms", "reported"), [(-3_600_000, 0), (3_600_000, 1_010)])
def test_a_wall_clock_that_is_wrong_moves_time_at_most_to_the_end_of_what_is_possible(
    wrong_ms: int, reported: int
) -> None:
    known = ServerTime()
    known.narrow(_DATE, asked_at=100.0, answered_at=100.010)
    assert known.estimate(wall_ms=_DATE_MS + wrong_ms, monotonic=100.010) == _DATE_MS + reported


def test_answers_narrow_what_is_possible_to_much_less_than_a_second() -> None:
    known = ServerTime()
    for second, instant in ((44, 100.95), (45, 101.04), (46, 102.98), (48, 104.02)):
        known.narrow(f"Sun, 15 Nov 2026 04:43:{second} GMT", asked_at=instant, answered_at=instant + 0.004)
    early = known.estimate(wall_ms=0, monotonic=104.1)
    late = known.estimate(wall_ms=2 * _DATE_MS, monotonic=104.1)
    assert 0 < late - early < 100


def test_a_server_clock_that_steps_is_followed() -> None:
    known = ServerTime()
    known.narrow("Sun, 15 Nov 2026 05:44:04 GMT", asked_at=100.0, answered_at=100.010)
    known.narrow(_DATE, asked_at=101.0, answered_at=101.010)
    assert abs(known.estimate(wall_ms=0, monotonic=101.010) - _DATE_MS) <= 1_010
