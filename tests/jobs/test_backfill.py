"""A backfill may be ten thousand runs: nobody else waits for them all, and one that fails stops no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.jobs.messages import BackfillJob
from mainspring.store import Put, Remove, Store, Verdict
from mainspring.testing.simulation import EPOCH_MS
from mainspring.wire.instants import to_instant
from tests.support.simulated_jobs import START, World, simulate

MINUTES = 9_999
WANTED: dict[str, Any] = {"name": "job", "since": to_instant(EPOCH_MS - MINUTES * 60_000), "until": START}


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[int]]:
    """How often somebody else had a turn."""
    turns = [0]

    async def beat() -> None:
        while True:
            await asyncio.sleep(0)
            turns[0] += 1

    beating = asyncio.create_task(beat())
    try:
        yield turns
    finally:
        beating.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [True, False])
def test_others_have_their_turn_while_ten_thousand_instants_are_run_afterwards(dry_run: bool) -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            await world.create(schedule="* * * * *", catchup="none")
            async with turns_of_others() as turns:
                done = await instance.jobs.backfill(BackfillJob(**WANTED, dry_run=dry_run))
            assert (done.instants, done.launched) == (MINUTES, MINUTES)
            assert turns[0] >= MINUTES // 250

    simulate(main)


class Torn:
    """A store in which nobody knows of the first large batch of rows whether it was written."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.is_torn = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
        if len(changes) > 100 and not self.is_torn:
            self.is_torn = True
            return [Verdict.UNAVAILABLE] * len(changes)
        return await self._inner.write(changes)


def test_rows_that_could_not_be_written_stop_none_of_those_behind_and_are_made_when_asked_again() -> None:
    async def main(world: World) -> None:
        store: Any = Torn(world.store)
        wanted = {**WANTED, "since": to_instant(EPOCH_MS - 450 * 60_000)}
        async with world.running(store=store) as instance:
            await world.create(schedule="* * * * *", catchup="none")
            with pytest.raises(StoreUnavailable, match="may not have been stored"):
                await instance.jobs.backfill(BackfillJob(**wanted))
            runs = [run.launch_id for run in await world.runs(kinds=("backfill",))]
            assert len(runs) == 450
            rows = await instance.jobs_assembly.rows.runs(runs)
            assert 0 < sum(row is not None for row in rows) < 450
            again = await instance.jobs.backfill(BackfillJob(**wanted))
            assert again.launched == 0
            await world.until(600)
            assert [run.state for run in await world.runs(kinds=("backfill",))] == ["succeeded"] * 450

    simulate(main)
