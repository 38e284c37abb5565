"""A row or a record that cannot be read is told of, and stops nobody else; not at the next start either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

from mainspring import telemetry, unreadable
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import Conflict, NotFound
from mainspring.fetches.messages import FetchRef, FetchStats, ListFetches
from mainspring.fetches.record import FETCHES
from mainspring.kernel.ownership import INSTANCES
from mainspring.namespaces.messages import CreateNamespace, ListNamespaces, NamespaceRef
from mainspring.namespaces.service import NAMESPACES
from mainspring.store import RecordStore
from mainspring.testing.target import TargetServer
from mainspring.timers.messages import CreateTimer, ListTimers, TimerRef
from mainspring.wire.instants import to_instant
from tests.support.fetch_requests import asking, until_stats


@pytest.fixture(autouse=True)
def _nothing_is_known() -> None:
    unreadable.forget()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        allow_loopback=True, store=f"sqlite:///{tmp_path / 'mainspring.db'}", data_dir=str(tmp_path), drain_seconds=1.0
    )


@pytest.fixture
async def instance(config: Config) -> AsyncIterator[Instance]:
    async with Instance(config) as running:
        yield running


def spoil(config: Config, timer_id: str, column: str = "payload") -> None:
    connection = apsw.Connection(config.store.removeprefix("sqlite:///"))
    connection.set_busy_timeout(5_000)
    connection.execute(f"UPDATE timers SET {column} = CAST(x'22ff22' AS TEXT) WHERE timer_id = ?", (timer_id,))
    connection.close()


def set_in_detail(config: Config, timer_id: str, **values: object) -> None:
    connection = apsw.Connection(config.store.removeprefix("sqlite:///"))
    connection.set_busy_timeout(5_000)
    for name, value in values.items():
        change = "UPDATE timers SET detail = json_set(detail, ?, json(?)) WHERE timer_id = ?"
        connection.execute(change, (f"$.{name}", msgspec.json.encode(value).decode(), timer_id))
    connection.close()


async def overwrite(records: RecordStore, collection: str, key: str, now: int) -> None:
    record = await records.get_record(collection, key, now=now)
    version = record.version if record else 0
    assert await records.put_record(collection, key, b'{"\xff', expect=version, now=now) is not None


def timer(instance: Instance, timer_id: str, url: str, *, seconds: float) -> CreateTimer:
    at = to_instant(instance.clock.now_ms()) + timedelta(seconds=seconds)
    return CreateTimer(timer_id=timer_id, callback_url=url, execute_at=at, payload=msgspec.Raw(b'"x"'))


async def test_a_payload_that_is_no_text_neither_ends_the_process_nor_holds_up_its_shard(
    config: Config, target: TargetServer
) -> None:
    async with Instance(config) as instance:
        for n in range(40):
            await instance.timers.create(timer(instance, f"t{n}", f"{target.url}/ok", seconds=1.5))
        for n in range(0, 40, 2):
            spoil(config, f"t{n}", "payload" if n % 4 else "detail")
        await asyncio.wait_for(target.wait_for(20), 15)
    async with Instance(config) as instance:  # and the next one starts, beside them
        await instance.timers.create(timer(instance, "new", f"{target.url}/ok", seconds=0))
        await asyncio.wait_for(target.wait_for(21), 15)
        with pytest.raises(Conflict, match="cannot be read"):
            await instance.timers.get(TimerRef(timer_id="t0"))
        assert len(unreadable.known()) == 20
        assert 'mainspring_unreadable_total{kind="timer"}' in instance.metrics()


async def test_a_timer_that_cannot_be_read_is_replaced_by_creating_it_anew(instance: Instance, config: Config) -> None:
    for name in ("a", "b"):
        await instance.timers.create(timer(instance, name, "http://127.0.0.1:9/", seconds=600))
    spoil(config, "a")
    for ask in (instance.timers.get, instance.timers.delete, instance.timers.park):
        with pytest.raises(Conflict, match="Timer 'a' cannot be read"):
            await ask(TimerRef(timer_id="a"))
    with pytest.raises(NotFound):
        await instance.timers.get(TimerRef(timer_id="never was"))
    page = await instance.timers.list(ListTimers())
    assert [view.timer_id for view in page.timers] == ["b"]
    assert page.next_cursor is None
    await asyncio.wait_for(instance.timers.create(timer(instance, "a", "http://127.0.0.1:9/", seconds=600)), 5)
    assert (await instance.timers.delete(TimerRef(timer_id="a"))).timer.timer_id == "a"


async def test_a_namespace_that_cannot_be_read_hides_no_other_and_is_told_of(config: Config) -> None:
    async with Instance(config) as instance:
        for name in ("a", "b", "c"):
            await instance.namespaces.create(CreateNamespace(name=name, shard_count=1))
        await overwrite(instance.store, NAMESPACES, "b", instance.clock.now_ms())
    async with Instance(config) as instance:
        page = await instance.namespaces.list(ListNamespaces())
        assert [view.name for view in page.namespaces] == ["a", "c", "default"]
        with pytest.raises(Conflict, match="namespace 'b' cannot be read"):
            await instance.namespaces.get(NamespaceRef(name="b"))
        with pytest.raises(Conflict):
            await instance.namespaces.create(CreateNamespace(name="b"))
        assert [(found.kind, found.name) for found in unreadable.known()] == [(NAMESPACES, "b")]


async def test_a_lease_that_cannot_be_read_is_somebody_who_lives_and_keeps_what_is_theirs(
    instance: Instance, target: TargetServer
) -> None:
    now = instance.clock.now_ms()
    await instance.store.put_record(INSTANCES, "strange", b'{"\xff', expect=0, now=now, expires_at=now + 60_000)
    await instance.ownership.renew()
    assert not instance.ownership.alone
    assert [member.instance for member in instance.ownership.members] == [instance.ownership.instance]
    assert await instance.ownership._alive({"strange"}) == {"strange"}
    assert len((await instance.instances()).instances) == 1
    await instance.timers.create(timer(instance, "t", f"{target.url}/ok", seconds=0))
    await asyncio.wait_for(target.wait_for(1), 10)


async def test_a_fetch_whose_record_cannot_be_read_is_a_conflict_and_stops_no_other(instance: Instance) -> None:
    await overwrite(instance.store, FETCHES, "bad", instance.clock.now_ms())
    with pytest.raises(Conflict, match="fetch 'bad' cannot be read"):
        await instance.fetches.get(FetchRef(req_id="bad"))
    before = telemetry.unreadable.values.copy()
    with pytest.raises(Conflict):
        await instance.fetches.get(FetchRef(req_id="bad"))
    assert telemetry.unreadable.values == before


@pytest.mark.parametrize("field", ["executeAt", "createdAt", "updatedAt"])
@pytest.mark.parametrize("instant", [2**63 - 1, 2**62, -(2**62)])
async def test_an_instant_that_no_calendar_has_neither_hides_a_timer_nor_stops_it(
    instance: Instance, config: Config, target: TargetServer, field: str, instant: int
) -> None:
    for name in ("a", "b"):
        await instance.timers.create(timer(instance, name, f"{target.url}/ok", seconds=600))
    set_in_detail(config, "a", **{field: instant})
    page = await instance.timers.list(ListTimers())
    assert {view.timer_id for view in page.timers} == {"a", "b"}
    assert (await instance.timers.get(TimerRef(timer_id="a"))).timer_id == "a"
    await instance.timers.run_now(TimerRef(timer_id="a"))
    await asyncio.wait_for(target.wait_for(1), 10)
    assert (await instance.timers.delete(TimerRef(timer_id="b"))).timer.timer_id == "b"


async def test_a_row_of_a_fetch_that_says_nothing_is_set_aside_and_hides_no_other(
    instance: Instance, config: Config, target: TargetServer
) -> None:
    for name in ("a", "b"):
        await instance.fetches.create(asking(f"{target.url}/ok", req_id=name))
        await instance.fetches.wait(name, 10)
    await until_stats(instance.fetches, lambda stats: stats.succeeded == 2)
    set_in_detail(config, "a", labels={}, headers={})
    assert [fetch.req_id for fetch in (await instance.fetches.list(ListFetches())).fetches] == ["b"]
    assert (await instance.fetches.stats(FetchStats())).succeeded == 1
    assert [found.kind for found in unreadable.known()] == ["timer"]
