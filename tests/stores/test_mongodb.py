"""What is special about the store on MongoDB: its fence, its sessions, its groups, and servers that go away."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from bson import Int64
from pymongo.errors import OperationFailure

from mainspring.errors import ConfigError, StoreUnavailable
from mainspring.model import FOREVER, Shard, State
from mainspring.store import START, Begin, Finish, Position, Put, Remove, TimerFilter, Verdict
from mainspring.stores.mongodb import MongoDBStore, queries
from mainspring.stores.mongodb.connection import Client, Collections, collections_of, make_client
from mainspring.testing.timer_samples import NOW, attempt, create, key_of, timer
from tests.servers.fleet import Fleet
from tests.servers.mongodb import MongoDB

APPLIED, STALE, FENCED, UNAVAILABLE = Verdict.APPLIED, Verdict.STALE, Verdict.FENCED, Verdict.UNAVAILABLE

# A client that is closed while it reaches for a server that is not there leaves the half-made socket to the collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.server("mongodb"),
]


@pytest.fixture
def collected() -> Iterator[None]:
    """See to it that this happens here, and not under the stricter eyes of another test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def server(fleet: Fleet) -> Iterator[MongoDB]:
    """One of its own, which is killed."""
    with fleet.start(MongoDB) as server:
        yield server


@pytest.fixture
def url(server: MongoDB) -> str:
    return server.fresh()


@pytest.fixture
async def store(url: str) -> AsyncIterator[MongoDBStore]:
    store = MongoDBStore(url)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def other(url: str, store: MongoDBStore) -> AsyncIterator[MongoDBStore]:
    """Another process, as far as the database can tell."""
    other = MongoDBStore(url)
    await other.open()
    yield other
    await other.close()


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with make_client(url) as client:
        yield client


@pytest.fixture
def raw(client: Client, url: str) -> Collections:
    return collections_of(client, url.rpartition("/")[2].partition("?")[0])


