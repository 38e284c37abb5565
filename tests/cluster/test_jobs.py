"""Jobs on three servers that die and whose clocks are moved: every instant is run once, or accounted for."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from mainspring.testing.target import TargetServer
from tests.cluster.job_cluster import HOUR_MS, JOBS, SERVERS, JobCluster, report, violations
from tests.servers.catalogue import SERVERS as SERVER_KINDS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.servers.postgresql import PostgreSQL

HOUR = 3600


async def strike(cluster: JobCluster, blows: int) -> None:
    """Kill one server after the other, and set the wall clocks of all meanwhile."""
    for blow in range(blows):
        await asyncio.sleep(1.0)
        victim = blow % SERVERS
        await cluster.kill(victim)
        cluster.move_wall_clock(victim, HOUR * (-1) ** blow)
        await cluster.start([victim])
        cluster.move_wall_clock((victim + 1) % SERVERS, HOUR * (-1) ** (blow + 1))


@pytest.fixture
def shared_url(request: pytest.FixtureRequest) -> str:
    fleet: Fleet = request.getfixturevalue("fleet")
    return fleet.get(SERVER_KINDS[request.param]).fresh()


@pytest.mark.slow
@pytest.mark.parametrize("shared_url", server_params("mysql", "mongodb"), indirect=True)
async def test_each_instant_has_one_run_through_kills(tmp_path: Path, shared_url: str, target: TargetServer) -> None:
    async with JobCluster(tmp_path, shared_url, target) as cluster:
        await cluster.start()
        await cluster.create(JOBS)
        await strike(cluster, 4)
        accounts = await cluster.accounts(JOBS)
        assert violations(accounts) == [], report(accounts)


@pytest.mark.slow
async def test_each_instant_has_one_run_through_kills_an_outage_and_moved_clocks_beside_broken_records(
    tmp_path: Path, postgresql: PostgreSQL, target: TargetServer
) -> None:
    async with JobCluster(tmp_path, postgresql.fresh(), target) as cluster:
        await cluster.clock.prepare()
        await cluster.start()
        await cluster.write_record("a-broken", b"{")
        await cluster.write_record("t-broken", b'{"schedule": "0 0 30 2 *", "url": "http://127.0.0.1:9/"}')
        await cluster.create(JOBS)
        await strike(cluster, 5)
        await cluster.blackout(HOUR_MS)
        await asyncio.sleep(2)
        await cluster.jump(HOUR_MS)
        await asyncio.sleep(4)
        await cluster.jump(-HOUR_MS)
        await asyncio.sleep(3)
        await cluster.jump(HOUR_MS)
        accounts = await cluster.accounts(JOBS)
        assert violations(accounts) == [], report(accounts)
        kinds = {account.name: Counter(run.kind for run in account.runs) for account in accounts}
        assert kinds["minute-all"]["catchup"] > 100
        assert kinds["minute-none"]["catchup"] == 0
        async with cluster.client() as client:
            listed = {job.name: job async for job in client.jobs.iterate()}
        assert {name for name, job in listed.items() if job.state == "broken"} == {"a-broken", "t-broken"}
        assert "a date that exists" in listed["t-broken"].problem
        await cluster.stop()
