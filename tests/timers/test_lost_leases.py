"""Leases that end between the begin of an attempt and its call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.kernel.ownership import INSTANCES
from mainspring.model import Record, Timer
from mainspring.store import Store
from mainspring.timers.carrier import GONE_URLS
from mainspring.timers.messages import CreateTimer, ListHistory
from tests.support.simulated_jobs import World, simulate


class _Slow:
    """A store that, while it `is_slow`, keeps whoever looks up a destination waiting, and renews no lease."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.is_slow = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        if collection == GONE_URLS:  # a timer of it has been resumed since
            await asyncio.sleep(3 if self.is_slow else 0)
            return None
        return await self._inner.get_record(collection, key, now=now)

    async def put_record(self, collection: str, key: str, value: bytes, **how: Any) -> Record | None:
        if self.is_slow and collection == INSTANCES:
            raise StoreUnavailable("simulated: slow")
        return await self._inner.put_record(collection, key, value, **how)


@pytest.mark.parametrize("until", [12.5, 16])
def test_nothing_is_sent_by_an_instance_whose_lease_ended_while_it_looked_at_the_destination(until: float) -> None:
    async def main(world: World) -> None:
        store: Any = _Slow(world.store)
        calls: list[str] = []
        async with world.running(store=store, lease_seconds=2.0, renew_seconds=0.5) as instance:
            carrier = instance.timers_assembly.carrier

            async def note(timer: Timer) -> None:
                assert instance.ownership.valid()
                calls.append(timer.timer_id)

            carrier.handlers["note"] = note
            await world.store.put_record(GONE_URLS, "k", b"handler:note", expect=0, now=0, expires_at=2**62)
            await carrier.refresh()  # it is believed to be gone, and so looked up
            await instance.timers.create(CreateTimer(timer_id="t", delay_seconds=10.0, callback_url="handler:note"))
            await world.until(9.9)
            store.is_slow = True
            await world.until(until)
            store.is_slow = False
            await world.until(40)
            assert calls == ["t"]
            [attempt] = (await instance.timers.history(ListHistory(timer_id="t"))).attempts
            assert attempt.outcome == "succeeded"

    simulate(main)
