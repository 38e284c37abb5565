"""A store and a registry of the version before the services got the same rooms are opened, read, and go on."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

from mainspring import DueJob, DueTimer, Mainspring
from mainspring.clock import SystemClock, wall_ms
from mainspring.idempotency import AsyncIdempotentProcessor
from tests.compatibility.make import LATER, pay, redis_at
from tests.servers.redis import Redis

HERE: Final = Path(__file__).parent


class ThatDay(SystemClock):
    """The minute in which the data was made, so that nothing of it has expired."""

    def __init__(self) -> None:
        super().__init__()
        self.align(wall_ms())

    def align(self, store_ms: int) -> None:
        made_at: int = json.loads((HERE / "made.json").read_text())["madeAt"]
        super().align(made_at + 60_000 + store_ms - _OPENED_MS)


_OPENED_MS: Final = wall_ms()


async def test_a_store_of_the_version_before_is_opened_and_its_timers_jobs_and_results_go_on(tmp_path: Path) -> None:
    shutil.copy(HERE / "old.db", tmp_path / "old.db")
    ms = Mainspring(f"sqlite:///{tmp_path}/old.db", clock=ThatDay(), allow_loopback=True)
    called: asyncio.Queue[DueTimer | DueJob] = asyncio.Queue()

    @ms.handler("note")
    async def note(timer: DueTimer) -> None:
        await called.put(timer)

    @ms.job("0 0 1 1 *", name="yearly", labels={"team": "blue"})
    async def yearly(job: DueJob) -> None:
        await called.put(job)

    async with ms, asyncio.timeout(30):
        timers = {timer.timer_id: timer async for timer in ms.timers.iterate(namespace="app")}
        assert {name: timer.state for name, timer in timers.items()} == {
            "far": "scheduled",
            "headed": "scheduled",
            "kept": "parked",
        }
        assert (timers["far"].labels, timers["far"].execute_at) == ({"a": "b"}, LATER)
        assert [attempt.outcome for attempt in (await ms.timers.history("done", namespace="app")).attempts] == [
            "succeeded"
        ]

        await ms.timers.run_now("far", namespace="app")
        far = await called.get()
        assert isinstance(far, DueTimer)
        assert (far.timer_id, far.payload) == ("far", {"n": 1, "text": "ß"})
        await ms.timers.resume("kept", namespace="app")
        assert (await ms.timers.run_now("kept", namespace="app")).timer_id == "kept"
        kept = await called.get()
        assert isinstance(kept, DueTimer)
        assert kept.payload == [1, 2.5, None]

        [before] = [run async for run in ms.jobs.iterate_runs("yearly")]
        assert (before.kind, before.state, before.by) == ("manual", "succeeded", "ann")
        job = await ms.jobs.get("yearly")
        assert (job.generation, job.labels) == (1, {"team": "blue"})
        asked = await ms.jobs.trigger("yearly")
        run = await called.get()
        assert isinstance(run, DueJob)
        assert run.launch_id == asked.launch_id

        fetched = await ms.fetch("http://127.0.0.1:9/", req_id="fetched")
        assert fetched.raise_for_error().body == "grüße"

        [note_one] = [document async for document in ms.records("notes", dict[str, Any]).scan()]
        assert note_one.value == {"text": "kept"}
        async with ms.lock("nightly").hold() as held:
            assert held.token > 1
        again = await AsyncIdempotentProcessor(ms.idempotency_store, pay, scope="pay").process({"order": 7})
        assert (again.result, again.was_replay) == ({"paid": 7}, True)


@pytest.mark.server("redis")
async def test_a_registry_in_redis_of_the_version_before_is_read_and_changed(redis: Redis) -> None:
    url = redis.fresh()
    async with redis_at(url) as client:
        for key, value in json.loads((HERE / "registry.json").read_text()).items():
            await client.restore(key, 0, base64.b64decode(value))
    async with Mainspring("memory://", registry=url) as ms:
        jobs = {job.name: job async for job in ms.jobs.iterate()}
        assert {name: (job.schedule, job.timezone, job.state) for name, job in jobs.items()} == {
            "nightly": ("0 2 * * *", "Europe/Berlin", "scheduled"),
            "paused": ("@every 90s", "UTC", "paused"),
        }
        assert (jobs["paused"].note, jobs["paused"].by) == ("for a while", "ann")
        assert (await ms.jobs.resume("paused")).generation == jobs["paused"].generation + 1
        assert (await ms.jobs.update("nightly", schedule="0 3 * * *")).schedule == "0 3 * * *"
