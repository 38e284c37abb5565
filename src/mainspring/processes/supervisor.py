"""Several instances on one machine behind one port: each is a process, and this one looks after them.

A worker gets its configuration on its standard input, so that no secret shows in a list of processes; the end of
that input tells it that its supervisor is gone, so that no worker is left behind. It says "ready" and its private port
on its output, and from then on gives a sign of life every second: one that is frozen keeps its share of the
connections, so it is killed. Each is told the private ports of all that are ready, whenever that changes.

A worker that ends by itself is started again, after longer and longer pauses while it keeps failing. If no worker in
its place was ever ready, the whole ends with its exit code: such a fault will not cure itself. If one was ready, the
configuration was right, and whatever troubles its successor may pass while the others go on.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mainspring import telemetry
from mainspring.api.listener import cannot_listen
from mainspring.config import Config
from mainspring.errors import ConfigError, MainspringError
from mainspring.processes.neighbours import JoinMetrics, Neighbours
from mainspring.processes.server import run
from mainspring.processes.startup import EXIT_FAILED, give_up, read_token, served, show_banner

READY: Final = b"ready "
SHORTEST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 30.0
GOOD_LIFE_SECONDS: Final = 30.0
"""A worker that has lived this long is started again at once."""
STOP_GRACE_SECONDS: Final = 10.0
"""How much longer than its own drain a worker may take to stop."""
BEAT_SECONDS: Final = 1.0
SILENT_BEATS = 15
"""A worker is killed after this many beats without a sign of life."""
_BEAT: Final = b"."
_WORK: Final = "from mainspring.processes.supervisor import work; work()"


def supervise(config: Config) -> int:
    """Run the workers until told to stop. Returns the exit code."""
    telemetry.set_up_logging(config.log_level, config.log_format)
    config = served(config)
    try:
        _check_store(config)
        token, source = read_token(config)
        with _reserve(config) as reserved:
            chosen = replace(config, port=reserved.getsockname()[1], token=token, token_file="")
            supervisor = Supervisor(chosen)
            supervisor.when_ready = lambda: show_banner(config, chosen.port, token, source)
            return asyncio.run(supervisor.run())
    except MainspringError as error:
        return give_up(config, error)


def _check_store(config: Config) -> None:
    if config.store_url.startswith("memory:"):
        raise ConfigError(
            f"Expected a store that {config.workers} workers can share, got memory://, which is private to each"
        )


def _reserve(config: Config) -> socket.socket:
    """Hold the port for the workers; nothing is accepted here. Refuses a port that somebody else has."""
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            found = probe.getsockname()
        reserved = socket.socket(family, kind, protocol)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind(found)
    except OSError as error:
        raise cannot_listen(config.host, config.port, error) from error
    return reserved


def _nothing() -> None:
    pass


class Supervisor:
    def __init__(self, config: Config) -> None:
        """`config` names the port and the token that all workers have."""
        self._config = config
        self._inputs: dict[int, asyncio.StreamWriter] = {}
        """Of the workers that are running, by their slots."""
        self._ports: dict[int, int] = {}
        """The private ones of those that are ready."""
        self._stop = asyncio.Event()
        self._ready: set[int] = set()
        self._exit_code = 0
        self.when_ready: Callable[[], None] = _nothing
        """Called once, when all workers accept requests for the first time."""

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        async with asyncio.TaskGroup() as tasks:
            for slot in range(self._config.workers):
                tasks.create_task(self._keep(slot))
        return self._exit_code

    async def _keep(self, slot: int) -> None:
        """One worker after another in this place, until the stop."""
        pause = SHORTEST_PAUSE_SECONDS
        while not self._stop.is_set():
            started = time.monotonic()
            code = await self._live(slot)
            if self._stop.is_set():
                self._exit_code = self._exit_code or max(code, 0)
                return
            if slot not in self._ready:
                self._exit_code = code if code > 0 else EXIT_FAILED
                self._stop.set()
                return
            if time.monotonic() - started >= GOOD_LIFE_SECONDS:
                pause = SHORTEST_PAUSE_SECONDS
            telemetry.warning("a worker exited and will be restarted", worker=slot, exit_code=code, pause=pause)
            await self._stopped_within(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _live(self, slot: int) -> int:
        """One life of a worker; returns its exit code, negative for a signal."""
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _WORK, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        assert worker.stdin is not None
        # It is left open: its end means that this process is gone.
        worker.stdin.write(msgspec.json.encode(_Start(slot=slot, config=self._config)) + b"\n")
        self._inputs[slot] = worker.stdin
        try:
            async with asyncio.TaskGroup() as tasks:
                stopping = tasks.create_task(self._end_at_stop(slot, worker))
                code = await self._watch(slot, worker)
                stopping.cancel()
        finally:
            del self._inputs[slot]
            if self._ports.pop(slot, None) is not None:
                self._introduce()
        return code

    def _introduce(self) -> None:
        """Tell all workers which of them are ready, and where."""
        line = msgspec.json.encode(self._ports) + b"\n"
        for written in self._inputs.values():
            written.write(line)

    async def _end_at_stop(self, slot: int, worker: Process) -> None:
        await self._stop.wait()
        _send(worker, signal.SIGTERM)
        await asyncio.sleep(self._config.longest_drain_seconds + STOP_GRACE_SECONDS)
        telemetry.error("a worker did not stop and will be killed", worker=slot)
        _send(worker, signal.SIGKILL)

    async def _watch(self, slot: int, worker: Process) -> int:
        assert worker.stdout is not None
        said = await worker.stdout.readline()
        if said.startswith(READY):
            self._ready.add(slot)
            self._ports[slot] = int(said.removeprefix(READY))
            self._introduce()
            if len(self._ready) == self._config.workers:
                self.when_ready()
                self.when_ready = _nothing
            await self._listen(slot, worker, worker.stdout)
        return await worker.wait()

    async def _listen(self, slot: int, worker: Process, output: asyncio.StreamReader) -> None:
        """Until the output of a worker ends. Its silence is counted in our own beats, so that no worker is blamed
        for a time in which this process itself was frozen."""
        silent = 0
        reading = asyncio.create_task(output.read(1024))
        try:
            while silent < SILENT_BEATS:
                silent += 1
                await asyncio.wait([reading], timeout=BEAT_SECONDS)
                if not reading.done():
                    continue
                if not reading.result():
                    return
                silent = 0
                reading = asyncio.create_task(output.read(1024))
        finally:
            reading.cancel()
        telemetry.error("a worker gives no sign of life and is killed", worker=slot)
        _send(worker, signal.SIGKILL)

    async def _stopped_within(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()


def _send(worker: Process, number: signal.Signals) -> None:
    if worker.returncode is None:
        worker.send_signal(number)


class _Start(Struct, frozen=True, kw_only=True):
    """What a worker is told first."""

    slot: int
    config: Config


class _Worker:
    """The part of a server that a supervisor has started."""

    is_worker = True

    def __init__(self, slot: int) -> None:
        self._neighbours = Neighbours(slot)
        self._said = b""
        """By the supervisor, up to the end of a line that has not come."""

    def watch(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            said = os.read(sys.stdin.fileno(), 65_536)
            if not said:
                loop.remove_reader(sys.stdin.fileno())
                stop.set()
            *lines, self._said = (self._said + said).split(b"\n")
            for line in lines:
                self._neighbours.ports = msgspec.json.decode(line, type=dict[int, int])

        loop.add_reader(sys.stdin.fileno(), read)

    def joined_metrics(self, secret: str) -> AbstractAsyncContextManager[JoinMetrics]:
        return self._neighbours.asked(secret)

    def ready(self, config: Config, port: int, private_port: int, token: str, source: str) -> None:
        os.write(sys.stdout.fileno(), b"%b%d\n" % (READY, private_port))
        os.set_blocking(sys.stdout.fileno(), False)
        self._beat(asyncio.get_running_loop())

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(OSError):  # nobody reads: the supervisor is frozen, or gone
            os.write(sys.stdout.fileno(), _BEAT)
        loop.call_later(BEAT_SECONDS, self._beat, loop)


def work() -> None:
    """What a worker process does."""
    line = bytearray()
    while not line.endswith(b"\n"):
        line += os.read(sys.stdin.fileno(), 1)
    start = msgspec.json.decode(line, type=_Start)
    sys.exit(run(start.config, _Worker(start.slot)))
