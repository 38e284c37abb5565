"""Servers on one SQLite file that are killed while they work lose nothing, repeat nothing that must not be, and forget
nobody's change; and whoever breaks that is found.

`make torture` does the same for longer, and on the databases.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainspring.testing.torture.figures import Figures
from mainspring.testing.torture.members import CRASH_POINTS
from mainspring.testing.torture.process import ServerProcess
from mainspring.testing.torture.run import Torture, torture

PLANTED = Path(__file__).parent / "planted"


def violations(figures: Figures) -> str:
    return "\n".join(str(violation)[:300] for violation in figures.violations[:20])


@pytest.mark.slow
async def test_promises_survive_every_crash_point(tmp_path: Path) -> None:
    figures = await torture(
        tmp_path,
        Torture(
            store_url=f"sqlite:///{tmp_path}/shared.db",
            seed=20,
            seconds=25,
            destinations=100,
            points=CRASH_POINTS,
            blows={"kill": 2, "stop": 1},
        ),
    )
    assert not figures.violations, violations(figures)
    missed = tuple(set(CRASH_POINTS) - figures.points.keys())  # on a machine that has much else to do
    if missed:
        url = f"sqlite:///{tmp_path}/again.db"
        again = await torture(tmp_path, Torture(store_url=url, seed=21, seconds=25, points=missed, blows={"stop": 1}))
        assert not again.violations, violations(again)
        assert set(missed) <= again.points.keys(), f"crash points were missed: {missed}, then {again.points}"
    assert figures.acknowledged > 100, "the run did not do enough to mean anything"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "rules"),
    [
        ("forget_creates", {"T1"}),
        ("keep_deleted", {"T1", "T4"}),
        ("repeat_what_may_not_be", {"T5"}),
    ],
)
async def test_a_bug_in_the_servers_is_found(tmp_path: Path, bug: str, rules: set[str]) -> None:
    path = os.pathsep.join([str(PLANTED), os.environ.get("PYTHONPATH", "")])
    found: set[str] = set()
    for seed in (3, 4, 5):  # what a run of ten seconds meets depends on the machine
        directory = tmp_path / str(seed)
        directory.mkdir()
        figures = await torture(
            directory,
            Torture(
                store_url=f"sqlite:///{directory}/shared.db",
                seed=seed,
                seconds=10,
                destinations=50,
                blows={"kill": 1},
                surroundings={"PYTHONPATH": path, "PLANTED": bug},
            ),
        )
        found |= {violation.rule for violation in figures.violations}
        assert figures.is_good == (not figures.violations)
        if rules & found:
            return
    raise AssertionError(f"found {found}, and none of {rules}")


async def test_a_crash_point_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, crash_at="nowhere")
    assert await server.ended() == 1
    assert "Expected MAINSPRING_CRASH_AT to be one of" in server.tail()
