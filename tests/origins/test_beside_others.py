"""Origins beside instances that do not know them: each result comes to a program that does, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.fetches.messages import FetchRef, ListFetches
from mainspring.origins import FetchError, Origin, ResponseSync
from mainspring.testing.target import Answer, TargetServer
from tests.servers.catalogue import SERVERS
from tests.servers.fixtures import server_params
from tests.servers.fleet import Fleet
from tests.support.fetch_requests import until, until_members

pytestmark = pytest.mark.slow  # real processes take their time

SECONDS = 20
ASKED = 20


class Tally(Origin):
    """Counts the results that it takes."""

    def ask(self, url: str) -> str:
        return self.svc.proxy_fetch(url, self.ctn().take())

    def take(self, result: ResponseSync | FetchError) -> None:
        if isinstance(result, ResponseSync) and result.req_id in self.svc.refused:
            self.svc.refused.remove(result.req_id)
            raise ValueError("not yet")
        word = "taken" if isinstance(result, ResponseSync) else type(result).__name__
        self.state[word] = self.state.get(word, 0) + 1


def program(store: str, refused: tuple[str, ...] | list[str] = ()) -> Mainspring:
    return Mainspring(
        store, allow_loopback=True, origins=[Tally], services={"refused": lambda: refused}, drain_seconds=0.1
    )


async def all_taken(*origins: Any) -> None:
    async with asyncio.timeout(SECONDS):
        for origin in origins:
            while await origin.waiting():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("database", ["sqlite", *server_params("postgresql")])
async def test_a_server_leaves_the_results_to_the_program_and_each_takes_effect_once(
    database: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'app.db'}"
    if database != "sqlite":
        fleet: Fleet = request.getfixturevalue("fleet")
        store = fleet.get(SERVERS[database]).fresh()
    async with (
        TargetServer() as target,
        Instance(Config(allow_loopback=True, store=store, data_dir=str(tmp_path), drain_seconds=0.5)) as server,
        program(store) as ms,
    ):
        await ms.fetch(target.url + "/?id=first")  # then there are shards of fetches, and each has some
        await until_members(server, 2)
        origins = [ms.origin(Tally, str(n)) for n in range(4)]
        asked = await asyncio.gather(*(origins[n % 4].ask(f"{target.url}/?id={n}") for n in range(ASKED)))
        await all_taken(*origins)
        views = [
            await until(server.fetches, req_id, lambda view: view.delivery.state == "delivered") for req_id in asked
        ]
        assert {view.executor for view in views} == {server.ownership.instance, ms._instance.ownership.instance}
        assert {view.delivery.attempts for view in views} == {1}
        assert [await origin.snapshot() for origin in origins] == [{"taken": ASKED // 4}] * 4
    assert target.counts == {"first": 1} | {str(n): 1 for n in range(ASKED)}


async def test_a_result_that_came_while_the_program_was_away_waits_for_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'app.db'}"
    async with (
        TargetServer() as target,
        Instance(Config(allow_loopback=True, store=store, data_dir=str(tmp_path), drain_seconds=0.5)) as server,
    ):
        target.script("/slow", Answer(delay_seconds=0.5))
        async with program(store) as ms:
            asked = [await ms.origin(Tally, "a").ask(f"{target.url}/slow") for _ in range(ASKED)]
        for req_id in asked:
            view = await until(server.fetches, req_id, lambda view: "program that knows" in view.delivery.detail)
            assert (view.delivery.state, view.delivery.attempts) == ("waiting", 0)
        async with program(store) as ms:
            await all_taken(ms.origin(Tally, "a"))
            assert sum((await ms.origin(Tally, "a").snapshot()).values()) == ASKED


async def test_a_left_result_whose_handler_raises_comes_again(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'app.db'}"
    refused: list[str] = []
    async with (
        TargetServer() as target,
        Instance(Config(allow_loopback=True, store=store, data_dir=str(tmp_path), drain_seconds=0.5)) as server,
        program(store, refused) as ms,
    ):
        await ms.fetch(target.url)
        await until_members(server, 2)
        origin = ms.origin(Tally, "a")
        target.script("/slow", Answer(delay_seconds=0.3))
        asked = [await origin.ask(f"{target.url}/slow") for _ in range(8)]
        refused += asked
        await all_taken(origin)
        assert await origin.snapshot() == {"taken": 8}
        for req_id in asked:
            await until(server.fetches, req_id, lambda view: view.delivery.state == "delivered")
            assert (await server.fetches.get(FetchRef(req_id=req_id))).delivery.attempts == 2
        assert len((await server.fetches.list(ListFetches())).fetches) == 9
