"""Programs that create timers in transactions of their own, which stay open for a while: no instance hears of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from mainspring.model import Namespace
from mainspring.store import Put, first_version
from mainspring.stores.plan import Write
from mainspring.testing.oracle.journal import AnyEvent, Fault
from mainspring.testing.simulation.database import FOREIGN, Database
from mainspring.testing.simulation.loop import SimulatedLoop
from mainspring.testing.simulation.plan import Operation
from mainspring.timers import record
from mainspring.timers.messages import CreateTimer, TimerView
from mainspring.timers.views import view_of

MAX_PAYLOAD: Final = 100_000


class ForeignWriter:
    """Somebody who writes without being an instance."""

    name = FOREIGN
    index = -1


class ForeignPrograms:
    def __init__(
        self,
        loop: SimulatedLoop,
        database: Database,
        namespace: Callable[[], Namespace],
        *,
        randomness: random.Random,
        journal: list[AnyEvent],
    ) -> None:
        self._loop = loop
        self._database = database
        self._namespace = namespace
        self._random = randomness
        self._journal = journal

    async def create(self, name: str, operation: Operation, request: CreateTimer) -> TimerView:
        """The row is held from the beginning of the transaction, and written when it commits."""
        namespace = self._namespace()
        keys = namespace.keys_of(request.timer_id)
        found = [row.key for row in self._database.tables.get(keys) if row is not None]
        key = found[0] if found else namespace.new_key_of(request.timer_id, self._database.now_ms())
        if operation.hold:
            now = self._loop.now_us
            until = now + operation.hold * 1000
            self._journal.append(
                Fault(at=now, until=until, kind="foreign-lock", id=request.timer_id, shard=key.shard_id)
            )
            with self._database.holding((key.shard_id, key.uuid)):
                await asyncio.sleep(operation.hold / 1000)
        fresh = record.created(
            request,
            namespace,
            now=self._database.now_ms(),
            version=first_version(self._random),
            delivery_id=f"msg_{self._random.getrandbits(128):032x}",
            max_payload=MAX_PAYLOAD,
        )
        fresh = replace(fresh, shard_id=key.shard_id, uuid=key.uuid)
        [present] = self._database.tables.get([key])
        timer = fresh if present is None else record.recreated(fresh, present)
        write = Write([Put(timer, present.version if present is not None else 0)])
        self._database.commit_now(ForeignWriter(), write, name)
        return view_of(timer, None)
