"""The cheapest honest receiver: reads every request with httptools, counts it, answers 200. Runs as its own process.

Prints its port on the first line; at end of input prints how many requests it answered, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

import httptools
import uvloop

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'


class Sink(asyncio.Protocol):
    """One connection."""

    answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        Sink.answered += 1
        self._transport.write(ANSWER)


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    print(Sink.answered, flush=True)
    server.close()


@contextlib.asynccontextmanager
async def sink() -> AsyncIterator[int]:
    """A sink in its own process; gives its port."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.sink", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20):
            port = int(await process.stdout.readline())
        yield port
    finally:
        async with asyncio.timeout(20):
            await process.communicate(b"")  # closes its input, which ends it


if __name__ == "__main__":
    uvloop.run(serve())
