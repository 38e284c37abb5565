"""Fetches on every database: called once, ended, brought to the origin, listed; and cut where records are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from mainspring.config import Config
from mainspring.fetches.messages import ListFetches
from mainspring.instance import Instance
from mainspring.testing.target import TargetServer
from tests.fetches.asking import asking, ended, until, until_stats
from tests.servers.catalogue import SERVERS
from tests.servers.dynamodb import DynamoDB
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet

DATABASES = server_params("postgresql", "mysql", "mongodb", "cassandra", "dynamodb")


@pytest.mark.parametrize("database", DATABASES)
async def test_a_fetch_is_called_once_and_its_result_delivered(
    database: str, fleet: Fleet, tmp_path: Path, target: TargetServer
) -> None:
    config = Config(store=fleet.get(SERVERS[database]).fresh(), data_dir=str(tmp_path), drain_seconds=0.2)
    async with Instance(config) as instance:
        for n in range(10):
            asked = asking(f"{target.url}/{n}", "POST", req_id=f"f{n}", result_url=target.url + "/result")
            await instance.fetches.create(asked)
            await instance.fetches.create(asked)
        await instance.fetches.create(asking(target.url + "/reset", "POST", req_id="odd", labels={"a": "b"}))
        for n in range(10):
            await until(instance.fetches, f"f{n}", lambda view: view.delivery.state == "delivered")
        assert (await ended(instance.fetches, "odd")).state == "unknown"
        await until_stats(instance.fetches, lambda stats: (stats.succeeded, stats.unknown) == (10, 1))
        page = await instance.fetches.list(ListFetches(states=("unknown",), labels={"a": "b"}))
        assert [fetch.req_id for fetch in page.fetches] == ["odd"]
    assert target.deliveries == {f"f{n}": 1 for n in range(10)}
    assert len(target.requests) == 21


@pytest.mark.server("dynamodb")
async def test_a_response_that_is_too_long_for_a_record_is_cut(
    dynamodb: DynamoDB, tmp_path: Path, target: TargetServer
) -> None:
    config = Config(store=dynamodb.fresh(), data_dir=str(tmp_path), drain_seconds=0.2)
    async with Instance(config) as instance:
        asked = await instance.fetches.create(asking(target.url + "/huge/900000"))
        view = await ended(instance.fetches, asked.req_id)
    assert view.result is not None
    assert view.result.response is not None
    assert view.state == "succeeded"
    assert view.result.response.truncated
    assert view.result.response.body == "x" * 65_536
