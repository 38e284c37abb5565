"""The statements of a create, without a database: driven by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from mainspring.clock import wall_ms
from mainspring.delivery.secrets import Secrets
from mainspring.errors import NotFound
from mainspring.model import Detail, Namespace, to_json
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.transactional import statements
from mainspring.transactional.connections import rendered
from mainspring.transactional.dialects import MYSQL, POSTGRESQL, SQLITE, Dialect, Statement
from mainspring.transactional.statements import Creation, Rows
from mainspring.wire.instants import to_ms
from tests.support.watch import Watch

NAMESPACE = Namespace(name="app", first_shard=16, shard_count=16, created_at=0, updated_at=0, secrets=())
REQUEST = CreateTimer(namespace="app", timer_id="t1", delay_seconds=60, callback_url="https://example.com/")
DETAIL = Detail(execute_at=1, callback_url="", delivery_id="", created_at=1000, updated_at=1000)
AN_HOUR_MS = 3_600_000


def creation() -> Creation:
    return Creation(tables="mainspring_", check_url=lambda _: None, max_payload=1000, secrets=Secrets())


def drive(
    creation: Creation, answer: Callable[[Statement], Rows], dialect: Dialect = POSTGRESQL
) -> tuple[list[str], TimerView]:
    """The first words of every statement, and the result."""
    steps = creation.create(REQUEST, dialect=dialect, driver="a driver")
    said = []
    try:
        statement = next(steps)
        while True:
            said.append(statement.sql.partition(" ")[0])
            statement = steps.send(answer(statement))
    except StopIteration as stop:
        view: TimerView = stop.value
        return said, view


def a_new_row(statement: Statement, *, database_ms: int = 0) -> Rows:
    if "records" in statement.sql:
        return [(to_json(NAMESPACE), database_ms or wall_ms(), 1)]
    return [(1, 1, "{}")]


def test_a_new_id_is_one_statement_once_the_namespace_is_known() -> None:
    shared = creation()
    assert drive(shared, a_new_row)[0] == ["SELECT", "INSERT"]
    assert drive(shared, a_new_row)[0] == ["INSERT"]
    assert drive(shared, a_new_row, SQLITE)[0] == ["INSERT"]
    assert drive(shared, a_new_row, MYSQL)[0] == ["INSERT", "SELECT"]


def test_a_namespace_is_read_with_a_lock_where_the_snapshot_may_be_old() -> None:
    newest = replace(NAMESPACE, first_shard=1000)
    seen: list[object] = []

    def answer(statement: Statement) -> Rows:
        if "SHARE" in statement.sql:
            return [(to_json(newest),)]
        if "records" in statement.sql:
            return [(to_json(NAMESPACE), wall_ms(), 0)]
        seen.append(statement.parameters[0])
        return [(1, 1, "{}")]

    shared = creation()
    assert drive(shared, answer)[0] == ["SELECT", "SELECT", "INSERT"]
    assert drive(shared, answer)[0] == ["INSERT"]
    assert seen == [newest.key_of("t1").shard_id] * 2


def test_a_namespace_is_not_remembered_if_nothing_could_be_written() -> None:
    shared = creation()

    def answer(statement: Statement) -> Rows:
        if "records" not in statement.sql:
            raise TimeoutError
        return a_new_row(statement)

    with pytest.raises(TimeoutError):
        drive(shared, answer, SQLITE)
    assert drive(shared, a_new_row, SQLITE)[0] == ["SELECT", "INSERT"]


def test_an_id_that_exists_is_locked_before_it_is_replaced() -> None:
    _, first = drive(creation(), a_new_row)

    def answer(statement: Statement) -> Rows:
        if statement.sql.startswith("INSERT"):
            return [(5, 9, to_json(DETAIL).decode())]
        if statement.sql.startswith("UPDATE"):
            row = dict(zip(POSTGRESQL.columns, statement.parameters[:-2], strict=True))
            assert (row["generation"], row["version"], row["state"], row["fence"]) == (5, 9, "scheduled", 0)
        return a_new_row(statement)

    said, view = drive(creation(), answer)
    assert said == ["SELECT", "INSERT", "UPDATE"]
    assert (view.generation, to_ms(view.created_at)) == (5, 1000)
    assert view.delivery_id != first.delivery_id


def test_time_is_the_time_of_the_database() -> None:
    ahead = wall_ms() + AN_HOUR_MS
    _, view = drive(creation(), lambda statement: a_new_row(statement, database_ms=ahead))
    assert 60_000 <= to_ms(view.execute_at) - ahead <= 61_000


def test_a_time_that_was_long_on_its_way_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(statements, "SystemClock", lambda: watch)
    answers = [4.0, 0.01]

    def answer(statement: Statement) -> Rows:
        told = round(watch.seconds * 1000)
        if "records" in statement.sql:
            watch.seconds += answers.pop(0)
        return a_new_row(statement, database_ms=told + AN_HOUR_MS)

    said, view = drive(creation(), answer)
    assert said == ["SELECT", "SELECT", "INSERT"]
    assert to_ms(view.execute_at) == 4000 + AN_HOUR_MS + 60_000


def test_a_namespace_is_looked_for_again_while_there_is_none() -> None:
    shared = creation()
    with pytest.raises(NotFound, match="'app' does not exist"):
        drive(shared, lambda _: [])
    assert drive(shared, a_new_row)[0] == ["SELECT", "INSERT"]


def test_the_shard_follows_from_the_range_of_the_namespace() -> None:
    wide = replace(NAMESPACE, first_shard=1000)
    seen: list[object] = []

    def answer(statement: Statement) -> Rows:
        if "records" in statement.sql:
            return [(to_json(wide), wall_ms(), 1)]
        seen.append(statement.parameters[0])
        return [(1, 1, "{}")]

    drive(creation(), answer)
    assert seen == [wide.key_of("t1").shard_id]


def test_values_are_called_what_the_driver_calls_them() -> None:
    assert rendered("a = ? AND b = ?", "?") == "a = ? AND b = ?"
    assert rendered("a = ? AND b = ?", "%s") == "a = %s AND b = %s"
    assert rendered("a = ? AND b = ?", "$") == "a = $1 AND b = $2"


@pytest.mark.parametrize("dialect", [POSTGRESQL, MYSQL, SQLITE], ids=lambda dialect: dialect.name)
def test_statements_hold_as_many_values_as_marks(dialect: Dialect) -> None:
    timers: list[Statement] = []

    def answer(statement: Statement) -> Rows:
        timers.append(statement)
        if "records" in statement.sql:
            return [(to_json(NAMESPACE), wall_ms(), 0)]
        if statement.sql.startswith("INSERT") and dialect is MYSQL:
            return []
        return [(2, 2, to_json(DETAIL).decode())]

    drive(creation(), answer, dialect)
    assert [statement.sql.count("?") for statement in timers] == [len(statement.parameters) for statement in timers]
    assert all("%" not in statement.sql for statement in timers)
