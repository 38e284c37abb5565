"""A store that fails in ways that nobody has foreseen ends no instance: what it was to do is done afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.fetches.record import NAMESPACE
from mainspring.jobs.reconciler import LOCK_SECONDS
from tests.support.simulated_jobs import World, simulate

VERBS = ("time", "get", "list_timers", "load_due", "next_due", "shards", "get_record", "put_record", "scan_records")


class Failing:
    """Stands before a store. Verbs in `broken` raise what no store should raise."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.broken: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in self.broken:
            raise RuntimeError(f"unforeseen: {name}")
        return getattr(self._inner, name)


@pytest.mark.parametrize("verbs", [*((verb,) for verb in VERBS), VERBS])
def test_an_instance_outlives_a_store_that_fails_in_an_unforeseen_way(verbs: tuple[str, ...]) -> None:
    async def main(world: World) -> None:
        store: Any = Failing(world.store)
        async with world.running(store=store) as instance:
            await instance.namespaces.system(NAMESPACE)
            await world.create(schedule="* * * * *")
            await world.until(130)
            before = len(world.calls)
            store.broken = set(verbs)
            await world.until(130 + 5 * LOCK_SECONDS)
            store.broken = set()
            await world.until(130 + 10 * LOCK_SECONDS)
            assert before >= 2
            assert len(world.calls) > before

    simulate(main)
