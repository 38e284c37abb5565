"""Our small programs on the peers' libraries: installed once into the user's cache, run as processes that obey."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec
from tests.servers.sources import cached, debian_packages, run

HERE = Path(__file__).parent
STOP_SECONDS = 15.0
START_SECONDS = 60.0


class Done(msgspec.Struct, frozen=True):
    """How many jobs were created, and how long that took."""

    count: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds


class Program:
    """One process that answers a line with a line."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ask(self, *words: object, seconds: float) -> Done:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{' '.join(map(str, words))}\n".encode())
        return await self.answer(seconds)

    async def answer(self, seconds: float) -> Done:
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Expected an answer, got an end: {self._log.read_text(errors='replace')[-2000:]}")
        return msgspec.json.decode(line, type=Done)


@contextlib.asynccontextmanager
async def program(
    command: Sequence[str], *, directory: Path, log: Path, environment: Mapping[str, str] | None = None
) -> AsyncIterator[Program]:
    """Runs in `directory`, until it is no longer needed; ready when it comes."""
    with log.open("ab") as stderr:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=directory,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env=os.environ | (environment or {}),
        )
    try:
        running = Program(process, log)
        await running.answer(START_SECONDS)
        yield running
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.communicate(b"")  # closes its input, which ends it
    except TimeoutError:
        process.kill()
        await process.wait()


def node_programs(directory: Path) -> Path:
    """A directory that holds the programs for Node beside the libraries they import. Raises `Unobtainable`."""
    debian_packages(["nodejs"], provides="node")
    debian_packages(["npm"], provides="npm")
    place = directory / "node"
    if not place.exists():
        libraries = cached(_named("peers-node", "package.json"), _install_node)
        place.mkdir()
        for source in (*HERE.glob("*.mjs"), HERE / "package.json"):
            shutil.copy(source, place)
        (place / "node_modules").symlink_to(libraries / "node_modules")
    return place


def python_programs() -> Path:
    """The directory with the programs of a virtualenv that holds Celery. Raises `Unobtainable`."""
    return cached(_named("peers-python", "requirements.txt"), _install_python) / "bin"


def _named(name: str, file: str) -> str:
    """What is installed changes with the file that says what."""
    return f"{name}-{hashlib.sha256((HERE / file).read_bytes()).hexdigest()[:12]}"


def _install_node(directory: Path) -> None:
    shutil.copy(HERE / "package.json", directory)
    run(["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=directory)


def _install_python(directory: Path) -> None:
    run([sys.executable, "-m", "venv", str(directory)])
    # By its interpreter: the scripts of a virtualenv name the directory in which it was made, and this one is renamed.
    pip = [str(directory / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--requirement", str(HERE / "requirements.txt")])
