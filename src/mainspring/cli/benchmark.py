"""`mainspring dev benchmark`: a small load against a running server, received by this command itself.

Every timer is due a second after its creation, so the server accepts and fires at the same time. The command and the
sink share one process: on a small machine it measures itself as well. Careful figures come from `python -m bench`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, cast

import click
import httptools

from mainspring.cli.globals import Globals
from mainspring.cli.progress import progress
from mainspring.client import AsyncClient
from mainspring.clock import wall_ms
from mainspring.errors import MainspringError
from mainspring.model import RetryPolicy
from mainspring.wire.message import View

DELAY_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 30.0
"""After this long without a callback, the rest is given up."""
_ANSWER: Final = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'


class BenchmarkView(View, frozen=True, kw_only=True):
    """What came out. Lateness is the arrival of a callback after the instant of its timer."""

    timers: int
    creates_per_second: float
    lateness_p50_ms: float
    lateness_p99_ms: float


class Sink:
    """Answers every callback at once, and notes how late it came."""

    def __init__(self) -> None:
        self.lateness_ms: list[float] = []
        self.connections: set[asyncio.Transport] = set()
        self._arrived = asyncio.Event()

    def add(self, lateness_ms: float) -> None:
        self.lateness_ms.append(lateness_ms)
        self._arrived.set()

    async def wait_for(self, count: int, advance: Callable[[int], None]) -> None:
        """Raises TimeoutError after a long silence."""
        while len(self.lateness_ms) < count:
            self._arrived.clear()
            async with asyncio.timeout(SILENCE_SECONDS):
                await self._arrived.wait()
            advance(len(self.lateness_ms))


class _Connection(asyncio.Protocol):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._parser = httptools.HttpRequestParser(self)
        self._scheduled_at = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._sink.connections.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._sink.connections.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"mainspring-scheduled-at" and value.isdigit():
            self._scheduled_at = int(value)

    def on_message_complete(self) -> None:
        self._sink.add(time.time() * 1000 - self._scheduled_at)
        self._transport.write(_ANSWER)


@asynccontextmanager
async def sink_at(host: str) -> AsyncIterator[tuple[Sink, str]]:
    """A sink, and the URL at which a server reaches it."""
    sink = Sink()
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(lambda: _Connection(sink), host, 0, backlog=1024)
    except OSError as error:
        raise click.ClickException(f"Expected an address of this machine, got {host}: {error.strerror}") from error
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            yield sink, f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        finally:
            for connection in tuple(sink.connections):
                connection.abort()
            await asyncio.sleep(0)  # for the sockets to close


async def benchmark(*, count: int, connections: int, namespace: str, host: str, chosen: Globals) -> BenchmarkView:
    prefix = f"benchmark-{secrets.token_hex(4)}-"
    async with sink_at(host) as (sink, url), AsyncClient(chosen.url, chosen.chosen_token) as client:
        try:
            with progress(count, "creating", chosen) as advance:
                seconds = await _create(
                    client, prefix, url, count=count, connections=connections, namespace=namespace, advance=advance
                )
            with progress(count, "receiving", chosen) as advance:
                await sink.wait_for(count, advance)
        except TimeoutError as error:
            raise click.ClickException(
                f"Expected {count} callbacks, got {len(sink.lateness_ms)} and then none for {SILENCE_SECONDS:g} s. "
                f"Can the server reach {url}?"
            ) from error
        finally:
            if len(sink.lateness_ms) < count:
                await client.timers.bulk_delete(namespace=namespace, id_prefix=prefix)
    late = sorted(sink.lateness_ms)
    return BenchmarkView(
        timers=count,
        creates_per_second=round(count / seconds, 1),
        lateness_p50_ms=round(late[count // 2], 1),
        lateness_p99_ms=round(late[count * 99 // 100], 1),
    )


async def _create(
    client: AsyncClient,
    prefix: str,
    url: str,
    *,
    count: int,
    connections: int,
    namespace: str,
    advance: Callable[[int], None],
) -> float:
    """One timer per request, each connection in a closed loop; returns how many seconds it took."""
    numbers = iter(range(count))
    done = itertools.count(1)

    async def work() -> None:
        for number in numbers:
            await client.timers.create(
                f"{prefix}{number}",
                namespace=namespace,
                callback_url=url,
                delay_seconds=DELAY_SECONDS,
                payload={"number": number, "sentAt": wall_ms()},
                retry_policy=RetryPolicy(max_attempts=1),
            )
            advance(next(done))

    started = time.perf_counter()
    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(min(connections, count)):
                tasks.create_task(work())
    except ExceptionGroup as group:
        raise next((error for error in group.exceptions if isinstance(error, MainspringError)), group) from group
    return time.perf_counter() - started
