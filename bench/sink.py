"""The cheapest honest receiver: reads every request with httptools, counts it, answers 200. Runs as its own process.

Prints its port on the first line, then obeys lines on its input and answers each with a line of JSON, a `Report`:

    reset       start counting from zero
    await N     answer when N requests have been counted
    report      answer now, with the lateness of every request in a timed sink

It ends at the end of its input. A timed sink (`--timed`) also notes how long after its instant each request came. A
slow one (`--delay SECONDS`) lets each request wait, and notes how many waited at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import time
from array import array
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import cast

import httptools
import msgspec
import uvloop

ANSWER = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'
LINE_LIMIT = 4_000_000


class Report(msgspec.Struct, frozen=True):
    """What arrived since the last reset. Times are wall-clock milliseconds, so other processes can compare them."""

    count: int
    last_at_ms: float
    lateness_ms: list[float] = []
    most_at_once: int = 0


class Tally:
    """What all connections of a sink count together."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.reset()

    def reset(self) -> None:
        self.count = 0
        self.target = -1
        self.last_at_ms = 0.0
        self.lateness_ms = array("d")
        self.waiting = self.most_at_once = 0
        self.reached.clear()

    def add(self) -> None:
        self.count += 1
        if self.count == self.target:
            self.last_at_ms = time.time() * 1000
            self.reached.set()

    async def wait_for(self, count: int) -> None:
        self.target = count
        if self.count < count:
            await self.reached.wait()

    def report(self) -> Report:
        return Report(self.count, self.last_at_ms or time.time() * 1000, list(self.lateness_ms), self.most_at_once)


class Sink(asyncio.Protocol):
    """One connection."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._tally.add()
        self._transport.write(ANSWER)


class TimedSink(Sink):
    def on_header(self, name: bytes, value: bytes) -> None:
        if name == b"mainspring-scheduled-at":
            self._tally.lateness_ms.append(time.time() * 1000 - int(value))


class SlowSink(Sink):
    def __init__(self, tally: Tally, delay_seconds: float) -> None:
        super().__init__(tally)
        self._delay_seconds = delay_seconds

    def on_message_complete(self) -> None:
        tally = self._tally
        tally.add()
        tally.waiting += 1
        tally.most_at_once = max(tally.most_at_once, tally.waiting)
        asyncio.get_running_loop().call_later(self._delay_seconds, self._answer)

    def _answer(self) -> None:
        self._tally.waiting -= 1
        if not self._transport.is_closing():
            self._transport.write(ANSWER)


async def serve(connection: Callable[[Tally], Sink]) -> None:
    loop = asyncio.get_running_loop()
    tally = Tally()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    server = await loop.create_server(lambda: connection(tally), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    while line := await lines.readline():
        command, *arguments = line.decode().split()
        if command == "reset":
            tally.reset()
        elif command == "await":
            await tally.wait_for(int(arguments[0]))
        print(msgspec.json.encode(tally.report()).decode(), flush=True)
    server.close()


class RunningSink:
    """A sink in a process of its own, seen from outside."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}/callback"

    async def reset(self) -> None:
        await self._ask("reset")

    async def wait_for(self, count: int, *, seconds: float) -> Report:
        """Wait until so many requests came since the last reset."""
        return await self._ask(f"await {count}", seconds)

    async def report(self) -> Report:
        return await self._ask("report")

    async def _ask(self, command: str, seconds: float = 20) -> Report:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(seconds):
            return msgspec.json.decode(await self._process.stdout.readline(), type=Report)


@contextlib.asynccontextmanager
async def sink(*, timed: bool = False, delay_seconds: float = 0.0) -> AsyncIterator[RunningSink]:
    kind = ["--timed"] if timed else ["--delay", str(delay_seconds)] if delay_seconds else []
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.sink", *kind),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_LIMIT,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            port = int(await process.stdout.readline())
        yield RunningSink(process, port)
    finally:
        try:
            async with asyncio.timeout(5):
                await process.communicate(b"")  # closes its input, which ends it
        except TimeoutError:  # it is still waiting for requests that never came
            process.kill()
            await process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--delay", type=float, default=0.0)
    options = parser.parse_args()
    slow = partial(SlowSink, delay_seconds=options.delay)
    uvloop.run(serve(TimedSink if options.timed else slow if options.delay else Sink))
