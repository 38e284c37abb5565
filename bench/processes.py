"""The processes under test: started in a directory of their own, asked over HTTP, and always ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from bench.load import Answer, ask, post

TOKEN = "bench-token-of-more-than-22-characters"
POLL_SECONDS = 0.002
START_SECONDS = 30.0
STOP_SECONDS = 30.0


class Running:
    """A process that answers HTTP on a port of this machine."""

    def __init__(self, process: asyncio.subprocess.Process, port: int, started_in: float) -> None:
        self._process = process
        self.port = port
        self.started_in = started_in
        """Seconds from the start of the process to its first answer."""

    @property
    def pid(self) -> int:
        return self._process.pid

    async def call(self, path: str, message: object) -> Answer:
        """One request to the API; anything but 200 is an error."""
        answer = await ask("127.0.0.1", self.port, post(path, msgspec.json.encode(message), token=TOKEN))
        if answer.status != 200:
            raise RuntimeError(f"Expected 200 from {path}, got {answer.status}: {answer.body[:500]!r}")
        return answer

    def memory_mb(self, field: str = "VmRSS") -> float:
        """Resident memory in millions of bytes; `VmHWM` is the highest it has been."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        [kib] = [int(line.split()[1]) for line in lines if line.startswith(f"{field}:")]
        return kib * 1024 / 1e6


@contextlib.asynccontextmanager
async def server(directory: Path, *, store: str = "", flags: Sequence[str] = ()) -> AsyncIterator[Running]:
    """`mainspring serve` with its data in `directory`, or in the store of that URL, and otherwise its defaults."""
    port = _free_port()
    program = str(Path(sys.executable).with_name("mainspring"))
    arguments = ["serve", "--port", str(port), "--data-dir", str(directory)]
    if store:
        arguments += ("--store", store)
    arguments += flags
    async with _running((program, *arguments), port, "/health", directory / "server.log") as running:
        yield running


@contextlib.asynccontextmanager
async def executor(directory: Path, *, pool: str, flags: Sequence[str] = ()) -> AsyncIterator[Running]:
    """`mainspring executor` of a pool, for the server that has its data in `directory`."""
    port = _free_port()
    program = str(Path(sys.executable).with_name("mainspring"))
    arguments = ("executor", "--port", str(port), "--data-dir", str(directory), "--allow-loopback", "--pool", pool)
    async with _running((program, *arguments, *flags), port, "/health", directory / "executor.log") as running:
        yield running


@contextlib.asynccontextmanager
async def echo(directory: Path) -> AsyncIterator[Running]:
    """The plain ASGI application."""
    port = _free_port()
    arguments = (sys.executable, "-m", "bench.echo", str(port))
    async with _running(arguments, port, "/", directory / "echo.log") as running:
        yield running


@contextlib.asynccontextmanager
async def put(directory: Path) -> AsyncIterator[Running]:
    """The bare endpoint that puts one document, with its data in `directory`."""
    port = _free_port()
    arguments = (sys.executable, "-m", "bench.put", str(port), f"sqlite:///{directory / 'put.db'}")
    async with _running(arguments, port, "/", directory / "put.log") as running:
        yield running


@contextlib.asynccontextmanager
async def cart(directory: Path, platform: Running) -> AsyncIterator[Running]:
    """The telecom cart before a simulated platform, with its data in `directory`."""
    port = _free_port()
    store = f"sqlite:///{directory / 'cart.db'}"
    arguments = ("serve", "--port", str(port), "--store", store, "--simulated", "--provider", "salesforce")
    where = ("--provider-url", f"http://127.0.0.1:{platform.port}")
    command = (sys.executable, "-m", "telecom_cart", *arguments, *where)
    async with _running(command, port, "/v1/carts/nobody-in-particular", directory / "cart.log") as running:
        yield running


@contextlib.asynccontextmanager
async def simulated_platform(directory: Path) -> AsyncIterator[Running]:
    """The platform that the cart is tried with."""
    port = _free_port()
    command = (sys.executable, "-m", "telecom_cart.simulators", "salesforce", "--port", str(port))
    async with _running(command, port, "/_sim", directory / "platform.log") as running:
        yield running


@contextlib.asynccontextmanager
async def _running(arguments: tuple[str, ...], port: int, path: str, log: Path) -> AsyncIterator[Running]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as stderr:
        started_at = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *arguments,
            stdout=stderr,
            stderr=stderr,
            env=os.environ | {"MAINSPRING_TOKEN": TOKEN, "PYTHONPATH": _paths()},
        )
    try:
        await _first_answer(process, port, path, log)
        yield Running(process, port, time.perf_counter() - started_at)
    finally:
        await _end(process)


async def _first_answer(process: asyncio.subprocess.Process, port: int, path: str, log: Path) -> None:
    request = f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    async with asyncio.timeout(START_SECONDS):
        while process.returncode is None:
            try:
                if (await ask("127.0.0.1", port, request)).status == 200:
                    return
            except OSError:  # not listening yet
                await asyncio.sleep(POLL_SECONDS)
    raise RuntimeError(f"Expected a process that serves, got its end; see {log}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise


def processor_seconds(root: int) -> float:
    """What a process and those that descend from it have used, as long as they run."""
    return sum(stat.processor_seconds for stat in _family(root))


def family_of(root: int) -> set[int]:
    """The process ids of a process and of those that descend from it."""
    return {stat.pid for stat in _family(root)}


class _Stat(NamedTuple):
    pid: int
    parent: int
    processor_seconds: float


def _family(root: int) -> list[_Stat]:
    found: dict[int, _Stat] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # Behind the name in brackets, which may hold anything: state, parent, and later user and system time.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            found[int(entry.name)] = _Stat(int(entry.name), int(fields[1]), used)
    family = {root}
    while grown := {stat.pid for stat in found.values() if stat.parent in family} - family:
        family |= grown
    return [found[pid] for pid in family if pid in found]


def busy_seconds() -> float:
    """What all programs of the machine have used since its start, and what was taken from it by its host."""
    user, nice, system, _, _, irq, soft_irq, steal, *_ = map(int, Path("/proc/stat").read_text().split()[1:11])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _paths() -> str:
    """Where modules are found, those of the cart too."""
    cart = str(Path(__file__).parents[1] / "apps/cart/src")
    return os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), cart)))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