class TestFence:
    async def test_a_claim_aborts_the_open_transaction_of_the_owner_it_deposes(
        self, store: MongoDBStore, client: Client, raw: Collections
    ) -> None:
        """An owner that is frozen between its writes and its commit delays nobody, and commits nothing afterwards."""
        [row] = await create(store, timer("a"))
        async with client.start_session() as frozen:
            await raw.shards.insert_one({"_id": 0, "version": 1, "owner": "old", "session": frozen.session_id})
            await frozen.start_transaction()
            await raw.shards.update_one({"_id": 0, "version": 1}, {"$inc": {"writes": 1}}, session=frozen)
            await raw.timers.update_one({"uuid": row.uuid}, {"$set": {"fence": 1}}, session=frozen)
            began = time.monotonic()
            assert await store.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
            assert time.monotonic() - began < 2
            with pytest.raises(OperationFailure, match=r"aborted|NoSuchTransaction"):
                await frozen.commit_transaction()
        assert await store.get([row.key]) == [row]
        assert await store.begin([Begin(row.key, 2, 1)]) == [APPLIED]

    async def test_creates_do_not_wait_for_changes_of_rows_that_a_frozen_owner_holds(
        self, store: MongoDBStore, raw: Collections, client: Client
    ) -> None:
        [held] = await create(store, timer("held"))
        async with client.start_session() as frozen, asyncio.TaskGroup() as tasks:
            await frozen.start_transaction()
            await raw.timers.update_one({"uuid": held.uuid}, {"$set": {"fence": 1}}, session=frozen)
            change = tasks.create_task(store.write([Put(held, 1)]))
            removal = tasks.create_task(store.write([Remove(held.key, 1)]))
            await asyncio.sleep(0.1)
            for number in range(3):
                await create(store, timer(f"new{number}"))
            assert not change.done()
            assert not removal.done()
            await frozen.abort_transaction()
        assert {change.result()[0], removal.result()[0]} == {APPLIED, STALE}

    async def test_changes_do_not_wait_for_changes_of_rows_that_a_frozen_owner_holds(
        self, store: MongoDBStore, raw: Collections, client: Client
    ) -> None:
        held, *others = await create(store, timer("held"), *(timer(f"t{number}") for number in range(3)))
        async with client.start_session() as frozen, asyncio.TaskGroup() as tasks:
            await frozen.start_transaction()
            await raw.timers.update_one({"uuid": held.uuid}, {"$set": {"fence": 1}}, session=frozen)
            waiting = tasks.create_task(store.write([Put(held, 1)]))
            await asyncio.sleep(0.1)
            for row in others:
                assert await store.write([Put(row, 1)]) == [APPLIED]
            assert not waiting.done()
            await frozen.abort_transaction()
        assert waiting.result() == [APPLIED]

    async def test_a_write_that_was_done_by_a_command_that_took_too_long_is_told_to_be_done(
        self, store: MongoDBStore, raw: Collections, client: Client
    ) -> None:
        """One command does them in order: those before the row that is held are done when it is given up."""
        first, held, last = await create(store, timer("first"), timer("held"), timer("last"))
        async with client.start_session() as frozen:
            await frozen.start_transaction()
            await raw.timers.update_one({"uuid": held.uuid}, {"$set": {"fence": 1}}, session=frozen)
            changes = [Put(row, 1) for row in (first, held, last)] + [Put(timer("new"), 0), Put(last, 7)]
            assert await store.write(changes) == [APPLIED, UNAVAILABLE, APPLIED, APPLIED, STALE]
            await frozen.abort_transaction()
        assert [row.version for row in await store.get([first.key, held.key, last.key]) if row] == [2, 1, 2]

    async def test_a_row_that_is_held_does_not_keep_the_others_of_its_shard_from_being_begun(
        self, store: MongoDBStore, raw: Collections, client: Client
    ) -> None:
        rows = await create(store, *(timer(f"t{number}") for number in range(40)))
        await store.claim_shards([Shard(0, 0, "me")])
        async with client.start_session() as frozen:
            await frozen.start_transaction()
            await raw.timers.update_one({"uuid": rows[7].uuid}, {"$set": {"fence": 9}}, session=frozen)
            began = time.monotonic()
            verdicts = await store.begin([Begin(row.key, 1, 1) for row in rows])
            assert time.monotonic() - began < 2.5
            await frozen.abort_transaction()
        assert verdicts == [UNAVAILABLE if row is rows[7] else APPLIED for row in rows]

    async def test_a_claim_waits_for_a_fenced_write_that_it_cannot_abort(
        self, store: MongoDBStore, client: Client, raw: Collections
    ) -> None:
        [row] = await create(store, timer("a"))
        await raw.shards.insert_one({"_id": 0, "version": 1, "owner": "old"})
        async with client.start_session() as writing:
            await writing.start_transaction()
            await raw.shards.update_one({"_id": 0, "version": 1}, {"$inc": {"writes": 1}}, session=writing)
            await raw.timers.update_one({"uuid": row.uuid}, {"$set": {"fence": 1}}, session=writing)
            claim = asyncio.create_task(store.claim_shards([Shard(0, 1, "new")]))
            done, _ = await asyncio.wait([claim], timeout=0.3)
            assert not done
            await writing.commit_transaction()
            assert await claim == [APPLIED]
        page = await store.load_due(0, until=NOW, after=START, limit=9)
        assert [loaded.fence for loaded in page.timers] == [1]

    async def test_a_begin_that_meets_a_claim_under_way_waits_for_it_and_is_fenced(
        self, store: MongoDBStore, client: Client, raw: Collections
    ) -> None:
        [row] = await create(store, timer("a"))
        await store.claim_shards([Shard(0, 0, "old")])
        async with client.start_session() as claiming:
            await claiming.start_transaction()
            await raw.shards.update_one({"_id": 0, "version": 1}, {"$set": {"version": 2}}, session=claiming)
            begin = asyncio.create_task(store.begin([Begin(row.key, 1, 1)]))
            done, _ = await asyncio.wait([begin], timeout=0.3)
            assert not done
            await claiming.commit_transaction()
            assert await begin == [FENCED]
        assert await store.get([row.key]) == [row]

    async def test_an_owner_whose_session_was_ended_is_fenced_where_it_lost_and_writes_on_where_it_did_not(
        self, store: MongoDBStore, other: MongoDBStore
    ) -> None:
        lost, kept = await create(store, timer("lost"), timer("kept", shard_id=1))
        await store.claim_shards([Shard(0, 0, "old"), Shard(1, 0, "old")])
        assert await store.begin([Begin(lost.key, 1, 1), Begin(kept.key, 1, 1)]) == [APPLIED, APPLIED]
        assert await other.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
        items = [Finish(row.key, 1, Remove(row.key, 2), attempt()) for row in (lost, kept)]
        assert await store.finish(items) == [FENCED, APPLIED]

    async def test_no_write_under_a_fence_commits_after_the_next_claim(
        self, store: MongoDBStore, other: MongoDBStore
    ) -> None:
        """Two owners both believe that they own the shard; every row keeps the fence under which it was begun."""
        rounds, per_round = 12, 30
        rows = await create(store, *(timer(f"t{n}") for n in range(rounds * per_round)))
        stores = [store, other]
        counted: dict[int, int] = {}

        async def begun_under(fence: int) -> int:
            listed = (
                await store.list_timers([0], TimerFilter(states=(State.RUNNING,)), after=START, limit=1000)
            ).timers
            return sum(row.fence == fence for row in listed)

        async def begin(owner: MongoDBStore, item: Begin) -> Verdict | None:
            try:
                [verdict] = await owner.begin([item])
            except StoreUnavailable:  # the claim came in the middle of the commit
                return None
            return verdict

        async def begin_all(owner: MongoDBStore, fence: int, part: int) -> list[Verdict | None]:
            mine = rows[part * per_round : (part + 1) * per_round]
            return await asyncio.gather(*(begin(owner, Begin(row.key, fence, 1)) for row in mine))

        await store.claim_shards([Shard(0, 0, "0")])
        for fence in range(1, rounds + 1):
            writing = asyncio.create_task(begin_all(stores[(fence - 1) % 2], fence, fence - 1))
            await asyncio.sleep(0.001 * (fence % 4))
            assert await stores[fence % 2].claim_shards([Shard(0, fence, str(fence))]) == [APPLIED]
            counted[fence] = await begun_under(fence)
            verdicts = await writing
            assert set(verdicts) <= {APPLIED, FENCED, None}
            assert 0 <= counted[fence] - verdicts.count(APPLIED) <= verdicts.count(None)
        assert {fence: await begun_under(fence) for fence in counted} == counted

    async def test_users_who_write_to_the_same_rows_never_make_an_owner_fail(
        self, store: MongoDBStore, other: MongoDBStore
    ) -> None:
        await store.claim_shards([Shard(0, 0, "me")])
        for n in range(5):
            rows = await create(store, *(timer(f"t{n}-{m}") for m in range(60)))
            begun, *written = await asyncio.gather(
                store.begin([Begin(row.key, 1, 1) for row in rows]),
                *(other.write([Put(row, 1)]) for row in rows[:20]),
                *(other.write([Remove(row.key, 1)]) for row in rows[20:40]),
            )
            assert begun[40:] == [APPLIED] * 20
            for first, [second] in zip(begun[:40], written, strict=True):
                assert {first, second} == {APPLIED, STALE}

    async def test_a_release_leaves_no_session_to_be_ended(self, store: MongoDBStore, raw: Collections) -> None:
        await store.claim_shards([Shard(0, 0, "me")])
        assert (await raw.shards.find_one({"_id": 0}) or {})["session"]
        await store.release_shards([Shard(0, 1, "me")])
        assert (await raw.shards.find_one({"_id": 0}) or {})["session"] is None


