"""The services that are simulated: how a plan of each is drawn, and how it is run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from mainspring.testing.simulation.chance import Chance
from mainspring.testing.simulation.plan import Plan
from mainspring.testing.simulation.run import Run
from mainspring.testing.simulation.run_fetches import FetchRun
from mainspring.testing.simulation.run_jobs import JobsRun
from mainspring.testing.simulation.run_keys import KeysRun
from mainspring.testing.simulation.swarm import draw_timers
from mainspring.testing.simulation.swarm_fetches import draw_fetches
from mainspring.testing.simulation.swarm_jobs import draw_jobs
from mainspring.testing.simulation.swarm_keys import draw_keys


class Service(NamedTuple):
    draw: Callable[[Chance, int], Plan]
    """From chance and its seed."""
    run: type[Run]


SERVICES: Final = {
    "timers": Service(draw_timers, Run),
    "jobs": Service(draw_jobs, JobsRun),
    "idempotency": Service(draw_keys, KeysRun),
    "fetches": Service(draw_fetches, FetchRun),
}
