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
from typing import NamedTuple

import msgspec

from bench.figures import Aim, Figure, Setting
from bench.load import ask, post
from bench.processes import TOKEN, Running, executor, server
from bench.sink import RunningSink, Sink, Tally, sink
from bench.timers import create_all
from mainspring import descriptors
from mainspring.api.peers import RESERVE
from mainspring.config import Config

BODY = b'{"order":"A-1001","kind":"payment"}'
CREATING_CONNECTIONS = 64
POOL = "bench"
LOOK_SECONDS = 0.1
PLACES = 6
"""For each call: a host that is slow gets no more than a fifth of the places, so there are more than that many."""


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
        await _until(product, succeeded=count)
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
    """Many fetches of a second each, in the server and by an executor of its own, against as many direct calls."""
    rounds, count = setting.size(3, 1), setting.size(1_000, 50)
    delay_seconds = 1.0 if not setting.quick else 0.1
    direct: list[float] = []
    within: list[_Round] = []
    beside: list[_Round] = []
    place = setting.directory / "at-once"
    async with (
        server(place, flags=("--fetch-limit", str(PLACES * count), "--host-limit", str(count))) as product,
        executor(place, pool=POOL, flags=("--limit", str(PLACES * count), "--host-limit", str(count))),
        sink(delay_seconds=delay_seconds) as target,
        sink() as origin,
    ):
        for turn in range(rounds):
            setting.say(f"round {turn + 1} of {rounds}: {count:,} direct calls at once")
            begun = time.time()
            await asyncio.gather(*(_call(target) for _ in range(count)))
            direct.append(time.time() - begun)
            for where, pool, seen in (("in the server", None, within), ("by an executor", POOL, beside)):
                setting.say(f"round {turn + 1} of {rounds}: {count:,} fetches at once, {where}")
                names = [f"at-once-{pool}-{turn}-{number}" for number in range(count)]
                requests = [_create(name, target.url, origin.url, pool=pool) for name in names]
                seen.append(await _ask_at_once(product, requests, target, origin))
        await _until(product, succeeded=2 * rounds * count)
    what = f"{count:,} of {delay_seconds:g} s at once"
    return [
        *_at_once_figures(f"{what}, in the server", within, median(direct)),
        *_at_once_figures(f"{what}, one executor", beside, median(direct)),
    ]


class _Round(NamedTuple):
    """Seconds until all were asked for, and from then until the last result was at the origin."""

    asking: float
    rest: float
    most_at_once: int


async def _ask_at_once(product: Running, requests: list[bytes], target: RunningSink, origin: RunningSink) -> _Round:
    await target.reset()
    await origin.reset()
    begun = time.time()
    await create_all(product, requests, connections=CREATING_CONNECTIONS)
    asked = time.time()
    last = (await origin.wait_for(len(requests), seconds=60)).last_at_ms / 1000
    called = await target.report()
    if called.count != len(requests):
        raise RuntimeError(f"Expected one call for each of {len(requests)} fetches, got {called.count}")
    return _Round(asked - begun, last - asked, called.most_at_once)


def _at_once_figures(what: str, rounds: list[_Round], direct: float) -> list[Figure]:
    return [
        Figure(benchmark="fetches", what=f"{what}: asking", unit="s", measured=median(each.asking for each in rounds)),
        Figure(
            benchmark="fetches",
            what=f"{what}: from then to the last result",
            unit="s",
            measured=median(each.rest for each in rounds),
            aim=Aim("measured", "most", 1.5),
        ),
        Figure(
            benchmark="fetches",
            what=f"{what}: both (limit: direct calls)",
            unit="s",
            measured=median(each.asking + each.rest for each in rounds),
            limit=direct,
        ),
        Figure(
            benchmark="fetches",
            what=f"{what}: under way at the target, at most",
            unit="calls",
            measured=median(each.most_at_once for each in rounds),
        ),
    ]


def _most_running() -> int:
    """As many calls as a server makes by default, or as file descriptors suffice for: two are counted for a place."""
    config = Config()
    descriptors.raise_limit()
    available = descriptors.for_calls(peers=config.max_connections + RESERVE) - config.in_flight_limit
    return min(config.fetch_limit, available // (2 * PLACES))


async def _waiting(setting: Setting) -> list[Figure]:
    """The memory of a server all of whose calls are in flight to a target that does not answer, while others wait."""
    running, pending = setting.size(_most_running(), 100), setting.size(5_000, 100)
    flags = ("--fetch-limit", str(PLACES * running), "--host-limit", str(running))
    async with server(setting.directory / "waiting", flags=flags) as product:
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


def _create(req_id: str, url: str, result_url: str | None, *, pool: str | None = None) -> bytes:
    call = {"url": url, "method": "POST", "headers": {"content-type": "application/json"}, "body": BODY.decode()}
    asked = {"reqId": req_id, "request": call, "resultUrl": result_url, "executor": pool, "timeoutSeconds": 600}
    return post("/v1/fetches/create", msgspec.json.encode(asked), token=TOKEN)


async def _create_many(product: Running, target: RunningSink, name: str, count: int) -> None:
    requests = [_create(f"{name}-{number}", target.url, None) for number in range(count)]
    await create_all(product, requests, connections=CREATING_CONNECTIONS)


async def _until(product: Running, **expected: int) -> None:
    """Wait until the server counts so many in these states."""
    async with asyncio.timeout(60):
        while True:
            stats = msgspec.json.decode((await product.call("/v1/fetches/stats", {})).body)
            if expected.items() <= stats.items():
                return
            await asyncio.sleep(LOOK_SECONDS)
