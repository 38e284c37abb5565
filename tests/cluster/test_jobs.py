"""Jobs on three servers that die and whose clocks are moved: every instant is launched once, or accounted for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainspring.testing.target import TargetServer
from tests.cluster.job_cluster import HOUR_MS, JOBS, SERVERS, JobCluster, report, violations
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


@pytest.mark.slow
async def test_each_instant_has_one_launch_through_kills_outages_and_moved_clocks(
    tmp_path: Path, postgresql: PostgreSQL, target: TargetServer
) -> None:
    async with JobCluster(tmp_path, postgresql.fresh(), target) as cluster:
        await cluster.clock.prepare()
        await cluster.start()
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
        await cluster.stop()
