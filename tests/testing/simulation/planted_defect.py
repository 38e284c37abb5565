"""What a planted defect is, and how it is looked for: it changes one method, and breaks one promise."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple

from mainspring.testing.signals import end_at_once
from mainspring.testing.simulation.search import look

MOST: Final = 2000


class Planted(NamedTuple):
    """A defect: the rule that has to find it, the method that has it, and what is put in that method's place."""

    rule: str
    owner: Any
    method: str
    broken: Callable[[Any], Any]
    """Makes the broken method out of the good one."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        good = vars(self.owner)[self.method]
        setattr(self.owner, self.method, self.broken(good))
        try:
            yield
        finally:
            setattr(self.owner, self.method, good)


@cache
def is_clean(seed: int, service: str = "timers") -> bool:
    """Whether a seed finds nothing, so that what it finds of a planted defect is that defect."""
    return not look(seed, service).violations


def found_at(planted: Planted, seeds: Sequence[int], service: str = "timers") -> int | None:
    """The first of these seeds that finds a defect by its rule."""
    with planted.in_place():
        for seed in seeds:
            if any(violation.rule == planted.rule for violation in look(seed, service).violations):
                return seed
    return None


def tell(defects: Mapping[str, Planted], service: str = "timers") -> None:
    """How many seeds it takes to find each of those that the command line names, or of all."""
    parser = argparse.ArgumentParser(
        description=f"How many seeds it takes to find each planted defect of {service}, {MOST} at most.",
        epilog="Ends with 0 if all were found; with 1 if not; with 2 if there is none of that name; with 130 or 143 "
        "if it was told to end.",
    )
    parser.add_argument(
        "parts", nargs="*", metavar="name", help=f"part of a name; all when none is given: {', '.join(defects)}"
    )
    parts = parser.parse_args().parts
    if unknown := [part for part in parts if not any(part in name for name in defects)]:
        parser.error(f"Expected parts of names, got {', '.join(unknown)}")
    end_at_once(lambda: "the others were not looked for")
    missed = False
    for name in [name for name in defects if not parts or any(part in name for part in parts)]:
        seed = found_at(defects[name], range(MOST), service)
        missed = missed or seed is None
        after = "not found" if seed is None else f"{seed + 1}"
        print(f"| {name} | {defects[name].rule} | {after} |", flush=True)  # noqa: T201
    sys.exit(int(missed))
