"""How runs are looked up and ended together with others, and what happens if that cannot be done. In simulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.jobs.registry import JOBS
from mainspring.model import Record
from mainspring.store import Finish, Store, Verdict
from tests.support.simulated_jobs import World, simulate
from tests.support.troubled_store import TroubledStore

MINUTE = 60


class Counting(TroubledStore):
    """Counts how the ledger and the registry are read and written."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.puts = 0
        """Of entries in the ledger, by themselves."""
        self.together = 0
        """The same, with a row."""
        self.reads = 0
        """Of definitions, one by one."""
        self.reads_of_many: list[int] = []
        self.is_away = False

    async def put_record(self, collection: str, key: str, value: bytes, **how: Any) -> Record | None:
        self.puts += collection.startswith("launch:")
        return await self._inner.put_record(collection, key, value, **how)

    async def finish(self, items: Sequence[Finish]) -> list[Verdict]:
        self.together += sum(item.record is not None for item in items)
        return await super().finish(items)

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        self.reads += collection == JOBS
        if self.is_away and collection == JOBS:
            raise StoreUnavailable("simulated: away")
        return await self._inner.get_record(collection, key, now=now)

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        self.reads_of_many.append(len(wanted))
        if self.is_away:
            raise StoreUnavailable("simulated: away")
        return [await self._inner.get_record(collection, key, now=now) for collection, key in wanted]


def test_a_run_enters_the_ledger_by_itself_and_ends_there_with_its_row() -> None:
    async def main(world: World) -> None:
        store: Any = Counting(world.store)
        async with world.running(store=store):
            await world.create(schedule="* * * * *")
            await world.until(3 * MINUTE + 1)
            assert [run.state for run in await world.runs()] == ["succeeded"] * 3
            assert (store.puts, store.together) == (3, 3)

    simulate(main)


def test_runs_that_begin_together_are_looked_up_together() -> None:
    async def main(world: World) -> None:
        store: Any = Counting(world.store)
        async with world.running(store=store):
            for n in range(20):
                await world.create(f"job-{n}", schedule="0 * * * *")
            await world.until(60 * MINUTE - 1)
            store.reads, store.reads_of_many = 0, []
            await world.until(60 * MINUTE + 1)
            assert len(world.calls) == 20
            assert store.reads == 0
            assert sum(store.reads_of_many) == 40
            assert len(store.reads_of_many) < 20

    simulate(main)


def test_runs_that_cannot_be_looked_up_wait_and_no_call_is_made_twice() -> None:
    async def main(world: World) -> None:
        store: Any = Counting(world.store)
        async with world.running(store=store):
            await world.create(schedule="* * * * *")
            await world.until(MINUTE - 1)
            store.is_away = True
            await world.until(MINUTE + 3)
            assert world.calls == []
            store.is_away = False
            await world.until(MINUTE + 5)
            [run] = await world.runs()
            assert (run.state, run.attempts) == ("succeeded", 1)
            assert len(world.calls) == 1

    simulate(main)


@pytest.mark.parametrize("verdict", [Verdict.STALE, Verdict.FENCED, Verdict.UNAVAILABLE, Verdict.REFUSED])
def test_an_end_that_cannot_be_written_with_its_row_is_written_before_it(verdict: Verdict) -> None:
    async def main(world: World) -> None:
        store: Any = Counting(world.store)

        def fault(verb: str, item: object) -> Verdict | None:
            return verdict if verb == "finish" and isinstance(item, Finish) and item.record is not None else None

        store.fault = fault
        async with world.running(store=store) as instance:
            await world.create(schedule="0 * * * *")
            await world.until(60 * MINUTE + 30)
            [run] = await world.runs()
            assert (run.state, run.attempts) == ("succeeded", 1)
            assert len(world.calls) == 1
            assert await instance.jobs_assembly.rows.runs([run.launch_id]) == [None]

    simulate(main)


def test_an_end_whose_answer_was_lost_is_not_written_again() -> None:
    async def main(world: World) -> None:
        store: Any = Counting(world.store)
        async with world.running(store=store) as instance:
            await world.create(schedule="0 * * * *")
            await world.until(60 * MINUTE - 1)
            store.lose_answers = {"finish"}
            await world.until(60 * MINUTE + 3)
            before = await world.runs()
            store.lose_answers = set()
            await world.until(60 * MINUTE + 30)
            assert await world.runs() == before
            assert [(run.state, run.attempts) for run in before] == [("succeeded", 1)]
            assert len(world.calls) == 1
            assert await instance.jobs_assembly.rows.runs([before[0].launch_id]) == [None]

    simulate(main)
