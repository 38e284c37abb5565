"""The fetches of both clients against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring.client import AsyncClient, Client
from mainspring.errors import InvalidInput, NotFound, ReqIdReuse
from mainspring.fetches.arguments import create_request
from mainspring.fetches.errors import FetchError, FetchNetworkError, FetchUnreadable
from mainspring.testing.fake_client import FakeMainspring
from mainspring.testing.target import TargetServer
from tests.support.running_server import Running


@pytest.fixture
async def client(server: Running) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(server.url, server.token) as opened:
        yield opened


@pytest.fixture
async def target() -> AsyncIterator[TargetServer]:
    async with TargetServer() as opened:
        yield opened


async def test_a_fetch_is_created_awaited_and_found_again(client: AsyncClient, target: TargetServer) -> None:
    created = await client.fetches.create(
        target.url + "/echo?id=f1", method="PUT", json={"n": 1}, req_id="f1", context={"order": 42}, labels={"t": "f1"}
    )
    assert created.req_id == "f1"
    ended = await client.fetches.wait("f1", 10)
    assert ended.result is not None
    told = ended.result.raise_for_error().json()
    assert isinstance(told, dict)
    assert (told["method"], told["body"], told["headers"]["content-type"]) == ("PUT", '{"n":1}', "application/json")
    assert ended.result.context == {"order": 42}
    assert [fetch.req_id async for fetch in client.fetches.iterate(labels={"t": "f1"})] == ["f1"]
    with pytest.raises(ReqIdReuse):
        await client.fetches.create("https://example.com/other", req_id="f1")
    assert target.counts == {"f1": 1}


async def test_why_there_is_no_response_is_an_error_of_its_kind(client: AsyncClient, target: TargetServer) -> None:
    refused = await client.fetches.create("http://127.0.0.1:9/")
    garbled = await client.fetches.create(target.url + "/garbage", method="POST", body=b"\xff")
    results = [(await client.fetches.wait(fetch.req_id, 10)).result for fetch in (refused, garbled)]
    errors: list[FetchError] = []
    for result in results:
        assert result is not None
        with pytest.raises(FetchError) as raised:
            result.raise_for_error()
        errors.append(raised.value)
    assert [(type(error), error.definite) for error in errors] == [(FetchNetworkError, True), (FetchUnreadable, False)]
    assert target.requests[0].body == b"\xff"


async def test_a_fetch_that_does_not_exist_is_not_found(client: AsyncClient) -> None:
    for ask in (client.fetches.get, client.fetches.cancel):
        with pytest.raises(NotFound):
            await ask("nobody")
    assert (await client.fetches.stats()).counts_are_minimum is False


def test_the_sync_client_waits_for_a_fetch_too(server: Running) -> None:
    with Client(server.url, server.token) as client:
        fetch = client.fetches.create("http://127.0.0.1:9/", req_id="sync")
        assert client.fetches.wait(fetch.req_id, 10).state == "failed"
        assert client.fetches.cancel("sync").state == "failed"


def test_what_cannot_be_asked_for_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput, match="both"):
        create_request("https://example.com/", body="a", json=1)
    with pytest.raises(InvalidInput, match="json"):
        create_request("https://example.com/", json=object())
    with pytest.raises(InvalidInput):
        create_request("https://example.com/", timeout_seconds=0)
    assert create_request("https://example.com/").req_id != create_request("https://example.com/").req_id


async def test_a_fake_takes_fetches_and_makes_no_call(target: TargetServer) -> None:
    fake = await FakeMainspring.start()
    client = fake.async_client()
    await client.fetches.create("https://example.com/", req_id="a")
    assert (await client.fetches.get("a")).state == "pending"
    assert (await client.fetches.cancel("a")).state == "cancelled"
