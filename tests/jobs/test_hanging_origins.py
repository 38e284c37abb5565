"""Origins of fetches that hang, as many as somebody likes to name: jobs, and fetches of others, go on."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import pytest

from mainspring.cluster.instance import Instance
from mainspring.delivery.call import Call, Reply, failed
from mainspring.fetches.messages import CreateFetch, OutboundRequest
from mainspring.model import FOREVER
from tests.support.simulated_jobs import World, simulate

LIMITS: dict[str, Any] = {"in_flight_limit": 64, "window_limit": 512, "fetch_limit": 64}
ORIGINS = 300


class Network:
    """Whoever is called `hangs`, in some domain, never answers."""

    calls: dict[str, float]

    def __init__(self, **_: Any) -> None: ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def send(self, call: Call) -> Reply:
        host = urlsplit(call.url).hostname or ""
        self.calls.setdefault(host, asyncio.get_running_loop().time())
        if ".hangs" not in host:
            await asyncio.sleep(0.02)
            return Reply(200, {}, b"{}", False, "", "", True, 20)
        await asyncio.sleep(call.timeout_ms / 1000)
        return failed("timeout", "It did not answer.", sent=True, duration_ms=call.timeout_ms)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> type[Network]:
    monkeypatch.setattr(Network, "calls", {}, raising=False)
    return Network


async def fetch(instance: Instance, req_id: str, *, host: str = "www.target.com", origin: str | None = None) -> None:
    fields = {} if origin is None else {"result_url": f"http://{origin}/"}
    await instance.fetches.create(
        CreateFetch(request=OutboundRequest(url=f"http://{host}/"), req_id=req_id, **fields)  # type: ignore[arg-type]
    )


async def hang(instance: Instance, *, sites: int) -> None:
    """Have origins of so many sites hang, each with a result of its own."""
    for number in range(ORIGINS):
        await fetch(instance, f"bad{number}", origin=f"x{number}.hangs{number % sites}.com")
    await asyncio.sleep(15)  # the executor has made the first offers, the engine makes the next ones


@pytest.mark.parametrize("sites", [1, ORIGINS])
def test_jobs_are_run_on_time_while_many_origins_hang(sites: int, network: type[Network]) -> None:
    async def main(world: World) -> None:
        async with world.running(senders=network, **LIMITS) as instance:
            await hang(instance, sites=sites)
            await world.create(schedule="* * * * * *", seconds=True)
            await asyncio.sleep(20.5)
            late = [at - due.scheduled_at.timestamp() * 1000 for at, due in world.calls]
            assert len(late) >= 15
            assert max(late) < 500

    simulate(main)


@pytest.mark.parametrize("sites", [1, 12])
def test_hosts_never_called_before_are_called_in_time_while_many_origins_hang(
    sites: int, network: type[Network]
) -> None:
    async def main(world: World) -> None:
        async with world.running(senders=network, **LIMITS) as instance:
            await hang(instance, sites=sites)
            asked = {}
            for number in range(20):
                asked[f"www.new{number}.com"] = world.loop.time()
                await fetch(instance, f"new{number}", host=f"www.new{number}.com")
                asked[f"www.origin{number}.com"] = world.loop.time()
                await fetch(instance, f"told{number}", origin=f"www.origin{number}.com")
                await asyncio.sleep(0.5)
            await asyncio.sleep(2)
            late = {host: network.calls.get(host, FOREVER) - at for host, at in asked.items()}
            assert max(late.values()) < 1, late

    simulate(main)
