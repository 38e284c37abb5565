"""What is true of the SQL stores beyond the contracts: groups, refusals, migrations, names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mainspring.clock import SystemClock, wall_ms
from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.model import FOREVER, Shard, State
from mainspring.store import START, Begin, Put, Remove, TimerFilter, Verdict
from mainspring.stores import store_from_url
from mainspring.stores.committer import PENDING_LIMIT
from mainspring.stores.sql.address import parse_address
from mainspring.stores.sql.mysql import refusal
from mainspring.stores.sql.schema import MIGRATIONS
from mainspring.stores.sql.store import CONNECTIONS_LIMIT, SqlStore
from mainspring.testing.timer_samples import NOW, create, key_of, timer
from tests.servers import catalogue
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.servers.mysql import MySQL
from tests.servers.postgresql import PostgreSQL
from tests.support.sql_databases import OPTIONS, SERVERS, Database

APPLIED, STALE = Verdict.APPLIED, Verdict.STALE
MIGRATION_NAMES = [f"{migration.number:04} {migration.name}" for migration in MIGRATIONS]


@pytest.fixture(params=server_params(*SERVERS))
def database(request: pytest.FixtureRequest, fleet: Fleet) -> Database:
    return Database(fleet.get(catalogue.SERVERS[request.param]).fresh())


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SqlStore]:
    store = database.store()
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(database: Database, store: SqlStore) -> AsyncIterator[SqlStore]:
    other = database.store()
    await other.open()
    yield other
    await other.close()


# Time


async def test_the_time_is_that_of_the_server(store: SqlStore) -> None:
    before = wall_ms()
    assert before - 5 <= await store.time() <= wall_ms() + 5


# Groups


async def test_calls_that_come_together_are_written_together(database: Database, store: SqlStore) -> None:
    await asyncio.gather(*(store.write([Put(timer(f"t{n}"), 0)]) for n in range(500)))
    assert await database.run("SELECT COUNT(*) FROM mainspring_timers") == [(500,)]


async def test_stores_that_change_the_same_few_rows_at_once_never_fail(store: SqlStore, other: SqlStore) -> None:
    """Creates, moves, removals and begins of one another's rows: no deadlock comes out, and no version is won twice."""
    await store.claim_shards([Shard(0, 0, "me")])
    won: list[tuple[str, int]] = []

    async def contend(contender: SqlStore, seed: int) -> None:
        for turn in range(40):
            names = [f"t{(seed * 7 + turn * step) % 11}" for step in (1, 3, 5)]
            keys = [key_of(name) for name in names]
            rows = await contender.get(keys)
            versions = [row.version if row else 0 for row in rows]
            if turn % 4 == 3:
                verdicts = await contender.begin(
                    [Begin(key, 1, version) for key, version in zip(keys, versions, strict=True)]
                )
            else:
                changes = [
                    Remove(key_of(name), version) if version > 3 else Put(timer(name, due_at=NOW + turn), version)
                    for name, version in zip(names, versions, strict=True)
                ]
                verdicts = await contender.write(changes)
            won.extend(
                (name, v) for name, v, verdict in zip(names, versions, verdicts, strict=True) if verdict is APPLIED
            )

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for seed, contender in enumerate([store, other] * 6):
            group.create_task(contend(contender, seed))
    assert len(won) > 100
    rows = (await store.list_timers([0], TimerFilter(), after=START, limit=99)).timers
    assert len({row.uuid for row in rows}) == len(rows) <= 11


async def test_creates_of_the_same_rows_in_opposite_order_both_end(store: SqlStore, other: SqlStore) -> None:
    for turn in range(10):
        rows = [Put(timer(f"{turn}-{n}"), 0) for n in range(100)]
        first, second = await asyncio.gather(store.write(rows), other.write(rows[::-1]))
        assert sorted((a is APPLIED) + (b is APPLIED) for a, b in zip(first, second[::-1], strict=True)) == [1] * 100


async def test_batches_of_large_payloads_are_split_into_statements_and_written_whole(store: SqlStore) -> None:
    payload = '"' + "é'\\\\" * 25_000 + '"'
    rows = [timer(f"t{n}", payload=payload) for n in range(60)]
    assert await store.write([Put(row, 0) for row in rows]) == [APPLIED] * 60
    assert await store.write([Put(row, 1) for row in rows]) == [APPLIED] * 60
    assert [row.payload == payload for row in await store.get([row.key for row in rows]) if row] == [True] * 60


