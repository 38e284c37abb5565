"""Fetches on every database: called once, ended, brought to the origin, listed; and cut where records are small.

Executors of a pool and origins inside programs, too, where several processes share the records.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import pytest
from msgspec import Raw

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import TooLarge
from mainspring.fetches.messages import CreateFetch, FetchView, ListFetches
from mainspring.fetches.record import SPARE
from mainspring.library import Mainspring
from mainspring.origins import FetchError, Origin, ResponseSync
from mainspring.stores.dynamodb.items import ITEM_BYTES
from mainspring.testing.target import TargetServer
from tests.servers.catalogue import SERVERS
from tests.servers.dynamodb import DynamoDB
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.executors import executor, executor_process
from tests.support.fetch_requests import asking, ended, until, until_stats

DATABASES = server_params("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")
PATIENCE_SECONDS = 60.0
"""For what is waited for: on a busy machine some databases take their time."""


def is_delivered(view: FetchView) -> bool:
    return view.delivery.state == "delivered"


@pytest.mark.parametrize("database", DATABASES)
async def test_a_fetch_is_called_once_and_its_result_delivered(
    database: str, fleet: Fleet, tmp_path: Path, target: TargetServer
) -> None:
    config = Config(
        allow_loopback=True, store=fleet.get(SERVERS[database]).fresh(), data_dir=str(tmp_path), drain_seconds=0.2
    )
    async with Instance(config) as instance:
        for n in range(10):
            asked = asking(f"{target.url}/{n}", "POST", req_id=f"f{n}", result_url=target.url + "/result")
            await instance.fetches.create(asked)
            await instance.fetches.create(asked)
        await instance.fetches.create(asking(target.url + "/reset", "POST", req_id="odd", labels={"a": "b"}))
        for n in range(10):
            await until(instance.fetches, f"f{n}", is_delivered, seconds=PATIENCE_SECONDS)
        assert (await ended(instance.fetches, "odd", seconds=PATIENCE_SECONDS)).state == "unknown"
        await until_stats(
            instance.fetches, lambda stats: (stats.succeeded, stats.unknown) == (10, 1), seconds=PATIENCE_SECONDS
        )
        page = await instance.fetches.list(ListFetches(states=("unknown",), labels={"a": "b"}))
        assert [fetch.req_id for fetch in page.fetches] == ["odd"]
    assert target.deliveries == {f"f{n}": 1 for n in range(10)}
    assert len(target.requests) == 21


class Counting(Origin):
    """Counts what became of its fetches."""

    def ask(self, url: str, pool: str) -> None:
        self.svc.proxy_fetch(url, self.ctn().take(), executor=pool)

    def take(self, result: ResponseSync | FetchError) -> None:
        word = "taken" if isinstance(result, ResponseSync) else type(result).__name__
        self.state[word] = self.state.get(word, 0) + 1


@pytest.mark.parametrize("database", DATABASES)
async def test_programs_executors_and_origins_share_a_database(
    database: str, fleet: Fleet, tmp_path: Path, target: TargetServer
) -> None:
    config = Config(
        allow_loopback=True,
        store=fleet.get(SERVERS[database]).fresh(),
        data_dir=str(tmp_path),
        port=0,
        drain_seconds=1.0,
    )  # only the lease of the one that is killed is short: it is waited for
    async with (
        Mainspring(config.store, allow_loopback=True, origins=[Counting]) as one,
        Mainspring(config.store, allow_loopback=True, origins=[Counting]) as other,
        executor(config),
        executor(config),
    ):
        async with executor_process(config, "doomed") as process:
            await one.origin(Counting, "a").call(Counting.ask, f"{target.url}/hang?id=doomed", "doomed")
            await target.wait_for(1, seconds=PATIENCE_SECONDS)
            process.kill()
        async with asyncio.TaskGroup() as asking_at_once:
            for n in range(20):
                origin = (one, other)[n % 2].origin(Counting, "ab"[n // 2 % 2])
                asking_at_once.create_task(origin.call(Counting.ask, f"{target.url}/?id={n}", "far"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await one.origin(Counting, "a").waiting() or await other.origin(Counting, "b").waiting():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert await one.origin(Counting, "a").snapshot() == {"taken": 10, "FetchWatchdog": 1}
        assert await one.origin(Counting, "b").snapshot() == {"taken": 10}
    assert target.counts == {"doomed": 1} | {str(n): 1 for n in range(20)}


@pytest.mark.server("dynamodb")
async def test_a_request_that_nearly_fills_a_record_is_refused_at_once_or_seen_through(
    dynamodb: DynamoDB, tmp_path: Path, target: TargetServer
) -> None:
    config = Config(allow_loopback=True, store=dynamodb.fresh(), data_dir=str(tmp_path), drain_seconds=0.2)

    def filling(size: int) -> CreateFetch:
        body = base64.b64encode(bytes(240_000)).decode()
        context = Raw(b'"' + b"x" * (size - len(body) - len(SPARE)) + b'"')
        request = {"body_base64": body}
        return asking(target.url, "POST", request=request, req_id=f"r{size}", context=context, result_url=target.url)

    async with Instance(config) as instance:
        accepted = []
        for size in range(ITEM_BYTES - 1000, ITEM_BYTES + 1, 50):  # some of them fit
            try:
                await instance.fetches.create(filling(size))
            except TooLarge:
                continue
            accepted.append(f"r{size}")
        assert 0 < len(accepted) < 20
        for req_id in accepted:
            assert (await ended(instance.fetches, req_id, seconds=PATIENCE_SECONDS)).state == "succeeded"


@pytest.mark.server("dynamodb")
async def test_a_response_that_is_too_long_for_a_record_is_cut(
    dynamodb: DynamoDB, tmp_path: Path, target: TargetServer
) -> None:
    config = Config(allow_loopback=True, store=dynamodb.fresh(), data_dir=str(tmp_path), drain_seconds=0.2)
    async with Instance(config) as instance:
        asked = await instance.fetches.create(asking(target.url + "/huge/900000"))
        view = await ended(instance.fetches, asked.req_id, seconds=PATIENCE_SECONDS)
    assert view.result is not None
    assert view.result.response is not None
    assert view.state == "succeeded"
    assert view.result.response.truncated
    assert view.result.response.body == "x" * 65_536
