"""Answers about one thing may be megabytes, too: a few of these wait for their readers, and small ones for nobody."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import Raw

from mainspring.api.app import all_routes, build_app
from mainspring.api.asgi import AsgiApp
from mainspring.api.large_answers import MADE_AT_ONCE
from mainspring.api.limits import Limits
from mainspring.api.listener import listening
from mainspring.api.pages import PAGES_AT_ONCE
from mainspring.store import PAGE_BYTES
from mainspring.timers.messages import TimerRef, TimerView
from tests.api.edge import peers, request, status
from tests.support.exchanges import exchange
from tests.support.service_doubles import Edge, MemoryTimers, timer_view

LARGE = Raw(b'"%b"' % (b"x" * PAGE_BYTES))
ASKING = 3 * PAGES_AT_ONCE
GET = "/v1/timers/get"
LARGE_ONE = request(b'{"timerId":"large"}', path=GET)
SMALL_ONE = request(b'{"timerId":"small"}', path=GET)


class LargeTimers(MemoryTimers):
    """One of which is larger than what the system takes for a peer that does not read."""

    _making = 0
    most_at_once = 0

    async def get(self, request: TimerRef) -> TimerView:
        self._enter()
        self._making += 1
        self.most_at_once = max(self.most_at_once, self._making)
        await asyncio.sleep(0.01)
        self._making -= 1
        return timer_view(request.timer_id, LARGE if request.timer_id == "large" else Raw(b"null"))


@pytest.fixture
def timers() -> LargeTimers:
    return LargeTimers()


@pytest.fixture
def app(timers: LargeTimers) -> AsgiApp:
    return build_app(replace(Edge().api, timers=timers))


async def test_large_answers_that_nobody_takes_are_few_and_hold_up_no_small_one(
    app: AsgiApp, timers: LargeTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.api.pages.PATIENCE_SECONDS", 10.0)  # so that nobody is slow
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener,
        peers(listener, ASKING) as readers,
    ):
        for _, writer in readers:
            writer.write(LARGE_ONE)
        for _ in range(3):
            assert status(await exchange(listener.port, SMALL_ONE)) == 200
        assert timers.calls == ASKING + 3
        answers = await asyncio.gather(*(reader.read() for reader, _ in readers))
        assert timers.calls == ASKING + 3 + ASKING - PAGES_AT_ONCE, "what had no place was let go of, and made again"
    assert [status(answer) for answer in answers] == [200] * ASKING
    assert all(len(answer) > PAGE_BYTES for answer in answers)


async def test_a_large_answer_that_its_reader_never_takes_keeps_the_others_only_for_a_moment(app: AsgiApp) -> None:
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener,
        peers(listener, PAGES_AT_ONCE) as idle,
    ):
        for _, writer in idle:
            writer.write(LARGE_ONE)
        assert status(await exchange(listener.port, LARGE_ONE, seconds=5)) == 200


async def test_of_answers_that_may_be_large_only_some_are_made_at_once(app: AsgiApp, timers: LargeTimers) -> None:
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener,
    ):
        await asyncio.gather(*(exchange(listener.port, SMALL_ONE) for _ in range(3 * MADE_AT_ONCE)))
    assert 1 < timers.most_at_once <= MADE_AT_ONCE


def test_every_answer_that_can_be_large_is_bounded() -> None:
    """Those of writes have no more than what the request has sent."""
    bounded = {route.path for route in all_routes(Edge().api) if route.can_be_remade is not None}
    assert bounded == {
        "/v1/timers/get",
        "/v1/timers/history",
        "/v1/jobs/get",
        "/v1/jobs/runs",
        "/v1/fetches/create",
        "/v1/fetches/get",
        "/v1/fetches/cancel",
        "/v1/keys/list",
        "/v1/namespaces/list",
        "/v1/shards/list",
    }


def test_a_fetch_without_a_name_is_never_asked_for_twice() -> None:
    [create] = [route for route in all_routes(Edge().api) if route.path == "/v1/fetches/create"]
    assert create.can_be_remade is not None
    assert create.can_be_remade(b'{"reqId":"a","request":{"url":"http://a"}}')
    assert not create.can_be_remade(b'{"request":{"url":"http://a"}}')
