"""Results that did not reach their origins are listed, and delivered again when somebody asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.cluster.instance import Instance
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.fetches.messages import FetchRef, FetchView, ListFetches, OutboundRequest, RedeliverFetches
from mainspring.fetches.outcome import Outcome
from mainspring.fetches.record import FETCHES, Fetch, ResultReturn, decode, encode, offered_again
from mainspring.fetches.results import OriginAnswer, judged
from mainspring.testing.target import Answer, TargetServer
from tests.support.fetch_requests import asking, ended, until

SOON_MS = 1_000


def is_delivered(view: FetchView) -> bool:
    return view.delivery.state == "delivered"


async def given_up(instance: Instance, target: TargetServer, *req_ids: str) -> None:
    """Fetches whose origin said that it is gone, and has come back since."""
    target.script("/result", Answer(status=410))
    for req_id in req_ids:
        asked = asking(target.url + "/", req_id=req_id, result_url=target.url + "/result", labels={"name": req_id})
        await instance.fetches.create(asked)
    for req_id in req_ids:
        await until(instance.fetches, req_id, lambda view: view.delivery.state == "failed")
        await _row_says(instance, req_id, "failed")
    target.script("/result", Answer())


async def _row_says(instance: Instance, req_id: str, delivery: str) -> None:
    """Rows follow their records, but not in the same instant."""
    key = await instance.fetches_assembly.registry.key_of(req_id)
    async with asyncio.timeout(10):
        while True:
            [row] = await instance.store.get([key])
            if row is not None and row.detail.labels.get("delivery") == delivery:
                return
            await asyncio.sleep(0.01)


async def listed(instance: Instance, **conditions: Any) -> list[tuple[str, str | None]]:
    page = await instance.fetches.list(ListFetches(**conditions))
    return sorted((fetch.req_id, fetch.delivery) for fetch in page.fetches)


async def redelivered(instance: Instance, **fields: Any) -> tuple[int, int]:
    view = await instance.fetches.redeliver(RedeliverFetches(**fields))
    return view.matched, view.changed


def test_nobody_offers_a_result_while_its_first_offer_is_under_way() -> None:
    fetch = Fetch(
        req_id="a",
        request=OutboundRequest(url="http://example.com/"),
        timeout_ms=1_000,
        created_at=0,
        delivery_ms=60_000,
        delivery=ResultReturn(state="waiting", next_at=9_000),
    )
    assert offered_again(fetch, 5_000) is None
    tried = replace(fetch, delivery=ResultReturn(state="waiting", next_at=9_000, attempts=1))
    assert offered_again(tried, 5_000) is not None


async def test_a_result_that_was_given_up_is_listed_and_delivered_again(
    instance: Instance, target: TargetServer
) -> None:
    await given_up(instance, target, "a")
    await instance.fetches.create(asking(target.url + "/", req_id="nobody"))
    await ended(instance.fetches, "nobody")
    assert await listed(instance, deliveries=("waiting", "failed")) == [("a", "failed")]
    assert await redelivered(instance, req_id="a", dry_run=True) == (1, 1)
    assert await redelivered(instance, req_id="a") == (1, 1)
    view = await until(instance.fetches, "a", is_delivered)
    assert (view.delivery.attempts, view.delivery.last_status) == (1, 200)
    assert [request.path for request in target.requests].count("/result") == 2
    told = msgspec.json.decode(target.requests[-1].body)
    assert (told["reqId"], target.requests[-1].headers["webhook-id"]) == ("a", "a")
    await _row_says(instance, "a", "delivered")
    assert await listed(instance, deliveries=("waiting", "failed")) == []
    assert await listed(instance) == [("a", "delivered"), ("nobody", "none")]


async def test_those_that_match_are_delivered_again_and_a_dry_run_counts_them(
    instance: Instance, target: TargetServer
) -> None:
    await given_up(instance, target, "a", "b", "c")
    assert await redelivered(instance, all=True, dry_run=True) == (3, 3)
    assert await redelivered(instance, labels={"name": "b"}) == (1, 1)
    await until(instance.fetches, "b", is_delivered)
    await _row_says(instance, "b", "delivered")
    assert await redelivered(instance, states=("unknown",)) == (0, 0)
    assert await redelivered(instance, all=True) == (2, 2)
    for req_id in ("a", "c"):
        await until(instance.fetches, req_id, is_delivered)
        await _row_says(instance, req_id, "delivered")
    assert await redelivered(instance, all=True) == (0, 0)


async def test_one_that_waits_for_its_next_offer_is_offered_now(instance: Instance, target: TargetServer) -> None:
    target.script("/result", Answer(status=503, headers=(("retry-after", "3600"),)), Answer())
    await instance.fetches.create(asking(target.url + "/", req_id="w", result_url=target.url + "/result"))
    await until(instance.fetches, "w", lambda view: view.delivery.attempts == 1)
    await _row_says(instance, "w", "waiting")
    assert await redelivered(instance, all=True) == (0, 0)
    assert await redelivered(instance, all=True, deliveries=("waiting",)) == (1, 1)
    assert (await until(instance.fetches, "w", is_delivered)).delivery.attempts == 2


async def test_a_repeat_sees_to_a_row_that_a_crash_has_left_behind(instance: Instance, target: TargetServer) -> None:
    await given_up(instance, target, "a")
    now = instance.clock.now_ms()
    record = await instance.store.get_record(FETCHES, "a", now=now)
    assert record is not None
    again = offered_again(decode(record.value), now)
    assert again is not None
    assert await instance.store.put_record(
        FETCHES, "a", encode(again), expect=record.version, now=now, expires_at=again.expires_at
    )
    assert await redelivered(instance, all=True) == (1, 0)
    await until(instance.fetches, "a", is_delivered)


async def test_what_has_no_result_to_deliver_is_named(instance: Instance, target: TargetServer) -> None:
    await instance.fetches.create(asking(target.url + "/", req_id="nobody"))
    await ended(instance.fetches, "nobody")
    await instance.fetches.create(asking(target.url + "/", req_id="done", result_url=target.url + "/result"))
    await until(instance.fetches, "done", is_delivered)
    await instance.fetches.create(asking(target.url + "/hang", req_id="runs", result_url=target.url + "/result"))
    for req_id, reason in (("nobody", "no resultUrl"), ("done", "was delivered"), ("runs", "has not ended")):
        with pytest.raises(Conflict, match=reason):
            await redelivered(instance, req_id=req_id)
    with pytest.raises(NotFound):
        await redelivered(instance, req_id="never")
    for wrong in ({}, {"req_id": "done", "all": True}, {"req_id": "done", "labels": {"a": "b"}}):
        with pytest.raises(InvalidInput):
            await redelivered(instance, **wrong)


async def test_a_program_does_the_same(target: TargetServer) -> None:
    async with Mainspring("memory://", allow_loopback=True) as ms:
        await given_up(ms._instance, target, "a")
        assert [fetch.req_id async for fetch in ms.fetches.iterate(deliveries=["failed"])] == ["a"]
        assert (await ms.fetches.redeliver(labels={"name": "a"}, dry_run=True)).matched == 1
        assert (await ms.fetches.redeliver("a")).changed == 1


def test_one_that_was_given_up_has_all_its_time_again_and_is_kept_as_long() -> None:
    fetch = Fetch(
        req_id="r",
        request=OutboundRequest(url="http://target.example/"),
        timeout_ms=1,
        created_at=0,
        delivery_ms=10_000,
        result_url="http://origin.example/",
        state="succeeded",
        outcome=Outcome(state="succeeded", finished_at=0, duration_ms=1),
        delivery=ResultReturn(state="failed", attempts=7),
        expires_at=600_000,
    )
    again = offered_again(fetch, 500_000)
    assert again is not None
    assert again.expires_at is not None
    assert again.expires_at > 510_000 + SOON_MS
    assert fetch.outcome is not None
    silence = OriginAnswer(None, "It broke")
    for now, state in ((509_000 - 1, "waiting"), (511_000, "failed")):
        after = judged(again.delivery, silence, fetch.outcome, delivery_ms=10_000, now=now, spread=0.0)
        assert (after.state, after.attempts) == (state, 1)


@pytest.mark.parametrize(("states", "expected"), [((), ["odd", "under-way"]), (("cancelled",), ["under-way"])])
async def test_those_whose_target_may_have_acted_are_listed_together(
    instance: Instance, target: TargetServer, states: Sequence[Any], expected: list[str]
) -> None:
    await instance.fetches.create(asking(target.url + "/reset", "POST", req_id="odd"))
    await ended(instance.fetches, "odd")
    await instance.fetches.create(asking(target.url + "/hang", "POST", req_id="under-way"))
    await target.wait_for(2)
    await instance.fetches.create(asking("http://127.0.0.1:9/", "POST", req_id="failed"))
    await ended(instance.fetches, "failed")
    cancelled = await instance.fetches.cancel(FetchRef(req_id="under-way"))
    assert cancelled.state == "cancelled"
    found: list[tuple[str, str | None]] = []
    async with asyncio.timeout(10):
        while len(found) < len(expected):
            found = await listed(instance, may_have_acted=True, states=tuple(states))
            await asyncio.sleep(0.01)
    assert [req_id for req_id, _ in found] == expected
