"""A destination that answered 410, beside other instances."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import StoreUnavailable
from mainspring.kernel.carrier import Ending
from mainspring.model import Record, State, Timer
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.messages import BulkTimers, CreateTimer, ListHistory, ListTimers, TimerRef
from tests.timers.requests import until


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Instance, Instance]]:
    config = Config(
        allow_loopback=True,
        store=f"sqlite:///{tmp_path / 'shared.db'}",
        data_dir=str(tmp_path),
        renew_seconds=0.2,
        look_seconds=0.1,
    )
    async with Instance(config) as first, Instance(config) as second:
        yield first, second


async def both_own_shards(first: Instance, second: Instance) -> None:
    async def both_own() -> bool:
        owners = {shard.owner for shard in (await first.shards()).shards}
        return owners == {first.ownership.instance, second.ownership.instance}

    await until(both_own)


async def parked(instance: Instance, count: int = 1) -> None:
    """So many timers are parked, and none is on its way."""

    async def are_parked() -> bool:
        views = (await instance.timers.list(ListTimers())).timers
        return len(views) == count and all(view.state is State.PARKED for view in views)

    await until(are_parked)


async def test_a_resume_through_one_instance_lets_all_of_them_try_again(
    pair: tuple[Instance, Instance], target: TargetServer
) -> None:
    first, second = pair
    await both_own_shards(first, second)
    target.script("/gone", Answer(status=410))
    names = [f"t{number}" for number in range(16)]
    for name in names:
        await first.timers.create(CreateTimer(timer_id=name, delay_seconds=0.0, callback_url=target.url + "/gone"))

    async def all_parked() -> bool:
        return len((await second.timers.list(ListTimers(states=(State.PARKED,)))).timers) == len(names)

    await until(all_parked)
    assert len(target.requests) < len(names)
    target.script("/gone", Answer())

    async def all_done() -> bool:
        for view in (await first.timers.list(ListTimers(states=(State.PARKED,)))).timers:
            await first.timers.resume(TimerRef(timer_id=view.timer_id))
        return not (await first.timers.list(ListTimers())).timers

    await until(all_done)


@pytest.mark.parametrize("way", ["resume", "bulk resume", "run now"])
async def test_a_timer_that_one_instance_resumes_is_called_by_another_that_has_not_heard_of_it(
    way: str, pair: tuple[Instance, Instance], target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    await both_own_shards(first, second)
    url = target.url + "/gone"
    target.script("/gone", Answer(status=410))
    assert second.engine is not None
    namespace = await first.namespaces.find("default")
    names = [name for n in range(100) if second.engine.owns(namespace.key_of(name := f"t{n}").shard_id)][:6]
    for name in names:
        await first.timers.create(CreateTimer(timer_id=name, delay_seconds=0.0, callback_url=url))
    await parked(first, len(names))

    async def nothing() -> None: ...

    monkeypatch.setattr(second.timers_assembly.carrier, "refresh", nothing)
    target.script("/gone", Answer())
    if way == "bulk resume":
        await first.timers.bulk_resume(BulkTimers(all=True))
    else:
        act = first.timers.resume if way == "resume" else first.timers.run_now
        for name in names:
            await act(TimerRef(timer_id=name))

    async def all_done() -> bool:
        return not (await first.timers.list(ListTimers())).timers

    await until(all_done)


async def test_a_destination_whose_state_cannot_be_looked_at_is_called(
    instance: Instance, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it has been taken away is not known then: one call more does no harm, one timer parked for ever does."""
    url = target.url + "/gone"
    target.script("/gone", Answer(status=410), Answer())
    await instance.timers.create(CreateTimer(timer_id="t", delay_seconds=0.0, callback_url=url))
    await parked(instance)

    async def fails(*_: Any, **__: Any) -> Record | None:
        raise StoreUnavailable("The database is away")

    monkeypatch.setattr(instance.store, "get_record", fails)
    await instance.timers.create(CreateTimer(timer_id="u", delay_seconds=0.0, callback_url=url))
    await target.wait_for(2)


async def test_a_timer_that_is_parked_unsent_says_nothing_about_whether_its_destination_can_be_reached(
    instance: Instance, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = target.url + "/gone"
    target.script("/gone", Answer(status=410))
    await instance.timers.create(CreateTimer(timer_id="t", delay_seconds=0.0, callback_url=url))
    await parked(instance)
    carry = instance.timers_assembly.carrier.carry
    endings = []

    async def watched(timer: Timer) -> Ending:
        endings.append(await carry(timer))
        return endings[-1]

    monkeypatch.setattr(instance.timers_assembly.carrier, "carry", watched)
    await instance.timers.create(CreateTimer(timer_id="u", delay_seconds=0.0, callback_url=url))
    await parked(instance, 2)
    assert len(target.requests) == 1
    assert [ending.reachable for ending in endings] == [None]


async def test_a_timer_that_is_parked_unsent_counts_no_attempt(instance: Instance, target: TargetServer) -> None:
    url = target.url + "/gone"
    target.script("/gone", Answer(status=410))
    for count, name in enumerate(("called", "unsent"), 1):
        await instance.timers.create(CreateTimer(timer_id=name, delay_seconds=0.0, callback_url=url))
        await parked(instance, count)
    views = (await instance.timers.list(ListTimers())).timers
    assert {view.timer_id: view.attempts for view in views} == {"called": 1, "unsent": 0}
    [entry] = (await instance.timers.history(ListHistory(timer_id="unsent"))).attempts
    assert (entry.attempt, entry.status) == (1, None)  # the one that was begun, and not sent


async def test_a_resume_while_destinations_are_read_is_not_forgotten(
    instance: Instance, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = target.url + "/gone"
    target.script("/gone", Answer(status=410))
    await instance.timers.create(CreateTimer(timer_id="t", delay_seconds=0.0, callback_url=url))
    await parked(instance)
    scan = instance.store.scan_records

    async def overtaken(*args: Any, **options: Any) -> list[Record]:
        found = await scan(*args, **options)
        await instance.timers_assembly.carrier.revive(url)
        return found

    monkeypatch.setattr(instance.store, "scan_records", overtaken)
    await instance.timers_assembly.carrier.refresh()
    target.script("/gone", Answer())
    await instance.timers.create(CreateTimer(timer_id="u", delay_seconds=0.0, callback_url=url))

    async def decided() -> bool:
        views = (await instance.timers.list(ListTimers())).timers
        return all(view.state is State.PARKED for view in views)

    await until(decided)
    assert [view.timer_id for view in (await instance.timers.list(ListTimers())).timers] == ["t"]
