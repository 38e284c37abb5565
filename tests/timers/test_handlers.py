"""How a function of the program ended: what it raises is a failure, and what it returns never makes it run again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any

import pytest

from mainspring.clock import SystemClock
from mainspring.delivery.call import Reply
from mainspring.timers import handlers
from mainspring.timers.handlers import call_handler

RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


class Odd:
    def __repr__(self) -> str:
        raise ValueError


async def _reply(returned: object = None, raised: Exception | None = None) -> Reply:
    async def call() -> object:
        if raised is not None:
            raise raised
        return returned

    return await call_handler("h", call, timeout_ms=10_000, clock=SystemClock())


@pytest.mark.parametrize("returned", ["\ud800", RECURSIVE, {"payload": "\ud800"}, Odd(), 2**70, {object(): 1}, None, 3])
async def test_a_handler_that_has_returned_has_succeeded_whatever_it_returned(returned: object) -> None:
    reply = await _reply(returned)
    assert (reply.status, reply.problem) == (200, "")


async def test_a_handler_that_says_no_in_an_answer_that_cannot_be_written_has_said_no() -> None:
    reply = await _reply({"ok": False, "why": "\ud800"})
    assert (reply.status, reply.body) == (200, b'{"ok":false}')


async def test_a_timeout_of_a_handlers_own_is_a_failure() -> None:
    reply = await _reply(raised=TimeoutError("the pool has no connection"))
    assert (reply.status, reply.problem) == (500, "")
    assert b"TimeoutError: the pool has no connection" in reply.body


async def test_a_handler_that_raises_before_it_can_be_awaited_is_a_failure() -> None:
    def call() -> Awaitable[object]:
        raise ValueError

    assert (await call_handler("h", call, timeout_ms=1000, clock=SystemClock())).status == 500


@pytest.mark.parametrize("raised", [ValueError("\ud800"), Mute()])
async def test_an_error_that_cannot_be_put_into_words_is_a_failure(
    raised: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # what it says cannot be passed on from one process of the tests to another
    assert (await _reply(raised=raised)).status == 500


async def test_a_handler_that_does_not_end_in_time_is_a_timeout() -> None:
    reply = await call_handler("h", asyncio.Event().wait, timeout_ms=1, clock=SystemClock())
    assert (reply.status, reply.problem) == (None, "timeout")


async def test_nobody_who_stops_waits_for_a_handler_that_goes_on_although_it_was_cancelled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "LEAVE_SECONDS", 0.01)
    begun, end = asyncio.Event(), asyncio.Event()

    async def call() -> None:
        begun.set()
        while not end.is_set():
            with suppress(asyncio.CancelledError):
                await end.wait()

    calling = asyncio.create_task(call_handler("stubborn", call, timeout_ms=60_000, clock=SystemClock()))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert "a handler goes on although it was cancelled" in caplog.text
    end.set()


async def test_a_handler_that_is_cancelled_and_ends_is_waited_for() -> None:
    begun, ended = asyncio.Event(), False

    async def call() -> None:
        nonlocal ended
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended = True

    calling = asyncio.create_task(call_handler("tidy", call, timeout_ms=60_000, clock=SystemClock()))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert ended
