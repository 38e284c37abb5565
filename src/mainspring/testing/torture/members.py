"""The servers of a run: each is a process that dies and is back after a while, at the same address."""

from __future__ import annotations

import asyncio
import random
import signal
from collections import Counter, deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from mainspring import crashpoint
from mainspring.testing.oracle.journal import AnyEvent, Fault
from mainspring.testing.torture.hosts import now_us
from mainspring.testing.torture.process import ServerProcess
from mainspring.testing.torture.relay import Relay
from mainspring.testing.torture.starvation import Starvation

CRASH_POINTS: Final = tuple(name for name in crashpoint.NAMES if not name.startswith(("fetch", "run", "clock")))
ARMED: Final = 0.3
"""The share of starts that have a crash point armed."""
POLL_SECONDS: Final = 0.05


class Member:
    """One server. `watch` sees to it that it runs, until `close`."""

    def __init__(
        self,
        number: int,
        directory: Path,
        settings: dict[str, str],
        *,
        relay: Relay | None,
        dice: random.Random,
        write: Callable[[AnyEvent], None],
        points: deque[str],
        surroundings: Mapping[str, str],
    ) -> None:
        """`points` are crash points that are to be reached, by any server."""
        self.name = f"s{number}"
        self.relay = relay
        self.url = ""
        """Where it is, in all its lives."""
        self.blows: Counter[str] = Counter()
        self.failures: list[str] = []
        """Exits that nobody wanted."""
        self.starved_us = 0
        """How long the machine was too busy to let it run."""
        self.is_troubled = False
        """Something befalls it that lasts."""
        self.arms = True
        self.reached: Counter[str] = Counter()
        """Crash points at which it ended."""
        self._point = ""
        self._points = points
        self._wants_points = bool(points)
        self._surroundings = surroundings
        self._directory = directory / self.name
        self._settings = settings
        self._dice = dice
        self._write = write
        self._expected = ""
        self._closing = False
        self._starvation = Starvation(now_us)
        self.process = self._start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def _start(self) -> ServerProcess:
        """The first start has nothing armed: it has to come up, and its port is then kept."""
        self._point = ""
        if "port" in self._settings and self.arms and (self._points or self._dice.random() < ARMED):
            self._point = self._points.popleft() if self._points else self._dice.choice(CRASH_POINTS)
        count = 1 if self._point.startswith("shard") else self._dice.randint(1, 30)
        self._expected = ""
        crash_at = f"{self._point}:{count}" if self._point else ""
        return ServerProcess(self._directory, self._surroundings, crash_at=crash_at, **self._settings)

    @property
    def is_armed(self) -> bool:
        return bool(self._point)

    async def ready(self) -> None:
        if not await self.process.ready(seconds=60.0):
            raise RuntimeError(f"Expected a server, got exit code {self.process.exit_code}: {self.process.tail()}")
        self._settings["port"] = str(self.process.port)
        self.url = self.process.url

    async def watch(self) -> None:
        while not self._closing:
            code = self.process.exit_code
            if code is None:
                await asyncio.sleep(POLL_SECONDS)
                self._note_starvation()
                continue
            crashed = bool(self._point) and code == -signal.SIGKILL and self._expected != "kill"
            if crashed:
                self.reached[self._point] += 1
            elif self._wants_points and self._point:
                self._points.append(self._point)  # it did not get there
            if not self._expected and not crashed:
                self.failures.append(f"{self.name} ended with {code}: {self.process.tail()[-500:]}")
            if not self._expected:
                self._told("kill")
            await asyncio.sleep(self._dice.choice((0.0, 0.0, 0.5, 2.0)))
            if self._closing:
                return
            self.process = self._start()
            if await self.process.ready(seconds=60.0):
                self._write(Fault(at=now_us(), kind="restart", node=self.name))

    def _note_starvation(self) -> None:
        if (starved := self._starvation.look(self.pid)) is not None:
            self.starved_us += starved[1] - starved[0]
            self._write(Fault(at=starved[0], until=starved[1], kind="pause", node=self.name))

    def _told(self, kind: str) -> None:
        self.blows[kind] += 1
        self._write(Fault(at=now_us(), kind="stop" if kind == "stop" else "kill", node=self.name))

    def kill(self) -> None:
        self._end("kill", signal.SIGKILL)

    def stop(self) -> None:
        self._end("stop", signal.SIGTERM)

    def _end(self, kind: str, number: signal.Signals) -> None:
        if self._expected or self.process.exit_code is not None:
            return
        self._expected = kind
        self._told(kind)
        self.process.send(number)

    async def pause(self, seconds: float) -> None:
        self.blows["pause"] += 1
        at = now_us()
        process = self.process
        process.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        process.send(signal.SIGCONT)
        self._write(Fault(at=at, until=now_us(), kind="pause", node=self.name))

    async def part(self, kind: str, seconds: float) -> None:
        """Cut or hold the line to the database for a while."""
        assert self.relay is not None
        self.blows[kind] += 1
        at = now_us()
        self.relay.cut() if kind == "cut" else self.relay.hold()
        await asyncio.sleep(seconds)
        self.relay.heal()
        self._write(
            Fault(at=at, until=now_us(), kind="store", node=self.name, mode="refuse" if kind == "cut" else "hang")
        )

    async def heal(self) -> None:
        """Whatever was planned for it no longer happens, and a server that was told to end has its successor."""
        self.arms = False
        self.process.send(signal.SIGCONT)
        if self._point:
            self.kill()
        while self._expected or self.process.exit_code is not None or self._point or not self.process.url:  # noqa: ASYNC110
            await asyncio.sleep(POLL_SECONDS)

    async def close(self) -> int:
        """Stop it in order; returns its exit code."""
        self._closing = True
        self.process.send(signal.SIGCONT)
        return await self.process.stop(seconds=60.0)

    async def kill_and_reap(self) -> None:
        self._closing = True
        await self.process.kill()
