"""Locks of a program that runs an engine, and of one that does not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from mainspring import Mainspring, open_lock
from mainspring.errors import LockTaken
from tests.support.source_tree import ROOT


async def test_a_program_with_an_engine_and_one_without_exclude_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    async with Mainspring(url) as ms, open_lock(url, "nightly") as lock:
        async with ms.lock("nightly").hold() as held:
            with pytest.raises(LockTaken):
                async with lock.hold():
                    raise AssertionError("never entered")
        async with lock.hold() as later:
            assert later.token > held.token


def test_the_program_of_the_guide_works_as_written(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "locks.md").read_text()
    [program] = re.findall(r"^```python\n(# Rebuilds .*?)^```", guide, re.MULTILINE | re.DOTALL)
    command = [sys.executable, "-c", program, f"sqlite:///{tmp_path / 'app.db'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert re.fullmatch(r"rebuilding with token \d+\n", done.stdout)
