"""What users can rely on: one call per reqId, what comes back, and bounds on everything."""

from __future__ import annotations

import asyncio
import base64
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, Raw, UnsetType

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.errors import InvalidInput, NotFound, RateLimited
from mainspring.fetches.messages import FetchRef, FetchState, FetchStats, FetchView, ListFetches
from mainspring.fetches.record import FETCHES
from mainspring.testing.target import Answer, TargetServer
from tests.support.fetch_requests import asking, ended, until_stats


async def test_a_fetch_brings_the_response_back(instance: Instance, target: TargetServer) -> None:
    target.script("/orders", Answer(status=201, body=b"made", headers=(("x-order", "7"),)))
    headers = {"Idempotency-Key": "k1", "content-type": "text/plain"}
    request = {"headers": headers, "body": "grün"}
    asked = await instance.fetches.create(asking(target.url + "/orders", "POST", request=request, context=Raw(b"[7]")))
    view = await ended(instance.fetches, asked.req_id)
    assert asked.req_id.startswith("req_")
    assert (view.state, bytes(view.context_json), view.delivery.state) == ("succeeded", b"[7]", "none")
    assert view.result is not None
    assert view.result.response is not None
    response = view.result.response
    assert (response.status, response.body, response.headers["x-order"]) == (201, "made", "7")
    assert (response.redirected, response.truncated) == (False, False)
    [sent] = target.requests
    assert (sent.method, sent.body.decode(), sent.headers["idempotency-key"]) == ("POST", "grün", "k1")


async def test_what_was_sent_is_not_kept_longer_than_it_is_needed(instance: Instance, target: TargetServer) -> None:
    request = {"headers": {"authorization": "Bearer s3cret"}, "body": "s3cret"}
    await instance.fetches.create(asking(target.url + "/", "POST", request=request, req_id="a"))
    await ended(instance.fetches, "a")
    record = await instance.store.get_record(FETCHES, "a", now=instance.clock.now_ms())
    assert record is not None
    assert b"s3cret" not in record.value
    assert target.requests[0].headers["authorization"] == "Bearer s3cret"


async def test_bodies_that_are_no_text_go_and_come_as_base64(instance: Instance, target: TargetServer) -> None:
    octets = bytes(range(256))
    target.script("/", Answer(body=octets))
    request = {"body_base64": base64.b64encode(octets).decode()}
    asked = await instance.fetches.create(asking(target.url + "/", "PUT", request=request))
    view = await ended(instance.fetches, asked.req_id)
    assert view.result is not None
    assert view.result.response is not None
    assert base64.b64decode(view.result.response.body_base64 or "") == octets
    assert view.result.response.body is None
    assert target.requests[0].body == octets


async def test_the_same_req_id_answers_with_the_first_and_calls_once(instance: Instance, target: TargetServer) -> None:
    creates = (instance.fetches.create(asking(target.url + "/", req_id="once")) for _ in range(20))
    views = await asyncio.gather(*creates)
    await ended(instance.fetches, "once")
    again = await instance.fetches.create(asking(target.url + "/", req_id="once"))
    assert {view.created_at for view in views} == {again.created_at}
    assert again.state == "succeeded"
    assert len(target.requests) == 1


async def test_no_dropped_connection_makes_a_second_call(instance: Instance, target: TargetServer) -> None:
    target.script("/", Answer(close=True))  # as if the connection could be kept, and then it is gone
    for n in range(30):
        asked = await instance.fetches.create(asking(target.url + "/", "POST", req_id=f"d{n}"))
        assert (await ended(instance.fetches, asked.req_id)).state == "succeeded"
    assert len(target.requests) == target.connections == 30


async def test_redirects_are_the_response_unless_they_are_to_be_followed(
    instance: Instance, target: TargetServer
) -> None:
    target.script("/from", Answer(status=302, headers=(("location", "/to#part"),)))
    target.script("/away", Answer(status=302, headers=(("location", "http://10.0.0.1/"),)))
    secret = {"headers": {"authorization": "Bearer x"}}

    async def fetched(path: str, method: Any, redirects: int) -> FetchView:
        request = {**secret, "max_redirects": redirects}
        asked = await instance.fetches.create(asking(target.url + path, method, request=request))
        return await ended(instance.fetches, asked.req_id)

    for path, method, redirects, status, url in (
        ("/from", "GET", 0, 302, "/from"),
        ("/from", "POST", 5, 302, "/from"),
        ("/from", "GET", 1, 200, "/to"),
        ("/redirect", "GET", 3, 302, "/redirect"),
    ):
        view = await fetched(path, method, redirects)
        assert view.result is not None
        assert view.result.response is not None
        assert (view.result.response.status, view.result.response.url) == (status, target.url + url)
    assert Counter(request.path for request in target.requests) == {"/from": 3, "/to": 1, "/redirect": 4}
    refused = await fetched("/away", "GET", 1)
    assert refused.result is not None
    assert refused.result.error is not None
    assert (refused.state, refused.result.error.kind) == ("failed", "refused")
    assert refused.result.error.message.endswith("Nothing was sent to where the redirect led.")


