"""`ms.fetch`: the awaiting form for programs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mainspring.fetches.errors import FetchNetworkError
from mainspring.library import Mainspring
from mainspring.testing.target import TargetServer


async def test_a_fetch_is_awaited_like_any_call(target: TargetServer) -> None:
    async with Mainspring("memory://", allow_loopback=True) as ms:
        result = await ms.fetch(target.url + "/status/404", method="POST", json={"a": 1})
        response = result.raise_for_error()
        assert (result.state, response.status, response.json()) == ("succeeded", 404, {"ok": True})
        assert (await ms.fetch(target.url + "/echo", body=b"\xff", method="PUT")).response is not None
        failed = await ms.fetch("http://127.0.0.1:9/", req_id="refused")
        with pytest.raises(FetchNetworkError) as raised:
            failed.raise_for_error()
        assert (raised.value.definite, raised.value.req_id) == (True, "refused")
        assert [fetch.req_id async for fetch in ms.fetches.iterate(states=["failed"])] == ["refused"]
    assert [request.body for request in target.requests] == [b'{"a":1}', b"\xff"]


async def test_who_gave_up_waiting_and_asks_again_gets_the_call_under_way(target: TargetServer) -> None:
    async with Mainspring("memory://", allow_loopback=True) as ms:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ms.fetch(target.url + "/delay/0.4?id=a", req_id="a")
        results = await asyncio.gather(*(ms.fetch(target.url + "/delay/0.4?id=a", req_id="a") for _ in range(3)))
        assert {result.state for result in results} == {"succeeded"}
    assert target.counts == {"a": 1}


async def test_a_program_that_was_restarted_gets_the_result_of_its_former_life(
    target: TargetServer, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path / 'app.db'}"
    async with Mainspring(store, allow_loopback=True) as ms:
        created = await ms.fetches.create(target.url + "/delay/0.2?id=a", req_id="a")
        assert created.result is None
    async with Mainspring(store, allow_loopback=True) as ms:
        assert (await ms.fetch(target.url + "/delay/0.2?id=a", req_id="a")).state == "succeeded"
        cancelled = await ms.fetches.cancel("a")
        assert cancelled.state == "succeeded"
    assert target.counts == {"a": 1}
