"""A cluster of a hundred instances and a hundred thousand shards: what it takes until every shard has its owner.

In two parts. First one instance's own work, by this machine's processor: the placement, and for how long its event loop
does nothing else. Then the whole cluster in simulated time: the kernel's own engines on a store in memory that takes a
while for every call. There the time that placements take is slept, as it was measured in the first part, and they are
worked out once for all instances, since all come to the same: a hundred processes would do it side by side.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures import Figure, Setting
from mainspring.clock import SystemClock
from mainspring.kernel.carrier import Ending, Lane
from mainspring.kernel.engine import Engine
from mainspring.kernel.ownership import Lease, Ownership
from mainspring.kernel.placement import Placement
from mainspring.kernel.settings import EngineSettings
from mainspring.model import Timer
from mainspring.processes.startup import COLLECTED
from mainspring.store import Store
from mainspring.stores.memory import MemoryStore
from mainspring.testing.simulation import SimulatedClock, SimulatedLoop, run_simulated

LEASE_SECONDS = 6.0
STORE_SECONDS = 0.005
"""What a call to the store takes in the simulation."""
START_SECONDS = 1.0
"""Within this time all instances start."""
LOST = 10
LOOK_SECONDS = 0.05
PATIENCE_SECONDS = 600.0
IDLE_SECONDS = 30.0


async def placement(setting: Setting) -> list[Figure]:
    shards, instances = setting.size(100_000, 1_000), setting.size(100, 20)
    setting.say("one instance's own work")
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTED)
    own, score_seconds = await _own_work(shards, instances)
    gc.set_threshold(*before)
    setting.say(f"{instances} instances and {shards:,} shards in simulated time")
    phases = await asyncio.to_thread(
        run_simulated, lambda loop: _simulation(loop, shards=shards, instances=instances, score_seconds=score_seconds)
    )
    setting.notes.append(
        f"In the simulation a call to the store takes {STORE_SECONDS * 1000:.0f} ms, a score of the placement "
        f"{score_seconds * 1e6:.2f} µs, and nothing else takes any time."
    )
    return [*own, *(figure for phase in phases for figure in phase.figures())]


# One instance's own work


async def _own_work(shards: int, instances: int) -> tuple[list[Figure], float]:
    """And how long one score of the placement takes."""
    names = [f"instance-{number:03}" for number in range(instances)]
    all_shards = tuple(range(shards))
    placed = Placement()
    ownership = Ownership(
        store=(store := MemoryStore(SystemClock())),
        clock=SystemClock(),
        lease=Lease(instance=names[0]),
        lease_seconds=3600.0,
        shard_ids=lambda: _at_once(all_shards),
        randomness=random.Random(0),
    )
    for name in names[1:]:
        await store.put_record("instance", name, b'{"instance":"%b"}' % name.encode(), expect=0, now=0)
    await ownership.renew()
    whole = await _used(placed.follow(all_shards, names[:-1]))
    works = {
        f"place {shards:,} shards on {instances - 1} instances": whole,
        "place them when one more has joined": await _used(placed.follow(all_shards, names)),
        f"place them when {LOST} have left": await _used(placed.follow(all_shards, names[LOST:])),
        "place them when one shard has been added": await _used(placed.follow((*all_shards, shards), names[LOST:])),
    }
    await ownership.place()
    works["claim its shards"] = await _used(ownership.claim())
    works["a second look for shards to claim"] = await _used(ownership.claim())
    works["compare its shards with the store"] = await _used(ownership.check())
    figures = [
        figure
        for what, used in works.items()
        for figure in (
            Figure(benchmark="one instance", what=f"{what}: processor", unit="ms", measured=used.seconds * 1000),
            Figure(benchmark="one instance", what=f"{what}: standstill", unit="ms", measured=used.standstill * 1000),
        )
    ]
    return figures, whole.seconds / (shards * (instances - 1))


async def _at_once(shards: Sequence[int]) -> Sequence[int]:
    return shards


@dataclass(frozen=True, slots=True)
class Used:
    seconds: float
    """Of the processor, by this thread: other programs do not count."""
    standstill: float
    """The longest time in which the event loop did nothing else."""


async def _used(work: Coroutine[Any, Any, object]) -> Used:
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            longest, last = max(longest, now - last), now

    watcher = asyncio.create_task(watch())
    await asyncio.sleep(0)
    started_at = time.thread_time()
    await work
    await asyncio.sleep(0)
    seconds = time.thread_time() - started_at
    watcher.cancel()
    return Used(seconds, longest)


# The whole cluster


class CountedStore:
    """Takes its time for every call, and counts them."""

    def __init__(self, inner: Store, calls: Counter[str]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._inner, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._calls[name] += 1
            await asyncio.sleep(STORE_SECONDS / 2)
            answer = await verb(*args, **kwargs)
            await asyncio.sleep(STORE_SECONDS / 2)
            return answer

        return call


class SharedPlacement(Placement):
    """Sleeps for as long as its own scores would take, and has what another instance has worked out."""

    def __init__(self, known: dict[tuple[str, ...], Placement], score_seconds: float) -> None:
        super().__init__()
        self._known = known
        self._score_seconds = score_seconds

    async def follow(self, shards: Sequence[int], instances: Sequence[str]) -> None:
        new = tuple(sorted(instances))
        staying = set(new)
        joined = len(staying.difference(self._instances))
        homeless = sum(1 for place in self._places.values() if place.instance not in staying)
        homeless += len(shards) - len(self._places)
        scores = (len(shards) - homeless) * joined + homeless * len(new)
        await asyncio.sleep(scores * self._score_seconds)
        if new not in self._known:
            worked_out = Placement()
            if self._known:  # from wherever it starts, it comes to the same
                latest = next(reversed(self._known.values()))
                worked_out._instances, worked_out._places = latest._instances, latest._places
            await worked_out.follow(shards, new)
            self._known[new] = worked_out
        self._adopt(new, self._known[new]._places)


class SimulatedOwnership(Ownership):
    def __init__(self, *, shared: SharedPlacement, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._placement = shared

    def has_settled(self, alive: set[str]) -> bool:
        """It knows who is alive, and has what belongs to it."""
        knows = {member.instance for member in self.members} == alive
        return knows and self.awaited == 0 and not self.misplaced()


class NoCarrier:
    """Nothing is due."""

    def lane(self, timer: Timer) -> Lane:
        raise NotImplementedError

    def refusal(self, timer: Timer, now: int) -> Ending | None:
        raise NotImplementedError

    async def carry(self, timer: Timer) -> Ending:
        raise NotImplementedError

    def lost(self, timer: Timer, now: int, reason: str) -> Ending:
        raise NotImplementedError


class Member:
    def __init__(self, name: str, cluster: Cluster) -> None:
        clock = SimulatedClock(cluster.loop)
        store = CountedStore(cluster.store, cluster.calls)
        self.tasks: set[asyncio.Task[None]] = set()
        self.ownership = SimulatedOwnership(
            shared=SharedPlacement(cluster.placements, cluster.score_seconds),
            store=store,
            clock=clock,
            lease=Lease(instance=name),
            lease_seconds=LEASE_SECONDS,
            shard_ids=lambda: _at_once(cluster.shards),
            randomness=cluster.dice,
        )
        self.engine = Engine(
            store=store,
            clock=clock,
            ownership=self.ownership,
            carrier=NoCarrier(),
            spawn=self._spawn,
            settings=EngineSettings(),
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def start(self, after: float) -> None:
        await asyncio.sleep(after)
        await self.engine.start()

    def kill(self) -> list[asyncio.Task[None]]:
        """Like kill -9: nothing is finished, nothing is released. Returns the tasks that are about to end."""
        ended = list(self.tasks)
        for task in ended:
            task.cancel()
        return ended


@dataclass(frozen=True, slots=True)
class Phase:
    what: str
    seconds: float
    calls: Counter[str]
    oldest_lease: float
    """How long ago the last renewal of any instance was, at most."""

    def figures(self) -> list[Figure]:
        figures = [(f"{self.what}: time", "s", self.seconds), (f"{self.what}: oldest lease", "s", self.oldest_lease)]
        figures.append((f"{self.what}: calls to the store", "", float(self.calls.total())))
        figures += [(f"{self.what}: of them {verb}", "", float(n)) for verb, n in self.calls.most_common()]
        return [
            Figure(benchmark="cluster, simulated", what=what, unit=unit, measured=value)
            for what, unit, value in figures
        ]


class Cluster:
    def __init__(self, loop: SimulatedLoop, *, shards: int, score_seconds: float) -> None:
        self.loop = loop
        self.shards = tuple(range(shards))
        self.score_seconds = score_seconds
        self.dice = random.Random(0)
        self.store: Store = MemoryStore(SimulatedClock(loop))
        self.calls: Counter[str] = Counter()
        self.placements: dict[tuple[str, ...], Placement] = {}
        self.members: list[Member] = []

    async def phase(self, what: str, until: Callable[[], Awaitable[bool]]) -> Phase:
        self.calls.clear()
        began, oldest = self.loop.time(), 0.0
        while not await until():
            await asyncio.sleep(LOOK_SECONDS)
            now = self.loop.time()
            leases = [now - member.ownership.renewed_at for member in self.members if member.ownership.fences]
            oldest = max([oldest, *leases])
            if now - began > PATIENCE_SECONDS:
                raise RuntimeError(f"Expected the cluster to settle within {PATIENCE_SECONDS:.0f} s, got none")
        return Phase(what, self.loop.time() - began, self.calls.copy(), oldest)

    async def has_settled(self) -> bool:
        """Every shard belongs to the instance that it should belong to, by what all of them and the store say."""
        alive = {member.ownership.instance for member in self.members}
        if sum(len(member.ownership.fences) for member in self.members) != len(self.shards):
            return False
        if not all(member.ownership.has_settled(alive) for member in self.members):
            return False
        return all(shard is not None and shard.owner in alive for shard in await self.store.shards(self.shards))


async def _simulation(loop: SimulatedLoop, *, shards: int, instances: int, score_seconds: float) -> list[Phase]:
    cluster = Cluster(loop, shards=shards, score_seconds=score_seconds)
    cluster.members = [Member(f"instance-{number:03}", cluster) for number in range(instances)]
    starts = [asyncio.create_task(member.start(cluster.dice.random() * START_SECONDS)) for member in cluster.members]
    phases = [await cluster.phase(f"{instances} join", cluster.has_settled)]
    await asyncio.gather(*starts)
    phases.append(await cluster.phase(f"{IDLE_SECONDS:.0f} s of idleness", _after(loop, IDLE_SECONDS)))
    lost = [task for member in cluster.members[:LOST] for task in member.kill()]
    del cluster.members[:LOST]
    phases.append(await cluster.phase(f"{LOST} are lost", cluster.has_settled))
    ended = [task for member in cluster.members for task in member.kill()]
    await asyncio.gather(*lost, *ended, return_exceptions=True)
    return phases


def _after(loop: SimulatedLoop, seconds: float) -> Callable[[], Awaitable[bool]]:
    ends_at = loop.time() + seconds

    async def is_over() -> bool:
        return loop.time() >= ends_at

    return is_over
