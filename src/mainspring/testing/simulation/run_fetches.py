"""Runs of fetches: users who ask for calls, and executors beside the instances."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.testing.oracle.journal import Fault, Left
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.node import ExecutorNode, Inhabitant, Node
from mainspring.testing.simulation.plan import EXECUTORS, Plan
from mainspring.testing.simulation.run import Run
from mainspring.testing.simulation.users.fetches import FetchUsers


class FetchRun(Run):
    def __init__(self, plan: Plan, loop: SimulatedLoop, draws: Draws) -> None:
        super().__init__(plan, loop, draws)
        self._fetches = FetchUsers(
            loop,
            plan.world,
            self._wire,
            journal=self.journal,
            address=self._address,
            wall_ms=self.database.now_ms,
            tables=self._tables,
            sometimes=self.sometimes,
        )

    def _begin(self) -> None:
        self._fetches.start(self._plan.operations)

    async def _done(self) -> None:
        await self._fetches.done()

    def _is_more_owed(self) -> bool:
        return self._fetches.is_owed(self.healed_at)

    def _make(self, index: int, name: str) -> Inhabitant:
        return (ExecutorNode if index >= EXECUTORS else Node)(
            index,
            name,
            loop=self._loop,
            world=self._world,
            draws=self._draws,
            skew_ms=self._skew_ms(index),
            database=self.database,
            wire=self._wire,
            is_dead=self._is_dead,
            ended=self._ended,
        )

    def _kill(self, node: Inhabitant, point: str = "") -> None:
        if isinstance(node, ExecutorNode) and node.is_alive and node.calls:
            self.sometimes("executor lost with calls under way")
        super()._kill(node, point)

    def _shards(self) -> Sequence[int]:
        return [*super()._shards(), *self._fetches.shards]

    def _left(self) -> Left:
        stopped = [e.node for e in self.journal if isinstance(e, Fault) and e.kind == "stop" and e.node]
        if self._fetches.given_up(stopped):
            self.sometimes("drain given up")
        return replace(super()._left(), fetches=True, fetched=self._fetches.left())
