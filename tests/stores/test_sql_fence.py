"""The fence of the SQL stores: it locks. Two connections, step by step, and then many at once with an audit."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest

from mainspring.model import Shard
from mainspring.store import Begin, Finish, Remove, Verdict
from mainspring.stores.sql.dialect import Session
from mainspring.stores.sql.store import SqlStore
from mainspring.testing.timer_samples import attempt, create, timer
from tests.servers import catalogue
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.sql_databases import SERVERS, Database

APPLIED, FENCED, UNAVAILABLE = Verdict.APPLIED, Verdict.FENCED, Verdict.UNAVAILABLE


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


@pytest.fixture
async def session(database: Database, store: SqlStore) -> AsyncIterator[Session]:
    """A connection of an owner, to be stopped between any two statements."""
    session = await database.connect()
    yield session
    session.terminate()


async def test_an_open_fenced_write_holds_up_the_claim_and_the_deposed_owner_writes_nothing_more(
    database: Database, store: SqlStore, other: SqlStore, session: Session
) -> None:
    [a] = await create(store, timer("a"))
    await store.claim_shards([Shard(0, 0, "old")])

    await session.begin()
    await session.fetch(*database.statements.shards([0], session.share_lock))
    claim = asyncio.create_task(other.claim_shards([Shard(0, 1, "new")]))
    assert not (await asyncio.wait([claim], timeout=0.3))[0]
    assert await session.execute(*database.statements.begin_timers([(0, a.uuid, 1)], begins=1)) == 1
    await session.commit()

    assert await claim == [APPLIED]
    assert await store.begin([Begin(a.key, 1, 2)]) == [FENCED]
    assert await store.finish([Finish(a.key, 1, Remove(a.key, 2), attempt())]) == [FENCED]
    assert [(row.version, row.fence) for row in await other.get([a.key]) if row] == [(2, 1)]


async def test_looking_without_locking_would_let_a_deposed_owner_write_after_the_claim(
    database: Database, store: SqlStore, other: SqlStore, session: Session
) -> None:
    """Not what the store does: it shows that the test above can fail."""
    [a] = await create(store, timer("a"))
    await store.claim_shards([Shard(0, 0, "old")])

    await session.begin()
    [[_, version, _]] = await session.fetch(*database.statements.shards([0]))
    assert await other.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
    assert version == 1
    assert await session.execute(*database.statements.delete_timers([(0, a.uuid)])) == 1
    await session.commit()
    assert await other.get([a.key]) == [None]


async def test_a_write_that_meets_an_open_claim_writes_nothing_and_is_fenced_after_it(
    database: Database, store: SqlStore, session: Session
) -> None:
    [a] = await create(store, timer("a"))
    await store.claim_shards([Shard(0, 0, "old")])
    await session.begin()
    await session.execute(*database.statements.own_shards([(0, 1)], growth=1, owner="new"))
    assert await store.begin([Begin(a.key, 1, 1)]) == [UNAVAILABLE]
    await session.commit()
    assert await store.begin([Begin(a.key, 1, 1)]) == [FENCED]


async def test_a_shard_that_nobody_has_claimed_is_locked_all_the_same(
    database: Database, store: SqlStore, other: SqlStore, session: Session
) -> None:
    await session.begin()
    for insert in database.statements.insert_shards([(0, 0, "")]):
        await session.execute(*insert)
    claim = asyncio.create_task(other.claim_shards([Shard(0, 0, "new")]))
    assert not (await asyncio.wait([claim], timeout=0.3))[0]
    await session.commit()
    assert await claim == [APPLIED]
    assert await store.shards([0]) == [Shard(0, 1, "new")]


async def test_an_owner_that_froze_inside_a_transaction_delays_a_claim_by_less_than_a_lease(
    database: Database, store: SqlStore, other: SqlStore, session: Session
) -> None:
    await store.claim_shards([Shard(0, 0, "old")])
    await session.begin()
    await session.fetch(*database.statements.shards([0], session.share_lock))
    started = time.monotonic()
    assert await other.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
    assert time.monotonic() - started < 4


async def test_owners_of_different_shards_do_not_wait_for_each_other(
    database: Database, store: SqlStore, session: Session
) -> None:
    await store.claim_shards([Shard(0, 0, "a"), Shard(1, 0, "b")])
    [b] = await create(store, timer("b", shard_id=1))
    await session.begin()
    await session.fetch(*database.statements.shards([0], "FOR UPDATE"))
    async with asyncio.timeout(1):
        assert await store.begin([Begin(b.key, 1, 1)]) == [APPLIED]


AUDIT_TABLES = (
    "CREATE TABLE audit (shard_id BIGINT, fence BIGINT)",
    "CREATE TABLE claims (shard_id BIGINT, fence BIGINT, writes BIGINT)",
)
COUNT = "(SELECT COUNT(*) FROM audit WHERE shard_id = OLD.shard_id AND fence = OLD.version)"
ON_BEGIN = "INSERT INTO audit VALUES (NEW.shard_id, NEW.fence)"
ON_FINISH = "INSERT INTO audit VALUES (OLD.shard_id, OLD.fence)"
ON_CLAIM = f"INSERT INTO claims VALUES (OLD.shard_id, OLD.version, {COUNT})"
TRIGGERS = (("timers", "UPDATE", ON_BEGIN), ("timers", "DELETE", ON_FINISH), ("shards", "UPDATE", ON_CLAIM))


def _triggers(scheme: str) -> list[str]:
    """The audit, written by the database in the transaction of the write itself."""
    statements = list(AUDIT_TABLES)
    for number, (table, event, action) in enumerate(TRIGGERS):
        head = f"CREATE TRIGGER audit_{number} AFTER {event} ON mainspring_{table} FOR EACH ROW"
        if scheme == "mysql":
            statements.append(f"{head} {action}")
        else:
            body = f"BEGIN {action}; RETURN NULL; END"
            statements.append(f"CREATE FUNCTION audit_{number}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$")
            statements.append(f"{head} EXECUTE FUNCTION audit_{number}()")
    return statements


async def test_no_write_under_a_fence_commits_after_the_next_claim(
    database: Database, store: SqlStore, other: SqlStore
) -> None:
    await database.run(*_triggers(database.url.partition(":")[0]), "SELECT 1")
    await store.claim_shards([Shard(0, 0, "first"), Shard(1, 0, "first")])
    end = time.monotonic() + 30
    writes = claimed = 0

    def is_enough() -> bool:
        return (writes > 120 and claimed > 25) or time.monotonic() > end

    async def own(owner: SqlStore, seed: int) -> None:
        """Looks at the fence once in a while only, as a frozen owner does, and writes under it whatever happens."""
        nonlocal writes
        choice = random.Random(seed)
        for turn in range(10_000):
            if is_enough():
                return
            fences = {shard.shard_id: shard.version for shard in await owner.shards([0, 1]) if shard is not None}
            for step in range(4):
                row = timer(f"t{seed}-{turn}-{step}", shard_id=choice.randrange(2))
                fence = fences[row.shard_id]
                await create(owner, row)
                begun = await owner.begin([Begin(row.key, fence, 1)])
                ended = await owner.finish([Finish(row.key, fence, Remove(row.key, 2), attempt(turn))])
                writes += (begun + ended).count(APPLIED)

    async def claim(owner: SqlStore, name: str) -> None:
        nonlocal claimed
        while not is_enough():
            for shard in filter(None, await owner.shards([0, 1])):
                claimed += (await owner.claim_shards([Shard(shard.shard_id, shard.version, name)])).count(APPLIED)
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        for seed, owner in enumerate([store, other] * 3):
            group.create_task(own(owner, seed))
        group.create_task(claim(store, "a"))
        group.create_task(claim(other, "b"))

    claims = await database.run("SELECT shard_id, fence, writes FROM claims")
    counts = await database.run("SELECT shard_id, fence, COUNT(*) FROM audit WHERE fence > 0 GROUP BY shard_id, fence")
    final = {(shard_id, fence): count for shard_id, fence, count in counts}
    grown = [(shard_id, fence) for shard_id, fence, count in claims if final.get((shard_id, fence), 0) != count]
    assert grown == []
    assert len(claims) > 20
    assert writes > 100


async def test_claims_are_refused_while_somebody_keeps_the_shard_locked_and_taken_afterwards(
    database: Database, store: SqlStore, session: Session
) -> None:
    await store.claim_shards([Shard(0, 0, "old")])
    await session.begin()
    await session.fetch(*database.statements.shards([0], session.share_lock))

    async def keep_busy() -> None:
        while True:
            await asyncio.sleep(0.5)
            await session.fetch(*database.statements.shards([0], session.share_lock))

    busy = asyncio.create_task(keep_busy())
    assert await store.claim_shards([Shard(0, 1, "new")]) == [UNAVAILABLE]
    busy.cancel()
    await asyncio.wait([busy])
    session.terminate()
    assert await store.claim_shards([Shard(0, 1, "new")]) == [APPLIED]
