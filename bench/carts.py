"""How long it takes to put something into a cart, while the platform behind it takes two seconds for every call."""

from __future__ import annotations

from statistics import median

import msgspec

from bench.figures import Aim, Figure, Setting
from bench.load import LoadResult, ask, post, run_load
from bench.processes import Running, cart, put, simulated_platform

RATE = 200.0
CONNECTIONS = 32
CALL_SECONDS = 2.0
ITEM = msgspec.json.encode({"productId": "phone", "name": "A phone", "type": "device", "quantity": 1, "price": 49900})


async def add_items(setting: Setting) -> list[Figure]:
    """200 items a second into the carts of many users, in turn with one durable put for each at the same pace."""
    seconds, users, rounds = setting.size(10, 2), setting.size(400, 40), setting.size(3, 1)
    results: list[LoadResult] = []
    limits: list[LoadResult] = []
    async with (
        simulated_platform(setting.directory) as platform,
        cart(setting.directory, platform) as shop,
        put(setting.directory) as bare,
    ):
        await _slow(platform)
        for target in (bare, shop):
            await _load(target, users, min(seconds, 3), "warm-up")
        for number in range(rounds):
            setting.say(f"the bare put, round {number + 1}")
            limits.append(await _load(bare, users, seconds, "user"))
            setting.say(f"the cart, round {number + 1}")
            results.append(await _load(shop, users, seconds, "user"))
    return [
        Figure(
            benchmark="cart",
            what="items",
            unit="/s",
            measured=median(result.rate for result in results),
            limit=median(result.rate for result in limits),
        ),
        Figure(
            benchmark="cart",
            what="50 % of items added within",
            unit="ms",
            measured=median(result.p50_ms for result in results),
            limit=median(result.p50_ms for result in limits),
        ),
        Figure(
            benchmark="cart",
            what="99 % of items added within",
            unit="ms",
            measured=median(result.p99_ms for result in results),
            limit=median(result.p99_ms for result in limits),
            aim=Aim("measured", "most", 15),
        ),
    ]


async def _slow(platform: Running) -> None:
    """Let every call take long, from now on."""
    fault = {"verb": "*", "kind": "delay", "times": None, "seconds": CALL_SECONDS}
    answer = await ask("127.0.0.1", platform.port, post("/_sim/faults", msgspec.json.encode(fault)))
    if answer.status != 200:
        raise RuntimeError(f"Expected a slow platform, got {answer}")


async def _load(target: Running, users: int, seconds: float, name: str) -> LoadResult:
    result = await run_load(
        "127.0.0.1",
        target.port,
        lambda index: post(f"/v1/carts/{name}-{index % users}/items", ITEM),
        CONNECTIONS,
        seconds,
        rate=RATE,
    )
    if result.errors:
        raise RuntimeError(f"Expected every item to be added, got {result}")
    return result
