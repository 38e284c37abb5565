"""Every database answers as SQLite does, whatever is asked."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mainspring.api.app import all_routes
from tests.differential.comparison import compare, receivers
from tests.differential.questions import Request
from tests.differential.twin import BEGINNING_MS, Twin, twin
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.service_doubles import Edge

STEPS = {"postgresql": 400, "mysql": 400, "mongodb": 400, "cassandra": 200, "dynamodb": 60}
SEED = 8


@pytest.mark.parametrize("name", server_params(*STEPS))
async def test_a_database_answers_the_same_requests_as_sqlite_does(name: str, fleet: Fleet, tmp_path: Path) -> None:
    urls = {"sqlite": f"sqlite:///{tmp_path}/reference.db", name: fleet.get(SERVERS[name]).fresh()}
    report = await compare(urls, seed=SEED, steps=STEPS[name])
    assert report.difference is None, f"--seed {SEED}: {report.difference}"
    assert report.statuses[200] > report.steps / 3, f"too little was carried out: {report.statuses}"


@pytest.mark.slow
async def test_the_same_requests_to_the_same_database_get_the_same_answers(tmp_path: Path) -> None:
    """What the comparison makes equal is enough: nothing else is left to chance."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")}
    report = await compare(urls, seed=SEED, steps=1500)
    assert report.difference is None, str(report.difference)
    verbs = {route.path for route in all_routes(Edge().api) if route.tag in ("timers", "jobs", "fetches", "namespaces")}
    seldom = {"/v1/jobs/rerun"}  # only what has failed is run again: mostly that is refused
    assert verbs - report.paths.keys() <= seldom, "these were never carried out"


async def test_a_timer_that_comes_due_while_its_shard_is_being_read_is_waited_for(tmp_path: Path) -> None:
    async with receivers() as (hosts, _), twin("one", f"sqlite:///{tmp_path}/one.db", hosts.good) as one:
        engine = one._instance.engine
        assert engine is not None
        shards = list(engine._agenda.shards.values())
        for shard in shards:
            shard.reading = True

        async def end_reading() -> None:
            await asyncio.sleep(0.05)
            for shard in shards:
                shard.reading = False

        body = {"timerId": "tea", "callbackUrl": f"{hosts.good}/ok", "executeAt": BEGINNING_MS}
        ended = asyncio.create_task(end_reading())
        status, _ = await one.ask(Request("/v1/timers/create", json.dumps(body).encode()))
        await ended
        assert status == 200
        assert (await one.ask(Request("/v1/timers/get", b'{"timerId": "tea"}')))[0] == 404, "it was called, and is over"


async def test_an_answer_that_differs_is_found_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the two takes capital letters for small ones, as some collations would."""
    urls = {name: f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two")}
    ask = Twin.ask

    async def folded(self: Twin, request: Request) -> tuple[int, Any]:
        spoilt = request.body.replace(b'"timerId": "T-', b'"timerId": "t-') if self.name == "two" else request.body
        return await ask(self, replace(request, body=spoilt))

    monkeypatch.setattr(Twin, "ask", folded)
    report = await compare(urls, seed=SEED, steps=300)
    assert report.difference is not None
    assert "one" in str(report.difference)
    assert "two" in str(report.difference)
