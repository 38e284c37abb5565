"""A store's clock that jumps by more than a day: nobody can tell it from a long night, so it is at least said aloud."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from mainspring import telemetry
from mainspring.clock import SystemClock, wall_ms
from mainspring.cluster.instance import Instance
from mainspring.config import DAY_MS, Config
from mainspring.processes.executor import RemoteExecutor
from mainspring.stores.memory import MemoryStore
from mainspring.watched_clock import WatchedClock


class Jumping(MemoryStore):
    """A store whose clock can be set forward and back."""

    ahead_ms = 0

    async def time(self) -> int:
        return wall_ms() + self.ahead_ms


def fields_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [
        record.__dict__["fields"]
        for record in caplog.records
        if record.levelno >= logging.ERROR and "clock has jumped" in record.message
    ]


async def test_a_jump_of_the_stores_clock_is_a_loud_line_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SystemClock()
    store = Jumping(clock)
    config = Config(store="memory://", data_dir=str(tmp_path), renew_seconds=0.05, lease_seconds=1.0)
    before = telemetry.clock_jumps.values.get("forward", 0)
    async with Instance(config, store=store) as instance:
        await asyncio.sleep(0.2)
        assert not fields_of(caplog)
        store.ahead_ms = 2 * DAY_MS
        async with asyncio.timeout(10):
            while not fields_of(caplog):  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0.01)
        assert f'mainspring_clock_jumps_total{{direction="forward"}} {before + 1}' in instance.metrics()
        await asyncio.sleep(0.2)
    [told] = fields_of(caplog)
    assert told["days"] == 2.0


@pytest.mark.parametrize(("step", "direction"), [(DAY_MS + 1000, "forward"), (-DAY_MS - 1000, "backward")])
def test_a_jump_is_counted_by_its_direction_and_taken_over(
    caplog: pytest.LogCaptureFixture, step: int, direction: str
) -> None:
    clock = WatchedClock(SystemClock())
    before = telemetry.clock_jumps.values.get(direction, 0)
    clock.align(clock.now_ms() + step)
    assert telemetry.clock_jumps.values[direction] == before + 1
    assert len(fields_of(caplog)) == 1
    assert abs(clock.now_ms() - wall_ms() - step) < 5000


def test_what_a_clock_may_well_be_wrong_by_is_no_jump(caplog: pytest.LogCaptureFixture) -> None:
    clock = WatchedClock(SystemClock())
    for step in (0, 3_600_000, -3_600_000):
        clock.align(wall_ms() + step)
    assert not fields_of(caplog)


def test_an_executor_watches_its_clock_too() -> None:
    assert isinstance(RemoteExecutor(Config(store="memory://"), "far")._clock, WatchedClock)
