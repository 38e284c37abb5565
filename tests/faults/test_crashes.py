"""A server that is killed while it works loses nothing, repeats nothing that must not be, and forgets nobody's change.

`tools/torture.py` does the same for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring import crashpoint
from mainspring.testing.torture.process import ServerProcess
from mainspring.testing.torture.run import RANDOM, plan_of, run


@pytest.mark.slow
async def test_promises_survive_every_crash_point_and_random_kills(tmp_path: Path) -> None:
    report = await run(tmp_path, seed=20, plan=plan_of(20, kills=4))
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.arrivals > 200, "the run did not do enough to mean anything"
    assert sum(report.crashes.values()) == len(crashpoint.NAMES) + 5
    assert set(crashpoint.NAMES) <= report.crashes.keys(), f"crash points were missed: {report.crashes}"


@pytest.mark.slow
async def test_promises_survive_while_a_second_server_takes_over_at_every_death(tmp_path: Path) -> None:
    report = await run(tmp_path, seed=21, plan=[RANDOM] * 6, companion=True)
    assert report.violations == [], "\n".join(map(str, report.violations[:20]))
    assert report.arrivals > 200, "the run did not do enough to mean anything"


async def test_a_crash_point_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, crash_at="nowhere")
    assert await server.ended() == 1
    assert "Expected MAINSPRING_CRASH_AT to be one of" in server.tail()
