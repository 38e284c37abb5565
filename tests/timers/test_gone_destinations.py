"""A destination that answered 410, beside other instances."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.config import Config
from mainspring.instance import Instance
from mainspring.model import State
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
