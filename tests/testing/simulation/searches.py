"""What the suite asks of the seeds that it searches."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.testing.simulation.counters import total, unreached
from mainspring.testing.simulation.search import search


def expect_no_finding(seeds: Sequence[int], service: str) -> None:
    """No promise is broken, and everything that has to happen sometimes happens: else it says little.

    A failing seed is shown by `make simulate ARGS="--service … --seed N"`.
    """
    ran = list(search(seeds, service))
    assert {found.seed: str(found.violations[0]) for found in ran if found.violations} == {}
    assert unreached(total(found.reached for found in ran), service) == []
