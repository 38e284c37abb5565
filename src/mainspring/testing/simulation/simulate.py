"""A plan in, an outcome out: the same plan always has the same outcome, in any process."""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Struct

from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import AnyEvent
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.plan import Plan
from mainspring.testing.simulation.services import SERVICES
from mainspring.testing.simulation.teardown import quiet, unwind


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of a run."""

    plan: Plan
    violations: list[Violation]
    digest: str
    """Of the whole journal."""
    reached: list[str]
    seconds: float
    """Simulated."""
    journal: list[AnyEvent]


def simulate(plan: Plan) -> Outcome:
    draws = Draws(plan.seed, muted=plan.muted)
    loop = SimulatedLoop(draws.order)
    with quiet():
        run = SERVICES[plan.service].run(plan, loop, draws)
        try:
            violations = run.verdict()
        finally:
            run.database.closed = True
            unwind(loop)
    digest = blake2b(digest_size=16)
    encoder = msgspec.json.Encoder()
    for event in run.journal:
        digest.update(encoder.encode(event))
    return Outcome(
        plan=plan,
        violations=violations,
        digest=digest.hexdigest(),
        reached=list(run.reached),
        seconds=loop.time(),
        journal=run.journal,
    )
