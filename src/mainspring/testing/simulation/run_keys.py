"""Runs a plan of programs that use the library: work that is done once for each key, and locks.

When all is healed, and every lease has ended, each program that can is asked once more for every key and every lock:
everybody has to get an answer then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from mainspring.idempotency import keys
from mainspring.idempotency.entries import COLLECTION, EntryState, Header, decoded
from mainspring.testing.oracle.history import Violation
from mainspring.testing.oracle.journal import Key, Left
from mainspring.testing.simulation.draws import Draws
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.node import Inhabitant
from mainspring.testing.simulation.plan import Operation, Plan
from mainspring.testing.simulation.run import EXIT, LOOK_US, Run
from mainspring.testing.simulation.users.keys import SCOPE, KeyUsers, Program

AIR_SECONDS: Final = 4.0
LONGEST_SECONDS: Final = 120.0
PROBES: Final = 1_000
"""The number of the caller that asks once more."""


class KeysRun(Run):
    def __init__(self, plan: Plan, loop: SimulatedLoop, draws: Draws) -> None:
        super().__init__(plan, loop, draws)
        self._callers = KeyUsers(
            loop,
            journal=self.journal,
            program=self._current.__getitem__,
            worked=self._worked,
            sometimes=self.sometimes,
            surprised=self._surprised,
        )
        used = {operation.ids[0]: operation.verb for operation in plan.operations}
        self._keys = [id for id, verb in used.items() if verb != "hold"]
        self._locks = [id for id, verb in used.items() if verb == "hold"]

    def _make(self, index: int, name: str) -> Inhabitant:
        return Program(
            index,
            name,
            loop=self._loop,
            world=self._world,
            draws=self._draws,
            skew_ms=self._skew_ms(index),
            database=self.database,
            users=self._callers,
            ended=self._ended,
        )

    def _begin(self) -> None:
        for place, operation in enumerate(self._plan.operations):
            self._at(operation.at, self._callers.ask, f"{operation.verb}-{place}", operation)

    def _surprised(self, name: str, error: Exception) -> None:
        self.exits.append(Violation(EXIT, name, f"{name} raised {error!r}", len(self.journal)))

    # --- the end --------------------------------------------------------------------------------------------

    async def _rest(self) -> None:
        await asyncio.sleep(self._world.lease_seconds + AIR_SECONDS)
        for id in (*self._keys, *self._locks):
            for index in self._able():
                self._probe(id, index)
                await self._done()
        self._callers.end()

    def _probe(self, id: str, index: int) -> None:
        verb = "hold" if id in self._locks else "call"
        wait = round((self._world.lease_seconds + AIR_SECONDS) * 1000)
        operation = Operation(client=PROBES, at=0, verb=verb, ids=(id,), node=index, hold=1, timeout=wait)
        self._callers.ask(f"last-{id}-{index}", operation)

    async def _done(self) -> None:
        until = self._loop.time() + LONGEST_SECONDS
        while not self._callers.done and self._loop.time() < until:  # noqa: ASYNC110 (the dead tell nobody)
            await asyncio.sleep(LOOK_US / 1_000_000)

    def _able(self) -> Iterator[int]:
        return (index for index, node in self._current.items() if node.is_alive and index != self._world.left_cut)

    def _left(self) -> Left:
        return Left(
            at=self._loop.now_us,
            wall_ms=self.database.now_ms(),
            healed_at=self.healed_at,
            timers=False,
            idempotency=True,
            alive=tuple(self._current[index].name for index in self._able()),
            keys=tuple(
                Key(key=key, state=self._state(header), reason=header.reason)
                for key in self._keys
                if (header := self._header(key)) is not None
            ),
        )

    def _header(self, key: str) -> Header | None:
        record = self._tables.get_record(COLLECTION, keys.address(SCOPE, key), now=self.database.now_ms())
        return None if record is None else decoded(record).header

    def _state(self, header: Header) -> str:
        """As everybody sees it."""
        is_over = header.state is EntryState.RUNNING and self.database.now_ms() >= header.lease_until
        return EntryState.UNKNOWN.value if is_over else header.state.value

    def _worked(self, key: str) -> None:
        header = self._header(key)
        if header is not None and header.state is EntryState.RUNNING and self.database.now_ms() >= header.lease_until:
            self.sometimes("holder outlives lease")
