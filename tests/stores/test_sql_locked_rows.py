"""A program's open transaction holds a row: the row alone waits, and whoever shares a group with it does not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.model import Shard, Timer
from mainspring.store import Begin, Finish, Put, Remove, Verdict
from mainspring.stores.sql.store import SqlStore
from mainspring.testing.timer_samples import NOW, attempt, create, timer
from tests.servers import catalogue
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.program_connections import WAYS, Work
from tests.support.sql_databases import SERVERS, Database

APPLIED, STALE, UNAVAILABLE = Verdict.APPLIED, Verdict.STALE, Verdict.UNAVAILABLE
T = TypeVar("T")

PROMPTLY = 2.5
"""Below the time that a statement may wait for a lock; it is much less unless the machine is busy."""


@pytest.fixture(params=server_params(*SERVERS))
def database(request: pytest.FixtureRequest, fleet: Fleet) -> Database:
    return Database(fleet.get(catalogue.SERVERS[request.param]).fresh())


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SqlStore]:
    store = database.store()
    await store.open()
    await store.claim_shards([Shard(0, 0, "me"), Shard(1, 0, "me")])
    yield store
    await store.close()


@pytest.fixture
async def program(database: Database, store: SqlStore) -> AsyncIterator[Work]:
    """The connection of a program, in a transaction that may stay open as long as it likes."""
    kind = database.url.partition(":")[0]
    async with next(iter(WAYS[kind].values()))(database.url) as work:
        yield work


async def replace(program: Work, row: Timer) -> None:
    """What a re-create in a transaction does to a row, until it is committed."""
    key = f"shard_id = {row.shard_id} AND uuid = '{row.uuid}'"
    await program.fetch(f"UPDATE mainspring_timers SET version = version + 1, payload = '0' WHERE {key}")


async def insert(program: Work, row: Timer) -> None:
    columns = "shard_id, due_at, uuid, namespace, timer_id, state, attempts, generation, version, fence, detail"
    values = f"{row.shard_id}, {row.due_at}, '{row.uuid}', 'default', '{row.timer_id}', 'scheduled', 0, 1, 1, 0, '{{}}'"
    await program.fetch(f"INSERT INTO mainspring_timers ({columns}) VALUES ({values})")


async def promptly(call: Awaitable[T]) -> T:
    started = time.monotonic()
    answer = await call
    assert time.monotonic() - started < PROMPTLY
    return answer


def rows_of(number: int) -> list[Timer]:
    return [timer(f"t{n}", shard_id=n % 2) for n in range(number)]


async def test_a_due_row_that_a_program_holds_is_not_begun_and_all_others_of_the_group_are(
    store: SqlStore, program: Work
) -> None:
    rows = await create(store, *rows_of(40))
    await replace(program, rows[7])
    begun = await promptly(store.begin([Begin(row.key, 1, row.version) for row in rows]))
    assert [place for place, verdict in enumerate(begun) if verdict is not APPLIED] == [7]
    assert begun[7] is UNAVAILABLE
    stored = await store.get([row.key for row in rows])
    assert [row.attempts for row in stored if row] == [1] * 7 + [0] + [1] * 32


async def test_a_held_row_is_begun_after_a_rollback_and_stale_after_a_commit(store: SqlStore, program: Work) -> None:
    a, b = await create(store, timer("a"), timer("b"))
    for row, end, verdict in ((a, program.rollback, APPLIED), (b, program.commit, STALE)):
        await replace(program, row)
        assert await store.begin([Begin(row.key, 1, row.version)]) == [UNAVAILABLE]
        await end()
        assert await store.begin([Begin(row.key, 1, row.version)]) == [verdict]


async def test_the_outcomes_of_all_others_are_recorded_while_a_program_holds_a_row_whose_call_is_in_flight(
    store: SqlStore, program: Work
) -> None:
    rows = await create(store, *rows_of(40))
    await store.begin([Begin(row.key, 1, row.version) for row in rows])
    await replace(program, rows[7])

    def finish(row: Timer) -> Finish:
        change = Remove(row.key, row.version + 1) if row.timer_id.endswith("1") else Put(row, row.version + 1)
        return Finish(row.key, 1, change, attempt())

    ended = await promptly(
        asyncio.gather(*(store.finish([finish(row) for row in rows[start : start + 5]]) for start in range(0, 40, 5)))
    )
    verdicts = [verdict for answer in ended for verdict in answer]
    assert [place for place, verdict in enumerate(verdicts) if verdict is not APPLIED] == [7]
    assert verdicts[7] is UNAVAILABLE
    assert await store.history(rows[7].key) == []
    assert [len(await store.history(row.key)) for row in rows if row is not rows[7]] == [1] * 39


async def test_creates_that_share_a_group_with_a_held_row_are_written_and_that_one_is_unavailable(
    store: SqlStore, program: Work
) -> None:
    [held] = await create(store, timer("held"))
    await replace(program, held)
    rows = [*rows_of(10), held, *(timer(f"u{n}") for n in range(10))]
    answers = await promptly(asyncio.gather(*(store.write([Put(row, 0)]) for row in rows)))
    assert answers == [[APPLIED]] * 10 + [[UNAVAILABLE]] + [[APPLIED]] * 10


async def test_creates_that_share_a_group_with_an_id_that_a_program_is_creating_are_written(
    store: SqlStore, program: Work
) -> None:
    """There is no row yet that could be skipped: the key itself is taken."""
    new = timer("new")
    await insert(program, new)
    rows = [*rows_of(10), new, *(timer(f"u{n}") for n in range(10))]
    answers = await promptly(asyncio.gather(*(store.write([Put(row, 0)]) for row in rows)))
    assert answers == [[APPLIED]] * 10 + [[UNAVAILABLE]] + [[APPLIED]] * 10
    await program.commit()
    assert await store.write([Put(new, 0)]) == [STALE]


async def test_one_batch_with_held_and_taken_ids_fails_for_these_alone(store: SqlStore, program: Work) -> None:
    rows = rows_of(1000)
    await create(store, *rows[:100])
    await replace(program, rows[50])
    await insert(program, rows[500])
    await insert(program, rows[999])
    verdicts = await promptly(store.write([Put(row, 1 if place < 100 else 0) for place, row in enumerate(rows)]))
    assert [place for place, verdict in enumerate(verdicts) if verdict is not APPLIED] == [50, 500, 999]
    assert {verdicts[50], verdicts[500], verdicts[999]} == {UNAVAILABLE}
    found = await store.get([row.key for row in rows])
    assert [place for place, row in enumerate(found) if row is None] == [500, 999]


async def test_a_short_transaction_is_waited_for(store: SqlStore, program: Work) -> None:
    """Most transactions end at once. Only one that stays open is worth an error."""
    [held] = await create(store, timer("held"))
    new = timer("new")
    await replace(program, held)
    await insert(program, new)
    calls = asyncio.gather(*(store.write([change]) for change in (Remove(held.key, 2), Put(new, 0))))
    await asyncio.sleep(0.1)
    await program.commit()
    assert await calls == [[APPLIED], [STALE]]


async def test_others_are_written_at_once_while_somebody_insists_on_a_held_row(store: SqlStore, program: Work) -> None:
    [held] = await create(store, timer("held"))
    await replace(program, held)
    insisting = True

    async def insist() -> None:
        while insisting:
            assert await store.write([Put(held, 0)]) in ([UNAVAILABLE], [STALE])

    slowest = 0.0
    async with asyncio.TaskGroup() as group:
        for _ in range(4):
            group.create_task(insist())
        for n in range(100):
            started = time.monotonic()
            assert await store.write([Put(timer(f"t{n}"), 0)]) == [APPLIED]
            slowest = max(slowest, time.monotonic() - started)
        insisting = False
    assert slowest < 0.5


async def test_records_are_written_while_a_program_holds_another_one(store: SqlStore, program: Work) -> None:
    """Leases of instances are records, too: they must not wait for somebody's work."""
    names = ("a", "held", "b", "new", "other", "d")
    old = ("held", "other")
    for name in old:
        await store.put_record("c", name, b"1", expect=0, now=NOW)
    await program.fetch("UPDATE mainspring_records SET version = 2 WHERE collection = 'c' AND record_key = 'held'")
    columns = "collection, record_key, value, version"
    await program.fetch(f"INSERT INTO mainspring_records ({columns}) VALUES ('c', 'new', '', 1)")
    writes = [store.put_record("c", name, b"2", expect=1 if name in old else 0, now=NOW) for name in names]
    tasks = [asyncio.ensure_future(write) for write in writes]
    done, waiting = await asyncio.wait(tasks, timeout=PROMPTLY)
    assert {tasks.index(task) for task in done} == {0, 2, 4, 5}
    assert all(task.result() for task in done)
    for task in waiting:
        with pytest.raises(StoreUnavailable, match="transaction"):
            await task


