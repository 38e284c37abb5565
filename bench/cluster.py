"""Two instances on one PostgreSQL against one instance there, and what the processors were busy with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median

import msgspec
from tests.servers.postgresql import PostgreSQL

from bench.creates import create_load
from bench.figures import Figure, Setting
from bench.firing import fire
from bench.processes import Running, busy_seconds, processor_seconds, server
from bench.sink import sink

CONNECTIONS = 256
"""In all, so many that it is not the clients' waiting which limits two instances."""
SHARING_SECONDS = 30.0


class _Instance(msgspec.Struct, rename="camel"):
    owned_shards: int


class _Instances(msgspec.Struct):
    instances: list[_Instance]


class Usage:
    """How busy named groups of processes were, this one, which makes the load, and the whole machine; in cores."""

    def __init__(self, groups: dict[str, Sequence[int]]) -> None:
        self._groups = groups
        self._rounds: dict[str, list[float]] = {name: [] for name in (*groups, "the client", "the machine")}

    def read(self) -> dict[str, float]:
        used = {name: sum(map(processor_seconds, pids)) for name, pids in self._groups.items()}
        return used | {"the client": time.process_time(), "the machine": busy_seconds()}

    def note(self, before: dict[str, float], seconds: float) -> None:
        for name, used in self.read().items():
            self._rounds[name].append((used - before[name]) / seconds)

    def figures(self, what: str) -> list[Figure]:
        return [
            Figure(benchmark="cluster", what=f"busy while {what}: {name}", unit="cores", measured=median(rounds))
            for name, rounds in self._rounds.items()
        ]


async def cluster(setting: Setting) -> list[Figure]:
    """Each round: creates on one instance, on two; a burst on one, on two. The limit is the one."""
    setting.say("starting postgresql")
    with PostgreSQL(durable=True) as database:
        await asyncio.to_thread(database.obtain)
        await asyncio.to_thread(database.start)
        return await _measure(setting, database)


async def _measure(setting: Setting, database: PostgreSQL) -> list[Figure]:
    rounds, seconds = setting.size(5, 1), 3.0 if not setting.quick else 0.5
    count = setting.size(10_000, 500)
    creates: tuple[list[float], list[float]] = ([], [])
    fires: tuple[list[float], list[float]] = ([], [])
    shared = database.fresh()
    async with (
        server(setting.directory / "alone", store=database.fresh()) as alone,
        server(setting.directory / "first", store=shared) as first,
        server(setting.directory / "second", store=shared) as second,
        sink() as target,
    ):
        await _until_shared(first)
        usage = Usage({"both instances": (first.pid, second.pid), "PostgreSQL": (database.pid,)})
        for turn in range(rounds):
            setting.say(f"round {turn + 1} of {rounds}")
            creates[0].append(await _creates([alone], f"round-{turn}", seconds))
            before, started_at = usage.read(), time.monotonic()
            creates[1].append(await _creates([first, second], f"round-{turn}", seconds))
            usage.note(before, time.monotonic() - started_at)
            for rates, product in zip(fires, (alone, first), strict=True):
                guess = creates[0][-1] / 2
                rates.append(count / await fire(product, target, f"fire-{turn}", count, creates_per_second=guess))
    return [
        Figure(
            benchmark="cluster",
            what=f"creates, {CONNECTIONS} connections, two instances (limit: one)",
            unit="/s",
            measured=median(creates[1]),
            limit=median(creates[0]),
        ),
        Figure(
            benchmark="cluster",
            what=f"callbacks of {count:,} due at once, two instances (limit: one)",
            unit="/s",
            measured=median(fires[1]),
            limit=median(fires[0]),
        ),
        *usage.figures("two create"),
    ]


async def _creates(instances: list[Running], name: str, seconds: float) -> float:
    """As many connections in all, however many instances there are."""
    share = CONNECTIONS // len(instances)
    loads = [
        create_load(instance, f"{name}-{number}", seconds, connections=share)
        for number, instance in enumerate(instances)
    ]
    return sum(load.rate for load in await asyncio.gather(*loads))


async def _until_shared(instance: Running) -> None:
    """Both instances own shards."""
    async with asyncio.timeout(SHARING_SECONDS):
        while True:
            answer = await instance.call("/v1/instances/list", {})
            found = msgspec.json.decode(answer.body, type=_Instances)
            if len(found.instances) == 2 and all(one.owned_shards for one in found.instances):
                return
            await asyncio.sleep(0.1)
