"""Clients of any service: each carries out its operations in turn, and writes down what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from mainspring.client import AsyncClient
from mainspring.errors import MainspringError
from mainspring.testing.oracle.journal import AnyEvent, Fail, Info, Ok, View
from mainspring.testing.simulation.loop import Process, SimulatedLoop, context_of
from mainspring.testing.simulation.node import TOKEN
from mainspring.testing.simulation.plan import Operation, World
from mainspring.testing.simulation.wire import PEERS, SimulatedTransport, Wire

Told = tuple[tuple[View, ...], int | None]
"""The views of an answer, and how many it says were changed."""


class Clients:
    """The clients of a run that speak to one service."""

    def __init__(
        self,
        loop: SimulatedLoop,
        world: World,
        wire: Wire,
        *,
        journal: list[AnyEvent],
        address: Callable[[int], str],
        wall_ms: Callable[[], int],
    ) -> None:
        """`address` names the process that an instance number is at the moment; `wall_ms` is the store's clock, by
        which clients set theirs."""
        self._loop = loop
        self._world = world
        self._wire = wire
        self._journal = journal
        self._address = address
        self._wall_ms = wall_ms
        self._clients: list[asyncio.Task[None]] = []

    async def done(self) -> None:
        """Waits for all of them."""
        for client in self._clients:
            await client

    def start(self, operations: Sequence[Operation]) -> None:
        by_client: dict[int, list[tuple[str, Operation]]] = {}
        for place, operation in enumerate(operations):
            name = f"{operation.verb}-{place}"
            by_client.setdefault(operation.client, []).append((name, operation))
        for client, planned in by_client.items():
            context = context_of(Process(f"c{client}"))
            self._clients.append(context.run(self._loop.create_task, self._behave(planned)))

    async def _behave(self, planned: list[tuple[str, Operation]]) -> None:
        unawaited: list[asyncio.Task[None]] = []
        for name, operation in planned:
            await asyncio.sleep(max(0, operation.at * 1000 - self._loop.now_us) / 1_000_000)
            if operation.awaits:
                await self._carry_out(name, operation)
            else:
                unawaited.append(self._loop.create_task(self._carry_out(name, operation)))
        for task in unawaited:
            await task

    async def _carry_out(self, name: str, operation: Operation) -> None:
        raise NotImplementedError

    def _client(self, name: str, operation: Operation, node: str) -> AsyncClient:
        return AsyncClient(
            f"http://{node}{PEERS}",
            TOKEN,
            timeout=operation.timeout / 1000,
            retries=0,
            transport=SimulatedTransport(self._wire, f"c{operation.client}", name),
        )

    def _answered(self, name: str, told: Told) -> bool:
        views, changed = told
        self._journal.append(Ok(at=self._loop.now_us, op=name, views=views, changed=changed))
        return True

    def _failed(self, name: str, error: MainspringError) -> bool:
        """Whether it is known what became of it."""
        if error.outcome_unknown:
            self._journal.append(Info(at=self._loop.now_us, op=name, reason=error.detail))
            return False
        self._journal.append(Fail(at=self._loop.now_us, op=name, code=error.code))
        return True