async def test_a_shard_that_is_held_keeps_neither_claims_nor_attempts_of_others_waiting(
    database: Database, store: SqlStore, program: Work
) -> None:
    rows = await create(store, timer("a", shard_id=0), timer("b", shard_id=1))
    await program.fetch("SELECT * FROM mainspring_shards WHERE shard_id = 0 FOR UPDATE")
    assert await promptly(store.begin([Begin(row.key, 1, 1) for row in rows])) == [UNAVAILABLE, APPLIED]
    assert await store.claim_shards([Shard(0, 1, "you"), Shard(1, 1, "you")]) == [UNAVAILABLE, APPLIED]
    await program.rollback()
    assert await store.begin([Begin(row.key, 1, 1) for row in rows]) == [APPLIED, Verdict.FENCED]


UNFIT: dict[str, Callable[[str], Timer]] = {
    "a number of 65 bits": lambda name: timer(name, due_at=2**64),
    "half of a character": lambda name: timer(name, payload='"\ud800"'),
    "a name that is too long": lambda name: timer(name, uuid="".join(map(chr, range(0x4000, 0x4800)))),
}


@pytest.mark.parametrize("kind", UNFIT)
async def test_a_row_that_the_database_cannot_hold_is_refused_and_the_others_of_its_batch_are_written(
    store: SqlStore, kind: str
) -> None:
    rows = [*rows_of(5), UNFIT[kind]("unfit"), *(timer(f"u{n}") for n in range(5))]
    assert await store.write([Put(row, 0) for row in rows]) == [APPLIED] * 5 + [Verdict.REFUSED] + [APPLIED] * 5
    assert [row is None for row in await store.get([row.key for row in rows[:5] + rows[6:]])] == [False] * 10
    [a, b] = rows[:2]
    await store.begin([Begin(a.key, 1, 1), Begin(b.key, 1, 1)])
    changed = Put(UNFIT[kind]("t0"), 2)
    finishes = [Finish(a.key, 1, changed, attempt()), Finish(b.key, 1, Remove(b.key, 2), attempt())]
    if changed.timer.key == a.key:
        assert await store.finish(finishes) == [Verdict.REFUSED, APPLIED]
        assert [row and row.version for row in await store.get([a.key, b.key])] == [2, None]
