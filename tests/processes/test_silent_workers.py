"""A worker that gives no sign of life is killed and replaced; one that does is left alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainspring.config import Config
from mainspring.processes import supervisor
from mainspring.processes.supervisor import Supervisor
from tests.support.patience import until

PROGRAM = """
import os, time
lives = open({lives!r}, "a+b")
lives.write(b"x")
lives.flush()
is_first = lives.tell() == 1
os.write(1, b"ready 1\\n")
while True:
    time.sleep(0.02)
    if not is_first:
        os.write(1, b".")
"""


async def test_a_worker_that_gives_no_sign_of_life_is_killed_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = tmp_path / "lives"
    monkeypatch.setattr(supervisor, "_WORK", PROGRAM.format(lives=str(lives)))
    monkeypatch.setattr(supervisor, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "SILENT_BEATS", 10)
    monkeypatch.setattr(supervisor, "SHORTEST_PAUSE_SECONDS", 0.01)
    watching = Supervisor(Config(workers=1, drain_seconds=0.1))
    running = asyncio.create_task(watching.run())

    async def replaced() -> bool | None:
        return True if lives.exists() and lives.stat().st_size == 2 else None

    await until(replaced, seconds=20, what="a second life")
    await asyncio.sleep(1.5)
    assert len(lives.read_bytes()) == 2
    watching._stop.set()
    await running
