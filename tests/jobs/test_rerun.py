"""A run that did not succeed is run again under its own instant, and the ledger shows both. In simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from mainspring.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from mainspring.jobs.handlers import DueJob
from mainspring.jobs.messages import JobRef, PauseJob, RerunJob, RunView, TriggerJob
from mainspring.model import RetryPolicy
from mainspring.store import Put, Remove, Store, Verdict
from tests.support.simulated_jobs import World, simulate

ONCE = RetryPolicy(max_attempts=1)


async def _failed(world: World, **fields: Any) -> RunView:
    """A run that has failed; later ones succeed."""

    async def work(_: DueJob) -> object:
        return {"ok": len(world.calls) > 1}

    world.behave = work
    await world.create(schedule="0 * * * *", retry_policy=ONCE, **fields)
    await world.until(3610)
    [run] = await world.runs()
    assert run.state == "failed"
    return run


def test_a_failed_run_is_run_again_under_its_own_instant_and_both_are_on_record() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            failed = await _failed(world, max_runs=1)
            asked = await instance.jobs.rerun(RerunJob(launch_id=failed.launch_id, by="ann"))
            assert (asked.kind, asked.state, asked.by, asked.rerun_of) == ("rerun", "planned", "ann", failed.launch_id)
            await world.until(3620)
            first, second = sorted(await world.runs(), key=lambda run: run.launch_id)
            assert first == failed
            assert (second.launch_id, second.state, second.attempts) == (asked.launch_id, "succeeded", 1)
            assert second.scheduled_at == failed.scheduled_at
            assert second.delivery_id != failed.delivery_id
            (_, before), (_, again) = world.calls
            assert (again.scheduled_at, again.next_at, again.kind) == (before.scheduled_at, before.next_at, "rerun")
            job = await instance.jobs.get(JobRef(name="job"))
            assert (job.runs, job.state) == (1, "finished")

    simulate(main)


def test_a_rerun_that_fails_can_be_run_again_until_one_succeeds() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            failed = await _failed(world)

            async def work(_: DueJob) -> object:
                return {"ok": len(world.calls) > 12}

            world.behave = work
            for _ in range(12):
                await instance.jobs.rerun(RerunJob(launch_id=failed.launch_id))
                await asyncio.sleep(1)
            states = [run.state for run in await world.runs(kinds=("rerun",))]
            assert sorted(states) == ["failed"] * 11 + ["succeeded"]
            with pytest.raises(Conflict, match=r"has succeeded since, as 'job@.*-rerun012'"):
                await instance.jobs.rerun(RerunJob(launch_id=failed.launch_id))
            [last] = [run for run in await world.runs() if run.launch_id.endswith("rerun011")]
            with pytest.raises(Conflict, match="has succeeded since"):
                await instance.jobs.rerun(RerunJob(launch_id=last.launch_id))

    simulate(main)


def test_whoever_asks_while_a_rerun_is_under_way_gets_that_one() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            failed = await _failed(world)
            asked = RerunJob(launch_id=failed.launch_id)
            both = await asyncio.gather(*(instance.jobs.rerun(asked) for _ in range(5)))
            assert len({run.launch_id for run in both}) == 1
            assert len({run.delivery_id for run in both}) == 1
            await world.until(3620)
            assert len(world.calls) == 2
            assert world.calls[1][1].delivery_id == both[0].delivery_id

    simulate(main)


def test_a_rerun_that_was_cut_short_is_completed_by_asking_again() -> None:
    class Cut:
        """Writes no rows."""

        is_cut = False

        def __init__(self, inner: Store) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        async def write(self, changes: Sequence[Put | Remove]) -> list[Verdict]:
            return [Verdict.UNAVAILABLE] * len(changes) if self.is_cut else await self._inner.write(changes)

    async def main(world: World) -> None:
        cut: Any = Cut(world.store)
        async with world.running(store=cut) as instance:
            failed = await _failed(world)
            cut.is_cut = True
            with pytest.raises(StoreUnavailable):
                await instance.jobs.rerun(RerunJob(launch_id=failed.launch_id))
            cut.is_cut = False
            await world.until(3620)
            assert len(world.calls) == 1
            await instance.jobs.rerun(RerunJob(launch_id=failed.launch_id))
            await world.until(3630)
            assert len(world.calls) == 2
            assert [run.state for run in await world.runs(kinds=("rerun",))] == ["succeeded"]

    simulate(main)


def test_a_paused_job_is_run_again_and_a_rerun_waits_for_nobody() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            failed = await _failed(world)
            await instance.jobs.pause(PauseJob(name="job"))
            await instance.jobs.rerun(RerunJob(launch_id=failed.launch_id))
            await world.until(3620)
            assert [run.state for run in await world.runs(kinds=("rerun",))] == ["succeeded"]

    simulate(main)


def test_only_what_did_not_succeed_is_run_again() -> None:
    async def main(world: World) -> None:
        async with world.running() as instance:
            failed = await _failed(world)

            async def refused(launch_id: str) -> str:
                with pytest.raises(Conflict) as refusal:
                    await instance.jobs.rerun(RerunJob(launch_id=launch_id))
                return refusal.value.detail

            manual = await instance.jobs.trigger(TriggerJob(name="job"))
            assert "is not over" in await refused(manual.launch_id)
            await world.until(3620)
            assert "has succeeded: trigger the job" in await refused(manual.launch_id)

            async def fail(_: DueJob) -> None:
                raise ValueError

            world.behave = fail
            manual = await instance.jobs.trigger(TriggerJob(name="job"))
            await world.until(3630)
            assert "outside the calendar: trigger the job once more" in await refused(manual.launch_id)
            await instance.jobs.pause(PauseJob(name="job"))
            with pytest.raises(NotFound, match="Run 'job@5' does not exist"):
                await instance.jobs.rerun(RerunJob(launch_id="job@5"))
            with pytest.raises(NotFound, match="Job 'none' does not exist"):
                await instance.jobs.rerun(RerunJob(launch_id="none@5"))
            for wrong in ("job", "job@", "job@later", "job@-5", "@5"):
                with pytest.raises(InvalidInput, match="Expected the launchId of a run, such as report@1793520000000"):
                    await instance.jobs.rerun(RerunJob(launch_id=wrong))
            await world.delete()
            await world.create(schedule="0 * * * *")
            assert "of a deleted job of the same name" in await refused(failed.launch_id)

    simulate(main)
