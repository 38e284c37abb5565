"""Hostile receivers and token holders, a few of each: others are served all the same. `make attack` has them in full.

The bounds are wide, so that a busy machine breaks none of them; the tight ones are those of the command.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mainspring.testing.attacks.attack import Attack
from mainspring.testing.attacks.catalogue import ATTACKS
from mainspring.testing.attacks.punctuality import NEVER, Punctuality
from mainspring.testing.attacks.trial import run_trial
from mainspring.testing.attacks.verdict import Verdict, table
from mainspring.testing.attacks.witness import Experience
from tests.support.command_lines import command_lines

SIZES = {
    "packed-answers": 20,
    "escaped-answers": 20,
    "haste": 30,
    "hanging-hosts": 150,
    "hanging-origins": 150,
    "slow-fetches": 100,
}
"""Less than there are places, so that whatever a server does with the rest is not asked here."""
LONGEST_WAIT = 5.0
MOST_MEMORY = 150_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZES)
async def test_what_a_hostile_receiver_does_keeps_nobody_else_from_being_served(name: str, tmp_path: Path) -> None:
    verdict = await run_trial(ATTACKS[name], tmp_path, seconds=2.0, size=SIZES[name])
    assert verdict.achieved > 0
    assert verdict.exit_code is None
    assert (verdict.timers.missing, verdict.fetches.missing) == (0, 0)
    assert [experience.refused for experience in verdict.experiences] == [0, 0]
    assert max(verdict.p99, verdict.timers.worst, verdict.fetches.worst) < LONGEST_WAIT
    assert verdict.growth_bytes < MOST_MEMORY
    assert verdict.recovery_seconds < NEVER
    assert not any(complaint.startswith(verdict.attack.counts) for complaint in verdict.complaints)


async def _nothing(*_: object) -> int:
    return 0


GOOD = Verdict(
    attack=Attack(name="none", what="", run=_nothing, size=10, counts="calls", most_per_second=1.0),
    achieved=30,
    size=10,
    seconds=3.0,
    experiences=(Experience((0.01,) * 100, 0),),
    timers=Punctuality((0.01, 0.02)),
    fetches=Punctuality((0.01,)),
    growth_bytes=1_000_000,
    recovery_seconds=0.5,
    exit_code=None,
)


def test_an_attack_that_costs_little_is_held() -> None:
    assert GOOD.complaints == ()
    assert GOOD.row()[-1] == "held"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"exit_code": -9}, "the server ended with -9"),
        ({"experiences": (Experience((0.01,) * 100, 1),)}, "1 requests of a good client were not answered"),
        ({"experiences": (Experience((0.01,) * 98 + (0.6, 0.6), 0),)}, "p99 above 0.5 s"),
        ({"experiences": (Experience((), 0),)}, "p99 above 0.5 s"),
        ({"timers": Punctuality((0.01, NEVER))}, "1 of 2 good timers not called"),
        ({"timers": Punctuality((0.01, 0.6))}, "later than 0.5 s"),
        ({"fetches": Punctuality((0.6,))}, "later than 0.5 s"),
        ({"fetches": Punctuality((NEVER,))}, "1 of 1 good fetches not called"),
        ({"growth_bytes": 151_000_000}, "more than 150 MB"),
        ({"recovery_seconds": 16.0}, "not recovered in 15 s"),
        ({"achieved": 41}, "calls: 41"),
    ],
)
def test_each_bound_that_is_broken_is_named(change: dict[str, object], complaint: str) -> None:
    fields = {name: getattr(GOOD, name) for name in Verdict.__slots__}
    verdict = Verdict(**{**fields, **change})
    assert verdict.complaints == (complaint,)
    assert verdict.row()[-1] == "BROKEN"


def test_the_table_is_markdown() -> None:
    lines = table([GOOD]).splitlines()
    assert len(lines) == 3
    assert len({line.count("|") for line in lines}) == len({len(line) for line in lines}) == 1


def attack(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mainspring.testing.attacks", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_command_says_what_there_is() -> None:
    told = attack("--list")
    assert told.returncode == 0
    assert [line.split()[0] for line in told.stdout.splitlines()] == list(ATTACKS)


@pytest.mark.parametrize("flags", [("--only", "kindness"), ("--size", "3"), ("--seconds", "0")])
def test_the_command_refuses_what_makes_no_sense(flags: tuple[str, ...]) -> None:
    told = attack(*flags)
    assert (told.returncode, told.stdout) == (2, "")
    assert "Error" in told.stderr


@pytest.mark.slow
def test_the_command_prints_a_row_for_each_attack_and_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    told = attack("--only", "haste", "--seconds", "1", "--size", "3")
    assert told.returncode in (0, 1), told.stderr  # a busy machine may be late
    assert "| haste " in told.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_attacks_that_are_ended_leave_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mainspring.testing.attacks", "--only", "haste", "--seconds", "60"]
    environment = {"TMPDIR": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as tool:
        try:
            deadline = time.monotonic() + 60
            while not any("attacks.alone" in line for line in command_lines(str(tmp_path))):
                assert time.monotonic() < deadline
                assert tool.poll() is None
                time.sleep(0.05)
            tool.send_signal(number)
            _, told = tool.communicate(timeout=30)
        finally:
            tool.kill()
    assert tool.returncode == 128 + number
    assert f"ended by {number.name}: 0 of 1 attacks were over" in told
    deadline = time.monotonic() + 30
    while left := command_lines(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
