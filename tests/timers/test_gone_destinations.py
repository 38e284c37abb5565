"""A destination that answered 410, beside other instances."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.config import Config
from mainspring.instance import Instance
from mainspring.model import Record, State
from mainspring.testing.target import Answer, TargetServer
from mainspring.timers.messages import CreateTimer, ListTimers, TimerRef
from tests.timers.test_service import until


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


async def test_a_resume_through_one_instance_lets_all_of_them_try_again(
    pair: tuple[Instance, Instance], target: TargetServer
) -> None:
    first, second = pair

    async def both_own() -> bool:
        owners = {shard.owner for shard in (await first.shards()).shards}
        return owners == {first.ownership.instance, second.ownership.instance}

    await until(both_own)
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


async def test_a_resume_while_destinations_are_read_is_not_forgotten(
    instance: Instance, target: TargetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = target.url + "/gone"
    target.script("/gone", Answer(status=410))
    await instance.timers.create(CreateTimer(timer_id="t", delay_seconds=0.0, callback_url=url))

    async def parked() -> bool:
        return bool((await instance.timers.list(ListTimers(states=(State.PARKED,)))).timers)

    await until(parked)
    scan = instance.store.scan_records

    async def overtaken(*args: Any, **options: Any) -> list[Record]:
        found = await scan(*args, **options)
        await instance.courier.revive(url)
        return found

    monkeypatch.setattr(instance.store, "scan_records", overtaken)
    await instance.courier.refresh()
    target.script("/gone", Answer())
    await instance.timers.create(CreateTimer(timer_id="u", delay_seconds=0.0, callback_url=url))

    async def decided() -> bool:
        views = (await instance.timers.list(ListTimers())).timers
        return all(view.state is State.PARKED for view in views)

    await until(decided)
    assert [view.timer_id for view in (await instance.timers.list(ListTimers())).timers] == ["t"]
