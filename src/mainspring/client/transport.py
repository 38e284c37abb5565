"""How the clients reach the network: the project's own sender, which never sends anything twice by itself.

`AsyncTransport` runs on the caller's loop. `SyncTransport` runs the same sender on one private loop in one
background thread, which starts with `open` and ends with `close`. Both have the same verbs, so that the sync
client can be generated from the async one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from threading import Thread
from types import TracebackType
from typing import TypeVar

from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.errors import NetworkError

ANSWER_BYTES = 64 * 1024 * 1024
GRACE_SECONDS = 10.0
"""How much longer than its own deadline we wait for a call on the background loop."""

T = TypeVar("T")


def _new_sender() -> Sender:
    # The caller names the server, so no address is forbidden; the guard is there for callbacks.
    return Sender(guard=Guard(allow=("0.0.0.0/0", "::/0"), allow_loopback=True), answer_bytes=ANSWER_BYTES)


def _not_open() -> NetworkError:
    return NetworkError("The client is not open: it was never opened, or has been closed")


class AsyncTransport:
    """The sender on the running loop."""

    def __init__(self) -> None:
        self._sender: Sender | None = None

    async def open(self) -> None:
        if self._sender is None:
            self._sender = _new_sender()
            await self._sender.__aenter__()

    async def send(self, call: Call) -> Reply:
        if self._sender is None:
            raise _not_open()
        return await self._sender.send(call)

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def monotonic(self) -> float:
        """The time of the clock that `pause` uses."""
        return asyncio.get_running_loop().time()

    async def close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.__aexit__(None, None, None)


class SyncTransport:
    """The sender on a private loop; any number of threads may send."""

    def __init__(self) -> None:
        self._background: _Background | None = None

    def open(self) -> None:
        if self._background is None:
            self._background = _Background().__enter__()

    def send(self, call: Call) -> Reply:
        if self._background is None:
            raise _not_open()
        return self._background.send(call)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def monotonic(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        background, self._background = self._background, None
        if background is not None:
            background.__exit__(None, None, None)


class _Background:
    """One loop, one thread, one sender; all three begin and end together."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A daemon, so that a client that nobody closed does not keep a program from ending.
        self._thread = Thread(target=self._run, name="mainspring-client", daemon=True)
        self._transport = AsyncTransport()

    def __enter__(self) -> _Background:
        self._thread.start()
        self._wait(self._transport.open(), GRACE_SECONDS)
        return self

    def send(self, call: Call) -> Reply:
        return self._wait(self._transport.send(call), call.timeout_ms / 1000 + GRACE_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self._transport.close(), GRACE_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(GRACE_SECONDS)

    def _wait(self, work: Coroutine[object, object, T], seconds: float) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except BaseException:
            future.cancel()  # an interrupted caller leaves no request behind
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