async def test_credentials_stay_with_the_origin_that_they_are_for(instance: Instance, target: TargetServer) -> None:
    async with TargetServer() as other:
        target.script("/", Answer(status=307, headers=(("location", other.url + "/there"),)))
        request = {"headers": {"Authorization": "Bearer x", "accept": "text/x"}, "max_redirects": 1}
        asked = await instance.fetches.create(asking(target.url + "/", request=request))
        view = await ended(instance.fetches, asked.req_id)
        assert view.result is not None
        assert view.result.response is not None
        assert view.result.response.redirected
        assert "authorization" in target.requests[0].headers
        assert "authorization" not in other.requests[0].headers
        assert other.requests[0].headers["accept"] == "text/x"


async def test_a_long_response_is_cut(tmp_path: Path, target: TargetServer) -> None:
    config = Config(
        allow_loopback=True, store="memory://", data_dir=str(tmp_path), drain_seconds=0.2, fetch_answer_bytes=1000
    )
    async with Instance(config) as instance:
        asked = await instance.fetches.create(asking(target.url + "/huge/5000"))
        view = await ended(instance.fetches, asked.req_id)
    assert view.result is not None
    assert view.result.response is not None
    assert view.result.response.truncated
    assert view.result.response.body == "x" * 1000


async def test_a_request_that_cannot_be_made_is_refused_by_its_fields(instance: Instance) -> None:
    request = {"headers": {"host": "x"}, "body": "a", "body_base64": "?"}
    wrong = asking("http://10.0.0.1/", request=request, result_url="ftp://nowhere", labels={"a": "\n"})
    with pytest.raises(InvalidInput) as refused:
        await instance.fetches.create(wrong)
    pointers = {error.pointer for error in refused.value.errors}
    assert pointers == {"/request/url", "/request/bodyBase64", "/request/headers/host", "/resultUrl", "/labels"}
    for body in ({"body_base64": "?"}, {"body": "x" * 300_000}):
        with pytest.raises(InvalidInput):
            await instance.fetches.create(asking("http://127.0.0.1/", "POST", request=body))
    with pytest.raises(NotFound):
        await instance.fetches.get(FetchRef(req_id="nobody"))


async def test_cancelling_before_the_call_prevents_it(tmp_path: Path, target: TargetServer) -> None:
    config = Config(allow_loopback=True, store="memory://", data_dir=str(tmp_path), drain_seconds=0.2, fetch_limit=1)
    async with Instance(config) as instance:
        await instance.fetches.create(asking(target.url + "/hang", req_id="first"))
        await target.wait_for(1)
        waiting = await instance.fetches.create(asking(target.url + "/never", req_id="second"))
        assert waiting.state == "pending"
        cancelled = await instance.fetches.cancel(FetchRef(req_id="second"))
        assert cancelled.result is not None
        assert cancelled.result.error is not None
        assert (cancelled.state, cancelled.result.error.definite) == ("cancelled", True)
        # The call under way is cut off: nobody will know its result.
        running = await instance.fetches.cancel(FetchRef(req_id="first"))
        assert running.result is not None
        assert running.result.error is not None
        assert (running.state, running.result.error.definite) == ("cancelled", False)
        await target.wait_for_open(0)
        again = await instance.fetches.cancel(FetchRef(req_id="first"))
        assert again.result == running.result
        third = await instance.fetches.create(asking(target.url + "/third"))
        assert (await ended(instance.fetches, third.req_id)).state == "succeeded"
    assert [request.path for request in target.requests] == ["/hang", "/third"]


@pytest.mark.parametrize("states", [(), ("succeeded",), ("succeeded", "unknown", "running")])
async def test_every_fetch_is_listed_once_however_few_rows_one_page_looks_through(
    instance: Instance, target: TargetServer, monkeypatch: pytest.MonkeyPatch, states: tuple[FetchState, ...]
) -> None:
    names = [f"f{n}" for n in range(12)]
    for n, name in enumerate(names):
        path = "/" if n % 4 else "/reset"
        await instance.fetches.create(asking(target.url + path, "POST", req_id=name))
    # Their rows, which are moved when the fetches have ended: one that is moved during a list is seen twice.
    await until_stats(instance.fetches, lambda stats: stats.succeeded + stats.unknown == len(names))
    expected = [name for n, name in enumerate(names) if n % 4 or states != ("succeeded",)]
    monkeypatch.setattr("mainspring.store.LOOK_ROWS", 2)
    monkeypatch.setattr("mainspring.store.LOOK_SHARD_ROWS", 1)
    for limit in (1, 5, 12):
        seen: list[str] = []
        cursor: str | UnsetType | None = UNSET
        while cursor is not None:
            page = await instance.fetches.list(ListFetches(states=states, limit=limit, cursor=cursor))
            assert len(page.fetches) <= limit
            seen += [fetch.req_id for fetch in page.fetches]
            cursor = page.next_cursor
        assert sorted(seen) == sorted(expected)


