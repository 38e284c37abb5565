"""Runs many seeds, a process per core, and tells of each what it found."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Final

from msgspec import Struct

from mainspring.testing.oracle.history import Violation
from mainspring.testing.simulation.simulate import simulate
from mainspring.testing.simulation.swarm import draw_plan

CHUNK: Final = 10
"""Seeds that a process runs before it tells of them, and before its garbage is collected."""
WAITING: Final = 3
"""Chunks that wait for each process."""


class Found(Struct, frozen=True):
    """What became of a seed."""

    seed: int
    violations: list[Violation]
    digest: str
    reached: list[str]


def look(seed: int, service: str = "timers") -> Found:
    outcome = simulate(draw_plan(seed, service))
    return Found(seed, outcome.violations, outcome.digest, outcome.reached)


def look_at(seeds: Sequence[int], service: str) -> list[Found]:
    found = [look(seed, service) for seed in seeds]
    gc.collect()
    return found


def search(seeds: Sequence[int], service: str = "timers", *, processes: int | None = None) -> Iterator[Found]:
    """In the order in which they end."""
    processes = processes or len(os.sched_getaffinity(0))
    chunks = iter([seeds[at : at + CHUNK] for at in range(0, len(seeds), CHUNK)])
    if processes == 1 or len(seeds) <= CHUNK:
        for chunk in chunks:
            yield from look_at(chunk, service)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        running: set[Future[list[Found]]] = set()
        while True:
            while len(running) < processes * WAITING and (later := next(chunks, None)) is not None:
                running.add(pool.submit(look_at, later, service))
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                yield from future.result()
