"""Jobs on every database, and a registry on Redis that another program writes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis as RedisClient

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import Unavailable
from mainspring.jobs.messages import CreateJob, JobRef, ListRuns, PauseJob, TriggerJob
from mainspring.testing.target import TargetServer
from mainspring.timers.messages import ListTimers
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.servers.redis import Redis
from tests.servers.server import Server
from tests.support.patience import until

EVERY_STORE = ["memory", "sqlite", *server_params("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")]


@pytest.fixture(params=EVERY_STORE)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
        case name:
            fleet: Fleet = request.getfixturevalue("fleet")
            return fleet.get(SERVERS[name]).empty()


async def test_a_job_runs_by_its_calendar_and_by_hand(url: str, tmp_path: Path, target: TargetServer) -> None:
    async with (
        asyncio.timeout(60),
        Instance(Config(allow_loopback=True, store=url, data_dir=str(tmp_path), drain_seconds=1.0)) as instance,
    ):
        await instance.jobs.create(
            CreateJob(name="often", schedule="* * * * * *", seconds=True, url=target.url + "/often")
        )
        await instance.jobs.create(CreateJob(name="daily", schedule="0 0 * * *", url=target.url + "/daily"))
        await instance.jobs.trigger(TriggerJob(name="daily", by="ann"))
        await target.wait_for(4)
        await instance.jobs.pause(PauseJob(name="often"))
        often = (await instance.jobs.runs(ListRuns(name="often"))).runs
        assert {run.kind for run in often} == {"scheduled"}
        assert len({run.scheduled_at for run in often}) == len(often)
        assert (await instance.jobs.get(JobRef(name="often"))).last_run is not None
        [daily] = (await instance.jobs.runs(ListRuns(name="daily"))).runs
        assert (daily.kind, daily.by) == ("manual", "ann")
        deleted = await instance.jobs.delete(JobRef(name="daily"))
        assert deleted.job.name == "daily"


@pytest.mark.server("redis")
async def test_a_job_that_another_program_sets_in_redis_is_run(
    redis: Redis, tmp_path: Path, target: TargetServer
) -> None:
    registry = redis.empty()
    config = Config(
        allow_loopback=True,
        store=f"sqlite:///{tmp_path}/jobs.db",
        registry=registry,
        data_dir=str(tmp_path),
        drain_seconds=1.0,
    )
    async with asyncio.timeout(60), RedisClient.from_url(registry) as other, Instance(config) as instance:
        definition = {"schedule": "* * * * * *", "seconds": True, "url": target.url + "/foreign"}
        await other.set("jobs:meta:foreign", json.dumps(definition))
        await other.set("jobs:meta:broken", "}")
        await target.wait_for(2)
        assert {request.path for request in target.requests} == {"/foreign"}
        assert (await instance.jobs.get(JobRef(name="broken"))).state == "broken"
        paused = await instance.jobs.pause(PauseJob(name="foreign", note="by the API"))
        assert paused.state == "paused"
        stored = json.loads(await other.get("jobs:meta:foreign") or b"")
        assert (stored["paused"], stored["note"]) == (True, "by the API")
        assert await other.get("lock:cron:psj") is not None


@pytest.mark.server("redis")
async def test_without_its_registry_an_instance_is_not_ready_and_says_why(
    start_server: Callable[[str], Server], tmp_path: Path
) -> None:
    redis = start_server("redis")
    config = Config(
        store=f"sqlite:///{tmp_path}/jobs.db", registry=redis.empty(), data_dir=str(tmp_path), drain_seconds=1.0
    )
    async with asyncio.timeout(60), Instance(config) as instance:
        await instance.ready()
        redis.kill()
        with pytest.raises(Unavailable, match="The registry of jobs is unavailable: no job runs until it is back"):
            await instance.ready()
        await instance.timers.list(ListTimers())
        redis.start()

        async def is_ready() -> bool | None:
            with contextlib.suppress(Unavailable):
                await instance.ready()
                return True
            return None

        await until(is_ready, seconds=20, what="an instance that is ready again")


@pytest.mark.server("redis")
async def test_the_last_run_of_a_job_in_redis_is_read_and_written(
    redis: Redis, tmp_path: Path, target: TargetServer
) -> None:
    registry = redis.empty()
    config = Config(
        allow_loopback=True,
        store=f"sqlite:///{tmp_path}/jobs.db",
        registry=registry,
        data_dir=str(tmp_path),
        drain_seconds=1.0,
    )
    async with asyncio.timeout(60), RedisClient.from_url(registry) as other:
        missed = {
            "schedule": "0 * * * *",
            "url": target.url + "/missed",
            "method": "post",
            "headers": None,
            "lastRun": "2026-01-01T00:00:00.000Z",
            "catchupWindowSeconds": "7200",
            "team": "theirs",
        }
        await other.set("jobs:meta:missed", json.dumps(missed))
        await other.set("jobs:meta:passing", json.dumps({**missed, "lastRun": 1}), ex=3600)
        async with Instance(config) as instance:
            await target.wait_for(2)
            assert (await instance.jobs.get(JobRef(name="missed"))).last_run is not None
        stored = json.loads(await other.get("jobs:meta:missed") or b"")
        assert {**stored, "lastRun": missed["lastRun"]} == missed
        assert datetime.fromisoformat(stored["lastRun"]) > datetime.now(UTC) - timedelta(hours=1, minutes=5)
        assert isinstance(json.loads(await other.get("jobs:meta:passing") or b"")["lastRun"], int)
        assert 3000 < await other.ttl("jobs:meta:passing") <= 3600
