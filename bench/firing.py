"""How fast and how punctually due timers are called."""

from __future__ import annotations

from statistics import median

from bench import sender_rate
from bench.figures import Aim, Figure, Setting
from bench.processes import Running, server
from bench.sink import RunningSink, sink
from bench.timers import batch_requests, create_all, now_ms
from mainspring.config import Config

CREATES_PER_SECOND = 4_000
"""A low guess, to choose an instant that lies behind the creates."""
LATENESS_RATE = 500
CLOCK_STEP_MS = 1
"""The engine counts time in whole milliseconds."""


async def burst(setting: Setting) -> list[Figure]:
    """Many timers due at one moment, against the bare sender to the same sink."""
    rounds, count = setting.size(3, 1), setting.size(50_000, 4_000)
    seconds = 3.0 if not setting.quick else 0.5
    rates: list[float] = []
    limits: list[float] = []
    async with server(setting.directory) as product, sink() as target:
        for turn in range(rounds):
            setting.say(f"round {turn + 1} of {rounds}: the bare sender")
            limits.append(await sender_rate.measure(target.url, seconds=seconds, concurrency=Config().host_limit))
            setting.say(f"round {turn + 1} of {rounds}: {count:,} timers due at once")
            rates.append(count / await fire(product, target, f"burst-{turn}", count))
    rate, limit = median(rates), median(limits)
    return [
        Figure(
            benchmark="burst",
            what=f"callbacks of {count:,} due at once",
            unit="/s",
            measured=rate,
            limit=limit,
            aim=Aim("ratio", "least", 0.3),
        ),
        Figure(benchmark="burst", what="the same", unit="/s", measured=rate, aim=Aim("measured", "least", 10_000)),
        Figure(benchmark="burst", what="from due to the last callback", unit="s", measured=count / rate),
    ]


async def fire(
    product: Running, target: RunningSink, name: str, count: int, *, creates_per_second: float = CREATES_PER_SECOND
) -> float:
    """Create timers that are due at one moment. Seconds from that moment to the arrival of the last callback."""
    await target.reset()
    due_at = now_ms() + 1_000 + int(count * 1_000 / creates_per_second)
    await create_all(product, batch_requests(name, [due_at] * count, target.url))
    if now_ms() >= due_at:
        raise RuntimeError("Expected all timers to be created before they are due, got a machine that is too slow")
    report = await target.wait_for(count, seconds=count / 200 + 60)
    return (report.last_at_ms - due_at) / 1000


async def lateness(setting: Setting) -> list[Figure]:
    """Arrival minus executeAt, at 500 timers a second, each with an instant of its own."""
    seconds = setting.size(10, 1)
    count = LATENESS_RATE * seconds
    setting.say(f"{LATENESS_RATE} timers a second for {seconds} s")
    async with server(setting.directory) as product, sink(timed=True) as target:
        late = await fire_steadily(product, target, "late", count, rate=LATENESS_RATE)
    what = f"late at {LATENESS_RATE}/s"
    return [
        Figure(benchmark="lateness", what=f"half at most, {what}", unit="ms", measured=late[count // 2]),
        Figure(
            benchmark="lateness",
            what=f"99 % at most, {what}",
            unit="ms",
            measured=late[count * 99 // 100],
            aim=Aim("measured", "most", 20),
        ),
    ]


async def fire_steadily(
    product: Running,
    target: RunningSink,
    name: str,
    count: int,
    *,
    rate: int,
    creates_per_second: float = CREATES_PER_SECOND,
) -> list[float]:
    """How late the callbacks of timers are that are due one after the other, in milliseconds, the least first."""
    await target.reset()
    first = now_ms() + 2_000 + int(count * 1_000 / creates_per_second)
    instants = [first + index * 1_000 // rate for index in range(count)]
    await create_all(product, batch_requests(name, instants, target.url))
    await target.wait_for(count, seconds=(instants[-1] - now_ms()) / 1_000 + 60)
    late = sorted((await target.report()).lateness_ms)
    if late[0] < -CLOCK_STEP_MS:
        raise RuntimeError(f"Expected no callback before its instant, got one {-late[0]:.1f} ms early")
    return late