class TestDocuments:
    async def test_a_write_that_fails_its_condition_leaves_nothing_behind(
        self, store: MongoDBStore, raw: Collections
    ) -> None:
        assert await store.write([Put(timer("a"), 3), Remove(key_of("b"), 1)]) == [STALE, STALE]
        assert await store.release_shards([Shard(7, 1, "me")]) == [STALE]
        assert await store.claim_shards([Shard(7, 1, "me")]) == [STALE]
        assert await store.put_record("c", "k", b"", expect=2, now=NOW) is None
        for collection in (raw.timers, raw.shards, raw.records):
            assert await collection.count_documents({}) == 0

    async def test_expired_records_are_left_to_the_server_to_remove(
        self, store: MongoDBStore, raw: Collections
    ) -> None:
        await store.put_record("c", "k", b"", expect=0, now=NOW, expires_at=NOW + 5)
        indexes = await raw.records.index_information()
        assert indexes["expiry"]["expireAfterSeconds"] > 0
        assert await raw.records.count_documents({"expires_at": {"$type": "date"}}) == 1

    async def test_an_expiry_beyond_the_calendar_is_kept(self, store: MongoDBStore) -> None:
        written = await store.put_record("c", "k", b"", expect=0, now=NOW, expires_at=2**62)
        assert await store.get_record("c", "k", now=NOW) == written

    async def test_a_prefix_may_end_with_the_last_character_there_is(self, store: MongoDBStore) -> None:
        names = ("a", "a\U0010ffff", "a\U0010ffffb", "b", "\U0010ffff", "\ud7ff1", "\ue0001")
        await create(store, *(timer(name) for name in names))
        for prefix in ("a\U0010ffff", "\U0010ffff", "\ud7ff", "\ue000"):
            where = TimerFilter(id_prefix=prefix)
            listed = (await store.list_timers([0], where, after=START, limit=9)).timers
            assert {row.timer_id for row in listed} == {name for name in names if name.startswith(prefix)}

    async def test_a_list_over_more_shards_than_one_query_merges_is_in_order(self, store: MongoDBStore) -> None:
        rows = [timer(f"t{n}", shard_id=n, due_at=NOW + n * 7 % 50) for n in range(2 * queries.SHARDS_PER_LIST + 9)]
        await create(store, *rows)
        ordered = sorted(rows, key=lambda row: (row.due_at, row.uuid))
        listed = (await store.list_timers(range(300), TimerFilter(), after=START, limit=40)).timers
        assert listed == ordered[:40]
        after = Position(listed[-1].due_at, listed[-1].uuid)
        assert (await store.list_timers(range(300), TimerFilter(), after=after, limit=40)).timers == ordered[40:80]

    async def test_the_earliest_instants_of_many_shards_cost_one_key_each(
        self, store: MongoDBStore, raw: Collections
    ) -> None:
        await create(store, *(timer(f"t{n}", shard_id=n % 5, due_at=NOW + n) for n in range(500)))
        await raw.timers.database.command("profile", 2)
        assert await store.next_due(range(6)) == [NOW, NOW + 1, NOW + 2, NOW + 3, NOW + 4, None]
        await raw.timers.database.command("profile", 0)
        [profiled] = await raw.timers.database["system.profile"].find({"command.aggregate": raw.timers.name}).to_list()
        assert profiled["keysExamined"] <= 12

    @pytest.mark.parametrize(
        ("where", "found"),
        [
            (TimerFilter(states=(State.PARKED,), due_from=FOREVER), 3),
            (TimerFilter(labels=(("k", "v"),), due_from=NOW + 10, due_to=NOW + 20), 10),
            (TimerFilter(labels=(("k", "other"),)), 0),
        ],
    )
    async def test_a_list_reads_a_bounded_part_of_the_due_order(
        self,
        store: MongoDBStore,
        raw: Collections,
        monkeypatch: pytest.MonkeyPatch,
        where: TimerFilter,
        found: int,
    ) -> None:
        monkeypatch.setattr("mainspring.store.LOOK_ROWS", 100)
        await create(store, *(timer(f"t{n}", shard_id=n % 5, due_at=NOW + n, labels={"k": "v"}) for n in range(990)))
        await create(store, *(timer(f"p{n}", due_at=FOREVER, state=State.PARKED) for n in range(3)))
        await raw.timers.database.command("profile", 2)
        page = await store.list_timers(range(5), where, after=START, limit=50)
        await raw.timers.database.command("profile", 0)
        assert len(page.timers) == found
        profiled = raw.timers.database["system.profile"].find({"command.aggregate": raw.timers.name})
        reads = await profiled.to_list()
        assert sum(read["keysExamined"] for read in reads) < 300
        assert sum(read["docsExamined"] for read in reads) <= 150