async def test_a_value_that_cannot_be_stored_is_refused_alone(store: SqlStore) -> None:
    rows = [*(timer(f"t{n}") for n in range(10)), timer("b", due_at=2**70), *(timer(f"u{n}") for n in range(10))]
    answers = await asyncio.gather(*(store.write([Put(row, 0)]) for row in rows))
    assert answers == [[APPLIED]] * 10 + [[Verdict.REFUSED]] + [[APPLIED]] * 10


async def test_too_much_waiting_work_is_refused_at_once(store: SqlStore) -> None:
    batch = [Remove(key_of("none"), 1)] * 1000
    calls = [store.write(batch) for _ in range(PENDING_LIMIT // 1000 + 1)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(answer, StoreUnavailable) for answer in answers] == [False] * (len(calls) - 1) + [True]


async def test_connections_are_bounded_whatever_is_asked_at_once(database: Database, store: SqlStore) -> None:
    await asyncio.gather(
        *(store.write([Put(timer(f"t{n}"), 0)]) for n in range(100)),
        *(store.put_record("c", f"k{n}", b"", expect=0, now=NOW) for n in range(100)),
        *(store.get([key_of(f"t{n}")]) for n in range(100)),
        *(store.list_timers([0], TimerFilter(), after=START, limit=9) for n in range(100)),
        *(store.claim_shards([Shard(n, 0, "me")]) for n in range(100)),
    )
    catalog = {
        "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()",
        "mysql": "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()",
    }
    [(count,)] = await database.run(catalog[database.url.partition(":")[0]])
    assert isinstance(count, int)
    assert 2 <= count <= CONNECTIONS_LIMIT + 1


async def test_close_finishes_what_was_accepted(database: Database) -> None:
    store = database.store()
    await store.open()
    calls = [asyncio.ensure_future(store.write([Put(timer(f"t{n}"), 0)])) for n in range(200)]
    await asyncio.sleep(0)
    await store.close()
    assert await asyncio.gather(*calls) == [[APPLIED]] * 200
    with pytest.raises(StoreUnavailable, match="open"):
        await store.write([Put(timer("late"), 0)])


async def test_a_cancelled_call_disturbs_nobody(store: SqlStore) -> None:
    calls = [asyncio.ensure_future(store.write([Put(timer(f"t{n}"), 0)])) for n in range(100)]
    reads = [asyncio.ensure_future(store.get([key_of("t1"), key_of(f"t{n}")])) for n in range(100)]
    await asyncio.sleep(0.002)
    for call in (*calls[::2], *reads[::2]):
        call.cancel()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[1::2] == [[APPLIED]] * 50
    await asyncio.gather(*reads, return_exceptions=True)
    rows = await asyncio.gather(*(store.get([key_of(f"t{n}")]) for n in range(1, 100, 2)))
    assert [row.timer_id for [row] in rows if row] == [f"t{n}" for n in range(1, 100, 2)]


# Rows


async def test_names_of_255_characters_of_any_kind_fit_and_keep_their_order(store: SqlStore) -> None:
    names = ["😀" * 255, "\x00" * 255, "\x01" * 255, "a\x00b", "a\x01b", "a\x02b", "a", "a ", "a\x01\x01"]
    rows = await create(store, *(timer(name, namespace=name, due_at=NOW + n) for n, name in enumerate(names)))
    assert await store.get([row.key for row in rows]) == rows
    for prefix in ("\x00", "\x01", "a\x01", "a ", "😀"):
        listed = (await store.list_timers([0], TimerFilter(id_prefix=prefix), after=START, limit=99)).timers
        assert {row.timer_id for row in listed} == {name for name in names if name.startswith(prefix)}
    for name in names:
        assert await store.put_record(name, name, b"", expect=0, now=NOW)
        assert await store.put_record("all", name, b"", expect=0, now=NOW)
    assert [record.key for record in await store.scan_records("all", now=NOW)] == sorted(names)


async def test_labels_are_not_found_in_other_parts_of_a_timer(store: SqlStore) -> None:
    row = timer("a", labels={"k": "v", "quote": '"\n"'}, payload='{"x":"y"}')
    await create(store, row)
    for labels, found in (((("k", "v"),), 1), ((("x", "y"),), 0), ((("deliveryId", row.detail.delivery_id),), 0)):
        where = TimerFilter(labels=labels)
        assert len((await store.list_timers([0], where, after=START, limit=9)).timers) == found


async def test_expired_records_leave_the_database(database: Database, store: SqlStore) -> None:
    for n in range(60):
        await store.put_record("c", f"k{n}", b"", expect=0, now=NOW, expires_at=NOW + 1)
    for n in range(60):
        await store.put_record("c", "other", b"", expect=n, now=NOW + 1)
    assert await database.run("SELECT COUNT(*) FROM mainspring_records") == [(1,)]


async def test_the_next_instants_of_many_shards_come_in_order(store: SqlStore) -> None:
    await create(store, *(timer(f"t{n}", shard_id=n, due_at=NOW + n) for n in range(0, 300, 2)))
    await create(store, timer("p", shard_id=1, due_at=FOREVER, state=State.PARKED))
    assert await store.next_due(range(300)) == [NOW + n if n % 2 == 0 else None for n in range(300)]
    assert await store.next_due([]) == []


# Migrations


async def test_migrations_are_listed_before_and_applied_once(database: Database) -> None:
    store = database.store()
    assert await store.pending_migrations() == MIGRATION_NAMES
    assert await store.migrate() == MIGRATION_NAMES
    assert await store.pending_migrations() == []
    assert await store.migrate() == []


def test_migrations_are_numbered_without_gaps() -> None:
    assert [migration.number for migration in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


async def test_stores_that_open_an_empty_database_at_once_migrate_it_once(database: Database) -> None:
    stores = [database.store() for _ in range(8)]
    await asyncio.gather(*(store.open() for store in stores))
    await create(stores[3], timer("a"))
    assert await database.run("SELECT COUNT(*) FROM mainspring_migrations") == [(len(MIGRATIONS),)]
    await asyncio.gather(*(store.close() for store in stores))


async def test_a_migration_that_died_half_way_is_done_again(database: Database, store: SqlStore) -> None:
    await database.run("DROP TABLE mainspring_records", "DELETE FROM mainspring_migrations", "SELECT 1")
    again = database.store()
    assert await again.migrate() == MIGRATION_NAMES
    assert await store.put_record("c", "k", b"", expect=0, now=NOW)


async def test_a_database_of_a_newer_mainspring_is_refused(database: Database, store: SqlStore) -> None:
    await database.run("INSERT INTO mainspring_migrations VALUES (99, 'from the future')", "SELECT 1")
    with pytest.raises(ConfigError, match=r"migration 1, got 99 in .* at 127\.0\.0\.1:\d+.*newer"):
        await database.store().open()


async def test_two_prefixes_in_one_database_are_two_stores(database: Database, store: SqlStore) -> None:
    other = database.store(f"{database.url}?prefix=other_")
    await other.open()
    await create(other, timer("a"))
    assert await store.get([key_of("a")]) == [None]
    await other.close()


async def test_a_schema_of_its_own_is_made_and_used(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    stores = [Database(url).store(f"{url}?schema={schema}") for schema in ("one", "two")]
    for store in stores:
        await store.open()
        await create(store, timer("a"))
        await store.claim_shards([Shard(0, 0, "me")])
        assert await store.begin([Begin(key_of("a"), 1, 1)]) == [APPLIED]
        await store.close()
    assert await Database(url).run("SELECT COUNT(*) FROM one.mainspring_timers") == [(1,)]


async def test_a_store_works_without_prepared_statements(postgresql: PostgreSQL) -> None:
    url = postgresql.fresh()
    store = Database(url).store(f"{url}?statement_cache_size=0")
    await store.open()
    await create(store, *(timer(f"t{n}") for n in range(10)))
    await store.claim_shards([Shard(0, 0, "me")])
    assert await store.begin([Begin(key_of("t1"), 1, 1)]) == [APPLIED]
    await store.close()


# What is refused


@pytest.mark.parametrize("table", ["timers", "shards", "history", "records", "migrations"])
async def test_a_table_of_somebody_else_that_has_our_name_is_refused_by_name(database: Database, table: str) -> None:
    await database.run(f"CREATE TABLE mainspring_{table} (id INTEGER PRIMARY KEY, colour VARCHAR(9))", "SELECT 1")
    expected = rf"mainspring_{table} in .* at 127\.0\.0\.1:\d+ .*columns .*, got colour, id: .*prefix"
    for attempt in (database.store().open, database.store().migrate, database.store().pending_migrations):
        with pytest.raises(ConfigError, match=expected):
            await attempt()
    assert await database.run(f"SELECT COUNT(*) FROM mainspring_{table}") == [(0,)]


async def test_a_table_that_lost_a_column_is_refused(database: Database, store: SqlStore) -> None:
    await database.run("ALTER TABLE mainspring_timers DROP COLUMN labels", "SELECT 1")
    with pytest.raises(ConfigError, match=r"mainspring_timers .*labels"):
        await database.store().open()


async def test_a_server_that_takes_too_small_packets_is_refused(mysql: MySQL) -> None:
    url = mysql.fresh()
    [before] = mysql.execute("SELECT @@GLOBAL.max_allowed_packet").split()
    mysql.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        with pytest.raises(ConfigError, match=r"max_allowed_packet .* at least 16777216, got 1048576"):
            await Database(url).store().open()
    finally:
        mysql.execute(f"SET GLOBAL max_allowed_packet = {before}")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, "Galera"),
        ({"group_replication_single_primary_mode": "OFF", "group_replication_group_name": "7f2c"}, "single-primary"),
        ({"version": "10.5.29-MariaDB"}, "MariaDB 10.6"),
        ({"version": "5.7.44-log"}, "MySQL 8.0"),
        ({"max_allowed_packet": "4194304"}, "max_allowed_packet"),
    ],
)
def test_a_server_on_which_the_promises_would_not_hold_is_refused(variables: dict[str, str], message: str) -> None:
    assert message in refusal(variables)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {
            "wsrep_on": "OFF",
            "wsrep_provider": "none",
            "version": "10.11.6-MariaDB-log",
            "max_allowed_packet": "16777216",
        },
        {"wsrep_on": "ON", "wsrep_provider": "none"},
        {"group_replication_single_primary_mode": "ON", "group_replication_group_name": "7f2c", "version": "8.0.36"},
        {"group_replication_single_primary_mode": "OFF", "group_replication_group_name": ""},
        {"version": "5.7.25-TiDB-v6.5.0"},
    ],
)
def test_other_servers_are_not(variables: dict[str, str]) -> None:
    assert refusal(variables) == ""