async def test_fetches_are_listed_by_state_label_and_creation(instance: Instance, target: TargetServer) -> None:
    for n in range(5):
        await instance.fetches.create(asking(target.url + "/", req_id=f"ok{n}", labels={"state": "mine", "n": str(n)}))
        await ended(instance.fetches, f"ok{n}")
        await asyncio.sleep(0.002)  # those of one millisecond are in no particular order
    await instance.fetches.create(asking(target.url + "/reset", "POST", req_id="odd"))
    middle = (await ended(instance.fetches, "odd")).created_at
    await asyncio.sleep(0.01)
    await instance.fetches.create(asking(target.url + "/hang", req_id="busy"))
    await target.wait_for(7)

    async def listed(**conditions: Any) -> list[str]:
        page = await instance.fetches.list(ListFetches(**conditions))
        assert page.next_cursor is None
        return [fetch.req_id for fetch in page.fetches]

    await until_stats(instance.fetches, lambda stats: stats.running == 1)
    assert await listed(states=("unknown",)) == ["odd"]
    assert await listed(states=("running", "unknown")) == ["busy", "odd"]
    assert await listed(labels={"n": "3"}) == ["ok3"]
    assert await listed(labels={"state": "mine"}, states=("succeeded",)) == [f"ok{n}" for n in range(5)]
    assert await listed(since=middle) == ["busy", "odd"]
    assert "busy" not in await listed(until=middle)
    first = await instance.fetches.list(ListFetches(limit=4))
    rest = await instance.fetches.list(ListFetches(limit=4, cursor=first.next_cursor or ""))
    names = [fetch.req_id for fetch in (*first.fetches, *rest.fetches)]
    assert names == ["busy", "ok0", "ok1", "ok2", "ok3", "ok4", "odd"]
    assert rest.next_cursor is None
    assert rest.fetches[-1].detail.endswith("check it before you try again.")
    stats = await instance.fetches.stats(FetchStats())
    assert (stats.succeeded, stats.unknown, stats.running, stats.pending) == (5, 1, 1, 0)
    assert stats.p50_ms is not None
    assert stats.executors[0].in_flight == 1
    assert not stats.counts_are_minimum


async def test_waiting_ends_with_the_time_if_the_fetch_does_not(instance: Instance, target: TargetServer) -> None:
    asked = await instance.fetches.create(asking(target.url + "/hang"))
    assert (await instance.fetches.wait(asked.req_id, 0.2)).state == "running"


async def test_at_the_limit_a_repeat_still_gets_the_answer_of_the_first(tmp_path: Path, target: TargetServer) -> None:
    config = Config(
        allow_loopback=True,
        store="memory://",
        data_dir=str(tmp_path),
        drain_seconds=0.1,
        fetch_limit=1,
        fetch_pending_limit=1,
    )
    async with Instance(config) as instance:
        await instance.fetches.create(asking(target.url + "/hang", req_id="runs"))
        await target.wait_for(1)
        await instance.fetches.create(asking(target.url + "/hang", req_id="waits"))
        with pytest.raises(RateLimited):
            await instance.fetches.create(asking(target.url + "/hang", req_id="refused"))
        for req_id, state in (("runs", "running"), ("waits", "pending")):
            again = await instance.fetches.create(asking(target.url + "/hang", req_id=req_id))
            assert again.state == state


@pytest.mark.slow
async def test_five_thousand_that_wait_are_held_by_the_store_and_more_are_refused(
    tmp_path: Path, target: TargetServer
) -> None:
    config = Config(
        allow_loopback=True,
        store=f"sqlite:///{tmp_path / 'mainspring.db'}",
        data_dir=str(tmp_path),
        drain_seconds=0.1,
        fetch_limit=600,
        host_limit=50,
        fetch_pending_limit=4950,
        window_limit=1000,
    )
    async with Instance(config) as instance:
        assert instance.engine is not None

        async def create(first: int) -> None:
            for n in range(first, first + 100):
                await instance.fetches.create(asking(target.url + "/hang", req_id=f"w{n}", timeout_seconds=60.0))

        await asyncio.gather(*map(create, range(0, 5000, 100)))
        await target.wait_for(50)
        stats = await until_stats(instance.fetches, lambda stats: stats.pending == 4950)
        with pytest.raises(RateLimited):
            await instance.fetches.create(asking(target.url + "/hang"))
        assert instance.engine.dispatcher.queued <= 1000
        assert (stats.running, stats.executors[0].in_flight) == (50, 50)
        target.script("/hang", Answer())
        await target.drop_connections()  # fifty end, and the others come in
        await target.wait_for(1000)
        assert instance.engine.dispatcher.queued <= 1000
    assert max(Counter(request.path for request in target.requests).values()) <= 5000
