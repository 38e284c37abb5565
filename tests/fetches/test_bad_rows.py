"""Rows and records of fetches that say nothing, and shards that do not answer: each stops itself, and nobody else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import unreadable
from mainspring.doctor import examine
from mainspring.errors import StoreUnavailable
from mainspring.fetches.messages import FetchRef, FetchResult, FetchStats, ListFetches
from mainspring.fetches.record import FETCHES, NAMESPACE
from mainspring.model import Detail
from mainspring.store import Position, Put, TimerFilter, Verdict
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.support.fetch_requests import asking
from tests.support.simulated_fetches import World, answer, world

URL = "http://t.example/"
TIMEOUT_SECONDS = 5.0
ENDED_SECONDS = 30.0
"""All that nobody begins has ended by then."""


@pytest.fixture(autouse=True)
def _nothing_met_before() -> None:
    unreadable.forget()


async def _take_all_places(here: World) -> None:
    """The executor of this world has one."""
    here.network.behave = lambda _: (3_000.0, answer())
    await here.fetches.create(asking(URL, req_id="busy", timeout_seconds=1_800.0))
    await asyncio.sleep(1)


async def _ask(here: World, req_ids: Sequence[str]) -> None:
    for req_id in req_ids:
        await here.fetches.create(asking(URL, req_id=req_id, timeout_seconds=TIMEOUT_SECONDS))


async def _states(here: World, req_ids: Sequence[str]) -> Counter[str]:
    return Counter([(await here.fetches.get(FetchRef(req_id=req_id))).state for req_id in req_ids])


async def _spoil_record(here: World, req_id: str) -> None:
    now = here.clock.now_ms()
    record = await here.store.get_record(FETCHES, req_id, now=now)
    assert await here.store.put_record(FETCHES, req_id, b'["', expect=record.version, now=now) is not None


async def _change_row(here: World, req_id: str, change: Callable[[Detail], Detail]) -> None:
    """As another program may."""
    [row] = await here.store.get([await here.fetching.registry.key_of(req_id)])
    [verdict] = await here.store.write([Put(replace(row, detail=change(row.detail)), row.version)])
    assert verdict is Verdict.APPLIED


def _without_executor(detail: Detail) -> Detail:
    return replace(detail, labels={"state": "running"})


class Away:
    """Shards that cannot be read while others can."""

    def __init__(self, here: World) -> None:
        self._inner = inner = here.store._inner
        self._list, self._due = inner.list_timers, inner.load_due
        inner.list_timers, inner.load_due = self.list_timers, self.load_due
        self.shards: set[int] = set()

    async def list_timers(self, shards: Sequence[int], where: TimerFilter, *, after: Position, limit: int) -> Any:
        if self.shards & set(shards):
            raise StoreUnavailable("a partition is away")
        return await self._list(shards, where, after=after, limit=limit)

    async def load_due(self, shard_id: int, **keywords: Any) -> Any:
        if shard_id in self.shards:
            raise StoreUnavailable("a partition is away")
        return await self._due(shard_id, **keywords)


def test_a_fetch_whose_record_cannot_be_read_keeps_no_other_from_its_end_while_all_places_are_taken() -> None:
    req_ids = [f"f{number}" for number in range(10)]

    async def main(loop: SimulatedLoop) -> tuple[bool, Counter[str]]:
        async with world(loop, fetch_limit=1) as here:
            watching = here.watch()
            await _take_all_places(here)
            await _ask(here, req_ids)
            await _spoil_record(here, "f0")
            await asyncio.sleep(ENDED_SECONDS)
            return watching.done(), await _states(here, req_ids[1:])

    assert run_simulated(main) == (False, Counter(failed=9))
    assert [(found.kind, found.name) for found in unreadable.known()] == [(FETCHES, "f0")]


def test_a_row_without_an_executor_is_set_aside_and_keeps_nobody_from_the_calls_of_the_dead() -> None:
    req_ids = [f"f{number}" for number in range(20)]

    async def main(loop: SimulatedLoop) -> tuple[bool, Counter[str], list[str]]:
        async with world(loop) as here:
            here.network.behave = lambda _: (3_000.0, answer())
            for req_id in req_ids:
                await here.fetches.create(asking(URL, req_id=req_id, timeout_seconds=1_800.0))
            await asyncio.sleep(1)
            for req_id in req_ids:
                fetch = await here.fetching.registry.find(req_id)
                assert fetch is not None
                await _run_by(here, req_id, "somebody who died")
            await _change_row(here, "f0", _without_executor)
            key = await here.fetching.registry.key_of("f0")
            watching = here.watch()
            await asyncio.sleep(ENDED_SECONDS)
            return watching.done(), await _states(here, req_ids), [unreadable.timer_name(key)]

    ended, states, bad = run_simulated(main)
    assert (ended, states) == (False, Counter(unknown=19, running=1))
    assert [found.name for found in unreadable.known() if found.kind == "timer"] == bad


async def _run_by(here: World, req_id: str, executor: str) -> None:
    """Say in record and row that another executor makes the call."""
    now = here.clock.now_ms()
    record = await here.store.get_record(FETCHES, req_id, now=now)
    value = record.value.replace(b'"executor":"one"', f'"executor":"{executor}"'.encode())
    assert value != record.value
    assert await here.store.put_record(FETCHES, req_id, value, expect=record.version, now=now) is not None
    await _change_row(here, req_id, lambda detail: replace(detail, labels={"state": "running", "executor": executor}))


def test_a_row_that_is_none_of_a_fetch_is_left_out_of_lists_and_counts() -> None:
    async def main(loop: SimulatedLoop) -> tuple[list[str], int]:
        async with world(loop) as here:
            await _ask(here, ["good", "stateless", "strange", "bare"])
            await asyncio.sleep(1)
            await _change_row(here, "stateless", lambda detail: replace(detail, labels={}))
            await _change_row(here, "strange", lambda detail: replace(detail, labels={"state": "tired"}))
            await _change_row(here, "bare", lambda detail: replace(detail, headers={}))
            page = await here.fetches.list(ListFetches())
            stats = await here.fetches.stats(FetchStats())
            return [fetch.req_id for fetch in page.fetches], stats.succeeded

    assert run_simulated(main) == (["good"], 2)
    assert len(unreadable.known()) == 3


def test_the_doctor_tells_of_rows_that_are_none_of_a_fetch() -> None:
    async def main(loop: SimulatedLoop) -> bool:
        async with world(loop) as here:
            await _ask(here, ["good", "bad"])
            await asyncio.sleep(1)
            healthy = (await examine(here.store._inner)).unreadable
            await _change_row(here, "bad", _without_executor)
            [found] = (await examine(here.store._inner)).unreadable
            key = await here.fetching.registry.key_of("bad")
            return healthy == () and (found.kind, found.name) == ("timer", unreadable.timer_name(key))

    assert run_simulated(main)


def test_a_shard_that_is_away_keeps_no_fetch_of_another_from_its_end_while_all_places_are_taken() -> None:
    async def main(loop: SimulatedLoop) -> tuple[Counter[str], Counter[str]]:
        async with world(loop, fetch_limit=1) as here:
            away = Away(here)
            here.watch()
            await _take_all_places(here)
            bad = (await here.namespaces.system(NAMESPACE)).first_shard
            shards = {f"f{n}": (await here.fetching.registry.key_of(f"f{n}")).shard_id for n in range(100)}
            others = [req_id for req_id, shard in shards.items() if shard != bad][:20]
            away.shards = {bad}
            await _ask(here, others)
            await asyncio.sleep(ENDED_SECONDS)
            meanwhile = await _states(here, others)
            unreached = [req_id for req_id, shard in shards.items() if shard == bad]
            await _ask(here, unreached)
            await asyncio.sleep(ENDED_SECONDS)
            away.shards = set()
            await asyncio.sleep(ENDED_SECONDS)
            return meanwhile, await _states(here, unreached)

    meanwhile, afterwards = run_simulated(main)
    assert meanwhile == Counter(failed=20)
    assert set(afterwards) == {"failed"}


def test_a_shard_that_is_away_keeps_nobody_from_the_calls_of_the_dead_in_others() -> None:
    async def main(loop: SimulatedLoop) -> tuple[Counter[str], Counter[str], Counter[str]]:
        async with world(loop) as here:
            here.network.behave = lambda _: (3_000.0, answer())
            shards = {f"f{n}": (await here.fetching.registry.key_of(f"f{n}")).shard_id for n in range(40)}
            for req_id in shards:
                await here.fetches.create(asking(URL, req_id=req_id, timeout_seconds=1_800.0))
            await asyncio.sleep(1)
            for req_id in shards:
                await _run_by(here, req_id, "somebody who died")
            away = Away(here)
            away.shards = {shards["f0"]}
            here.watch()
            await asyncio.sleep(ENDED_SECONDS)
            bad = [req_id for req_id, shard in shards.items() if shard in away.shards]
            others = [req_id for req_id in shards if req_id not in bad]
            meanwhile = await _states(here, others), await _states(here, bad)
            away.shards = set()
            await asyncio.sleep(ENDED_SECONDS)
            return *meanwhile, await _states(here, bad)

    others, bad, afterwards = run_simulated(main)
    assert (set(others), set(bad), set(afterwards)) == ({"unknown"}, {"running"}, {"unknown"})


class Elsewhere:
    """A program that does not know the origins that are asked for."""

    def knows(self, name: str) -> bool:
        return False

    async def receive(self, name: str, origin_id: str, result: FetchResult) -> None:
        raise AssertionError("Expected no result to be offered")


def test_a_shard_that_is_away_keeps_nobody_from_the_results_that_were_left_in_others() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop) as here:
            here.fetching.inside.receiver = Elsewhere()
            shards = {f"f{n}": (await here.fetching.registry.key_of(f"f{n}")).shard_id for n in range(40)}
            for req_id in shards:
                await here.fetches.create(asking(URL, req_id=req_id, result_url="origin:Counting/a"))
            await asyncio.sleep(1)
            left = here.fetching.left
            assert await left.find(["Counting"]) == (set(shards), True)
            away = Away(here)
            away.shards = {shards["f0"]}
            others = {req_id for req_id, shard in shards.items() if shard not in away.shards}
            assert await left.find(["Counting"]) == (others, False)
            assert await left.are_expected(["Another"]), "nobody knows"
            away.shards = set()
            assert not await left.are_expected(["Another"])

    run_simulated(main)