class TestOpening:
    async def test_migrations_are_applied_once(self, url: str) -> None:
        store = MongoDBStore(url)
        assert len(await store.pending_migrations()) == 1
        assert await store.migrate() == ["0001 timers, shards, history, records"]
        assert await store.migrate() == []

    async def test_a_database_of_a_newer_mainspring_is_refused(self, store: MongoDBStore, raw: Collections) -> None:
        await raw.schema.update_one({"_id": "schema"}, {"$set": {"number": Int64(99)}})
        with pytest.raises(ConfigError, match="99"):
            await store.pending_migrations()

    @pytest.mark.parametrize(
        "url",
        [
            "mongodb://127.0.0.1:1",
            "mongodb://user:s3cret@127.0.0.1:1/",
            "mongodb://127.0.0.1:1/a/b",
            "mongodb://user:s3cret[@127.0.0.1:1/db",
        ],
    )
    def test_a_url_without_a_database_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match="database") as caught:
            MongoDBStore(url)
        assert "s3cret" not in str(caught.value)

    @pytest.mark.parametrize(
        "url",
        [
            "mongodb://user:s3c:ret@127.0.0.1/db",
            "mongodb://user:s3c/ret@127.0.0.1:1/db",
            "mongodb://user:s3cret@127.0.0.1:99999999/db",
            "mongodb://user:s3cret@127.0.0.1/db?authMechanism=none-such",
        ],
    )
    async def test_a_url_that_cannot_be_read_is_refused_without_its_password(self, url: str) -> None:
        with pytest.raises(ConfigError, match="mongodb://host") as caught:
            await MongoDBStore(url).open()
        assert "s3c" not in str(caught.value)

    async def test_wrong_credentials_are_a_matter_of_configuration(self, url: str) -> None:
        secret = url.replace("mongodb://", "mongodb://nobody:s3cret@")
        with pytest.raises(ConfigError, match="rejects this user") as caught:
            await MongoDBStore(secret).open()
        assert "s3cret" not in str(caught.value)

    @pytest.mark.slow
    async def test_a_server_that_is_not_there_is_unavailable_and_named(self, collected: None) -> None:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1") as caught:
            await MongoDBStore("mongodb://user:s3cret@127.0.0.1:1/db?replicaSet=rs0").open()
        assert time.monotonic() - began < 5
        assert "s3cret" not in str(caught.value)

    async def test_a_store_that_is_not_open_says_so(self, url: str) -> None:
        with pytest.raises(StoreUnavailable, match="open"):
            await MongoDBStore(url).get([key_of("a")])


