"""Pages are megabytes: a few of them are made and taken at once, however many ask."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from msgspec import Raw

from mainspring.api.app import all_routes, build_app
from mainspring.api.asgi import AsgiApp
from mainspring.api.limits import Limits
from mainspring.api.listener import listening
from mainspring.api.pages import PAGES_AT_ONCE, SLOW_READERS
from mainspring.store import PAGE_BYTES
from mainspring.timers.messages import ListTimers, TimerPage
from tests.api.edge import peers, request, status
from tests.support.exchanges import exchange
from tests.support.service_doubles import Edge, MemoryTimers, timer_view

LARGE = Raw(b'"%b"' % (b"x" * PAGE_BYTES))
ASKING = 3 * PAGES_AT_ONCE


class LargeTimers(MemoryTimers):
    """Whose lists are larger than what the system takes for a peer that does not read."""

    async def list(self, request: ListTimers) -> TimerPage:
        self._enter()
        await asyncio.sleep(0)
        return TimerPage(timers=(timer_view("a", LARGE),), next_cursor=None)


@pytest.fixture
def timers() -> LargeTimers:
    return LargeTimers()


@pytest.fixture
def app(timers: LargeTimers) -> AsgiApp:
    return build_app(replace(Edge().api, timers=timers))


async def test_no_page_is_made_while_enough_others_wait_to_be_taken(
    app: AsgiApp, timers: LargeTimers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.api.pages.PATIENCE_SECONDS", 10.0)  # so that nobody is slow
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener,
        peers(listener, ASKING) as readers,
    ):
        for _, writer in readers:
            writer.write(request())
        # It comes after all those pages, and before those that wait.
        assert status(await exchange(listener.port, request(b'{"timerId":"a"}', path="/v1/timers/get"))) == 200
        assert timers.calls == PAGES_AT_ONCE + 1
        answers = await asyncio.gather(*(reader.read() for reader, _ in readers))
    assert [status(answer) for answer in answers] == [200] * ASKING
    assert all(len(answer) > PAGE_BYTES for answer in answers)


async def test_a_page_that_its_reader_never_takes_keeps_the_others_only_for_its_time(app: AsgiApp) -> None:
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(request_seconds=0.4), drain_seconds=0.1) as listener,
        peers(listener, PAGES_AT_ONCE) as idle,
    ):
        for _, writer in idle:
            writer.write(request())
        assert status(await exchange(listener.port, request(), seconds=10)) == 200


async def test_readers_that_are_slow_delay_the_lists_of_others_by_a_moment(app: AsgiApp) -> None:
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener,
        peers(listener, PAGES_AT_ONCE) as idle,
    ):
        for _, writer in idle:
            writer.write(request())
        assert status(await exchange(listener.port, request(), seconds=3)) == 200
        for reader, _ in idle:  # and they have what they are due when they come to it
            assert status(await reader.read()) == 200


async def test_of_too_many_slow_readers_those_that_take_nothing_make_room(app: AsgiApp) -> None:
    async with (
        asyncio.timeout(20),
        listening(app, host="127.0.0.1", port=0, limits=Limits(), drain_seconds=0.1) as listener,
        peers(listener, 1) as [(reader, writer)],
        peers(listener, SLOW_READERS + PAGES_AT_ONCE) as idle,
    ):
        writer.write(request())
        taken = await reader.readexactly(PAGE_BYTES // 2)  # slow, but it reads
        for _, other in idle:
            other.write(request())
        assert status(await exchange(listener.port, request(), seconds=5)) == 200
        taken += await reader.read()
        assert len(taken) > PAGE_BYTES
        cut_off = [len(await _rest(reader)) < PAGE_BYTES for reader, _ in idle]
        assert 0 < sum(cut_off) <= PAGES_AT_ONCE + 1


async def _rest(reader: asyncio.StreamReader) -> bytes:
    taken = b""
    try:
        while piece := await reader.read(1_000_000):
            taken += piece
    except ConnectionResetError:
        pass
    return taken


def test_every_list_of_what_callers_sent_is_a_page() -> None:
    pages = {route.path for route in all_routes(Edge().api) if route.is_page}
    assert pages == {"/v1/timers/list", "/v1/jobs/list", "/v1/fetches/list"}
