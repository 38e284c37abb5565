"""Results reach their origin: signed, with its context, again until it has acknowledged or the time is over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from mainspring.cluster.instance import Instance
from mainspring.config import DAY_MS, Config
from mainspring.delivery.signatures import verify
from mainspring.fetches.messages import FetchRef, OutboundRequest
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import Fetch, ResultReturn, ended
from mainspring.fetches.results import OriginAnswer, judged
from mainspring.testing.target import Answer, TargetServer
from tests.support.fetch_requests import asking, until

DONE = Outcome(state="succeeded", finished_at=0, duration_ms=1)


async def test_the_origin_gets_the_result_signed_with_its_context(instance: Instance, target: TargetServer) -> None:
    context = Raw(b'{"order": 7}')
    asked = asking(target.url + "/status/404", "POST", result_url=target.url + "/result", context=context, req_id="a1")
    await instance.fetches.create(asked)
    view = await until(instance.fetches, "a1", lambda view: view.delivery.state == "delivered")
    told = target.requests[-1]
    result = msgspec.json.decode(told.body)
    assert (result["reqId"], result["state"], result["context"]) == ("a1", "succeeded", {"order": 7})
    assert (result["response"]["status"], result["error"]) == (404, None)
    assert (told.headers["webhook-id"], told.headers["idempotency-key"]) == ("a1", "a1")
    namespace = await instance.namespaces.find("default")
    verify(namespace.secrets, told.headers, told.body, now=instance.clock.now_ms() // 1000)
    assert (view.delivery.attempts, view.delivery.last_status) == (1, 200)


@pytest.mark.slow
async def test_a_result_is_offered_until_the_origin_acknowledges(instance: Instance, target: TargetServer) -> None:
    target.script("/result", Answer(status=500), Answer(behaviour="reset"), Answer(status=204))
    await instance.fetches.create(asking(target.url + "/call", result_url=target.url + "/result", req_id="b1"))
    failing = await until(instance.fetches, "b1", lambda view: view.delivery.attempts == 1)
    assert (failing.delivery.state, failing.delivery.detail) == ("waiting", "The origin answered 500.")
    view = await until(instance.fetches, "b1", lambda view: view.delivery.state == "delivered")
    assert view.delivery.attempts == 3
    assert target.deliveries == {"b1": 3}
    assert sum(request.path == "/call" for request in target.requests) == 1


async def test_after_its_deadline_a_result_is_offered_no_more(instance: Instance, target: TargetServer) -> None:
    target.script("/result", Answer(status=503))
    asked = asking(target.url + "/call", result_url=target.url + "/result", req_id="c1", delivery_seconds=1.0)
    await instance.fetches.create(asked)
    view = await until(instance.fetches, "c1", lambda view: view.delivery.state == "failed")
    assert "Given up after 1 s" in view.delivery.detail
    assert view.state == "succeeded", "the result is there for whoever asks"


async def test_an_origin_that_is_gone_is_left_alone(instance: Instance, target: TargetServer) -> None:
    target.script("/result", Answer(status=410))
    await instance.fetches.create(asking(target.url + "/call", result_url=target.url + "/result", req_id="e1"))
    view = await until(instance.fetches, "e1", lambda view: view.delivery.state == "failed")
    assert (view.delivery.attempts, view.delivery.last_status) == (1, 410)


async def test_a_cancelled_fetch_tells_its_origin_so(instance: Instance, target: TargetServer) -> None:
    await instance.fetches.create(asking(target.url + "/hang", result_url=target.url + "/result", req_id="g1"))
    await target.wait_for(1)
    await instance.fetches.cancel(FetchRef(req_id="g1"))
    await until(instance.fetches, "g1", lambda view: view.delivery.state == "delivered")
    assert msgspec.json.decode(target.requests[-1].body)["state"] == "cancelled"


async def test_one_that_is_cancelled_while_all_places_are_taken_tells_its_origin_at_once(
    tmp_path: Path, target: TargetServer
) -> None:
    async with Instance(
        Config(allow_loopback=True, store="memory://", data_dir=str(tmp_path), drain_seconds=0.1, fetch_limit=1)
    ) as instance:
        await instance.fetches.create(asking(target.url + "/hang"))
        await target.wait_for(1)
        await instance.fetches.create(asking(target.url + "/never", result_url=target.url + "/result", req_id="g2"))
        await instance.fetches.cancel(FetchRef(req_id="g2"))
        await until(instance.fetches, "g2", lambda view: view.delivery.state == "delivered", seconds=2.0)
    assert [request.path for request in target.requests] == ["/hang", "/result"]


async def test_a_stop_ends_calls_in_flight_as_unknown_and_the_next_start_tells_the_origin(
    tmp_path: Path, target: TargetServer
) -> None:
    config = Config(
        allow_loopback=True, store=f"sqlite:///{tmp_path / 'mainspring.db'}", data_dir=str(tmp_path), drain_seconds=0.1
    )
    async with Instance(config) as instance:
        asked = asking(target.url + "/hang", "POST", result_url=target.url + "/result", req_id="h1")
        await instance.fetches.create(asked)
        await target.wait_for(1)
    async with Instance(config) as instance:
        view = await until(instance.fetches, "h1", lambda view: view.delivery.state == "delivered")
    assert view.state == "unknown"
    assert [request.path for request in target.requests] == ["/hang", "/result"]


@pytest.mark.parametrize(("now", "state"), [(1_000, "waiting"), (9_000, "waiting"), (9_800, "failed")])
def test_the_deadline_counts_from_the_result(now: int, state: str) -> None:
    silence = OriginAnswer(None, "It broke")
    after = judged(ResultReturn(state="waiting"), silence, DONE, delivery_ms=10_000, now=now, spread=0.0)
    assert (after.state, after.attempts) == (state, 1)


@pytest.mark.parametrize(("delivery_ms", "kept_ms"), [(DAY_MS, 7 * DAY_MS), (30 * DAY_MS, 30 * DAY_MS)])
def test_a_result_is_kept_for_as_long_as_it_is_offered(delivery_ms: int, kept_ms: int) -> None:
    request = OutboundRequest(url="http://target.example/")
    fetch = Fetch(
        req_id="r",
        request=request,
        timeout_ms=1,
        created_at=0,
        delivery_ms=delivery_ms,
        result_url="http://origin.example/",
    )
    final = ended(fetch, DONE, offer_ms=8_000, retention_ms=7 * DAY_MS)
    assert final.expires_at is not None
    assert final.expires_at >= kept_ms


async def test_two_instances_make_one_call_for_one_fetch(tmp_path: Path, target: TargetServer) -> None:
    config = Config(
        allow_loopback=True, store=f"sqlite:///{tmp_path / 'mainspring.db'}", data_dir=str(tmp_path), drain_seconds=0.2
    )
    async with Instance(config) as one, Instance(config) as two:
        asked = [asking(f"{target.url}/{n}", "POST", req_id=f"i{n}") for n in range(40)]
        await asyncio.gather(*(here.fetches.create(each) for here in (one, two) for each in asked))
        views = await asyncio.gather(*(two.fetches.wait(each.req_id or "", 10) for each in asked))
    assert {view.state for view in views} == {"succeeded"}
    assert len(target.requests) == 40
