"""A real server dies at each place where a crash leaves something of a job to be sorted out, and is started again."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest

from mainspring import crashpoint
from mainspring.jobs.messages import RunView
from mainspring.testing.target import TargetServer
from mainspring.testing.torture.process import ServerProcess, serving


@pytest.mark.slow
@pytest.mark.parametrize("point", crashpoint.JOB_NAMES)
async def test_every_instant_is_accounted_for_once_after_a_crash(point: str, tmp_path: Path) -> None:
    async with asyncio.timeout(60), TargetServer() as target:
        async with serving(tmp_path, crash_at=f"{point}:2") as server, server.client() as client:
            await client.jobs.create(
                "often", "* * * * * *", seconds=True, url=target.url + "/often", catchup="all", overlap="allowAll"
            )
            await server.ended()
        async with serving(tmp_path) as server:
            await target.wait_for(len(target.requests) + 3)
            runs = await _runs(server)
            await server.stop()
        instants = Counter(run.scheduled_at for run in runs)
        assert set(instants.values()) == {1}
        ordered = sorted(instants)
        assert all((later - earlier).total_seconds() == 1 for earlier, later in itertools.pairwise(ordered))
        ids = {request.headers["mainspring-scheduled-at"]: set[str]() for request in target.requests}
        for request in target.requests:
            ids[request.headers["mainspring-scheduled-at"]].add(request.headers["webhook-id"])
        assert {len(deliveries) for deliveries in ids.values()} == {1}


async def _runs(server: ServerProcess) -> list[RunView]:
    async with server.client() as client:
        return [run async for run in client.jobs.iterate_runs("often")]
