"""What becomes of fetches whose req id was used before, when the record of that is about to expire."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from mainspring.fetches.record import WATCHDOG_MS
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from tests.support.fetch_requests import asking
from tests.support.simulated_fetches import world

URL = "http://t.example/"
TIMEOUT_SECONDS = 5.0
LOOK_SECONDS = 2.0
"""How long it takes at most until a row that is due is looked at."""
ENDS_SECONDS = TIMEOUT_SECONDS + WATCHDOG_MS / 1000 + LOOK_SECONDS
DAY_SECONDS = 86_400.0


def expect_fetches_of_expired_req_ids() -> None:
    """A thousand req ids, each asked for again about when its record expires: none of them is left without an end."""

    async def main(loop: SimulatedLoop) -> Counter[str]:
        dice = random.Random(1)
        states: Counter[str] = Counter()
        async with world(loop, latency_seconds=0.01, retention_days=1) as here:

            async def ask(req_id: str) -> None:
                asked = asking(URL, req_id=req_id, timeout_seconds=TIMEOUT_SECONDS)
                await here.fetches.create(asked)
                first = await here.fetches.wait(req_id, LOOK_SECONDS)
                assert first.result is not None
                again_at = first.result.finished_at.timestamp() + DAY_SECONDS + dice.uniform(-0.02, 0.08)
                for _ in range(10):  # engine time, which is not that of the loop
                    await asyncio.sleep(max(0.0, again_at - here.clock.now_ms() / 1000))
                await here.fetches.create(asked)
                await asyncio.sleep(ENDS_SECONDS)
                # Not `wait`, which would mend what it finds.
                fetch = await here.fetching.registry.find(req_id)
                states["gone" if fetch is None else fetch.state] += 1

            async with asyncio.TaskGroup() as asking_all:
                for number in range(1_000):
                    asking_all.create_task(ask(f"again{number}"))
        return states

    states = run_simulated(main)
    assert states["pending"] == 0
    assert states["succeeded"] > 500, "most were asked for again after they had expired"
