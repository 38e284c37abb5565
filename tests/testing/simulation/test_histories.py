"""A seed has one history, and seeds that once found something are kept."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.testing.oracle.journal import Commit, Fault, Reached
from mainspring.testing.simulation import scenes
from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.plan import Blow, Plan, read_plan, write_plan
from mainspring.testing.simulation.search import look
from mainspring.testing.simulation.simulate import simulate
from mainspring.testing.simulation.swarm import draw_plan
from tests.testing.simulation.searches import expect_no_finding

SEEDS = (1, 6, 8, 10, 39)
IN_THE_SUITE = 500
CASES = Path(__file__).parent / "cases"
_DIGESTS = """
import sys
from mainspring.testing.simulation.search import look
print(*(look(int(seed)).digest for seed in sys.argv[1:]))
"""


def digests_elsewhere(seeds: tuple[int, ...], hash_seed: int) -> list[str]:
    """As another process has it, in another order of hashes."""
    told = subprocess.run(
        [sys.executable, "-c", _DIGESTS, *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return told.stdout.split()


@pytest.mark.slow
def test_a_seed_has_one_history_in_any_process_and_order() -> None:
    here = {seed: look(seed).digest for seed in SEEDS}
    assert len(set(here.values())) == len(SEEDS)
    backwards = tuple(reversed(SEEDS))
    assert dict(zip(SEEDS, digests_elsewhere(SEEDS, 0), strict=True)) == here
    assert dict(zip(backwards, digests_elsewhere(backwards, 4711), strict=True)) == here


def test_a_replay_file_is_the_whole_history(tmp_path: Path) -> None:
    plan = draw_plan(8)
    path = tmp_path / "plan.json"
    write_plan(path, plan)
    assert read_plan(path) == plan
    assert simulate(read_plan(path)).digest == simulate(plan).digest


def test_another_seed_is_another_world() -> None:
    plans = [draw_plan(seed) for seed in range(50)]
    assert len({msgspec.json.encode(plan.world) for plan in plans}) == 50
    assert {plan.world.instances for plan in plans} == {1, 2, 3, 4, 5}


def test_a_history_does_not_depend_on_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [look(seed).digest for seed in SEEDS[:2]]
    monkeypatch.setattr(time, "time_ns", lambda: 4_000_000_000 * 10**9)
    monkeypatch.setattr(time, "time", lambda: 4_000_000_000.0)
    assert [look(seed).digest for seed in SEEDS[:2]] == here


@pytest.mark.parametrize("days", [3, -3])
def test_a_wall_clock_that_steps_moves_nothing_of_a_running_instance(days: int) -> None:
    plan = draw_plan(8)
    steps = [Blow(at=3_000, kind="wall-clock", node=node, length=days * 86_400_000) for node in plan.world.nodes]
    told, stepped = simulate(plan), simulate(replace(plan, blows=(*plan.blows, *steps)))
    assert "wall clock stepped" in stepped.reached
    assert told.journal == [
        event
        for event in stepped.journal
        if not (isinstance(event, Fault) and event.kind == "clock")
        and not (isinstance(event, Reached) and event.what == "wall clock stepped")
    ]


@pytest.mark.parametrize("days", [3, -3])
def test_an_instance_that_starts_with_a_wrong_wall_clock_keeps_every_promise(days: int) -> None:
    blows = (
        Blow(at=3_000, kind="wall-clock", length=days * 86_400_000),
        Blow(at=3_000, kind="kill"),
        Blow(at=3_200, kind="restart"),
    )
    assert simulate(replace(draw_plan(1), blows=blows)).violations == []


@pytest.mark.parametrize("seed", [15, 54, 1006, 2030])
def test_a_namespace_that_gets_more_shards_in_the_middle_of_everything_keeps_every_promise(seed: int) -> None:
    """Among them: an id that is created in both ranges at the same time, and a store that cannot tell whether it is."""
    outcome = simulate(scenes.more_shards(Chance(Draws(seed)), draw_plan(seed)))
    assert outcome.violations == []
    shards = {event.shard for event in outcome.journal if isinstance(event, Commit) and event.verb == "begin"}
    before = outcome.plan.world.shards
    assert any(shard is not None and shard >= before for shard in shards)


def test_a_run_without_users_and_faults_comes_to_rest() -> None:
    outcome = simulate(Plan(seed=1))
    assert outcome.violations == []
    assert outcome.seconds < 60


@pytest.mark.slow
def test_no_promise_is_broken_in_five_hundred_histories() -> None:
    expect_no_finding(range(IN_THE_SUITE), "timers")


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_a_history_that_once_broke_a_promise_keeps_it_now(path: Path) -> None:
    """The name of the file says which."""
    assert simulate(read_plan(path)).violations == []
