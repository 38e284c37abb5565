"""Hosts that are dead, deaf or slow do not take the memory of those that answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mainspring.cluster.instance import Instance
from mainspring.config import Config
from mainspring.delivery.call import Call, Reply
from mainspring.fetches.memory import while_offered
from mainspring.testing.simulation import SimulatedLoop, run_simulated
from mainspring.testing.target import Answer, TargetServer
from tests.support.fetch_requests import asking, ended
from tests.support.simulated_fetches import World, answer, world

SILENCE = Reply(None, {}, b"", False, "timeout", "It did not answer", True, 0)
MEMORY = 6_000_000
"""As little that a few answers fill a tier of it."""


async def _succeeds(here: World, host: str, size: int, *, seconds: float = 1.0) -> None:
    view = await here.fetches.create(
        asking(f"http://{host}/", "POST", request={"body": "x" * size}, timeout_seconds=20)
    )
    assert (await here.fetches.wait(view.req_id, seconds)).state == "succeeded", host


@pytest.mark.parametrize("answered_before", [0, 1], ids=["new", "once good"])
def test_hosts_that_take_no_request_leave_memory_for_requests_to_those_that_do(answered_before: int) -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, memory_bytes=16_000_000) as here:
            deaf = False

            def behave(call: Call) -> tuple[float, Reply]:
                return (10_000.0, SILENCE) if "deaf" in call.url and deaf else (0.05, answer())

            here.network.behave = behave
            for _ in range(10):
                await _succeeds(here, "known.example", 5_000)
            for n in range(60 * answered_before):
                await _succeeds(here, f"deaf{n}.example", 5_000)
            deaf = True
            for n in range(60):
                for _ in range(3):
                    await here.fetches.create(
                        asking(f"http://deaf{n}.example/", "POST", request={"body": "x" * 60_000}, timeout_seconds=600)
                    )
            await asyncio.sleep(5)
            requests = here.fetching.requests
            assert requests.is_short, "they would take more"
            for n in range(8):
                await _succeeds(here, "known.example", (5_000, 100_000)[n % 2])
            await _succeeds(here, "new.example", 5_000)

    run_simulated(main)


def test_a_request_takes_as_much_memory_as_its_row_says() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, memory_bytes=MEMORY, latency_seconds=0.1) as here:
            here.network.behave = lambda _: (10.0, answer())
            for n in range(20):
                await here.fetches.create(
                    asking(f"http://h{n}.example/", "POST", request={"body": "x" * 5_000}, timeout_seconds=600)
                )
            await asyncio.sleep(1)
            assert len(here.network.calls) == 20, "all at once: they are not large"

    run_simulated(main)


def test_origins_that_take_no_result_leave_memory_for_results_to_those_that_do() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, memory_bytes=MEMORY) as here:
            here.network.behave = lambda _: (0.0, answer(body=b"x" * 30_000))

            async def bring(origin: str) -> str:
                asked = asking("http://host.example/", result_url=f"http://{origin}/", timeout_seconds=60)
                return (await here.fetches.create(asked)).req_id

            for _ in range(10):
                await bring("known.example")
                await asyncio.sleep(1)
            here.network.offer_seconds = 10_000.0
            for n in range(60):
                await bring(f"deaf{n}.example")
            await asyncio.sleep(5)
            here.network.offer_seconds = 0.0
            for _ in range(3):
                req_id = await bring("known.example")
                await asyncio.sleep(1)
                assert here.network.results[req_id] == ["succeeded"]
                async with (
                    asyncio.timeout(1),
                    here.fetching.carrier._results.found(req_id, "http://known.example/") as fetch,
                ):
                    assert fetch is not None, "so it is with those that are offered later"

    run_simulated(main)


def test_a_result_that_needs_more_memory_than_is_kept_is_read_when_it_is_there() -> None:
    async def main(loop: SimulatedLoop) -> None:
        async with world(loop, memory_bytes=MEMORY) as here:
            here.network.behave = lambda _: (0.0, answer(body=b"\x01" * 60_000))
            view = await here.fetches.create(asking("http://host.example/", result_url="http://origin.example/"))
            await asyncio.sleep(1)
            results = here.fetching.carrier._results
            async with results.found(view.req_id, "http://other.example/") as fetch:
                assert fetch is not None
                assert results._memory.taken == while_offered(fetch.outcome) > MEMORY // 3 * 3 // 16
            assert results._memory.taken == 0

    run_simulated(main)


# --- answers ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[Instance]:
    config = Config(
        allow_loopback=True, store="memory://", data_dir=str(tmp_path), drain_seconds=0.1, fetch_memory_bytes=MEMORY
    )
    async with Instance(config) as instance:
        yield instance


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    """On all addresses of this machine, each of which is a site."""
    tasks = set[asyncio.Task[None]]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await handler(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(handle, "0.0.0.0", 0) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class Drip:
    """Answers promptly until it is told to drip: then it sends so many bytes, and a few more every second."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._begun = 0
        self.is_dripping = False
        self.began = asyncio.Event()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(10):
            while self._begun < count:
                self.began.clear()
                await self.began.wait()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.is_dripping:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await reader.read()
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 900000\r\n\r\n" + b"x" * self._first)
        self._begun += 1
        self.began.set()
        while True:
            await asyncio.sleep(0.5)
            writer.write(b"x")
            await writer.drain()


async def _get_whole(instance: Instance, url: str, size: int) -> None:
    view = await instance.fetches.create(asking(url, timeout_seconds=9))
    result = (await ended(instance.fetches, view.req_id, seconds=10)).result
    assert result is not None
    assert result.response is not None
    assert (len(result.response.body or ""), result.response.truncated) == (size, False)


@pytest.mark.slow
@pytest.mark.parametrize("first", [5_000, 100_000])
@pytest.mark.parametrize("answered_before", [0, 9], ids=["new", "once good"])
async def test_answers_that_drip_leave_memory_for_the_answers_of_others(
    tmp_path: Path, target: TargetServer, answered_before: int, first: int
) -> None:
    target.script("/big", Answer(body=b"x" * 100_000))
    drip = Drip(first)
    async with serving(drip.answer) as port, running(tmp_path) as instance:
        for _ in range(10):
            await _get_whole(instance, f"{target.url}/big", 100_000)
        urls = [f"http://127.{n + 1}.0.1:{port}/" for n in range(40)]
        for _ in range(answered_before):
            views = [await instance.fetches.create(asking(url)) for url in urls]
            for view in views:
                await ended(instance.fetches, view.req_id)
        drip.is_dripping = True
        for url in urls:
            await instance.fetches.create(asking(url, timeout_seconds=60))
        await drip.wait_for(40)
        await asyncio.sleep(0.2)
        await asyncio.gather(*(_get_whole(instance, f"{target.url}/big", 100_000) for _ in range(3)))


@pytest.mark.slow
async def test_answers_that_take_long_share_the_memory_and_each_comes_whole(
    tmp_path: Path, target: TargetServer
) -> None:
    """There is room for a few at a time."""

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for _ in range(12):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.5)
        writer.close()

    async with await asyncio.start_server(stream, "0.0.0.0", 0) as server, running(tmp_path) as instance:
        port = server.sockets[0].getsockname()[1]
        views = [
            await instance.fetches.create(asking(f"http://127.{n % 20 + 1}.0.1:{port}/{n}", timeout_seconds=60))
            for n in range(60)
        ]
        for view in views:
            result = (await ended(instance.fetches, view.req_id, seconds=30)).result
            assert result is not None
            assert result.response is not None
            assert (len(result.response.body or ""), result.response.truncated) == (12_000, False)
