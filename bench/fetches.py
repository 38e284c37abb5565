"""What a fetch costs: beside a direct call, with a thousand of them at once, and while many wait.

Client and origin are this process; target and product are processes of their own. A direct call is made by the same
client to the same target, each over a connection of its own, like the call of a fetch.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from statistics import median

import msgspec

from bench.figures import Aim, Figure, Setting
from bench.load import ask, post
from bench.processes import TOKEN, Running, server
from bench.sink import RunningSink, Sink, Tally, sink
from bench.timers import create_all
from mainspring.config import Config
from mainspring.fetches.messages import StatsView

BODY = b'{"order":"A-1001","kind":"payment"}'
CREATING_CONNECTIONS = 64
AT_ONCE_AIM_SECONDS = 1.5
LOOK_SECONDS = 0.1


async def fetches(setting: Setting) -> list[Figure]:
    return [*await _added(setting), *await _at_once(setting), *await _waiting(setting)]


async def _added(setting: Setting) -> list[Figure]:
    """One at a time, in turn: a direct call, and a fetch from asking for it to the arrival of the result."""
    count = setting.size(1_000, 20)
    direct: list[float] = []
    fetched: list[float] = []
    setting.say(f"{count:,} direct calls and fetches in turn")
    async with server(setting.directory / "added") as product, sink() as target, _origin() as (tally, origin_url):
        for turn in range(count):
            begun = time.perf_counter()
            await _call(target)
            direct.append((time.perf_counter() - begun) * 1000)
            tally.reset()
            begun = time.perf_counter()
            await ask("127.0.0.1", product.port, _create(f"added-{turn}", target.url, origin_url))
            async with asyncio.timeout(20):
                await tally.wait_for(1)
            fetched.append((time.perf_counter() - begun) * 1000)
    added = sorted(slow - fast for slow, fast in zip(fetched, direct, strict=True))
    direct.sort()
    fetched.sort()
    figures: list[Figure] = []
    for part, place, aim in (("half", count // 2, 10), ("99 %", count * 99 // 100, 40)):
        figures += (
            Figure(
                benchmark="fetches",
                what=f"{part} at most, until the result is at its origin (limit: a direct call)",
                unit="ms",
                measured=fetched[place],
                limit=direct[place],
            ),
            Figure(
                benchmark="fetches",
                what=f"{part} at most, added to a direct call",
                unit="ms",
                measured=added[place],
                aim=Aim("measured", "most", aim),
            ),
        )
    return figures


async def _at_once(setting: Setting) -> list[Figure]:
    """Many fetches of a second each, against as many direct calls."""
    rounds, count = setting.size(3, 1), setting.size(1_000, 50)
    delay_seconds = 1.0 if not setting.quick else 0.1
    direct: list[float] = []
    creates: list[float] = []
    rest: list[float] = []
    at_once: list[int] = []
    async with (
        server(setting.directory / "at-once") as product,
        sink(delay_seconds=delay_seconds) as target,
        sink() as origin,
    ):
        for turn in range(rounds):
            setting.say(f"round {turn + 1} of {rounds}: {count:,} direct calls at once")
            begun = time.time()
            await asyncio.gather(*(_call(target) for _ in range(count)))
            direct.append(time.time() - begun)
            setting.say(f"round {turn + 1} of {rounds}: {count:,} fetches at once")
            await target.reset()
            await origin.reset()
            requests = [_create(f"at-once-{turn}-{number}", target.url, origin.url) for number in range(count)]
            begun = time.time()
            await create_all(product, requests, connections=CREATING_CONNECTIONS)
            created = time.time()
            last = (await origin.wait_for(count, seconds=60)).last_at_ms / 1000
            creates.append(created - begun)
            rest.append(last - created)
            at_once.append((await target.report()).most_at_once)
    what = f"{count:,} of {delay_seconds:g} s"
    return [
        Figure(benchmark="fetches", what=f"set-up: {what} asked for", unit="s", measured=median(creates)),
        Figure(
            benchmark="fetches",
            what=f"{what}, from then to the last result at its origin",
            unit="s",
            measured=median(rest),
            aim=Aim("measured", "most", AT_ONCE_AIM_SECONDS),
        ),
        Figure(
            benchmark="fetches",
            what=f"{what}, all in all (limit: as many direct calls)",
            unit="s",
            measured=median(creates) + median(rest),
            limit=median(direct),
        ),
        Figure(benchmark="fetches", what=f"{what}, at the target at once", unit="calls", measured=median(at_once)),
    ]


async def _waiting(setting: Setting) -> list[Figure]:
    """The memory of a server all of whose calls are in flight to a target that does not answer, while others wait."""
    running, pending = Config().fetch_limit, setting.size(5_000, 100)
    async with server(setting.directory / "waiting") as product:
        before = product.memory_mb()
        # The target ends before the server, which then has no answers to wait for.
        async with sink(delay_seconds=3_600) as target:
            setting.say(f"{running:,} calls without an answer")
            await _create_many(product, target, "running", running)
            await _until(product, running=running, pending=0)
            busy = product.memory_mb()
            setting.say(f"{pending:,} fetches that wait")
            await _create_many(product, target, "pending", pending)
            await _until(product, running=running, pending=pending)
            full, highest = product.memory_mb(), product.memory_mb("VmHWM")
    what = f"{running:,} calls in flight"
    return [
        Figure(benchmark="fetches", what="resident before", unit="MB", measured=before),
        Figure(benchmark="fetches", what=f"resident with {what}", unit="MB", measured=busy),
        Figure(
            benchmark="fetches",
            what=f"resident with {what} and {pending:,} pending",
            unit="MB",
            measured=full,
            aim=Aim("measured", "most", 200),
        ),
        Figure(benchmark="fetches", what="highest of all", unit="MB", measured=highest),
    ]


@contextlib.asynccontextmanager
async def _origin() -> AsyncIterator[tuple[Tally, str]]:
    """A sink in this process: so that one clock tells when the result has come."""
    tally = Tally()
    listening = await asyncio.get_running_loop().create_server(lambda: Sink(tally), "127.0.0.1", 0)
    try:
        yield tally, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/result"
    finally:
        listening.close()


async def _call(target: RunningSink) -> None:
    answer = await ask("127.0.0.1", target.port, post("/callback", BODY))
    if answer.status != 200:
        raise RuntimeError(f"Expected 200 from the target, got {answer.status}")


def _create(req_id: str, url: str, result_url: str | None) -> bytes:
    call = {"url": url, "method": "POST", "headers": {"content-type": "application/json"}, "body": BODY.decode()}
    asked = {"reqId": req_id, "request": call, "resultUrl": result_url, "timeoutSeconds": 60}
    return post("/v1/fetches/create", msgspec.json.encode(asked), token=TOKEN)


async def _create_many(product: Running, target: RunningSink, name: str, count: int) -> None:
    requests = [_create(f"{name}-{number}", target.url, None) for number in range(count)]
    await create_all(product, requests, connections=CREATING_CONNECTIONS)


async def _until(product: Running, *, running: int, pending: int) -> None:
    """Wait until the server counts as many."""
    async with asyncio.timeout(60):
        while True:
            answer = await product.call("/v1/fetches/stats", {})
            stats = msgspec.json.decode(answer.body, type=StatsView)
            if (stats.running, stats.pending) == (running, pending):
                return
            await asyncio.sleep(LOOK_SECONDS)
