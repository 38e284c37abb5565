"""What one timer, one shard and one instance cost each database: round trips, bytes, processor time, room on disk.

The store is asked as an instance asks it, without anything around it: a create by itself or together with others that
arrive at once, begins and finishes in one batch. Round trips and bytes are counted by a relay, in a run of their own;
processor time, of this process and of the database, is taken without it. docs/guides/scale.md computes with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

import click
from msgspec.structs import replace
from tests.servers.catalogue import SERVERS
from tests.servers.server import Server
from tests.servers.sources import Unobtainable

from bench.creates import create_load
from bench.databases import DATABASES, SLOWEST_CREATES, WRITTEN_SECONDS, through_relay
from bench.disk_room import bytes_of_a_timer
from bench.figures import Figure, Setting
from bench.processes import processor_seconds, server
from bench.relay import Relay, relay
from bench.scale_model import needs
from bench.sink import RunningSink, sink
from bench.timers import batch_requests, create_all, now_ms, pending_timer
from mainspring.clock import SystemClock
from mainspring.kernel.ownership import INSTANCES, Lease, Ownership
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Attempt, Namespace, Result, Shard, Timer, to_json
from mainspring.store import BATCH_LIMIT, START, Begin, Finish, Position, Put, Remove, Store, Verdict
from mainspring.stores import store_from_url

T = TypeVar("T")

SHARDS = 16
"""As a namespace has by default."""
TOGETHER = 100
OTHERS = 99
"""So many other instances there are when the price of a neighbour is measured."""


class Cost(NamedTuple):
    """Of so many items. Seconds are of the processor."""

    round_trips: int
    sent_bytes: int
    received_bytes: int
    client_seconds: float
    database_seconds: float


class Meter:
    """Reads what was used so far: of the wire if there is a relay, of processors if there is none."""

    def __init__(self, database: Server | None, between: Relay | None) -> None:
        self._database = database
        self._between = between

    async def cost(self, work: Callable[[], Awaitable[object]]) -> Cost:
        before = self._read()
        began = time.process_time()  # last, and first: reading takes time itself
        await work()
        client_seconds = time.process_time() - began
        after = self._read()
        trips, sent, received, database = (now - then for now, then in zip(after, before, strict=True))
        return Cost(int(trips), int(sent), int(received), client_seconds, database)

    def _read(self) -> tuple[float, float, float, float]:
        wire = self._between
        used = processor_seconds(self._database.pid) if self._database is not None and wire is None else 0.0
        return (0, 0, 0, used) if wire is None else (wire.round_trips, wire.sent_bytes, wire.received_bytes, used)


async def costs(setting: Setting, names: Sequence[str] = DATABASES) -> list[Figure]:
    """SQLite, then every database by itself. One that cannot be obtained is named and left out."""
    figures = await _measure(setting, None, f"sqlite:///{setting.directory / 'costs.db'}")
    for name in names:
        try:
            with SERVERS[name](durable=True) as database:
                setting.say(f"starting {name}")
                await asyncio.to_thread(database.obtain)
                await asyncio.to_thread(database.start)
                own = await _measure(setting, database, database.fresh()) + await _count(setting, database)
                figures += own + needs(name, {figure.what: figure.measured for figure in own})
        except Unobtainable as error:
            click.echo(f"{name} was not measured: {error}", err=True)
    return figures


async def _measure(setting: Setting, database: Server | None, url: str) -> list[Figure]:
    """Processor time and room, without a relay."""
    name = "sqlite" if database is None else database.name
    setting.say(f"{name}: processor time")
    meter = Meter(database, None)
    figures: list[Figure] = []

    def add(what: str, cost: Cost, items: int) -> None:
        figures.append(_figure(name, f"{what}: client", "µs", cost.client_seconds * 1e6 / items))
        if database is not None:
            figures.append(_figure(name, f"{what}: database", "µs", cost.database_seconds * 1e6 / items))

    async with _open(url) as store:
        await _lives(store, meter, "first", TOGETHER, TOGETHER)  # connections and prepared statements
        count = setting.size(4_000, 200)
        for what, cost in (await _lives(store, meter, "timed", count, TOGETHER)).items():
            add(f"{what}, {TOGETHER} together", cost, count)
        for what, (cost, items) in (await _idleness(store, meter, setting.size(10, 2))).items():
            add(what, cost, items)
    for what, (cost, items) in (await _whole_instance(setting, meter, database)).items():
        add(what, cost, items)
    setting.say(f"{name}: room on disk")
    room = await bytes_of_a_timer(database, setting.directory, setting.size(100_000, 1_000))
    if room is not None:
        figures.append(_figure(name, "a pending timer: room on disk", "bytes", room))
    return figures


async def _count(setting: Setting, database: Server) -> list[Figure]:
    """Round trips and bytes, through a relay."""
    name = database.name
    setting.say(f"{name}: round trips and bytes")
    figures: list[Figure] = []

    def add(what: str, cost: Cost, items: int) -> None:
        figures.append(_figure(name, f"{what}: round trips", "", cost.round_trips / items))
        figures.append(_figure(name, f"{what}: sent", "bytes", cost.sent_bytes / items))
        figures.append(_figure(name, f"{what}: received", "bytes", cost.received_bytes / items))

    async with relay(database.port, frames=name == "cassandra") as between:
        meter = Meter(database, between)
        async with _open(through_relay(database.fresh(), database, between)) as store:
            await _lives(store, meter, "first", TOGETHER, TOGETHER)
            for count, size, how in ((setting.size(30, 3), 1, "alone"), (1_000, TOGETHER, f"{TOGETHER} together")):
                for what, cost in (await _lives(store, meter, how.replace(" ", "-"), count, size)).items():
                    add(f"{what}, {how}", cost, count)
            for what, (cost, items) in (await _idleness(store, meter, setting.size(5, 1))).items():
                add(what, cost, items)
    return figures


def _figure(name: str, what: str, unit: str, measured: float) -> Figure:
    return Figure(benchmark=name, what=what, unit=unit, measured=measured)


@contextlib.asynccontextmanager
async def _open(url: str) -> AsyncIterator[Store]:
    store = store_from_url(url, clock=SystemClock())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# Timers


def _timer(name: str, due_at: int) -> Timer:
    namespace = Namespace(
        name="default", first_shard=0, shard_count=SHARDS, created_at=0, updated_at=0, secrets=(), grouped=True
    )
    return replace(pending_timer(namespace, name, due_at), version=1)


async def _lives(store: Store, meter: Meter, name: str, count: int, size: int) -> dict[str, Cost]:
    """Create, load, begin and finish so many timers, `size` at a time."""
    timers = [_timer(f"{name}-{index}", now_ms() - count + index) for index in range(count)]
    fences = await _claim(store)
    begins = [Begin(timer.key, fences[timer.shard_id], timer.version) for timer in timers]
    finishes = [_finish(timer, fences[timer.shard_id]) for timer in timers]
    return {
        "create": await meter.cost(lambda: _create(store, timers, size)),
        "load": await meter.cost(lambda: _load(store, timers, size)),
        "begin": await meter.cost(lambda: _in_batches(store.begin, begins, size)),
        "finish": await meter.cost(lambda: _in_batches(store.finish, finishes, size)),
    }


async def _claim(store: Store) -> dict[int, int]:
    shards = [shard for shard in await store.shards(range(SHARDS)) if shard is not None]
    _check(await store.claim_shards([Shard(shard.shard_id, shard.version, "bench") for shard in shards]))
    return {shard.shard_id: shard.version + 1 for shard in shards}


def _finish(timer: Timer, fence: int) -> Finish:
    attempt = Attempt(
        attempt=1,
        generation=timer.generation,
        delivery_id=timer.detail.delivery_id,
        scheduled_at=timer.due_at,
        started_at=timer.due_at,
        outcome=Result.SUCCEEDED,
        status=200,
    )
    return Finish(timer.key, fence, Remove(timer.key, timer.version + 1), attempt)


async def _create(store: Store, timers: Sequence[Timer], size: int) -> None:
    """As requests that arrive at once do it: each by itself, and the store makes groups of them."""
    for start in range(0, len(timers), size):
        writes = (store.write([Put(timer, 0)]) for timer in timers[start : start + size])
        _check([verdict for verdicts in await asyncio.gather(*writes) for verdict in verdicts])


async def _load(store: Store, timers: Sequence[Timer], size: int) -> None:
    """Those that are alone are each loaded by a question of their own, when nothing else has become due."""
    page = EngineSettings().page_size
    if size == 1:
        reads = [
            store.load_due(timer.shard_id, until=timer.due_at, after=Position(timer.due_at, ""), limit=page)
            for timer in timers
        ]
        pages = [await read for read in reads]
    else:
        together = (store.load_due(shard, until=now_ms(), after=START, limit=len(timers)) for shard in range(SHARDS))
        pages = await asyncio.gather(*together)
    if sum(len(page.timers) for page in pages) != len(timers):
        raise RuntimeError(f"Expected {len(timers)} due timers, got {[len(page.timers) for page in pages]}")


async def _in_batches(
    verb: Callable[[Sequence[Begin]], Awaitable[list[Verdict]]]
    | Callable[[Sequence[Finish]], Awaitable[list[Verdict]]],
    items: Sequence[Begin] | Sequence[Finish],
    size: int,
) -> None:
    for start in range(0, len(items), size):
        _check(await verb(items[start : start + size]))  # type: ignore[arg-type]  # either both, or both


def _check(verdicts: Sequence[Verdict]) -> None:
    if any(verdict is not Verdict.APPLIED for verdict in verdicts):
        raise RuntimeError(f"Expected every write to be applied, got {set(verdicts)}")


# A whole instance


async def _whole_instance(setting: Setting, meter: Meter, database: Server | None) -> dict[str, tuple[Cost, int]]:
    """What a server process uses, with HTTP and calls and all; in the place of the client, which is this process."""
    name = "sqlite" if database is None else database.name
    setting.say(f"{name}: a whole instance")
    url = "" if database is None else database.fresh()
    seconds, count = setting.size(3, 1), setting.size(2_000, 100)
    async with server(setting.directory / f"{name}-instance", store=url) as product, sink() as target:

        async def used(work: Awaitable[T]) -> tuple[Cost, T]:
            before = processor_seconds(product.pid)
            results: list[T] = []

            async def run() -> None:
                results.append(await work)

            cost = await meter.cost(run)
            return cost._replace(client_seconds=processor_seconds(product.pid) - before), results[0]

        create, load = await used(create_load(product, "create", seconds))
        guess = max(SLOWEST_CREATES, load.rate) / 2
        await target.reset()
        due_at = now_ms() + 2_000 + int(count * 1_000 / guess)
        await create_all(product, batch_requests("call", [due_at] * count, target.url))
        call, _ = await used(_calls(target, count))
    return {"create over HTTP, whole instance": (create, load.requests), "call, whole instance": (call, count)}


async def _calls(target: RunningSink, count: int) -> None:
    await target.wait_for(count, seconds=count / 20 + 60)
    await asyncio.sleep(WRITTEN_SECONDS)


# Nothing to do


async def _idleness(store: Store, meter: Meter, turns: int) -> dict[str, tuple[Cost, int]]:
    """What is asked again and again, with the number of instances or shards that it is asked for."""
    shards = range(BATCH_LIMIT)
    ownership = Ownership(
        store=store,
        clock=SystemClock(),
        lease=Lease(instance="bench", machine="m" * 32, pid=1, process="p" * 16, address="http://10.0.0.1:8700"),
        lease_seconds=600.0,
        shard_ids=_nothing,
        randomness=random.Random(0),
    )

    async def renew() -> None:
        for _ in range(turns):
            await ownership.renew()

    async def look() -> None:
        for _ in range(turns):
            await store.next_due(shards)

    async def compare() -> None:
        for _ in range(turns):
            await store.shards(shards)

    await renew()
    found = {"a renewal, alone": (await meter.cost(renew), turns)}
    await _neighbours(store)
    found[f"a renewal, {OTHERS} others"] = (await meter.cost(renew), turns)
    found["a look at an idle shard, of 1000"] = (await meter.cost(look), turns * len(shards))
    found["a comparison of a shard, of 1000"] = (await meter.cost(compare), turns * len(shards))
    return found


async def _nothing() -> Sequence[int]:
    return ()


async def _neighbours(store: Store) -> None:
    for number in range(OTHERS):
        lease = Lease(instance=f"other-{number}", machine="m" * 32, pid=1, process="p" * 16, address="http://10.0.0.1")
        value = to_json(lease)
        now = now_ms()
        await store.put_record(INSTANCES, lease.instance, value, expect=0, now=now, expires_at=now + 600_000)
