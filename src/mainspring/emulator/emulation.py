"""What an instance in virtual time needs: the clock, the way through time, and senders that know of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mainspring.cluster.instance import Instance
from mainspring.cluster.surroundings import Surroundings
from mainspring.delivery.sender import MakesSenders, Sender
from mainspring.emulator.clock import VirtualClock
from mainspring.emulator.outgoing import Outgoing
from mainspring.emulator.passage import Passage

SETTINGS: Final[dict[str, Any]] = {
    "store": "memory://",
    "registry": "",
    "workers": 1,
    "circuit_failures": 1_000_000,
}
"""Whatever is in the environment. Circuits go by the machine's clock: an open one would hold up virtual time."""


class Emulation:
    """For one instance: make it with `surroundings`, and have it `attached` while it runs."""

    def __init__(self, clock: VirtualClock, senders: MakesSenders = Sender) -> None:
        self.clock = clock
        self.senders: MakesSenders = Outgoing(clock, senders, self.secrets)
        self._instance: Instance | None = None

    @property
    def surroundings(self) -> Surroundings:
        return Surroundings(clock=self.clock, senders=self.senders)

    @asynccontextmanager
    async def attached(self, instance: Instance) -> AsyncIterator[Passage]:
        """For as long as the instance runs."""
        self._instance = instance
        passage = Passage(instance, self.clock)
        attending = asyncio.create_task(passage.attend())
        try:
            yield passage
        finally:
            attending.cancel()
            with suppress(asyncio.CancelledError):
                await attending

    def secrets(self) -> Iterable[Sequence[str]]:
        """Those of every namespace: what callbacks are signed with."""
        return [] if self._instance is None else [namespace.secrets for namespace in self._instance.namespaces.known]
