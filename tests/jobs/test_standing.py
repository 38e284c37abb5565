"""How a job stands: its last outcome and its failures in a row, for many jobs with few questions. In simulated time."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.jobs.handlers import DueJob
from mainspring.jobs.ledger import FAILURES_LIMIT
from mainspring.jobs.messages import JobRef, JobView, ListJobs
from mainspring.model import Record, RetryPolicy
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import EPOCH_MS, SimulatedClock
from mainspring.wire.instants import to_ms
from tests.support.simulated_jobs import World, simulate

ONCE = RetryPolicy(max_attempts=1)


class Asked(MemoryStore):
    """Counts how often records are asked for."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__(clock)
        self.questions = 0

    async def get_records(self, wanted: Sequence[tuple[str, str]], *, now: int) -> list[Record | None]:
        self.questions += 1
        return await super().get_records(wanted, now=now)

    async def get_record(self, collection: str, key: str, *, now: int) -> Record | None:
        self.questions += 1
        return await super().get_record(collection, key, now=now)


def standing(job: JobView) -> tuple[str | None, int]:
    return job.last_outcome, job.consecutive_failures


def test_failures_in_a_row_are_counted_until_a_success_and_no_further_than_a_limit() -> None:
    async def main(world: World) -> None:
        async def work(due: DueJob) -> None:
            minute = (to_ms(due.scheduled_at) - EPOCH_MS) // 60_000
            if minute != 4:
                raise ValueError("no luck")

        world.behave = work
        async with world.running():
            await world.create(schedule="* * * * *", retry_policy=ONCE)

            async def seen() -> tuple[str | None, int]:
                [listed] = (await world.instance.jobs.list(ListJobs())).jobs
                assert standing(listed) == standing(await world.instance.jobs.get(JobRef(name="job")))
                return standing(listed)

            assert await seen() == (None, 0)
            for minute, expected in ((1, 1), (2, 2), (3, 3)):
                await world.until(60 * minute + 1)
                assert await seen() == ("failed", expected)
            await world.until(60 * 4 + 1)
            assert await seen() == ("succeeded", 0)
            await world.until(60 * 6 + 1)
            assert await seen() == ("failed", 2)
            await world.until(60 * 40 + 1)
            assert await seen() == ("failed", FAILURES_LIMIT)

    simulate(main)


def test_many_jobs_are_looked_up_together() -> None:
    async def main(world: World) -> None:
        async def work(_: DueJob) -> None:
            raise ValueError("no luck")

        world.behave = work
        store = Asked(world.clock)
        async with world.running(store=store):
            for number in range(50):
                await world.create(name=f"job-{number}", schedule="* * * * *", retry_policy=ONCE)
            await world.until(60 * 3 + 1)
            before = store.questions
            page = await world.instance.jobs.list(ListJobs())
            assert {standing(job) for job in page.jobs} == {("failed", 3)}
            assert store.questions - before <= 4

    simulate(main)
