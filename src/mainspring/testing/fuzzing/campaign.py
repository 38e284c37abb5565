"""One case after another against a target: what is too slow, too large, or an error that is not one of ours."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Final, Protocol, Self

LONGEST_SECONDS: Final = 1.0
MOST_GROWTH_BYTES: Final = 64_000_000
WARM_CASES: Final = 300
"""Memory is compared with what it was after this many: by then caches are full."""
MOST_FAILURES: Final = 5
_HANG_SECONDS: Final = 10.0
SHOWN: Final = 300


class Broken(Exception):
    """What a case has shown, in words."""


class Target(Protocol):
    """What cases are thrown at. An async context manager."""

    name: str
    at_once: int
    """How many cases run together."""

    def draw(self, dice: random.Random) -> bytes:
        """A case; the same from the same dice."""
        ...

    async def run(self, case: bytes) -> float:
        """Run a case and return how many seconds it took. Raises Broken, or whatever it should not."""
        ...

    async def check(self) -> None:
        """Look for what shows only afterwards, for example in a log. Raises Broken."""
        ...

    def resident_bytes(self) -> int:
        """The memory of whatever cases are thrown at."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that broke something, and how to see it again."""

    target: str
    seed: int
    case: int
    reason: str
    data: bytes

    def __str__(self) -> str:
        shown = repr(self.data[:SHOWN]) + ("…" if len(self.data) > SHOWN else "")
        again = f"--target {self.target} --seed {self.seed} --case {self.case}"
        return f"{again}\n    {self.reason}\n    {len(self.data)} bytes: {shown}"


@dataclass(slots=True)
class Report:
    """What a campaign has seen."""

    target: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    slowest_seconds: float = 0.0
    slowest_case: int = 0
    growth_bytes: int = 0
    failures: list[Failure] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.target:9} seed {self.seed}: {self.cases:,} cases in {self.seconds:.0f} s, "
            f"slowest {self.slowest_seconds * 1000:.0f} ms (case {self.slowest_case}), "
            f"memory {self.growth_bytes / 1e6:+.1f} MB, {len(self.failures)} failed"
        )


@dataclass(frozen=True, slots=True)
class Campaign:
    """Cases from `first` on, up to a number of them or for a time."""

    target: Target
    seed: int
    seconds: float = float("inf")
    cases: int | None = None
    first: int = 0
    longest_seconds: float = LONGEST_SECONDS
    """A case that takes longer hangs."""
    advanced: Callable[[int, float], None] = lambda cases, seconds: None
    """Called with how many cases there were, and in how many seconds."""

    async def run(self) -> Report:
        report = Report(self.target.name, self.seed)
        began = time.monotonic()
        warm = 0
        async with self.target as target:
            number = self.first
            while self._goes_on(report, number, time.monotonic() - began):
                left = self.first + self.cases - number if self.cases is not None else target.at_once
                group = range(number, number + min(target.at_once, left))
                await self._run_group(report, group)
                number = group.stop
                report.cases = number - self.first
                report.seconds = time.monotonic() - began
                self.advanced(report.cases, report.seconds)
                resident = target.resident_bytes()
                warm = resident if report.cases <= WARM_CASES else warm
                report.growth_bytes = resident - warm
        if report.growth_bytes > MOST_GROWTH_BYTES:
            reason = f"memory grew by {report.growth_bytes / 1e6:.0f} MB over {report.cases} cases"
            report.failures.append(Failure(target.name, self.seed, self.first, reason, b""))
        return report

    def _goes_on(self, report: Report, number: int, seconds: float) -> bool:
        is_over = seconds >= self.seconds or (self.cases is not None and number >= self.first + self.cases)
        return not is_over and len(report.failures) < MOST_FAILURES

    async def _run_group(self, report: Report, group: range) -> None:
        drawn = {number: self.target.draw(self._dice(number)) for number in group}
        with _no_endless_loop():
            took = await asyncio.gather(*(self._run_case(report, number, data) for number, data in drawn.items()))
            for number, seconds in zip(drawn, took, strict=True):
                await self._judge_time(report, number, drawn[number], seconds)
        try:
            await self.target.check()
        except Broken as broken:
            await self._find(report, drawn, str(broken))

    async def _run_case(self, report: Report, number: int, data: bytes) -> float:
        try:
            return await self.target.run(data)
        except Broken as broken:
            reason = str(broken)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what we are looking for)
            reason = f"{type(error).__name__}: {error}"
        report.failures.append(Failure(self.target.name, self.seed, number, reason, data))
        return 0.0

    async def _judge_time(self, report: Report, number: int, data: bytes, seconds: float) -> None:
        if seconds > self.longest_seconds:  # run alone, it is slow again, or the machine was to blame
            seconds = await self._run_case(report, number, data)
        if seconds > report.slowest_seconds:
            report.slowest_seconds, report.slowest_case = seconds, number
        if seconds > self.longest_seconds:
            report.failures.append(Failure(self.target.name, self.seed, number, f"took {seconds:.2f} s", data))

    async def _find(self, report: Report, drawn: dict[int, bytes], reason: str) -> None:
        """Which one of those that ran together did it: run each alone."""
        for number, data in drawn.items():
            try:
                await self.target.run(data)
                await self.target.check()
            except Broken as broken:
                report.failures.append(Failure(self.target.name, self.seed, number, str(broken), data))
                return
        first = min(drawn)
        reason = f"{reason}; only together with the {len(drawn) - 1} cases behind it"
        report.failures.append(Failure(self.target.name, self.seed, first, reason, drawn[first]))

    def _dice(self, number: int) -> random.Random:
        return random.Random(f"{self.target.name} {self.seed} {number}")


@contextmanager
def _no_endless_loop() -> Iterator[None]:
    """Breaks loops that never end. Only the time that this process computes is counted, not that of others."""

    def ring(_: int, __: FrameType | None) -> None:
        raise Broken(f"computed for more than {_HANG_SECONDS:g} s")

    before = signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, _HANG_SECONDS, _HANG_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
