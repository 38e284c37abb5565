"""Runs a plan of jobs. A calendar never comes to rest: only what is due when all is healed is waited for."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec.structs import replace

from mainspring.jobs.messages import RunView
from mainspring.testing.oracle.journal import Left
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.plan import Plan
from mainspring.testing.simulation.run import Run
from mainspring.testing.simulation.users.jobs import JobUsers

REST_SECONDS: Final = 85.0


class JobsRun(Run):
    def __init__(self, plan: Plan, loop: SimulatedLoop, draws: Draws) -> None:
        super().__init__(plan, loop, draws)
        self._clients = JobUsers(
            loop,
            plan.world,
            self._wire,
            journal=self.journal,
            address=self._address,
            wall_ms=self.database.now_ms,
            database=self.database,
            sometimes=self.sometimes,
        )
        self._runs: list[RunView] = []

    def _begin(self) -> None:
        self._clients.start(self._plan.operations)

    async def _done(self) -> None:
        await self._clients.done()

    async def _rest(self) -> None:
        await asyncio.sleep(REST_SECONDS)
        await super()._rest()
        names = dict.fromkeys(id for operation in self._plan.operations for id in operation.ids)
        self._runs = await self._clients.runs(names)
        self._clients.count(self._runs, self._plan.operations)

    def _left(self) -> Left:
        return replace(super()._left(), jobs=True, runs=tuple(self._runs))
