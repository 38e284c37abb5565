"""What only Cassandra has: several instances on one partition, remembered columns, the floor, and its URL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

from mainspring.errors import ConfigError, StoreUnavailable, Unsupported
from mainspring.model import Shard
from mainspring.store import START, Begin, Finish, Position, Put, Remove, TimerFilter, Verdict
from mainspring.stores.cassandra import CassandraStore, schema
from mainspring.stores.cassandra.address import address_from_url
from mainspring.stores.cassandra.connection import Connection, Row, Statement, Value
from mainspring.testing.timer_samples import NOW, attempt, create, key_of, timer
from tests.servers.cassandra import Cassandra
from tests.servers.server import Server
from tests.stores.cassandra_stores import opened, rows_of

APPLIED, STALE, FENCED = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED

_numbers = count()


@pytest.fixture(scope="module")
def url(cassandra: Cassandra) -> str:
    """One keyspace for all tests here: a new one takes a second."""
    return cassandra.fresh()


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[CassandraStore]]:
    """Three instances on one keyspace."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(opened(url)) for _ in range(3)]


@pytest.fixture
def shard_id() -> int:
    """A shard that no other test uses."""
    return 1000 + next(_numbers)


class Held:
    """A store whose next batch, already decided, waits before it is sent: an owner that froze at the worst moment."""

    def __init__(self, store: CassandraStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_decided = asyncio.Event()
        self.goes_on = asyncio.Event()
        assert store._opened is not None
        connection = store._opened.connection
        send = connection.write_batch

        async def held(statements: Sequence[tuple[Statement, Sequence[Value]]]) -> bool:
            self.is_decided.set()
            async with asyncio.timeout(20):
                await self.goes_on.wait()
            return await send(statements)

        monkeypatch.setattr(connection, "write_batch", held)


# Instances


async def test_an_owner_that_another_instance_deposed_is_fenced(stores: list[CassandraStore], shard_id: int) -> None:
    old, new, _ = stores
    [a] = await create(old, timer("a", shard_id=shard_id))
    await old.claim_shards([Shard(shard_id, 0, "old")])
    assert await old.begin([Begin(a.key, 1, 1)]) == [APPLIED]
    assert await new.claim_shards([Shard(shard_id, 1, "new")]) == [APPLIED]
    assert await old.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [FENCED]
    assert await old.begin([Begin(a.key, 1, 2)]) == [FENCED]
    assert await new.begin([Begin(a.key, 2, 2)]) == [APPLIED]


async def test_an_owner_that_froze_between_its_look_and_its_write_writes_nothing_after_a_claim(
    stores: list[CassandraStore], shard_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, _ = stores
    [a] = await create(old, timer("a", shard_id=shard_id))
    await old.claim_shards([Shard(shard_id, 0, "old")])
    held = Held(old, monkeypatch)
    begin = asyncio.ensure_future(old.begin([Begin(a.key, 1, 1)]))
    await held.is_decided.wait()
    assert await new.claim_shards([Shard(shard_id, 1, "new")]) == [APPLIED]
    assert (await new.load_due(shard_id, until=NOW, after=START, limit=9)).timers == [a]
    held.goes_on.set()
    assert await begin == [FENCED]
    assert await new.get([a.key]) == [a]


async def test_a_row_that_changed_between_look_and_write_is_decided_again(
    stores: list[CassandraStore], shard_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, user, _ = stores
    await owner.claim_shards([Shard(shard_id, 0, "o")])
    same, gone, again = await create(owner, *(timer(name, shard_id=shard_id) for name in ("same", "gone", "again")))
    held = Held(owner, monkeypatch)
    begin = asyncio.ensure_future(owner.begin([Begin(row.key, 1, 1) for row in (same, gone, again)]))
    await held.is_decided.wait()
    # Made again at another instant, with the version that the owner expects.
    made = timer("again", shard_id=shard_id, due_at=NOW + 1)
    assert await user.write([Remove(gone.key, 1), Remove(again.key, 1), Put(made, 0)]) == [APPLIED] * 3
    held.goes_on.set()
    assert await begin == [APPLIED, STALE, APPLIED]
    listed = (await user.list_timers([shard_id], TimerFilter(), after=START, limit=9)).timers
    assert [(row.timer_id, row.due_at, row.attempts) for row in listed] == [("same", NOW, 1), ("again", NOW + 1, 1)]


async def test_users_write_on_when_the_owner_of_a_shard_changes_behind_their_back(
    stores: list[CassandraStore], shard_id: int
) -> None:
    user, owner, _ = stores
    await create(user, timer("before", shard_id=shard_id))
    for version in range(3):
        assert await owner.claim_shards([Shard(shard_id, version, "o")]) == [APPLIED]
        await create(user, timer(f"after-{version}", shard_id=shard_id))
    assert await user.shards([shard_id]) == [Shard(shard_id, 3, "o")]


async def test_of_instances_that_claim_one_version_exactly_one_wins(
    stores: list[CassandraStore], shard_id: int
) -> None:
    for version in range(5):
        verdicts = await asyncio.gather(
            *(store.claim_shards([Shard(shard_id, version, f"i{n}")]) for n, store in enumerate(stores))
        )
        winners = [n for n, verdict in enumerate(verdicts) if verdict == [APPLIED]]
        assert len(winners) == 1
        assert await stores[0].shards([shard_id]) == [Shard(shard_id, version + 1, f"i{winners[0]}")]


async def test_instances_that_write_to_one_shard_at_once_lose_nothing(
    stores: list[CassandraStore], shard_id: int
) -> None:
    async def write(lane: int, store: CassandraStore) -> None:
        for n in range(15):
            await create(store, timer(f"{lane}-{n}", shard_id=shard_id))

    await asyncio.gather(*(write(lane, store) for lane, store in enumerate(stores * 2)))
    listed = (await stores[0].list_timers([shard_id], TimerFilter(), after=START, limit=999)).timers
    assert {row.timer_id for row in listed} == {f"{lane}-{n}" for lane in range(6) for n in range(15)}


async def test_of_instances_that_change_one_row_exactly_one_wins(stores: list[CassandraStore], shard_id: int) -> None:
    await create(stores[0], timer("a", shard_id=shard_id))
    for version in range(1, 6):
        changes = [Put(timer("a", shard_id=shard_id, due_at=NOW + n), version) for n in range(3)]
        verdicts = await asyncio.gather(*(store.write([change]) for store, change in zip(stores, changes, strict=True)))
        assert sorted(verdict[0].value for verdict in verdicts) == ["applied", "stale", "stale"]
        [row] = (await stores[0].list_timers([shard_id], TimerFilter(), after=START, limit=9)).timers
        assert row.version == version + 1
        assert row == (await stores[1].get([row.key]))[0]


async def test_a_batch_of_more_bytes_than_one_mutation_takes_is_written(
    stores: list[CassandraStore], shard_id: int
) -> None:
    payload = '"' + "x" * 102_398 + '"'
    rows = await create(stores[0], *(timer(f"t{n}", shard_id=shard_id, payload=payload) for n in range(60)))
    assert await stores[1].get([row.key for row in rows]) == rows


# The floor


async def test_loads_begin_where_the_rows_begin(stores: list[CassandraStore], url: str, shard_id: int) -> None:
    await create(stores[0], timer("a", shard_id=shard_id, due_at=NOW))
    for _ in range(2):
        page = await stores[0].load_due(shard_id, until=NOW, after=START, limit=9)
        assert [row.timer_id for row in page.timers] == ["a"]
    [[due_from]] = await rows_of(
        url, f"SELECT DISTINCT shard_due_from FROM {{keyspace}}.mainspring_timers WHERE shard_id = {shard_id}"
    )
    assert isinstance(due_from, int)
    assert NOW - 60_000 < due_from < NOW


async def test_a_timer_that_any_instance_writes_below_the_floor_is_found(
    stores: list[CassandraStore], shard_id: int
) -> None:
    owner, user, other = stores
    await create(user, timer("first", shard_id=shard_id, due_at=NOW))
    await owner.load_due(shard_id, until=NOW, after=START, limit=9)
    await create(user, timer("below", shard_id=shard_id, due_at=NOW - 3_600_000))
    await create(other, timer("lower", shard_id=shard_id, due_at=NOW - 7_200_000))
    page = await owner.load_due(shard_id, until=NOW, after=START, limit=9)
    assert [row.timer_id for row in page.timers] == ["lower", "below", "first"]
    assert await owner.next_due([shard_id]) == [NOW - 7_200_000]


async def test_a_timer_that_was_on_its_way_below_the_floor_while_it_was_raised_is_found(
    stores: list[CassandraStore], shard_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, user, _ = stores
    await create(user, timer("first", shard_id=shard_id, due_at=NOW))
    held = Held(user, monkeypatch)
    creating = asyncio.ensure_future(create(user, timer("below", shard_id=shard_id, due_at=NOW - 3_600_000)))
    await held.is_decided.wait()
    await owner.load_due(shard_id, until=NOW, after=START, limit=9)
    held.goes_on.set()
    await creating
    page = await owner.load_due(shard_id, until=NOW, after=START, limit=9)
    assert [row.timer_id for row in page.timers] == ["below", "first"]


async def test_the_floor_stays_when_a_timer_is_written_below_it_before_it_is_raised(
    stores: list[CassandraStore], shard_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, user, _ = stores
    await create(user, timer("first", shard_id=shard_id, due_at=NOW))
    held = Held(owner, monkeypatch)
    loading = asyncio.ensure_future(owner.load_due(shard_id, until=NOW, after=START, limit=9))
    await held.is_decided.wait()
    await create(user, timer("below", shard_id=shard_id, due_at=NOW - 3_600_000))
    held.goes_on.set()
    await loading
    page = await owner.load_due(shard_id, until=NOW, after=START, limit=9)
    assert [row.timer_id for row in page.timers] == ["below", "first"]


async def test_the_next_instant_of_a_shard_is_looked_for_from_its_own_floor_on(
    stores: list[CassandraStore], shard_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not from that of a shard that has waited for a month: what has fired since would be passed over each time."""
    busy, idle, new = shard_id, 5_000 + shard_id, 6_000 + shard_id
    owner = stores[0]
    instants = {busy: NOW, idle: NOW - 30 * 86_400_000, new: NOW - 60 * 86_400_000}
    for shard, due_at in instants.items():
        await create(owner, timer("a", shard_id=shard, due_at=due_at))
        if shard != new:
            await owner.load_due(shard, until=NOW, after=START, limit=9)
    connection = owner._open().connection
    read, asked = connection.read, dict[int, int]()

    async def watched(statement: Statement, *values: Value, **options: Any) -> list[Row]:
        if statement is owner._open().statements.read_firsts and isinstance(values[0], list):
            asked.update({int(str(shard)): int(str(values[1])) for shard in values[0]})
        return await read(statement, *values, **options)

    monkeypatch.setattr(connection, "read", watched)
    assert await owner.next_due([busy, idle, new]) == list(instants.values())
    assert NOW - 60_000 < asked[busy] < NOW
    assert instants[idle] - 60_000 < asked[idle] < instants[idle]
    assert asked[new] == START.due_at


async def test_shards_that_are_as_busy_as_each_other_are_asked_together(
    stores: list[CassandraStore], shard_id: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = stores[0]
    shards = [7_000 + 20 * shard_id + n for n in range(8)]
    for n, shard in enumerate(shards):
        await create(owner, timer("a", shard_id=shard, due_at=NOW + n))
        await owner.load_due(shard, until=NOW + 3_000, after=START, limit=9)
    connection = owner._open().connection
    read, queries = connection.read, list[Statement]()

    async def counted(statement: Statement, *values: Value, **options: Any) -> list[Row]:
        queries.append(statement)
        return await read(statement, *values, **options)

    monkeypatch.setattr(connection, "read", counted)
    assert await owner.next_due(shards) == [NOW + n for n in range(8)]
    assert len(queries) == 2


async def test_a_page_behind_a_position_minds_no_floor(stores: list[CassandraStore], shard_id: int) -> None:
    rows = await create(stores[0], *(timer(f"t{n}", shard_id=shard_id, due_at=NOW + n) for n in range(4)))
    await stores[0].load_due(shard_id, until=NOW + 9, after=START, limit=9)
    page = await stores[0].load_due(shard_id, until=NOW + 9, after=Position(NOW - 99_999, ""), limit=9)
    assert page.timers == rows


# Records


async def test_a_looked_up_collection_is_spread_and_cannot_be_listed(stores: list[CassandraStore]) -> None:
    first, second, _ = stores
    assert await first.put_record("idempotency", "k", b"1", expect=0, now=NOW) is not None
    assert await second.put_record("idempotency", "k", b"2", expect=0, now=NOW) is None
    assert await second.delete_record("idempotency", "k", expect=1, now=NOW)
    with pytest.raises(Unsupported, match="idempotency"):
        await first.scan_records("idempotency", now=NOW)


async def test_records_that_expire_are_cleared_away_by_the_database_later(
    stores: list[CassandraStore], url: str
) -> None:
    await stores[0].put_record("expiring", "a", b"", expect=0, now=NOW, expires_at=NOW + 90_000)
    await stores[0].put_record("expiring", "b", b"", expect=0, now=NOW)
    await stores[0].put_record("expiring", "c", b"", expect=0, now=NOW, expires_at=NOW + 2**50)
    query = "SELECT key, TTL(value) FROM {keyspace}.mainspring_records WHERE collection = 'expiring' AND slot = ''"
    [[a, seconds], *others] = await rows_of(url, query)
    assert a == "a"
    assert isinstance(seconds, int)
    assert 3_600 < seconds <= 3_690
    assert others == [("b", None), ("c", None)]


# Servers that go away


@pytest.mark.server("cassandra")
async def test_a_store_says_so_when_its_server_is_gone_and_uses_it_again_when_it_returns(
    start_server: Callable[[str], Server],
) -> None:
    server = await asyncio.to_thread(start_server, "cassandra")
    async with opened(server.fresh()) as store:
        [a] = await create(store, timer("a"))
        server.pause()
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await store.write([Put(timer("b"), 0)])
        server.resume()
        await until_it_answers(store)
        server.kill()
        async with asyncio.timeout(5):
            with pytest.raises(StoreUnavailable):
                await store.get([a.key])
        await asyncio.to_thread(server.start)
        await until_it_answers(store)
        assert await store.get([a.key]) == [a]
        verdicts = await store.write([Put(timer("b"), 0), Put(timer("c"), 0)])
        assert verdicts[1] is APPLIED
        assert None not in await store.get([key_of("b"), key_of("c")])


async def until_it_answers(store: CassandraStore) -> None:
    """An owner looks again every second; so does this."""
    async with asyncio.timeout(20):
        while True:
            try:
                await store.time()
            except StoreUnavailable:
                await asyncio.sleep(0.2)
            else:
                return


async def test_a_server_that_does_not_answer_is_unavailable() -> None:
    store = CassandraStore("cassandra://127.0.0.1:1/k?replication=1")
    with pytest.raises(StoreUnavailable, match="Cassandra"):
        await store.open()
    await store.close()


# The schema


async def test_migrations_are_applied_once(cassandra: Cassandra) -> None:
    url = cassandra.fresh()
    assert await CassandraStore(url).migrate() == ["0001 timers, shards, history, records"]
    assert await CassandraStore(url).pending_migrations() == []
    assert await CassandraStore(url).migrate() == []


async def test_whoever_looks_while_another_makes_the_schema_sees_it_done_or_not_yet(cassandra: Cassandra) -> None:
    """The server fails on tables that it is just making: a look in each moment meets that one, too."""
    for _ in range(3):
        url = cassandra.fresh()
        address = address_from_url(url)
        connection = Connection(address)
        try:
            await asyncio.to_thread(connection.connect)
            seen: list[int] = []
            async with asyncio.TaskGroup() as tasks:
                migrating = tasks.create_task(CassandraStore(url).migrate())
                while not migrating.done():
                    seen.append(len(await asyncio.to_thread(schema.pending, connection, address)))
            assert (max(seen), len(await asyncio.to_thread(schema.pending, connection, address))) == (1, 0)
        finally:
            await asyncio.to_thread(connection.close)


async def test_a_process_that_died_in_the_middle_of_migrations_is_followed_when_its_lease_has_run_out(
    cassandra: Cassandra,
) -> None:
    url = cassandra.fresh()
    await CassandraStore(url).migrate()
    await rows_of(url, "TRUNCATE {keyspace}.mainspring_migrations")
    dead = "INSERT INTO {keyspace}.mainspring_migration_lease (lease, holder) VALUES (1, 'dead') IF NOT EXISTS"
    asked = time.monotonic()
    assert await rows_of(url, f"{dead} USING TTL 3") == [(True,)]
    assert await CassandraStore(url).migrate() == ["0001 timers, shards, history, records"]
    assert time.monotonic() - asked > 2  # the server counts in whole seconds


async def test_a_keyspace_that_a_newer_version_has_used_is_refused(cassandra: Cassandra) -> None:
    url = cassandra.fresh()
    await CassandraStore(url).migrate()
    await rows_of(url, "INSERT INTO {keyspace}.mainspring_migrations (number, name) VALUES (99, 'later')")
    with pytest.raises(ConfigError, match="at most migration 1, got 99"):
        await CassandraStore(url).open()


async def test_a_keyspace_is_made_only_when_the_url_says_with_how_many_copies(cassandra: Cassandra) -> None:
    url, _, _ = cassandra.fresh().partition("?")
    with pytest.raises(ConfigError, match="replication"):
        await CassandraStore(url).open()


# The URL


def test_a_missing_driver_is_named_with_the_extra_that_brings_it() -> None:
    code = """
import sys
sys.modules["cassandra"] = None
from mainspring.clock import SystemClock
from mainspring.stores import store_from_url
store_from_url("cassandra://localhost/k", clock=SystemClock())
"""
    failed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20, check=False)
    assert "ConfigError" in failed.stderr
    assert "pip install 'mainspring[cassandra]'" in failed.stderr


def test_a_url_names_hosts_credentials_and_options() -> None:
    address = address_from_url(
        "cassandra://me:p%40ss@a,b:9999/k?replication=3&consistency=local_quorum&datacenter=eu&tls=true"
    )
    assert (address.hosts, address.port, address.keyspace) == (("a", "b"), 9999, "k")
    assert (address.user, address.password) == ("me", "p@ss")
    assert (address.replication, address.local, address.datacenter, address.tls) == (3, True, "eu", True)
    assert address_from_url("cassandra://[::1]/k").hosts == ("::1",)
    assert address_from_url("cassandra://h/k").port == 9042


@pytest.mark.parametrize(
    "url",
    [
        "cassandra://secret@h",
        "cassandra://secret@h/",
        "cassandra://secret@h/Upper",
        "cassandra://secret@h/k; DROP",
        "cassandra://secret@/k",
        "cassandra://secret@h:x/k",
        "cassandra://secret@h:70000/k",
        "cassandra://secret@h/k?replication=0",
        "cassandra://secret@h/k?replication=x",
        "cassandra://secret@h/k?consistency=one",
        "cassandra://secret@h/k?consistency=local_quorum",
        "cassandra://secret@h/k?tls=1",
        "cassandra://secret@h/k?unknown=1",
    ],
)
def test_a_bad_url_is_refused_with_what_was_expected_and_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError, match="Expected") as caught:
        address_from_url(url)
    assert "secret" not in caught.value.detail
