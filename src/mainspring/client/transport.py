"""How the clients reach the network: the project's own sender, which never sends anything twice by itself.

`AsyncTransport` runs on the caller's loop. `SyncTransport` runs the same sender on one private loop in one
background thread, which starts with `open` and ends with `close`. Both have the same verbs, so that the sync
client can be generated from the async one.
"""

from __future__ import annotations

import asyncio
import time

from mainspring.delivery.call import Call, Reply
from mainspring.delivery.guard import Guard
from mainspring.delivery.sender import Sender
from mainspring.errors import NetworkError
from mainspring.loop_thread import LoopThread

ANSWER_BYTES = 64 * 1024 * 1024
GRACE_SECONDS = 10.0
"""How much longer than its own deadline we wait for a call on the private loop."""


def _new_sender() -> Sender:
    # The caller names the server, so no address is forbidden; the guard is there for callbacks.
    return Sender(guard=Guard(allow=("0.0.0.0/0", "::/0"), allow_loopback=True), answer_bytes=ANSWER_BYTES)


def _not_open(block: str) -> NetworkError:
    return NetworkError(f"The client is not open: use `{block}` and ask inside the block, or call its `open` first")


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
            raise _not_open("async with AsyncClient() as client")
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
        self._thread: LoopThread | None = None
        self._transport = AsyncTransport()

    def open(self) -> None:
        if self._thread is None:
            thread = LoopThread("mainspring-client")
            thread.start()
            thread.run(self._transport.open(), GRACE_SECONDS)
            self._thread = thread

    def send(self, call: Call) -> Reply:
        if self._thread is None:
            raise _not_open("with Client() as client")
        if not self._thread.is_of_this_process:
            raise NetworkError("The client was opened before this process was forked: open one in each process")
        return self._thread.run(self._transport.send(call), call.timeout_ms / 1000 + GRACE_SECONDS)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def monotonic(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is None or not thread.is_of_this_process:
            return
        try:
            thread.run(self._transport.close(), GRACE_SECONDS)
        finally:
            thread.stop()
