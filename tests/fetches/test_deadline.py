"""An answer that is complete when the time is up counts, with the real sender, on both loops that are used."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from mainspring.clock import SystemClock
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.fetches.call import call
from mainspring.fetches.messages import OutboundRequest
from mainspring.fetches.outcome import Outcome, of_reply

TIMEOUT_MS = 200
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


async def _answered_at_the_deadline(answer: bytes) -> Outcome:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        request = OutboundRequest(url=f"http://127.0.0.1:{listener.getsockname()[1]}/", method="POST")
        async with Sender(guard=Guard(allow_loopback=True)) as sender, asyncio.timeout(10):
            calling = asyncio.create_task(call(sender, request, req_id="r", timeout_ms=TIMEOUT_MS, clock=SystemClock()))
            connection, _ = await loop.sock_accept(listener)
            with connection:
                await loop.sock_recv(connection, 65_536)
                # Nothing else runs from here on: the answer comes, and the deadline, before the loop looks at either.
                connection.sendall(answer)
                time.sleep(TIMEOUT_MS / 1000)  # noqa: ASYNC251
                called = await calling
    return of_reply(called.reply, method="POST", url=called.url, redirected=False, finished_at=0)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_an_answer_that_is_whole_at_the_deadline_counts_and_of_half_an_answer_the_status(
    run: Callable[[Coroutine[Any, Any, Outcome]], Outcome],
) -> None:
    whole = run(_answered_at_the_deadline(WHOLE))
    assert (whole.state, whole.response and whole.response.body) == ("succeeded", b"ok")
    half = run(_answered_at_the_deadline(WHOLE[:-1]))
    assert half.response is not None
    assert (half.state, half.response.status, half.response.body) == ("succeeded", 200, b"o")
    assert half.response.problem == "Expected a whole answer within 0.2 s, got none."
    headless = run(_answered_at_the_deadline(WHOLE[:20]))
    assert (headless.state, headless.failure and headless.failure.kind) == ("unknown", "timeout")