async def test_what_a_server_says_of_itself_can_be_read(mysql: MySQL) -> None:
    session = await Database(mysql.fresh()).connect()
    await session.check_server()
    rows = await session.fetch("SHOW VARIABLES LIKE 'wsrep_on'", ())
    assert [tuple(row) for row in rows] == [("wsrep_on", "OFF")]
    await session.close()


# URLs


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://u:canary@h/", "name of a database"),
        ("mysql://u:canary@h", "name of a database"),
        ("postgresql://u:canary@h:x/d", "something other than a port"),
        ("postgresql://u:canary@h/d?colour=red", "options .*prefix.*, got colour"),
        ("mysql://u:canary@h/d?schema=s", "got schema"),
        ("postgresql://u:canary@h/d?prefix=a;b", "prefix to be lower-case letters"),
        ("postgresql://u:canary@h/d?statement_cache_size=many", "whole number"),
        ("mysql://u:canary@h/d?sslmode=perhaps", "sslmode to be one of disable, "),
    ],
)
def test_a_url_that_cannot_be_understood_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        store_from_url(url, clock=SystemClock())
    assert "canary" not in str(caught.value)


def test_user_and_password_may_hold_any_character() -> None:
    address = parse_address("mysql://us%40er:p%2F%3Aw@[::1]:77/db", port=1, options=OPTIONS)
    assert (address.user, address.password, address.host, address.port) == ("us@er", "p/:w", "::1", 77)
    assert "w" not in address.place
