"""What lists and pruning read: only the part of an index in which the rows are that they look for.

Where a database tells its plan, the plan is asked for; SQLite also counts its steps.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from mainspring.model import FOREVER, Shard, State
from mainspring.store import START, Finish, Position, TimerFilter
from mainspring.stores.plan import Value
from mainspring.stores.sql import queries as sql_queries
from mainspring.stores.sql.dialect import Parameter, Session
from mainspring.stores.sqlite import SQLiteStore, queries
from mainspring.testing.timer_samples import NOW, attempt, create, key_of, timer
from tests.servers import catalogue
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.sql_databases import SERVERS, Database

DAY = 86_400_000
TODAY = NOW // DAY * DAY
PARKED = TimerFilter(states=(State.PARKED,), due_from=FOREVER)
SOON = TimerFilter(labels=(("k", "v"),), due_from=NOW + 10, due_to=NOW + 20)
LISTS = [PARKED, SOON, TimerFilter(id_prefix="x", due_to=NOW + 20)]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "test.db")


@pytest.fixture
async def store(path: str) -> AsyncIterator[SQLiteStore]:
    store = SQLiteStore(path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def connection(path: str, store: SQLiteStore) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path)
    yield connection
    connection.close(True)


@contextmanager
def counted(connection: apsw.Connection) -> Iterator[list[int]]:
    """The steps that each statement takes."""
    steps: list[int] = []

    def note(event: dict[str, object]) -> None:
        status = event["stmt_status"]
        assert isinstance(status, dict)
        steps.append(status["SQLITE_STMTSTATUS_VM_STEP"])

    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
    try:
        yield steps
    finally:
        connection.trace_v2(0, None)


def steps_of_list(connection: apsw.Connection, where: TimerFilter) -> int:
    with counted(connection) as steps:
        queries.list_timers(connection, [0, 1], where, START, 100)
    return sum(steps)


@pytest.mark.parametrize("where", LISTS)
async def test_a_list_takes_no_more_steps_among_many_rows_outside_its_part_of_the_due_order(
    store: SQLiteStore, connection: apsw.Connection, where: TimerFilter
) -> None:
    await create(
        store, timer("xp", due_at=FOREVER, state=State.PARKED), timer("xs", due_at=NOW + 15, labels={"k": "v"})
    )
    await create(store, timer("xn", due_at=NOW + 15))
    few = steps_of_list(connection, where)
    outside = [timer(f"x{n}", shard_id=n % 2, due_at=NOW + 1_000 + n) for n in range(900)]
    if where.due_from is not None:
        outside += [timer(f"y{n}", shard_id=n % 2, due_at=NOW - 1_000 + n, labels={"k": "v"}) for n in range(900)]
    for start in range(0, len(outside), 900):
        await create(store, *outside[start : start + 900])
    assert steps_of_list(connection, where) < few + 100


async def test_the_rows_that_one_page_looks_through_are_bounded_in_sqlite(
    store: SQLiteStore, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.store.LOOK_ROWS", 100)
    where = TimerFilter(labels=(("k", "v"),))
    taken = []
    for batch in range(3):
        await create(store, *(timer(f"x{batch}-{n}", shard_id=n % 2, due_at=NOW + n) for n in range(900)))
        taken.append(steps_of_list(connection, where))
    assert max(taken) < 1.2 * min(taken)


async def test_many_labels_are_looked_for_in_one_look_at_each_row_of_sqlite(
    store: SQLiteStore, connection: apsw.Connection
) -> None:
    labels = {f"name{n}": "value" for n in range(32)}
    await create(store, *(timer(f"x{n}", shard_id=n % 2, due_at=NOW + n, labels=labels) for n in range(100)))
    one, *others = sorted(labels.items())
    none = steps_of_list(connection, TimerFilter(labels=((one[0], "another"),)))
    assert steps_of_list(connection, TimerFilter(labels=(*others, (one[0], "another")))) < 2 * none
    assert (
        len((await store.list_timers([0, 1], TimerFilter(labels=(one, *others)), after=START, limit=200)).timers) == 100
    )


async def test_pruning_takes_no_more_steps_among_many_entries_that_are_kept(
    store: SQLiteStore, connection: apsw.Connection
) -> None:
    await store.claim_shards([Shard(0, 0, "me")])

    async def record(name: str, started_at: int) -> None:
        await store.finish([Finish(key_of(name), 1, None, attempt(1, started_at=started_at))])

    def steps_of_pruning() -> int:
        with counted(connection) as steps:
            queries.old_history(connection, 0, TODAY, 1000)
        return sum(steps)

    for n in range(5):
        await record(f"old{n}", TODAY - 1 - n)
    await record("new", TODAY)
    few = steps_of_pruning()
    entries = [Finish(key_of(f"new{n}"), 1, None, attempt(1, started_at=TODAY + n)) for n in range(900)]
    await store.finish(entries)
    assert steps_of_pruning() == few
    assert await store.prune_history(0, older_than=TODAY, limit=1000) == 5
    assert steps_of_pruning() < few


# PostgreSQL and MySQL


class CountingSession:
    """A session that also counts the rows that its reads look at, by what the server says."""

    def __init__(self, session: Session, *, explains: bool) -> None:
        self._session = session
        self._explains = explains
        self.looked_at = 0

    async def fetch(self, sql: str, parameters: Sequence[Parameter]) -> Sequence[Sequence[Value]]:
        if self._explains:
            [[plan]] = await self._session.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", parameters)
            self.looked_at += sum(_scanned(json.loads(str(plan))[0]["Plan"]))
            return await self._session.fetch(sql, parameters)
        before = await self._handled()
        found = await self._session.fetch(sql, parameters)
        self.looked_at += await self._handled() - before
        return found

    async def _handled(self) -> int:
        rows = await self._session.fetch("SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%'", ())
        counts = {str(name): int(str(count)) for name, count in rows}
        return counts["Handler_read_next"] + counts["Handler_read_rnd_next"]


def _scanned(plan: dict[str, Any]) -> Iterator[int]:
    for part in plan.get("Plans", ()):
        yield from _scanned(part)
    if "Relation Name" in plan:
        yield int((plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"])


@pytest.fixture(params=server_params(*SERVERS))
async def database(request: pytest.FixtureRequest, fleet: Fleet) -> Database:
    """Has four thousand timers, and history of two days."""
    database = Database(fleet.get(catalogue.SERVERS[request.param]).fresh())
    store = database.store()
    await store.open()
    for start in range(0, 4_000, 1_000):
        numbers = range(start, start + 1_000)
        await create(store, *(timer(f"x{n}", shard_id=n % 2, due_at=NOW + n, labels={"k": "v"}) for n in numbers))
    await create(store, *(timer(f"p{n}", due_at=FOREVER, state=State.PARKED) for n in range(3)))
    await store.claim_shards([Shard(0, 0, "me")])
    for day, count in ((TODAY - 1, 5), (TODAY, 1_000)):
        entries = [Finish(key_of(f"x{n}"), 1, None, attempt(1, started_at=day)) for n in range(count)]
        await store.finish(entries)
    await store.close()
    is_postgresql = database.url.startswith("postgresql:")
    for table in ("mainspring_timers", "mainspring_history"):
        await database.run(f"ANALYZE {table}" if is_postgresql else f"ANALYZE TABLE {table}")
    return database


@pytest.fixture
async def session(database: Database) -> AsyncIterator[CountingSession]:
    session = await database.connect()
    yield CountingSession(session, explains=database.url.startswith("postgresql:"))
    await session.close()


@pytest.mark.parametrize(
    ("where", "found"), [(PARKED, 3), (SOON, 10), (TimerFilter(id_prefix="x", due_to=NOW + 20), 20)]
)
async def test_a_list_looks_at_the_rows_of_its_part_of_the_due_order(
    database: Database, session: CountingSession, where: TimerFilter, found: int
) -> None:
    page = await sql_queries.list_timers(session, database.statements, [0, 1], where, after=START, limit=100)  # type: ignore[arg-type]
    assert (len(page.timers), page.after) == (found, None)
    assert session.looked_at < 300


async def test_a_page_in_vain_looks_at_a_bounded_number_of_rows(
    database: Database, session: CountingSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.store.LOOK_ROWS", 100)
    where = TimerFilter(labels=(("k", "other"),))
    page = await sql_queries.list_timers(session, database.statements, [0, 1], where, after=START, limit=100)  # type: ignore[arg-type]
    assert page.timers == []
    assert page.after is not None
    assert NOW + 80 < page.after.due_at < NOW + 120
    assert session.looked_at < 500


async def test_reading_many_shards_at_once_looks_at_no_rows_but_those_of_each_page(
    database: Database, session: CountingSession
) -> None:
    places = [(0, Position(NOW + 2_000, "")), *((shard_id, START) for shard_id in range(1, 30))]
    pages = await sql_queries.load_due_of(session, database.statements, places, until=NOW + 3_000, limit=16)  # type: ignore[arg-type]
    assert [len(page.timers) for page in pages if page is not None] == [16, 16, *[0] * 28]
    assert session.looked_at < 300


async def test_pruning_looks_at_no_entries_that_are_kept(database: Database, session: CountingSession) -> None:
    statement = database.statements.old_history(0, (TODAY - 1) // DAY, TODAY, 1000)
    assert len(await session.fetch(*statement)) == 5
    assert session.looked_at < 50