class TestTrouble:
    @pytest.mark.slow
    async def test_a_server_that_was_killed_is_found_again(self, server: MongoDB, url: str, collected: None) -> None:
        store = MongoDBStore(url)
        await store.open()
        await store.claim_shards([Shard(0, 0, "me")])
        [row] = await create(store, timer("a"))
        server.kill()
        calls = (
            store.write([Put(timer("b"), 0)]),
            store.begin([Begin(row.key, 1, 1)]),
            store.get([row.key]),
            store.put_record("c", "k", b"", expect=0, now=NOW),
            store.claim_shards([Shard(0, 1, "you")]),
        )
        began = time.monotonic()
        for result in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(result, StoreUnavailable)
        assert time.monotonic() - began < 5
        await asyncio.to_thread(server.start)
        await _answering(store)
        assert await store.get([row.key, key_of("b")]) == [row, None]
        assert await store.begin([Begin(row.key, 1, 1)]) == [APPLIED]
        await store.close()

    @pytest.mark.slow
    async def test_a_server_that_hangs_is_given_up_within_the_lease(
        self, server: MongoDB, url: str, collected: None
    ) -> None:
        store = MongoDBStore(url)
        await store.open()
        [row] = await create(store, timer("a"))
        server.pause()
        try:
            began = time.monotonic()
            calls = (store.get([row.key]), store.write([Remove(row.key, 1)]), store.begin([Begin(row.key, 0, 1)]))
            for result in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(result, StoreUnavailable)
            assert time.monotonic() - began < 5
        finally:
            server.resume()
        await _answering(store)
        await store.close()


async def _answering(store: MongoDBStore) -> None:
    """Return when it does both, reading and writing: within ten seconds, by itself."""
    async with asyncio.timeout(10):
        while True:
            try:
                await store.time()
                await store.write([Remove(key_of("nothing"), 1)])
            except StoreUnavailable:
                continue
            return
