"""Runs many seeds, one process per core, and reports what each found."""

from __future__ import annotations

import gc
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import IO, Final

import msgspec
from msgspec import Struct

from mainspring.testing.oracle.history import Violation
from mainspring.testing.signals import mortal
from mainspring.testing.simulation.simulate import simulate
from mainspring.testing.simulation.swarm import draw_plan

COLLECTED: Final = 10
"""How many seeds a process runs before its garbage is collected."""
LOOK_SECONDS: Final = 0.2
"""How often somebody asks whether the search is over."""


class Found(Struct, frozen=True):
    """What became of a seed."""

    seed: int
    violations: list[Violation]
    digest: str
    reached: list[str]


def look(seed: int, service: str = "timers") -> Found:
    outcome = simulate(draw_plan(seed, service))
    return Found(seed, outcome.violations, outcome.digest, outcome.reached)


def look_at(seeds: Iterator[int] | Sequence[int], service: str) -> Iterator[Found]:
    for done, seed in enumerate(seeds, 1):
        yield look(seed, service)
        if done % COLLECTED == 0:
            gc.collect()


def search(
    seeds: Sequence[int],
    service: str = "timers",
    *,
    processes: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[Found]:
    """In the order in which they end; none after `is_over`."""
    processes = min(processes or len(os.sched_getaffinity(0)), len(seeds) // COLLECTED)
    if processes <= 1:
        for found in look_at(seeds, service):
            yield found
            if is_over():
                return
        return
    left = iter(seeds)
    with ExitStack() as stack, selectors.DefaultSelector() as answers:
        for _ in range(processes):
            worker = stack.enter_context(_Worker(service))
            worker.ask(next(left))
            answers.register(worker.answers, selectors.EVENT_READ, worker)
        while answers.get_map() and not is_over():
            for key, _ in answers.select(LOOK_SECONDS):
                worker = key.data
                found = worker.answer()
                if (seed := next(left, None)) is None:
                    answers.unregister(worker.answers)
                else:
                    worker.ask(seed)
                yield found


class _Worker:
    """A process that is given seeds, one per line, and answers with what it found. Killed at the end of the block.

    In a group of its own, so that an interrupt at the terminal reaches only us.
    """

    def __init__(self, service: str) -> None:
        self._seed = 0
        self._process = subprocess.Popen(  # noqa: S603
            mortal([sys.executable, "-m", "mainspring.testing.simulation.worker", service]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )

    @property
    def answers(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def ask(self, seed: int) -> None:
        assert self._process.stdin is not None
        self._seed = seed
        self._process.stdin.write(b"%d\n" % seed)
        self._process.stdin.flush()

    def answer(self) -> Found:
        if not (line := self.answers.readline()):
            raise RuntimeError(f"Expected an answer, got exit code {self._process.wait()} at seed {self._seed}")
        return msgspec.json.decode(line, type=Found)

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
