"""The program of the README runs when it is pasted, and does what the text around it says."""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from pathlib import Path

import pytest

from mainspring.testing.target import TargetServer
from tests.support.examples import SECONDS
from tests.support.source_tree import ROOT

README = (ROOT / "README.md").read_text()
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
PROGRAM = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)[0]
URL = "https://example.com/"


async def run(directory: Path, url: str) -> str:
    """What it prints, if somebody at this URL is called instead."""
    assert PROGRAM.count(URL) == 1
    (directory / "program.py").write_text(PROGRAM.replace(URL, url))
    process = await asyncio.create_subprocess_exec(
        *("env", "MAINSPRING_ALLOW_LOOPBACK=true", sys.executable, "program.py"),
        stdout=asyncio.subprocess.PIPE,
        cwd=directory,
    )
    async with asyncio.timeout(SECONDS):
        output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


@pytest.mark.slow
async def test_the_program_reminds_and_makes_its_call_once_however_often_it_is_run(tmp_path: Path) -> None:
    async with TargetServer() as target:
        for _ in range(2):
            assert await run(tmp_path, f"{target.url}/") == "succeeded 200\nremind Ann\n"
        assert len(target.requests) == 1


@pytest.mark.slow
async def test_without_a_network_the_program_says_that_the_call_has_failed_and_reminds(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}/"
        assert await run(tmp_path, url) == "failed None\nremind Ann\n"
    assert "`failed None`" in README


def test_the_readme_and_the_tutorial_use_different_names_and_ports() -> None:
    """Whoever has done the one can do the other, in the same checkout and with the same server."""

    def names(text: str) -> set[str]:
        commands = r"(?:timer|job) create (\S+)|\"timerId\": \"([^\"]+)\"|--req-id (\S+)|dev receive --port (\d+)"
        return {next(filter(None, found)) for found in re.findall(commands, text)}

    assert names(README)
    assert len(names(TUTORIAL)) > 4
    assert names(README) & names(TUTORIAL) == set()
    assert "8711" not in TUTORIAL
