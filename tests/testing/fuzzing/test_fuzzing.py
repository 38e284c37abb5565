"""Nonsense from a seed, half a minute of it; `make fuzz` goes on. And that a campaign finds what it is for."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from types import TracebackType
from typing import Self

import pytest

from mainspring.testing.fuzzing import campaign
from mainspring.testing.fuzzing.__main__ import TARGETS
from mainspring.testing.fuzzing.campaign import Broken, Campaign

CASES = {"listener": 3_000, "answers": 5_000, "bodies": 18_000, "cron": 30_000}
LONGEST_SECONDS = 20.0
"""Wide, so that a busy machine breaks nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
async def test_no_nonsense_breaks_anything(name: str) -> None:
    report = await Campaign(TARGETS[name](), 1, cases=CASES[name], longest_seconds=LONGEST_SECONDS).run()
    assert "\n".join(map(str, report.failures)) == ""
    assert report.cases == CASES[name]


@pytest.mark.parametrize("name", TARGETS)
def test_a_case_follows_from_its_seed(name: str) -> None:
    one, other = TARGETS[name](), TARGETS[name]()
    drawn = [one.draw(random.Random(number)) for number in range(50)]
    assert drawn == [other.draw(random.Random(number)) for number in range(50)]
    assert len(set(drawn)) > 40


class Planted:
    """A target that does what a test wants with every case that holds a 7."""

    name = "planted"
    at_once = 4

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._later = False

    def draw(self, dice: random.Random) -> bytes:
        return b"%d" % dice.randrange(100)

    async def run(self, case: bytes) -> float:
        if b"7" not in case:
            return 0.001
        match self._kind:
            case "error":
                raise ValueError("of no kind of ours")
            case "slow":
                return 1.5
            case "loop":
                while True:
                    pass
            case "log":
                self._later = True
        return 0.001

    async def check(self) -> None:
        if self._later:
            self._later = False
            raise Broken("a line in the log")

    def resident_bytes(self) -> int:
        return 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("error", "ValueError: of no kind of ours"),
        ("slow", "took 1.50 s"),
        ("loop", "computed for more than 0.05 s"),
        ("log", "a line in the log"),
    ],
)
async def test_a_case_that_breaks_something_is_named_and_breaks_it_again(
    kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "_HANG_SECONDS", 0.05)
    report = await Campaign(Planted(kind), 3, cases=40).run()
    assert report.failures
    for failure in report.failures:
        assert failure.reason == reason
        assert b"7" in failure.data
        [again] = (await Campaign(Planted(kind), 3, first=failure.case, cases=1).run()).failures
        assert again == failure
    assert f"--target planted --seed 3 --case {report.failures[0].case}" in str(report.failures[0])


async def test_growing_memory_is_a_failure() -> None:
    class Growing(Planted):
        grown = 0

        def resident_bytes(self) -> int:
            self.grown += 1_000_000
            return self.grown

    report = await Campaign(Growing(""), 1, cases=2_000).run()
    assert ["memory grew" in failure.reason for failure in report.failures] == [True]


def fuzz(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainspring.testing.fuzzing", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


async def test_the_command_tells_what_it_did() -> None:
    told = await asyncio.to_thread(fuzz, "--target", "cron", "--seconds", "1", "--seed", "5")
    assert told.returncode == 0, told.stdout
    assert told.stdout.startswith("cron      seed 5: ")


@pytest.mark.parametrize("flags", [("--case", "1"), ("--target", "cron", "--case", "1"), ("--target", "tea")])
def test_the_command_refuses_what_makes_no_sense(flags: tuple[str, ...]) -> None:
    assert fuzz(*flags).returncode == 2
